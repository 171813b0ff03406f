/* Optimizers: one update of a parameter from its gradient, element by element.
 *
 * Parameter, gradient and states are flat buffers of `count` floats, padding included. Layouts do
 * not matter, since parameter and gradient have the same. States begin as zeros. No function fails,
 * and each element is computed in the same way wherever it is. */
#ifndef EBB_TRAIN_OPTIMIZER_H
#define EBB_TRAIN_OPTIMIZER_H

#include <stdint.h>

struct ebb_sgd {
    float rate;
    float momentum; /* 0: `velocity` is not used and may be NULL */
    float decay;    /* L2 penalty: decay * parameter is added to the gradient. 0 for parameters
                       whose `decays` is false */
};
/* velocity = momentum * velocity + gradient + decay * parameter
 * parameter -= rate * velocity */
void ebb_sgd_step(const struct ebb_sgd *sgd, uint64_t count, float *parameter,
                  const float *gradient, float *velocity);

struct ebb_adam {
    float rate;
    float beta1;   /* usually 0.9 */
    float beta2;   /* usually 0.999 */
    float epsilon; /* usually 1e-8 */
    float decay;   /* decoupled (AdamW): parameter -= rate * decay * parameter */
};
/* `step` counts from 1. `mean` and `square` are the first and second moments. */
void ebb_adam_step(const struct ebb_adam *adam, uint64_t step, uint64_t count, float *parameter,
                   const float *gradient, float *mean, float *square);

#endif
