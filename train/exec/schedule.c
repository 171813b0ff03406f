/* The first pass: which slots there are, and which steps use them in which order.
 *
 * A value that several layers read has several gradients. The first one written is the sum. Each
 * further one is a partial, which an extra step adds to the sum. */
#include "train/exec/schedule.h"

#include "train/base/fail.h"

#include <stdlib.h>
#include <string.h>

/* What the dry run takes a step to last. It only weighs steps against each other and against
 * transfers, before the first iteration is measured. About two cores of a server. Arbitrary. */
#define ESTIMATED_FLOPS_A_NS 50
#define ESTIMATED_BYTES_A_NS 10

bool ebb__mode_is_static(enum ebb_mode mode)
{
    return mode == EBB_MODE_STATIC || mode == EBB_MODE_INTRA;
}

bool ebb__mode_is_vdnn(enum ebb_mode mode)
{
    return mode == EBB_MODE_VDNN_ALL || mode == EBB_MODE_VDNN_CONV;
}

bool ebb__mode_is_dynamic(enum ebb_mode mode)
{
    return mode == EBB_MODE_EBB || ebb__mode_is_vdnn(mode);
}

/* Returns the new slot; EBB_NONE: out of memory. */
static uint32_t add_slot(struct ebb_schedule *schedule, enum ebb_slot_role role, uint32_t layer,
                         uint32_t buffer, const char *name, uint64_t bytes)
{
    struct ebb_slot slot = {.role = role,
                            .layer = layer,
                            .buffer = buffer,
                            .name = name,
                            .bytes = bytes,
                            .first_step = EBB_NONE,
                            .last_step = EBB_NONE,
                            .first_update = EBB_NONE,
                            .storage = EBB_NONE};
    return ebb__list_push(&schedule->slots, slot) ? schedule->slots.count - 1 : EBB_NONE;
}

/* Adds a use to the newest step. */
static bool add_use(struct ebb_schedule *schedule, uint32_t slot, uint32_t buffer, enum ebb_use use)
{
    if (slot == EBB_NONE)
        return false;
    struct ebb_slot *used = &schedule->slots.items[slot];
    struct ebb_step *step = &schedule->steps.items[schedule->steps.count - 1];
    uint32_t number = schedule->steps.count - 1;
    if (used->first_step == EBB_NONE)
        used->first_step = number;
    else if (use == EBB_USE_UPDATE && used->first_update == EBB_NONE)
        used->first_update = number;
    used->last_step = number;
    step->use_count++;
    step->estimate_ns += used->bytes / ESTIMATED_BYTES_A_NS;
    struct ebb_step_use added = {.slot = slot, .buffer = buffer, .use = use};
    return ebb__list_push(&schedule->uses, added);
}

static bool add_step(struct ebb_schedule *schedule, enum ebb_step_kind kind, enum ebb_phase phase,
                     uint32_t layer)
{
    struct ebb_step step = {
        .kind = kind, .phase = phase, .layer = layer, .first_use = schedule->uses.count};
    return ebb__list_push(&schedule->steps, step);
}

static enum ebb_slot_role private_role(enum ebb_op_role role)
{
    switch (role) {
    case EBB_OP_PARAMETER:
        return EBB_SLOT_PARAMETER;
    case EBB_OP_STATE:
        return EBB_SLOT_STATE;
    case EBB_OP_SAVED:
        return EBB_SLOT_SAVED;
    case EBB_OP_PARAMETER_GRADIENT:
        return EBB_SLOT_PARAMETER_GRADIENT;
    case EBB_OP_OUTPUT:
        return EBB_SLOT_VALUE;
    default:
        return EBB_SLOT_WORKSPACE;
    }
}

/* The optimizer has its states in the order of the parameters. */
static bool add_optimizer_slots(struct ebb_schedule *schedule, uint32_t layer, uint32_t buffer,
                                uint64_t bytes)
{
    if (schedule->options.optimizer == EBB_OPTIMIZER_SGD)
        return add_slot(schedule, EBB_SLOT_OPTIMIZER, layer, buffer, "velocity", bytes) != EBB_NONE;
    return add_slot(schedule, EBB_SLOT_OPTIMIZER, layer, buffer, "mean", bytes) != EBB_NONE &&
           add_slot(schedule, EBB_SLOT_OPTIMIZER, layer, buffer, "square", bytes) != EBB_NONE;
}

