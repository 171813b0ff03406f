/* From identities that are used again to blocks that are not: what all importers share.
 *
 * A foreign trace names a block by its address or handle. Here each lifetime of one gets a serial
 * of its own, and what a lifetime cannot be is refused: begun twice, ended twice, used after its
 * end, of two sizes, of an impossible size. Messages name the place: a line, or a byte. */
#ifndef EBB_LAB_IMPORT_EVENTS_H
#define EBB_LAB_IMPORT_EVENTS_H

#include "base/map.h"
#include "base/text.h"
#include "base/vec.h"
#include "trace/event.h"
#include "trace/file.h"

#define EBB_IMPORT_SIZE_UNKNOWN UINT64_MAX

struct ebb_import_block {
    uint64_t size_bytes;
    uint64_t first_place; /* where it was met first */
    uint64_t free_place;  /* 0: live */
};

struct ebb_import_events {
    const char *name; /* of the file */
    const char *unit; /* of places: "line", "entry" */
    uint64_t place;   /* of what is read now, from 1; set by the importer */
    uint64_t time;    /* of what is read now, in the units of the source; likewise */
    uint32_t thread;  /* likewise; 0 where the source does not say */
    uint64_t begin;   /* time of the first event */
    uint64_t live_bytes;
    EBB_VEC(struct ebb_event) events;
    EBB_VEC(struct ebb_import_block) blocks; /* serial - 1 */
    struct ebb_map serials;                  /* identity -> its newest serial */
    struct ebb_error *error;
};

void ebb__import_events_init(struct ebb_import_events *events, const char *name, const char *unit,
                             struct ebb_error *error);
void ebb__import_events_fini(struct ebb_import_events *events);

/* EBB_ERR_FORMAT, with the place in front of `why`. */
EBB_PRINTF(2, 3)
enum ebb_status ebb__import_fail(struct ebb_import_events *events, const char *why, ...);

/* The number that `text` is, else EBB_ERR_FORMAT, which calls it `what`. Pointers may be hexadecimal
 * without a prefix, "(nil)" is 0. */
EBB_NODISCARD enum ebb_status ebb__import_number(struct ebb_import_events *events, const char *what,
                                                 struct ebb_text text, uint64_t *value);
EBB_NODISCARD enum ebb_status ebb__import_pointer(struct ebb_import_events *events,
                                                  struct ebb_text text, uint64_t *value);

/* The block `id` begins. */
EBB_NODISCARD enum ebb_status ebb__import_alloc(struct ebb_import_events *events, uint64_t id,
                                                uint64_t size_bytes);
/* It ends; size EBB_IMPORT_SIZE_UNKNOWN where the source does not say. A block that was never met
 * existed before the trace: it ends if its size is known, else it is passed over. */
EBB_NODISCARD enum ebb_status ebb__import_free(struct ebb_import_events *events, uint64_t id,
                                               uint64_t size_bytes);
/* It is used, and the traced runtime says so in every iteration; one that was never met existed
 * before the trace. */
EBB_NODISCARD enum ebb_status ebb__import_access(struct ebb_import_events *events, uint64_t id,
                                                 uint64_t size_bytes, enum ebb_access_kind access);
/* No block: a mark with its value. */
EBB_NODISCARD enum ebb_status ebb__import_mark(struct ebb_import_events *events, enum ebb_mark mark,
                                               uint64_t value);

/* Hand the events over to *trace, with times from 0 in steps of `unit_ns` nanoseconds. Without any
 * event: EBB_ERR_FORMAT. */
EBB_NODISCARD enum ebb_status ebb__import_finish(struct ebb_import_events *events, uint64_t unit_ns,
                                                 struct ebb_trace *trace);

#endif
