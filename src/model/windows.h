/* Whole iterations in a stream: their identification, their positions, and what was known while
 * they ran. Not thread-safe. */
#ifndef EBB_MODEL_WINDOWS_H
#define EBB_MODEL_WINDOWS_H

#include "model/stream.h"

/* Identifies an iteration: `period_symbols` symbols of the kind, with this hash. The hash is not
 * used in two cases. For marks, each stretch from one mark to the next is an iteration. For
 * interleaving threads, an iteration extends from one allocation of landmark_bytes to the next and
 * has about this many symbols (landmark.h). */
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

/* The template of a repetition, rotated to begin where least memory is live (just before its first
 * symbol). A start must be followed by whole_iterations whole iterations in the stream. A start
 * that costs no iteration is preferred if its load exceeds the least by at most 1 % of the peak. */
struct ebb_template ebb__stream_template(const struct ebb_stream *stream,
                                         const struct ebb_repetition *repetition,
                                         size_t whole_iterations);

/* Finds the first whole iteration at or after *symbol; *symbol becomes the start of the next
 * search. */
bool ebb__stream_next_window(const struct ebb_stream *stream, const struct ebb_template *template,
                             size_t *symbol, struct ebb_window *window);

/* True if accesses were traced in all of it, and no events were lost. */
bool ebb__stream_is_traced(const struct ebb_stream *stream, const struct ebb_window *window);
/* True if accesses were traced in a part of it. */
bool ebb__stream_touches_trace(const struct ebb_stream *stream, const struct ebb_window *window);
/* Whether a plan was in force in all of it, and in a part of it. */
bool ebb__stream_is_planned(const struct ebb_stream *stream, const struct ebb_window *window);
bool ebb__stream_touches_plan(const struct ebb_stream *stream, const struct ebb_window *window);
bool ebb__stream_has_lost(const struct ebb_stream *stream, const struct ebb_window *window);

/* Time from the window's first event to the event behind it. */
uint64_t ebb__stream_window_ns(const struct ebb_stream *stream, const struct ebb_window *window);
#endif
