/* Whole iterations in a stream: what identifies them, where they lie, and what was known while they
 * ran. Not thread-safe. */
#ifndef EBB_MODEL_WINDOWS_H
#define EBB_MODEL_WINDOWS_H

#include "model/stream.h"

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
#endif
