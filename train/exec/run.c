/* Follows a schedule: for each step acquire, compute, release, discard. */
#include "train/base/fail.h"
#include "train/data/random.h"
#include "train/exec/exec.h"
#include "train/op/optimizer.h"

#include "ebb/forecast.h"

#include <math.h>

/* Of Adam: the values of its paper (Kingma, Ba, 2015). */
#define BETA_1 0.9f
#define BETA_2 0.999f
#define EPSILON 1e-8f

/* Uses of one step: the buffers of an operation, or parameter, gradient and states. */
#define USES_MOST EBB_OP_BUFFERS_MAX

/* Is the storage held all the time? A static mode trains so. An evaluation has the persistent
 * storages in common with the training, under the same numbers. */
static bool is_held(const struct ebb_run *run, uint32_t storage)
{
    return run->exec->are_held &&
           (run->schedule == &run->exec->train || storage < run->exec->train.persistent_count);
}

static enum ebb_status release(struct ebb_run *run, const struct ebb_step *step, uint32_t count,
                               struct ebb_error *error)
{
    enum ebb_status first = EBB_OK;
    for (uint32_t h = 0; h < count; h++) {
        uint32_t slot = run->schedule->holds.items[step->first_hold + h].slot;
        if (is_held(run, run->schedule->slots.items[slot].storage))
            continue;
        enum ebb_status status =
            ebb_tensor_release(run->exec->context, run->tensors[slot], first ? NULL : error);
        if (!first)
            first = status;
    }
    return first;
}

/* Acquires all holds, or none. */
static enum ebb_status acquire(struct ebb_run *run, const struct ebb_step *step,
                               void *addresses[USES_MOST], struct ebb_error *error)
{
    const struct ebb_schedule *schedule = run->schedule;
    for (uint32_t h = 0; h < step->hold_count; h++) {
        const struct ebb_hold *hold = &schedule->holds.items[step->first_hold + h];
        uint32_t storage = schedule->slots.items[hold->slot].storage;
        if (is_held(run, storage)) {
            addresses[h] = run->exec->held[storage];
            continue;
        }
        enum ebb_status status = ebb_tensor_acquire(run->exec->context, run->tensors[hold->slot],
                                                    hold->use, &addresses[h], error);
        if (status) {
            release(run, step, h, NULL);
            return status;
        }
    }
    return EBB_OK;
}

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

static enum ebb_status compute(struct ebb_run *run, const struct ebb_step *step,
                               void *const *addresses, struct ebb_error *error)
{
    if (run->is_dry)
        return ebb_dry_run_elapse(run->exec->context, step->estimate_ns, error);
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

static enum ebb_status discard(struct ebb_run *run, const struct ebb_step *step,
                               struct ebb_error *error)
{
    const struct ebb_schedule *schedule = run->schedule;
    for (uint32_t d = 0; d < step->discard_count; d++) {
        uint32_t storage = schedule->discards.items[step->first_discard + d];
        if (is_held(run, storage))
            continue;
        ebb_tensor tensor = run->tensors[schedule->storages.items[storage].slot];
        enum ebb_status status = ebb_tensor_discard(run->exec->context, tensor, error);
        if (status)
            return status;
    }
    return EBB_OK;
}

static enum ebb_status run_step(struct ebb_run *run, const struct ebb_step *step,
                                struct ebb_error *error)
{
    void *addresses[USES_MOST];
    if (!step->is_left_out) {
        enum ebb_status status = acquire(run, step, addresses, error);
        if (status)
            return status;
        status = compute(run, step, addresses, error);
        enum ebb_status released = release(run, step, step->hold_count, status ? NULL : error);
        if (status || released)
            return status ? status : released;
    }
    return discard(run, step, error);
}

static enum ebb_status mark(struct ebb_run *run, uint32_t number, struct ebb_error *error)
{
    const struct ebb_step *step = &run->schedule->steps.items[number];
    bool is_new_phase = number == 0 || step->phase != step[-1].phase;
    if (is_new_phase) {
        enum ebb_status status = ebb_phase_begin(run->exec->context, step->phase, error);
        if (status)
            return status;
    }
    if (is_new_phase || step->layer != step[-1].layer)
        return ebb_layer_begin(run->exec->context, step->layer, error);
    return EBB_OK;
}

static enum ebb_status transfer(struct ebb_run *run, const struct ebb_transfer_at *at,
                                struct ebb_error *error)
{
    struct ebb_context *context = run->exec->context;
    if (at->transfer == EBB_TRANSFER_BARRIER)
        return ebb_barrier(context, error);
    ebb_tensor tensor = run->tensors[run->schedule->storages.items[at->storage].slot];
    return at->transfer == EBB_TRANSFER_EVICT ? ebb_tensor_evict(context, tensor, error)
                                              : ebb_tensor_prefetch(context, tensor, error);
}

enum ebb_status ebb__run(struct ebb_run *run, struct ebb_error *error)
{
    const struct ebb_schedule *schedule = run->schedule;
    uint32_t transfers = 0;
    for (uint32_t number = 0; number < schedule->steps.count; number++) {
        enum ebb_status status = mark(run, number, error);
        for (; !status && transfers < schedule->transfers.count &&
               schedule->transfers.items[transfers].step == number;
             transfers++)
            status = transfer(run, &schedule->transfers.items[transfers], error);
        if (!status)
            status = run_step(run, &schedule->steps.items[number], error);
        if (status)
            return status;
    }
    return EBB_OK;
}
