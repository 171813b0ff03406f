/* The second pass: which slots share a storage.
 *
 * Steps are visited in order. A slot that a step writes first may take over a storage:
 *
 * copy      An addition hands its output's gradient to both inputs. All three share one storage, as
 *           long as none of them is changed while another one is still to be read.
 * in place  The operation may write over one of its inputs, and nobody reads that later.
 * Layrub    The gradient of a value takes the space of the value, once nobody reads it, or in place
 *           of it (Jin and others, ACM TACO 2018, intra-layer reuse).
 *
 * Otherwise it has a storage of its own. The static mode does only what Caffe's usual definitions
 * of networks do: ReLU and dropout work in place, and all layers share their workspaces. */
#include "train/exec/schedule.h"

#include "train/base/fail.h"

#include <stdlib.h>

/* Workspaces that one step has at most, if they are shared. More than any operation has. */
#define WORKSPACES_MOST 8

struct reuse {
    struct ebb_schedule *schedule;
    uint32_t *next;  /* [slot]: the next slot on its storage */
    uint32_t *heads; /* [slot]: the first one of a storage; there are no more storages than slots */
    uint32_t workspaces[WORKSPACES_MOST];
    uint32_t workspace_count;
};

static void put_on(struct reuse *reuse, uint32_t slot, uint32_t storage)
{
    struct ebb_schedule *schedule = reuse->schedule;
    struct ebb_slot *placed = &schedule->slots.items[slot];
    struct ebb_storage *at = &schedule->storages.items[storage];
    placed->storage = storage;
    reuse->next[slot] = reuse->heads[storage];
    reuse->heads[storage] = slot;
    if (placed->bytes > at->bytes)
        at->bytes = placed->bytes;
    if (placed->last_step != EBB_NONE && placed->last_step > at->last_step)
        at->last_step = placed->last_step;
}

static bool add_storage(struct reuse *reuse, uint32_t slot)
{
    struct ebb_schedule *schedule = reuse->schedule;
    struct ebb_storage storage = {
        .slot = slot, .is_persistent = ebb__slot_is_persistent(&schedule->slots.items[slot])};
    if (!ebb__list_push(&schedule->storages, storage))
        return false;
    uint32_t added = schedule->storages.count - 1;
    reuse->heads[added] = EBB_NONE;
    put_on(reuse, slot, added);
    return true;
}

/* May `slot` and all that lives on the storage after `step` share it? Slots that are dead by then
 * leave the list, so that it stays short. */
static bool can_share(struct reuse *reuse, uint32_t slot, uint32_t storage, uint32_t step)
{
    const struct ebb_slot *slots = reuse->schedule->slots.items;
    const struct ebb_slot *wanted = &slots[slot];
    uint32_t *link = &reuse->heads[storage];
    while (*link != EBB_NONE) {
        const struct ebb_slot *other = &slots[*link];
        if (other->last_step <= step) {
            *link = reuse->next[*link];
            continue;
        }
        if (other->first_update <= wanted->last_step || wanted->first_update <= other->last_step)
            return false;
        link = &reuse->next[*link];
    }
    return true;
}

static bool take_copy(struct reuse *reuse, const struct ebb_step *step, uint32_t number,
                      const struct ebb_step_use *written)
{
    struct ebb_schedule *schedule = reuse->schedule;
    if (!ebb__mode_is_dynamic(schedule->options.mode) || step->kind != EBB_STEP_RUN ||
        !schedule->graph->ops[step->layer]->buffers[written->buffer].is_copy)
        return false;
    uint32_t gradient = schedule->gradient_slots[step->layer];
    uint32_t storage = schedule->slots.items[gradient].storage;
    if (schedule->slots.items[written->slot].bytes > schedule->storages.items[storage].bytes ||
        !can_share(reuse, written->slot, storage, number))
        return false;
    put_on(reuse, written->slot, storage);
    return true;
}

/* Does the step use the storage otherwise than by `a`? */
static bool is_used_beside(const struct ebb_schedule *schedule, const struct ebb_step *step,
                           uint32_t storage, uint32_t a)
{
    for (uint32_t u = step->first_use; u < step->first_use + step->use_count; u++) {
        uint32_t slot = schedule->uses.items[u].slot;
        if (slot != a && schedule->slots.items[slot].storage == storage)
            return true;
    }
    return false;
}

/* May an operation write `written` in place of `read`, as far as the mode is concerned? */
static bool works_in_place(const struct ebb_schedule *schedule, uint32_t layer, uint32_t written,
                           uint32_t read)
{
    enum ebb_layer_kind kind = schedule->graph->net->layers[layer].kind;
    enum ebb_mode mode = schedule->options.mode;
    if (ebb__mode_is_dynamic(mode) || kind == EBB_LAYER_RELU || kind == EBB_LAYER_DROPOUT)
        return true;
    const struct ebb_slot *gradient = &schedule->slots.items[written];
    return (mode == EBB_MODE_INTRA || mode == EBB_MODE_HYBRID) &&
           gradient->role == EBB_SLOT_GRADIENT && schedule->value_slots[gradient->layer] == read;
}

