/* Turns identities of foreign traces, which are reused, into unique blocks. All importers use it.
 *
 * A foreign trace names a block by its address or handle. Here each lifetime gets its own serial.
 * Contradictions are refused: a block that begins twice, ends twice, is used after its end, has two
 * sizes, or an impossible size. Messages name the place, for example a line. */
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
    uint64_t first_place; /* place of its first event */
    uint64_t free_place;  /* place of its free; 0: live */
};

struct ebb_import_events {
    const char *name; /* of the file */
    const char *unit; /* of places: "line", "entry" */
    uint64_t place;   /* of the current record, from 1; set by the importer */
    uint64_t time;    /* of the current record, in the units of the source; set by the importer */
    uint32_t thread;  /* of the current record, 0: unknown; set by the importer */
    uint64_t begin;   /* time of the first event */
    uint64_t live_bytes;
    EBB_VEC(struct ebb_event) events;
    EBB_VEC(struct ebb_import_block) blocks; /* by serial - 1 */
    struct ebb_map serials;                  /* identity -> its newest serial */
    struct ebb_error *error;
};

void ebb__import_events_init(struct ebb_import_events *events, const char *name, const char *unit,
                             struct ebb_error *error);
void ebb__import_events_fini(struct ebb_import_events *events);

/* Reports EBB_ERR_FORMAT, with the place in front of `why`. */
EBB_PRINTF(2, 3)
enum ebb_status ebb__import_fail(struct ebb_import_events *events, const char *why, ...);

/* Parse `text` as a number. EBB_ERR_FORMAT if it is none; the message calls it `what`. Pointers are
 * hexadecimal, with or without a prefix; "(nil)" is 0. */
EBB_NODISCARD enum ebb_status ebb__import_number(struct ebb_import_events *events, const char *what,
                                                 struct ebb_text text, uint64_t *value);
EBB_NODISCARD enum ebb_status ebb__import_pointer(struct ebb_import_events *events,
                                                  struct ebb_text text, uint64_t *value);

/* The block `id` is allocated. */
EBB_NODISCARD enum ebb_status ebb__import_alloc(struct ebb_import_events *events, uint64_t id,
                                                uint64_t size_bytes);
/* The block is freed. Pass EBB_IMPORT_SIZE_UNKNOWN if the source has no size. A block without an
 * earlier event existed before the trace; its free is ignored if its size is unknown. */
EBB_NODISCARD enum ebb_status ebb__import_free(struct ebb_import_events *events, uint64_t id,
                                               uint64_t size_bytes);
/* The block is accessed, and the traced runtime reports that in every iteration. A block without an
 * earlier event existed before the trace. */
EBB_NODISCARD enum ebb_status ebb__import_access(struct ebb_import_events *events, uint64_t id,
                                                 uint64_t size_bytes, enum ebb_access_kind access);
/* Adds a mark with its value. */
EBB_NODISCARD enum ebb_status ebb__import_mark(struct ebb_import_events *events, enum ebb_mark mark,
                                               uint64_t value);

/* Moves the events to *trace. Their times begin at 0, in units of `unit_ns` nanoseconds.
 * EBB_ERR_FORMAT if there is no event. */
EBB_NODISCARD enum ebb_status ebb__import_finish(struct ebb_import_events *events, uint64_t unit_ns,
                                                 struct ebb_trace *trace);

#endif
