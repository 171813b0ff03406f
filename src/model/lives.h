/* Micro-batches: do all iterations of a template free what they allocate in the same way?
 *
 * A training that accumulates gradients repeats its micro-batch. The gradients of the first one
 * stay until the step ends, those of the others are added to them and freed at once. So the
 * micro-batch is no iteration: its blocks have several lifetimes, and a plan for it has the wrong
 * ones. */
#ifndef EBB_MODEL_LIVES_H
#define EBB_MODEL_LIVES_H

#include "model/windows.h"

/* True if two things hold. Iterations of the template make up half of the symbols [first_symbol,
 * last_symbol). And blocks of successive ones have other lifetimes: on average more than an
 * accumulated_divisor-th (tuning.def) of the peak. False if between two of them more is made that
 * lasts than differs: each fold of a validation makes a new model. The template is exact. At most
 * 16 iterations count. O(symbols log symbols). */
bool ebb__lives_differ(const struct ebb_stream *stream, const struct ebb_template *template,
                       size_t first_symbol, size_t last_symbol);

#endif
