/* A phrase, and an iteration behind or around it, as one cycle. The phrase was observed. The
 * iteration was not, but another repetition of it was: its accesses are moved to where they
 * would be. */
#ifndef EBB_MODEL_SPLICE_H
#define EBB_MODEL_SPLICE_H

#include "model/windows.h"

/* Numbers are of allocations of the stream. The iteration made `left_at` of its allocations
 * directly before the phrase, and its last `resumed_by` ones directly behind it. If both add up
 * to an iteration, the phrase is within it. A whole iteration follows. */
struct ebb_splice {
    size_t period;        /* allocations of an iteration */
    size_t first, middle; /* the phrase: [first, middle) */
    size_t left_at, resumed_by;
    struct ebb_window observed; /* events of the repetition whose accesses are known */
};

/* Builds the model of the phrase and of what follows it, until the iteration is where the phrase
 * began. Its times exclude the program's waits. If uses are announced, the iteration has the times
 * of the observed one. Errors as in ebb__model_build(). O(events of the stream). */
EBB_NODISCARD enum ebb_status ebb__splice_model(const struct ebb_stream *stream,
                                                const struct ebb_splice *splice,
                                                struct ebb_model *model, struct ebb_error *error);

#endif
