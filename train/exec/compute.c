/* Computes one step. */
#include "train/data/random.h"
#include "train/exec/exec.h"
#include "train/op/optimizer.h"

#include <math.h>

/* Of Adam: the values of its paper (Kingma, Ba, 2015). */
#define BETA_1 0.9f
#define BETA_2 0.999f
#define EPSILON 1e-8f

static void fill(struct ebb_run *run, void *const *addresses)
{
    struct ebb_exec *exec = run->exec;
    if (run->schedule->options.is_training)
        ebb__data_batch(exec->data, run->batch, addresses[0], addresses[1]);
    else
        ebb__data_test_batch(exec->data, run->batch, addresses[0], addresses[1]);
}

static enum ebb_status run_op(struct ebb_run *run, const struct ebb_step *step,
                              void *const *addresses, struct ebb_error *error)
{
    struct ebb_op *op = run->exec->graph.ops[step->layer];
    void *buffers[EBB_OP_BUFFERS_MAX] = {NULL};
    for (uint32_t u = 0; u < step->use_count; u++) {
        const struct ebb_step_use *use = &run->schedule->uses.items[step->first_use + u];
        buffers[use->buffer] = addresses[use->hold];
    }
    struct ebb_op_call call = {.seed = ebb__random_at(run->exec->options.seed, 0, run->batch)};
    enum ebb_status status = ebb_op_run(op, step->op_step, buffers, &call, error);
    bool is_forward = step->op_step == EBB_OP_FORWARD || step->op_step == EBB_OP_EVALUATE;
    if (!status && is_forward && step->layer == run->exec->graph.net->layer_count) {
        run->result.loss = *(const float *)buffers[ebb_op_find(op, EBB_OP_OUTPUT, 0)];
        run->result.correct = *(const int32_t *)buffers[ebb_op_find(op, EBB_OP_OUTPUT, 1)];
    }
    return status;
}

/* It depends on the number of the iteration only, so a resumed training has the same. */
static float rate_of(const struct ebb_exec *exec)
{
    uint64_t every = exec->options.halving_iterations;
    uint64_t halvings = every ? exec->iteration / every : 0;
    return ldexpf(exec->options.rate, halvings < 100 ? -(int)halvings : -100);
}

/* All uses have a storage of their own, so they are the holds. */
static void update(struct ebb_run *run, const struct ebb_step *step, void *const *addresses)
{
    const struct ebb_exec_options *options = &run->exec->options;
    const struct ebb_step_use *parameter = &run->schedule->uses.items[step->first_use];
    const struct ebb_op *op = run->exec->graph.ops[step->layer];
    uint64_t count = run->schedule->slots.items[parameter->slot].bytes / sizeof(float);
    float decay = op->buffers[parameter->buffer].decays ? options->decay : 0;
    if (options->optimizer == EBB_OPTIMIZER_SGD) {
        struct ebb_sgd sgd = {rate_of(run->exec), options->momentum, decay};
        ebb_sgd_step(&sgd, count, addresses[0], addresses[1], addresses[2]);
    } else {
        struct ebb_adam adam = {rate_of(run->exec), BETA_1, BETA_2, EPSILON, decay};
        ebb_adam_step(&adam, run->exec->iteration + 1, count, addresses[0], addresses[1],
                      addresses[2], addresses[3]);
    }
}

enum ebb_status ebb__step_compute(struct ebb_run *run, const struct ebb_step *step,
                                  void *const *addresses, struct ebb_error *error)
{
    switch (step->kind) {
    case EBB_STEP_FILL:
        fill(run, addresses);
        return EBB_OK;
    case EBB_STEP_RUN:
        return run_op(run, step, addresses, error);
    case EBB_STEP_ACCUMULATE: {
        uint32_t slot = run->schedule->uses.items[step->first_use].slot;
        ebb_op_accumulate(run->schedule->slots.items[slot].bytes, addresses[0], addresses[1]);
        return EBB_OK;
    }
    case EBB_STEP_UPDATE:
        update(run, step, addresses);
        return EBB_OK;
    }
    return EBB_ERR_INTERNAL;
}