static bool take_place(struct reuse *reuse, const struct ebb_step *step, uint32_t number,
                       const struct ebb_step_use *written)
{
    struct ebb_schedule *schedule = reuse->schedule;
    if (step->kind != EBB_STEP_RUN)
        return false;
    const struct ebb_op_buffer *buffer =
        &schedule->graph->ops[step->layer]->buffers[written->buffer];
    for (uint32_t u = step->first_use; u < step->first_use + step->use_count; u++) {
        const struct ebb_step_use *use = &schedule->uses.items[u];
        if (use->slot == written->slot || !(buffer->may_replace >> use->buffer & 1) ||
            !works_in_place(schedule, step->layer, written->slot, use->slot))
            continue;
        uint32_t storage = schedule->slots.items[use->slot].storage;
        if (storage == EBB_NONE)
            continue;
        const struct ebb_storage *taken = &schedule->storages.items[storage];
        if (taken->is_persistent || taken->last_step != number ||
            taken->bytes < schedule->slots.items[written->slot].bytes ||
            is_used_beside(schedule, step, storage, use->slot))
            continue;
        put_on(reuse, written->slot, storage);
        return true;
    }
    return false;
}

static bool take_value(struct reuse *reuse, uint32_t number, uint32_t slot)
{
    struct ebb_schedule *schedule = reuse->schedule;
    const struct ebb_slot *gradient = &schedule->slots.items[slot];
    enum ebb_mode mode = schedule->options.mode;
    if ((mode != EBB_MODE_INTRA && mode != EBB_MODE_HYBRID) || gradient->role != EBB_SLOT_GRADIENT)
        return false;
    uint32_t storage = schedule->slots.items[schedule->value_slots[gradient->layer]].storage;
    const struct ebb_storage *taken = &schedule->storages.items[storage];
    if (taken->last_step >= number || taken->bytes < gradient->bytes)
        return false;
    /* A value that backward does not read has been discarded long ago. To keep its space until now
     * would cost memory, unless all memory is kept anyway. */
    if (!ebb__mode_is_static(mode) &&
        schedule->steps.items[taken->last_step].phase != EBB_PHASE_BACKWARD)
        return false;
    put_on(reuse, slot, storage);
    return true;
}

/* Each workspace of a step has one of the shared ones. `order` counts them within the step. */
static bool take_workspace(struct reuse *reuse, uint32_t slot, uint32_t *order)
{
    if (reuse->schedule->slots.items[slot].role != EBB_SLOT_WORKSPACE ||
        !ebb__mode_is_static(reuse->schedule->options.mode) || *order >= WORKSPACES_MOST)
        return false;
    uint32_t at = (*order)++;
    if (at < reuse->workspace_count) {
        put_on(reuse, slot, reuse->workspaces[at]);
        return true;
    }
    if (!add_storage(reuse, slot))
        return false;
    reuse->workspaces[reuse->workspace_count++] = reuse->schedule->slots.items[slot].storage;
    return true;
}

static bool visit(struct reuse *reuse, uint32_t number)
{
    struct ebb_schedule *schedule = reuse->schedule;
    struct ebb_step *step = &schedule->steps.items[number];
    uint32_t workspaces = 0;
    bool writes_gradients = step->kind == EBB_STEP_RUN && step->op_step == EBB_OP_BACKWARD_DATA;
    bool copies_only = writes_gradients;
    for (uint32_t u = step->first_use; u < step->first_use + step->use_count; u++) {
        struct ebb_step_use written = schedule->uses.items[u];
        if (schedule->slots.items[written.slot].storage != EBB_NONE)
            continue;
        bool is_copy = take_copy(reuse, step, number, &written);
        copies_only = copies_only && is_copy;
        if (!is_copy && !take_value(reuse, number, written.slot) &&
            !take_place(reuse, step, number, &written) &&
            !take_workspace(reuse, written.slot, &workspaces) && !add_storage(reuse, written.slot))
            return false;
    }
    step->is_left_out = copies_only;
    return true;
}

enum ebb_status ebb__schedule_reuse(struct ebb_schedule *schedule, struct ebb_error *error)
{
    struct reuse reuse = {.schedule = schedule};
    size_t slots = schedule->slots.count;
    reuse.next = malloc(slots * sizeof *reuse.next);
    reuse.heads = malloc(slots * sizeof *reuse.heads);
    bool is_good = reuse.next && reuse.heads;
    for (uint32_t s = 0; is_good && s < schedule->persistent_count; s++)
        is_good = add_storage(&reuse, s);
    for (uint32_t step = 0; is_good && step < schedule->steps.count; step++)
        is_good = visit(&reuse, step);
    free(reuse.next);
    free(reuse.heads);
    return is_good ? EBB_OK : ebb__train_fail_memory(error, schedule->graph->net->name);
}
