#include "train/op/optimizer.h"

#include "train/op/kernels.h"

#include <math.h>

struct sgd_loop {
    struct ebb_sgd sgd;
    float *parameter;
    const float *gradient;
    float *velocity;
};

EBB_KERNEL
static void sgd_range(const struct ebb_sgd *sgd, uint64_t count, float *parameter,
                      const float *gradient, float *velocity)
{
    float rate = sgd->rate, momentum = sgd->momentum, decay = sgd->decay;
    for (uint64_t i = 0; i < count; i++) {
        float now = momentum * velocity[i] + (gradient[i] + decay * parameter[i]);
        velocity[i] = now;
        parameter[i] -= rate * now;
    }
}

EBB_KERNEL
static void descend_range(const struct ebb_sgd *sgd, uint64_t count, float *parameter,
                          const float *gradient)
{
    float rate = sgd->rate, decay = sgd->decay;
    for (uint64_t i = 0; i < count; i++)
        parameter[i] -= rate * (gradient[i] + decay * parameter[i]);
}

static void sgd_work(void *context, uint64_t first, uint64_t last)
{
    const struct sgd_loop *loop = context;
    if (loop->sgd.momentum != 0.0f)
        sgd_range(&loop->sgd, last - first, loop->parameter + first, loop->gradient + first,
                  loop->velocity + first);
    else
        descend_range(&loop->sgd, last - first, loop->parameter + first, loop->gradient + first);
}

void ebb_sgd_step(const struct ebb_sgd *sgd, uint64_t count, float *parameter,
                  const float *gradient, float *velocity)
{
    struct sgd_loop loop = {*sgd, parameter, gradient, velocity};
    ebb__range_each(count, EBB__RANGE, sgd_work, &loop);
}

struct adam_loop {
    struct ebb_adam adam;
    float rate;   /* with the correction of the first moment */
    float square; /* correction of the second */
    float *parameter;
    const float *gradient;
    float *moments[2];
};

EBB_KERNEL
static void adam_range(const struct adam_loop *loop, uint64_t count, float *parameter,
                       const float *gradient, float *mean, float *square)
{
    float beta1 = loop->adam.beta1, beta2 = loop->adam.beta2, epsilon = loop->adam.epsilon;
    float keep = 1.0f - loop->adam.rate * loop->adam.decay;
    float rate = loop->rate, correction = loop->square;
    for (uint64_t i = 0; i < count; i++) {
        mean[i] = beta1 * mean[i] + (1.0f - beta1) * gradient[i];
        square[i] = beta2 * square[i] + (1.0f - beta2) * gradient[i] * gradient[i];
        parameter[i] =
            keep * parameter[i] - rate * mean[i] / (sqrtf(square[i] * correction) + epsilon);
    }
}

static void adam_work(void *context, uint64_t first, uint64_t last)
{
    const struct adam_loop *loop = context;
    adam_range(loop, last - first, loop->parameter + first, loop->gradient + first,
               loop->moments[0] + first, loop->moments[1] + first);
}

void ebb_adam_step(const struct ebb_adam *adam, uint64_t step, uint64_t count, float *parameter,
                   const float *gradient, float *mean, float *square)
{
    double steps = (double)step;
    struct adam_loop loop = {
        .adam = *adam,
        .rate = (float)((double)adam->rate / (1 - pow((double)adam->beta1, steps))),
        .square = (float)(1 / (1 - pow((double)adam->beta2, steps))),
        .parameter = parameter,
        .gradient = gradient,
        .moments = {mean, square}};
    ebb__range_each(count, EBB__RANGE, adam_work, &loop);
}
