/* Phases of a training iteration.
 *
 *     ebb_phase_begin(context, EBB_PHASE_BACKWARD, &error);
 *
 * The values stand in traces (docs/formats/trace.md). */
#ifndef EBB_PHASE_H
#define EBB_PHASE_H

#ifdef __cplusplus
extern "C" {
#endif

enum ebb_phase {
    EBB_PHASE_NONE = 0, /* none of these */
    EBB_PHASE_FORWARD = 1,
    EBB_PHASE_BACKWARD = 2,
    EBB_PHASE_UPDATE = 3, /* the optimizer changes the weights */
    EBB_PHASE_EVALUATE = 4,
    EBB_PHASE_COUNT
};

#ifdef __cplusplus
}
#endif

#endif
