/* Follows a schedule: for each step acquire, compute, release, discard. */
#include "train/exec/exec.h"

#include "ebb/forecast.h"

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
                               void *addresses[EBB_STEP_USES_MOST], struct ebb_error *error)
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
    void *addresses[EBB_STEP_USES_MOST];
    if (!step->is_left_out) {
        enum ebb_status status = acquire(run, step, addresses, error);
        if (status)
            return status;
        status = run->is_dry ? ebb_dry_run_elapse(run->exec->context, step->estimate_ns, error)
                             : ebb__step_compute(run, step, addresses, error);
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
