/* The third pass: what each step acquires and discards, and the figures. */
#include "train/exec/schedule.h"

#include "train/base/fail.h"

/* Uses of one storage within a step are one hold. An operation that works in place reads and writes
 * it. One that hands a copy on touches nothing if source and target are the same. */
static enum ebb_use merged_use(const struct ebb_schedule *schedule, const struct ebb_step *step,
                               const struct ebb_step_use *use, enum ebb_use held)
{
    const struct ebb_op *op = schedule->graph->ops[step->layer];
    bool is_copy = step->kind == EBB_STEP_RUN && use->use == EBB_USE_OVERWRITE &&
                   op->buffers[use->buffer].is_copy;
    if (is_copy || use->use == held)
        return held;
    return EBB_USE_UPDATE;
}

static bool hold_step(struct ebb_schedule *schedule, struct ebb_step *step)
{
    step->first_hold = schedule->holds.count;
    step->hold_count = 0;
    for (uint32_t u = step->first_use; u < step->first_use + step->use_count; u++) {
        struct ebb_step_use *use = &schedule->uses.items[u];
        const struct ebb_slot *slot = &schedule->slots.items[use->slot];
        uint32_t h = 0;
        for (; h < step->hold_count; h++) {
            struct ebb_hold *hold = &schedule->holds.items[step->first_hold + h];
            const struct ebb_slot *other = &schedule->slots.items[hold->slot];
            if (other->storage != slot->storage)
                continue;
            hold->use = merged_use(schedule, step, use, hold->use);
            if (slot->bytes > other->bytes)
                hold->slot = use->slot;
            break;
        }
        use->hold = h;
        if (h < step->hold_count)
            continue;
        struct ebb_hold hold = {.slot = use->slot, .use = use->use};
        if (!ebb__list_push(&schedule->holds, hold))
            return false;
        step->hold_count++;
    }
    return true;
}

/* What a step uses for the last time. Storages are found by its holds. */
static bool discard_after(struct ebb_schedule *schedule, uint32_t number)
{
    struct ebb_step *step = &schedule->steps.items[number];
    step->first_discard = schedule->discards.count;
    for (uint32_t h = step->first_hold; h < step->first_hold + step->hold_count; h++) {
        uint32_t storage = schedule->slots.items[schedule->holds.items[h].slot].storage;
        const struct ebb_storage *used = &schedule->storages.items[storage];
        if (used->is_persistent || used->last_step != number)
            continue;
        if (!ebb__list_push(&schedule->discards, storage))
            return false;
        step->discard_count++;
    }
    return true;
}

static void measure(struct ebb_schedule *schedule)
{
    uint64_t live_bytes = 0;
    for (uint32_t s = 0; s < schedule->storages.count; s++) {
        schedule->static_bytes += schedule->storages.items[s].bytes;
        if (schedule->storages.items[s].is_persistent)
            live_bytes += schedule->storages.items[s].bytes;
    }
    for (uint32_t number = 0; number < schedule->steps.count; number++) {
        const struct ebb_step *step = &schedule->steps.items[number];
        uint64_t held_bytes = 0;
        for (uint32_t h = step->first_hold; h < step->first_hold + step->hold_count; h++) {
            uint32_t slot = schedule->holds.items[h].slot;
            const struct ebb_storage *storage =
                &schedule->storages.items[schedule->slots.items[slot].storage];
            held_bytes += storage->bytes;
            if (!storage->is_persistent &&
                schedule->slots.items[storage->slot].first_step == number)
                live_bytes += storage->bytes;
        }
        if (live_bytes > schedule->peak_bytes)
            schedule->peak_bytes = live_bytes;
        if (held_bytes > schedule->working_bytes) {
            schedule->working_bytes = held_bytes;
            schedule->working_layer = step->layer;
        }
        for (uint32_t d = step->first_discard; d < step->first_discard + step->discard_count; d++)
            live_bytes -= schedule->storages.items[schedule->discards.items[d]].bytes;
    }
}

enum ebb_status ebb__schedule_hold(struct ebb_schedule *schedule, struct ebb_error *error)
{
    bool is_good = true;
    for (uint32_t number = 0; is_good && number < schedule->steps.count; number++)
        is_good =
            hold_step(schedule, &schedule->steps.items[number]) && discard_after(schedule, number);
    if (!is_good)
        return ebb__train_fail_memory(error, schedule->graph->net->name);
    measure(schedule);
    return EBB_OK;
}