/* Parameters and states first, so that their slots have the same numbers in every schedule. */
static bool add_private_slots(struct ebb_schedule *schedule, bool is_persistent)
{
    for (uint32_t l = 2; l <= schedule->graph->net->layer_count; l++) {
        const struct ebb_op *op = schedule->graph->ops[l];
        for (uint32_t b = 0; b < op->buffer_count; b++) {
            const struct ebb_op_buffer *buffer = &op->buffers[b];
            bool is_shared = buffer->role == EBB_OP_INPUT ||
                             buffer->role == EBB_OP_INPUT_GRADIENT ||
                             buffer->role == EBB_OP_OUTPUT_GRADIENT ||
                             (buffer->role == EBB_OP_OUTPUT && !buffer->index);
            enum ebb_slot_role role = private_role(buffer->role);
            if (is_shared || (role >= EBB_SLOT_PARAMETER) != is_persistent)
                continue;
            uint32_t slot = add_slot(schedule, role, l, b, buffer->name, buffer->desc.bytes);
            if (slot == EBB_NONE)
                return false;
            schedule->buffer_slots[schedule->first_buffers[l] + b] = slot;
            if (role == EBB_SLOT_PARAMETER &&
                !add_optimizer_slots(schedule, l, b, buffer->desc.bytes))
                return false;
        }
    }
    if (is_persistent)
        schedule->persistent_count = schedule->slots.count;
    return true;
}

static const struct ebb_op_desc *value_desc(const struct ebb_graph *graph, uint32_t layer)
{
    return layer == 1 ? &graph->input : ebb_op_output(graph->ops[layer], 0);
}

static bool add_slots(struct ebb_schedule *schedule)
{
    const struct ebb_graph *graph = schedule->graph;
    if (!add_private_slots(schedule, true) || !add_private_slots(schedule, false))
        return false;
    for (uint32_t l = 1; l <= graph->net->layer_count; l++) {
        uint64_t bytes = value_desc(graph, l)->bytes;
        schedule->value_slots[l] = add_slot(schedule, EBB_SLOT_VALUE, l, EBB_NONE, "output", bytes);
        if (schedule->value_slots[l] == EBB_NONE)
            return false;
    }
    schedule->labels_slot =
        add_slot(schedule, EBB_SLOT_VALUE, 1, EBB_NONE, "labels", graph->labels.bytes);
    return schedule->labels_slot != EBB_NONE;
}

/* The slot of a gradient that a layer writes: the sum if it is the first, else a new partial. */
static uint32_t gradient_slot(struct ebb_schedule *schedule, uint32_t of, uint32_t by)
{
    uint64_t bytes = value_desc(schedule->graph, of)->bytes;
    if (schedule->needs_gradient[of] && schedule->gradient_slots[of] == EBB_NONE) {
        schedule->gradient_slots[of] =
            add_slot(schedule, EBB_SLOT_GRADIENT, of, EBB_NONE, "gradient", bytes);
        return schedule->gradient_slots[of];
    }
    return add_slot(schedule, EBB_SLOT_PARTIAL, by, EBB_NONE, "partial", bytes);
}

static uint32_t buffer_slot(struct ebb_schedule *schedule, uint32_t layer, uint32_t b)
{
    const struct ebb_layer *described = &schedule->graph->net->layers[layer];
    const struct ebb_op_buffer *buffer = &schedule->graph->ops[layer]->buffers[b];
    switch (buffer->role) {
    case EBB_OP_INPUT:
        return buffer->index < described->input_count
                   ? schedule->value_slots[described->inputs[buffer->index]]
                   : schedule->labels_slot;
    case EBB_OP_OUTPUT:
        return buffer->index ? schedule->buffer_slots[schedule->first_buffers[layer] + b]
                             : schedule->value_slots[layer];
    case EBB_OP_OUTPUT_GRADIENT:
        return schedule->gradient_slots[layer];
    case EBB_OP_INPUT_GRADIENT:
        return gradient_slot(schedule, described->inputs[buffer->index], layer);
    default:
        return schedule->buffer_slots[schedule->first_buffers[layer] + b];
    }
}

