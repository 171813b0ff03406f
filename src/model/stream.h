/* A stream of events with what is needed to find iterations in it: symbols, lifetimes, the stretches
 * in which accesses were traced or a plan was in force. The common ground of analyse.h (a whole
 * file) and watch.h (a running program).
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

/* What identifies an iteration: `period_symbols` symbols of the kind, with this hash. For marks
 * each stretch from one to the next is an iteration, and the hash is not used; nor is it where
 * threads interleave: there an iteration goes from one allocation of landmark_bytes to the next and
 * has about so many symbols (landmark.h). */
struct ebb_template {
    enum ebb_symbol_kind kind;
    size_t period_symbols;
    uint64_t hash;
    uint64_t landmark_bytes; /* 0: none */
};

/* One whole iteration: symbols from first_symbol on, events [first, last). */
struct ebb_window {
    size_t first_symbol;
    size_t first, last;
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

/* Events that a repetition covers. */
size_t ebb__stream_coverage(const struct ebb_stream *stream,
                            const struct ebb_repetition *repetition);

/* The template of a repetition, rotated to where least is live (just before its first symbol).
 * whole_iterations: only to places from which so many whole iterations follow in the stream; a
 * place that costs no iteration is preferred where its load is within 1 % of the peak of the
 * least. */
struct ebb_template ebb__stream_template(const struct ebb_stream *stream,
                                         const struct ebb_repetition *repetition,
                                         size_t whole_iterations);

/* The first whole iteration at or after *symbol; *symbol becomes where to look on. */
bool ebb__stream_next_window(const struct ebb_stream *stream, const struct ebb_template *template,
                             size_t *symbol, struct ebb_window *window);

/* Were accesses traced in all of it, with nothing lost? */
bool ebb__stream_is_traced(const struct ebb_stream *stream, const struct ebb_window *window);
/* In a part of it? */
bool ebb__stream_touches_trace(const struct ebb_stream *stream, const struct ebb_window *window);
/* Was a plan in force in all of it? In a part of it? */
bool ebb__stream_is_planned(const struct ebb_stream *stream, const struct ebb_window *window);
bool ebb__stream_touches_plan(const struct ebb_stream *stream, const struct ebb_window *window);
bool ebb__stream_has_lost(const struct ebb_stream *stream, const struct ebb_window *window);

/* Time from the window's first event to the event behind it. */
uint64_t ebb__stream_window_ns(const struct ebb_stream *stream, const struct ebb_window *window);
/* The index into allocs of the block `serial`; false where it was not allocated in the stream. */
bool ebb__stream_find(const struct ebb_stream *stream, uint64_t serial, size_t *alloc);
/* Number of ALLOCs before `event`. */
size_t ebb__stream_allocs_before(const struct ebb_stream *stream, size_t event);

/* Model the window, with the median times of the last untraced iterations of the same template
 * (those without a plan, if there are any), else its own. Of a template with a landmark: the window
 * with what neighbouring traced iterations did (unordered.h). As ebb__model_build() for errors. */
EBB_NODISCARD enum ebb_status ebb__stream_model(const struct ebb_stream *stream,
                                                const struct ebb_template *template,
                                                const struct ebb_window *window,
                                                struct ebb_model *model, struct ebb_error *error);

#endif
