/* A stream of events with the data to find iterations in it: symbols, lifetimes, and stretches with
 * traced accesses or a plan. It is used by analyse.h (a whole file) and watch.h (a running
 * program); windows.h divides it into iterations.
 *
 * Symbols are of four kinds: sizes of allocations; blocks and kinds of accesses (for programs that
 * allocate once); explicit iteration marks; and shapes (shapes.h). Shapes have the numbers of the
 * sizes. A repetition is identified by the hash of one period of symbols. So its iterations are
 * found anywhere: before it was recognised, and after an interruption. Not thread-safe. */
#ifndef EBB_MODEL_STREAM_H
#define EBB_MODEL_STREAM_H

#include "base/vec.h"
#include "model/detect.h"
#include "model/model.h"
#include "model/rolling.h"
#include "model/serials.h"

enum ebb_symbol_kind {
    EBB_SYMBOL_ALLOC,
    EBB_SYMBOL_ACCESS,
    EBB_SYMBOL_MARK,
    EBB_SYMBOL_SHAPE, /* only if they are followed: shapes.h */
    EBB_SYMBOL_KIND_COUNT
};

/* Has the kind a symbol for each ALLOC, so that both kinds number them alike? */
static inline bool ebb__symbol_is_alloc(enum ebb_symbol_kind kind)
{
    return kind == EBB_SYMBOL_ALLOC || kind == EBB_SYMBOL_SHAPE;
}

/* A repetition that the detector announced; it covers symbols [first_symbol, last_symbol). */
struct ebb_repetition {
    enum ebb_symbol_kind kind;
    size_t first_symbol; /* start of the first whole period */
    size_t last_symbol;
    size_t period_symbols;
    size_t found_at_symbol;
};

struct ebb_symbols {
    EBB_VEC(uint32_t) events;          /* the event of each symbol */
    struct ebb_detector *detector;     /* holds the symbols; NULL for marks and shapes */
    const struct ebb_rolling *rolling; /* the detector's */
};

struct ebb_stretch {
    size_t first, last; /* events; last == SIZE_MAX: not yet ended */
};

struct ebb_wait {
    size_t event;         /* the mark at the end of the wait */
    uint64_t sum_ns;      /* of all waits up to this event, and of what observation has cost */
    uint64_t observed_ns; /* of it: the cost of observation */
};

/* Indices of events are below it: they are kept in 32 bits, as there is one for each symbol. */
#define EBB_STREAM_EVENTS UINT32_MAX
#define EBB_NOT_FREED UINT32_MAX

struct ebb_stream_alloc {
    uint32_t event;
    uint32_t free_event; /* event of its FREE; EBB_NOT_FREED: not yet */
};

enum { EBB_STREAM_BEST = 8 }; /* number of repetitions remembered: a limit */

struct ebb_stream {
    struct {
        const struct ebb_event *items;
        size_t count;
    } events;
    EBB_VEC(struct ebb_event) kept; /* storage of the events, unless they were lent */
    bool lent;
    struct ebb_symbols symbols[EBB_SYMBOL_KIND_COUNT];
    EBB_VEC(struct ebb_stream_alloc) allocs;
    struct ebb_serials serials; /* of all allocated blocks: index into allocs */
    struct ebb_rolling *shapes; /* NULL: they are not followed */
    uint64_t shape;             /* of the newest allocation, as far as known */
    size_t marks_from;          /* the symbol from which on marks follow each other */
    EBB_VEC(struct ebb_stretch) traced;
    EBB_VEC(struct ebb_stretch) planned;
    EBB_VEC(struct ebb_wait) waits;
    EBB_VEC(size_t) lost;
    bool has_trace_marks;
    size_t existing_blocks;  /* of a whole trace: blocks older than it, see take() */
    uint64_t existing_bytes; /* their bytes, in live_bytes until they are freed */
    uint64_t live_bytes, peak_bytes;
    struct ebb_repetition best[EBB_STREAM_BEST]; /* the repetitions that cover most events */
    size_t best_count;
    struct ebb_repetition current[EBB_SYMBOL_KIND_COUNT]; /* period_symbols == 0: none */
    bool closed; /* no more events: the last iteration may end at the stream's end */
};

EBB_NODISCARD enum ebb_status ebb__stream_init(struct ebb_stream *stream);
void ebb__stream_fini(struct ebb_stream *stream);

/* Adds a whole trace to an empty stream, which refers to it afterwards, and closes the stream.
 * Accesses do not become symbols here; ebb__stream_take_accesses() does that if needed. Blocks that
 * are accessed or freed without an allocation are older than the trace and count as live from its
 * start. If events were lost, nothing is assumed about such blocks. Errors as in push. */
EBB_NODISCARD enum ebb_status ebb__stream_take(struct ebb_stream *stream,
                                               struct ebb_event_span trace);
EBB_NODISCARD enum ebb_status ebb__stream_take_accesses(struct ebb_stream *stream);
/* Frees what only the search for repetitions needs, which is much of the memory. No events may be
 * added afterwards. */
void ebb__stream_settle(struct ebb_stream *stream);
/* Frees all symbols. The events and the lifetimes of blocks remain. */
void ebb__stream_forget_symbols(struct ebb_stream *stream);

/* Appends an event; a time below the previous one is raised to it. EBB_ERR_FORMAT if no program can
 * have such an event (block 0, or a size, sum or time beyond all machines). EBB_ERR_MEMORY, also
 * from EBB_STREAM_EVENTS events on. After either error only fini is allowed. */
EBB_NODISCARD enum ebb_status ebb__stream_push(struct ebb_stream *stream,
                                               const struct ebb_event *event);

/* The event of a symbol; for the index behind the last symbol, the number of events. */
size_t ebb__stream_event_of(const struct ebb_stream *stream, enum ebb_symbol_kind kind,
                            size_t symbol);
/* The number of events that a repetition covers. */
size_t ebb__stream_coverage(const struct ebb_stream *stream,
                            const struct ebb_repetition *repetition);

/* The index into allocs of the block `serial`. Returns false if it was not allocated in the
 * stream. */
bool ebb__stream_find(const struct ebb_stream *stream, uint64_t serial, size_t *alloc);
/* The number of ALLOCs before `event`. */
size_t ebb__stream_allocs_before(const struct ebb_stream *stream, size_t event);
/* The total time that the program has lost to the runtime before `event`: it waited, or its
 * accesses were observed. O(log waits), like the next. */
uint64_t ebb__stream_lost_ns(const struct ebb_stream *stream, size_t event);
/* The part of it that it waited. */
uint64_t ebb__stream_waited_ns(const struct ebb_stream *stream, size_t event);

#endif