static bool add_run(struct ebb_schedule *schedule, uint32_t layer, enum ebb_op_step op_step,
                    enum ebb_phase phase)
{
    const struct ebb_op *op = schedule->graph->ops[layer];
    if (!add_step(schedule, EBB_STEP_RUN, phase, layer))
        return false;
    struct ebb_step *step = &schedule->steps.items[schedule->steps.count - 1];
    step->op_step = op_step;
    step->estimate_ns = op->flops[op_step] / ESTIMATED_FLOPS_A_NS;
    for (uint32_t b = 0; b < op->buffer_count; b++)
        if (op->buffers[b].use[op_step] &&
            !add_use(schedule, buffer_slot(schedule, layer, b), b, op->buffers[b].use[op_step]))
            return false;
    return true;
}

/* Adds the partials that the newest step has written to their sums. */
static bool add_sums(struct ebb_schedule *schedule, uint32_t layer)
{
    struct ebb_step step = schedule->steps.items[schedule->steps.count - 1];
    const struct ebb_op *op = schedule->graph->ops[layer];
    for (uint32_t u = step.first_use; u < step.first_use + step.use_count; u++) {
        struct ebb_step_use use = schedule->uses.items[u];
        if (schedule->slots.items[use.slot].role != EBB_SLOT_PARTIAL)
            continue;
        uint32_t of = schedule->graph->net->layers[layer].inputs[op->buffers[use.buffer].index];
        if (!schedule->needs_gradient[of])
            continue;
        if (!add_step(schedule, EBB_STEP_ACCUMULATE, EBB_PHASE_BACKWARD, layer) ||
            !add_use(schedule, schedule->gradient_slots[of], EBB_NONE, EBB_USE_UPDATE) ||
            !add_use(schedule, use.slot, EBB_NONE, EBB_USE_READ))
            return false;
    }
    return true;
}

static bool add_backward(struct ebb_schedule *schedule, uint32_t layer)
{
    const struct ebb_op *op = schedule->graph->ops[layer];
    const struct ebb_layer *described = &schedule->graph->net->layers[layer];
    bool has_data = false;
    for (uint32_t i = 0; i < described->input_count; i++)
        has_data = has_data || schedule->needs_gradient[described->inputs[i]];
    if (ebb_op_has(op, EBB_OP_BACKWARD_WEIGHTS) &&
        !add_run(schedule, layer, EBB_OP_BACKWARD_WEIGHTS, EBB_PHASE_BACKWARD))
        return false;
    if (!has_data || !ebb_op_has(op, EBB_OP_BACKWARD_DATA))
        return true;
    return add_run(schedule, layer, EBB_OP_BACKWARD_DATA, EBB_PHASE_BACKWARD) &&
           add_sums(schedule, layer);
}

static bool add_updates(struct ebb_schedule *schedule, uint32_t layer)
{
    const struct ebb_op *op = schedule->graph->ops[layer];
    uint32_t states = schedule->options.optimizer == EBB_OPTIMIZER_SGD ? 1 : 2;
    for (uint32_t b = 0; b < op->buffer_count; b++) {
        if (op->buffers[b].role != EBB_OP_PARAMETER)
            continue;
        int gradient = ebb_op_find(op, EBB_OP_PARAMETER_GRADIENT, op->buffers[b].index);
        if (gradient < 0)
            continue;
        const uint32_t *slots = schedule->buffer_slots + schedule->first_buffers[layer];
        if (!add_step(schedule, EBB_STEP_UPDATE, EBB_PHASE_UPDATE, layer) ||
            !add_use(schedule, slots[b], b, EBB_USE_UPDATE) ||
            !add_use(schedule, slots[gradient], EBB_NONE, EBB_USE_READ))
            return false;
        for (uint32_t i = 1; i <= states; i++)
            if (!add_use(schedule, slots[b] + i, EBB_NONE, EBB_USE_UPDATE))
                return false;
    }
    return true;
}

