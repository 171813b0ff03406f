/* A stream of events with what is needed to find iterations in it: symbols, lifetimes, the stretches
 * in which accesses were traced or a plan was in force. The common ground of analyse.h (a whole
 * file) and watch.h (a running program); windows.h cuts iterations out of it.
 *
 * Symbols are of three kinds: sizes of allocations, blocks and kinds of accesses (for programs
 * that allocate once), and explicit iteration marks. A repetition is named by the hash of one
 * period of symbols, so that its iterations are found wherever they are, also before it was
 * recognised and after an interruption. Not thread-safe. */
#ifndef EBB_MODEL_STREAM_H
#define EBB_MODEL_STREAM_H

#include "base/map.h"
#include "base/vec.h"
#include "model/detect.h"
#include "model/model.h"
#include "model/rolling.h"

enum ebb_symbol_kind {
    EBB_SYMBOL_ALLOC,
    EBB_SYMBOL_ACCESS,
    EBB_SYMBOL_MARK,
    EBB_SYMBOL_KIND_COUNT
};

/* A repetition that the detector announced; it covers symbols [first_symbol, last_symbol). */
struct ebb_repetition {
    enum ebb_symbol_kind kind;
    size_t first_symbol; /* where the first whole period begins */
    size_t last_symbol;
    size_t period_symbols;
    size_t found_at_symbol;
};

struct ebb_symbols {
    EBB_VEC(size_t) events;            /* where each symbol stands */
    struct ebb_detector *detector;     /* holds the symbols; NULL for marks */
    const struct ebb_rolling *rolling; /* the detector's */
};

struct ebb_stretch {
    size_t first, last; /* events; last == SIZE_MAX: goes on */
};

struct ebb_wait {
    size_t event;    /* the mark at its end */
    uint64_t sum_ns; /* of all waits up to there */
};

struct ebb_stream_alloc {
    size_t event;
    size_t free_event; /* SIZE_MAX: not yet freed */
};

/* Serials of blocks -> indices into allocs. Serials count from 1 as a rule: those that are not far
 * above the number of blocks stand in an array, the others in a map. */
struct ebb_serials {
    EBB_VEC(size_t) dense; /* [serial]: index + 1; 0: none */
    struct ebb_map sparse;
};

enum { EBB_STREAM_BEST = 8 }; /* repetitions remembered: a limit */

struct ebb_stream {
    struct {
        const struct ebb_event *items;
        size_t count;
    } events;
    EBB_VEC(struct ebb_event) kept; /* they stand here, unless they were lent */
    bool lent;
    struct ebb_symbols symbols[EBB_SYMBOL_KIND_COUNT];
    EBB_VEC(struct ebb_stream_alloc) allocs;
    struct ebb_serials serials; /* of all blocks allocated */
    EBB_VEC(struct ebb_stretch) traced;
    EBB_VEC(struct ebb_stretch) planned;
    EBB_VEC(struct ebb_wait) waits;
    EBB_VEC(size_t) lost;
    bool has_trace_marks;
    size_t existing_blocks;  /* of a whole trace: they are older than it, see take() */
    uint64_t existing_bytes; /* theirs, in live_bytes until they are freed */
    uint64_t live_bytes, peak_bytes;
    struct ebb_repetition best[EBB_STREAM_BEST]; /* those that cover most events */
    size_t best_count;
    struct ebb_repetition current[EBB_SYMBOL_KIND_COUNT]; /* period_symbols == 0: none */
    bool closed; /* no more events: the last iteration may end with the stream */
};

EBB_NODISCARD enum ebb_status ebb__stream_init(struct ebb_stream *stream);
void ebb__stream_fini(struct ebb_stream *stream);

/* Take a whole trace into an empty stream, which refers to it from then on, and close the stream.
 * Accesses are not looked at as symbols; ebb__stream_take_accesses() does so where they are needed.
 * Blocks that are accessed or freed without having been allocated existed before the trace and
 * count as live from its start; but not where events were lost: then nobody knows.
 * Errors as of push. */
EBB_NODISCARD enum ebb_status ebb__stream_take(struct ebb_stream *stream,
                                               struct ebb_event_span trace);
EBB_NODISCARD enum ebb_status ebb__stream_take_accesses(struct ebb_stream *stream);

/* Append an event; a time below the one before is raised to it. EBB_ERR_FORMAT where no program has
 * such an event (block 0, or a size, sum or time beyond all machines), EBB_ERR_MEMORY; both leave
 * the stream good for fini only. */
EBB_NODISCARD enum ebb_status ebb__stream_push(struct ebb_stream *stream,
                                               const struct ebb_event *event);

/* The event of a symbol; the number of events for the one behind the last. */
size_t ebb__stream_event_of(const struct ebb_stream *stream, enum ebb_symbol_kind kind,
                            size_t symbol);
/* Events that a repetition covers. */
size_t ebb__stream_coverage(const struct ebb_stream *stream,
                            const struct ebb_repetition *repetition);

/* The index into allocs of the block `serial`; false where it was not allocated in the stream. */
bool ebb__stream_find(const struct ebb_stream *stream, uint64_t serial, size_t *alloc);
/* Number of ALLOCs before `event`. */
size_t ebb__stream_allocs_before(const struct ebb_stream *stream, size_t event);

#endif
