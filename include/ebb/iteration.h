/* Iterations, phases and layers: where the program is in its training.
 *
 *     for (int i = 0; i < iterations; i++) {
 *         ebb_iteration_begin(context, 0, &error);
 *         ebb_phase_begin(context, EBB_PHASE_FORWARD, &error);
 *         for (uint32_t l = 1; l <= layers; l++) {
 *             ebb_layer_begin(context, l, &error);
 *             forward(l);
 *         }
 *         ...
 *         ebb_iteration_end(context, &error);
 *     }
 *
 * After the first iteration Ebb has a plan for the next ones, or for other ones that are alike. It
 * is followed as long as the program does the same. If it does something else, tensors are evicted
 * and fetched without a plan until the next iteration begins. Each kind of iteration (a training
 * step, an evaluation) has a plan of its own.
 *
 * These functions are for one thread at a time. */
#ifndef EBB_ITERATION_H
#define EBB_ITERATION_H

#include "ebb/context.h"
#include "ebb/phase.h"

#ifdef __cplusplus
extern "C" {
#endif

#define EBB_ITERATION_KINDS 8u

/* An iteration of a kind begins. Kinds are numbered by the program, below EBB_ITERATION_KINDS.
 * EBB_ERR_ARGUMENT: one has begun already, or the kind is invalid. */
EBB_API enum ebb_status ebb_iteration_begin(struct ebb_context *context, uint32_t kind,
                                            struct ebb_error *error);

/* The iteration ends. Makes or improves the plan of iterations like it, which takes at most some
 * tenths of a second, and nothing once the plan is final. EBB_ERR_ARGUMENT: none has begun.
 * EBB_ERR_MEMORY: there is no plan. */
EBB_API enum ebb_status ebb_iteration_end(struct ebb_context *context, struct ebb_error *error);

/* A phase, or a layer, begins, and the one before ends. Layers are numbered from 1; 0: none. These
 * marks cost nothing and change no plan of Ebb's own. They are recorded, for policies that know
 * layers. EBB_ERR_ARGUMENT: no iteration has begun, or the value is invalid. */
EBB_API enum ebb_status ebb_phase_begin(struct ebb_context *context, enum ebb_phase phase,
                                        struct ebb_error *error);
EBB_API enum ebb_status ebb_layer_begin(struct ebb_context *context, uint32_t layer,
                                        struct ebb_error *error);

/* Records all following events in a trace file, which `ebb plan`, `ebb compare` and `ebb info`
 * read. The file is complete after ebb_context_destroy(). EBB_ERR_ARGUMENT: a file is being
 * recorded. EBB_ERR_IO. */
EBB_API EBB_NODISCARD enum ebb_status ebb_record(struct ebb_context *context, const char *path,
                                                 struct ebb_error *error);

#ifdef __cplusplus
}
#endif

#endif