static bool add_steps(struct ebb_schedule *schedule)
{
    uint32_t layers = schedule->graph->net->layer_count;
    bool is_training = schedule->options.is_training;
    enum ebb_phase phase = is_training ? EBB_PHASE_FORWARD : EBB_PHASE_EVALUATE;
    bool is_good = add_step(schedule, EBB_STEP_FILL, phase, 1) &&
                   add_use(schedule, schedule->value_slots[1], EBB_NONE, EBB_USE_OVERWRITE) &&
                   add_use(schedule, schedule->labels_slot, EBB_NONE, EBB_USE_OVERWRITE);
    for (uint32_t l = 2; is_good && l <= layers; l++)
        is_good = add_run(schedule, l, is_training ? EBB_OP_FORWARD : EBB_OP_EVALUATE, phase);
    for (uint32_t l = layers; is_training && is_good && l >= 2; l--)
        is_good = !schedule->needs_gradient[l] || add_backward(schedule, l);
    for (uint32_t l = 2; is_training && is_good && l <= layers; l++)
        is_good = add_updates(schedule, l);
    return is_good;
}

/* A layer needs the gradient of its output if it has parameters, or lies above a layer that has. */
static void find_gradients(struct ebb_schedule *schedule)
{
    const struct ebb_net *net = schedule->graph->net;
    for (uint32_t l = 1; l <= net->layer_count; l++) {
        schedule->gradient_slots[l] = EBB_NONE;
        schedule->needs_gradient[l] = net->layers[l].parameter_count > 0;
        for (uint32_t i = 0; i < net->layers[l].input_count; i++)
            if (schedule->needs_gradient[net->layers[l].inputs[i]])
                schedule->needs_gradient[l] = true;
    }
}

static bool make_tables(struct ebb_schedule *schedule)
{
    const struct ebb_net *net = schedule->graph->net;
    uint32_t layers = net->layer_count + 1, buffers = 0;
    schedule->value_slots = calloc(layers, sizeof(uint32_t));
    schedule->gradient_slots = calloc(layers, sizeof(uint32_t));
    schedule->first_buffers = calloc(layers, sizeof(uint32_t));
    schedule->needs_gradient = calloc(layers, sizeof(bool));
    if (!schedule->value_slots || !schedule->gradient_slots || !schedule->first_buffers ||
        !schedule->needs_gradient)
        return false;
    for (uint32_t l = 2; l < layers; l++) {
        schedule->first_buffers[l] = buffers;
        buffers += schedule->graph->ops[l]->buffer_count;
    }
    schedule->buffer_slots = calloc(buffers + 1, sizeof(uint32_t));
    return schedule->buffer_slots != NULL;
}

enum ebb_status ebb__schedule_create(const struct ebb_graph *graph,
                                     const struct ebb_schedule_options *options,
                                     struct ebb_schedule *schedule, struct ebb_error *error)
{
    memset(schedule, 0, sizeof *schedule);
    schedule->options = *options;
    schedule->graph = graph;
    if (!make_tables(schedule))
        return ebb__train_fail_memory(error, graph->net->name);
    find_gradients(schedule);
    if (!add_slots(schedule) || !add_steps(schedule))
        return ebb__train_fail_memory(error, graph->net->name);
    enum ebb_status status = ebb__schedule_reuse(schedule, error);
    if (!status)
        status = ebb__schedule_hold(schedule, error);
    return status ? status : ebb__schedule_migrate(schedule, error);
}

void ebb__schedule_destroy(struct ebb_schedule *schedule)
{
    ebb__list_free(&schedule->slots);
    ebb__list_free(&schedule->steps);
    ebb__list_free(&schedule->uses);
    ebb__list_free(&schedule->holds);
    ebb__list_free(&schedule->discards);
    ebb__list_free(&schedule->transfers);
    ebb__list_free(&schedule->storages);
    free(schedule->value_slots);
    free(schedule->gradient_slots);
    free(schedule->first_buffers);
    free(schedule->buffer_slots);
    free(schedule->needs_gradient);
    memset(schedule, 0, sizeof *schedule);
}
