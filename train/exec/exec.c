#include "train/exec/exec.h"

#include "train/base/fail.h"

#include "ebb/forecast.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum ebb_status make(struct ebb_exec *exec, const struct ebb_net *net,
                            struct ebb_error *error)
{
    enum ebb_status status = ebb__graph_create(net, &exec->graph, error);
    struct ebb_schedule_options train = {exec->options.mode, exec->options.optimizer, true};
    if (!status)
        status = ebb__schedule_create(&exec->graph, &train, &exec->train, error);
    struct ebb_schedule_options evaluate = {EBB_MODE_EBB, exec->options.optimizer, false};
    if (!status)
        status = ebb__schedule_create(&exec->graph, &evaluate, &exec->evaluate, error);
    if (status)
        return status;
    exec->train_tensors = calloc(exec->train.slots.count, sizeof(ebb_tensor));
    exec->evaluate_tensors = calloc(exec->evaluate.slots.count, sizeof(ebb_tensor));
    exec->held = calloc(exec->train.storages.count, sizeof(void *));
    if (!exec->train_tensors || !exec->evaluate_tensors || !exec->held)
        return ebb__train_fail_memory(error, net->name);
    return EBB_OK;
}

enum ebb_status ebb__exec_create(const struct ebb_net *net, struct ebb_data *data,
                                 const struct ebb_exec_options *options, struct ebb_exec **exec,
                                 struct ebb_error *error)
{
    struct ebb_exec *made = calloc(1, sizeof *made);
    if (!made)
        return ebb__train_fail_memory(error, net->name);
    made->options = *options;
    made->data = data;
    enum ebb_status status = make(made, net, error);
    if (status)
        ebb__exec_destroy(made);
    else
        *exec = made;
    return status;
}

static void release_all(struct ebb_exec *exec, uint32_t storages)
{
    for (uint32_t s = 0; s < storages; s++)
        ebb_tensor_release(exec->context, exec->train_tensors[exec->train.storages.items[s].slot],
                           NULL);
    exec->are_held = false;
}

void ebb__exec_destroy(struct ebb_exec *exec)
{
    if (!exec)
        return;
    if (exec->are_held)
        release_all(exec, exec->train.storages.count);
    ebb__schedule_destroy(&exec->train);
    ebb__schedule_destroy(&exec->evaluate);
    if (exec->graph.net)
        ebb__graph_destroy(&exec->graph);
    free(exec->train_tensors);
    free(exec->evaluate_tensors);
    free(exec->held);
    free(exec);
}

enum ebb_status ebb__exec_static_bytes(const struct ebb_exec *exec, uint64_t *bytes,
                                       struct ebb_error *error)
{
    struct ebb_schedule schedule;
    struct ebb_schedule_options options = {EBB_MODE_STATIC, exec->options.optimizer, true};
    enum ebb_status status = ebb__schedule_create(&exec->graph, &options, &schedule, error);
    if (!status)
        *bytes = schedule.static_bytes;
    ebb__schedule_destroy(&schedule);
    return status;
}

/* --- tensors ---------------------------------------------------------------------------------- */

static enum ebb_tensor_kind tensor_kind(const struct ebb_slot *slot)
{
    switch (slot->role) {
    case EBB_SLOT_WORKSPACE:
        return EBB_TENSOR_WORKSPACE;
    case EBB_SLOT_GRADIENT:
    case EBB_SLOT_PARTIAL:
    case EBB_SLOT_PARAMETER_GRADIENT:
        return EBB_TENSOR_GRADIENT;
    case EBB_SLOT_PARAMETER:
    case EBB_SLOT_STATE:
        return EBB_TENSOR_PARAMETER;
    case EBB_SLOT_OPTIMIZER:
        return EBB_TENSOR_OPTIMIZER;
    default:
        return EBB_TENSOR_ACTIVATION;
    }
}

/* The first slot of a storage is the tensor, of the size of the largest one. The others are its
 * aliases: the operation knows them by names of their own. */
static enum ebb_status declare(struct ebb_exec *exec, const struct ebb_schedule *schedule,
                               uint32_t number, ebb_tensor *tensors, struct ebb_error *error)
{
    const struct ebb_slot *slot = &schedule->slots.items[number];
    if (slot->storage == EBB_NONE)
        return EBB_OK;
    const struct ebb_storage *storage = &schedule->storages.items[slot->storage];
    if (storage->slot != number)
        return ebb_tensor_alias(exec->context, tensors[storage->slot], slot->bytes,
                                &tensors[number], error);
    char name[96];
    snprintf(name, sizeof name, "%s.%s", exec->graph.net->layers[slot->layer].name, slot->name);
    /* A page for each of the many small tensors would be a waste. */
    struct ebb_tensor_desc desc = {.bytes = storage->bytes,
                                   .alignment = storage->bytes < 4096 ? EBB_OP_ALIGNMENT_BYTES : 0,
                                   .kind = tensor_kind(slot),
                                   .name = name};
    return ebb_tensor_declare(exec->context, &desc, &tensors[number], error);
}

/* A slot may be an alias of one with a higher number. So all tensors come first. */
static enum ebb_status declare_all(struct ebb_exec *exec, const struct ebb_schedule *schedule,
                                   uint32_t first, ebb_tensor *tensors, struct ebb_error *error)
{
    enum ebb_status status = EBB_OK;
    for (int aliases = 0; aliases < 2; aliases++)
        for (uint32_t s = first; !status && s < schedule->slots.count; s++) {
            uint32_t storage = schedule->slots.items[s].storage;
            if (storage != EBB_NONE && aliases == (schedule->storages.items[storage].slot != s))
                status = declare(exec, schedule, s, tensors, error);
        }
    return status;
}

enum ebb_status ebb__exec_attach(struct ebb_exec *exec, struct ebb_context *context,
                                 struct ebb_error *error)
{
    exec->context = context;
    uint32_t persistent = exec->train.persistent_count;
    enum ebb_status status = declare_all(exec, &exec->train, 0, exec->train_tensors, error);
    memcpy(exec->evaluate_tensors, exec->train_tensors, persistent * sizeof(ebb_tensor));
    return status ? status
                  : declare_all(exec, &exec->evaluate, persistent, exec->evaluate_tensors, error);
}

void ebb__exec_place(struct ebb_exec *exec, const struct ebb_exec_places *places)
{
    exec->places = places;
}

enum ebb_status ebb__exec_open_slot(struct ebb_exec *exec, uint32_t slot, enum ebb_use use,
                                    void **address, struct ebb_error *error)
{
    if (exec->places) {
        *address = exec->places->at(exec->places->self, exec->train.slots.items[slot].storage);
        return EBB_OK;
    }
    if (exec->are_held) {
        *address = exec->held[exec->train.slots.items[slot].storage];
        return EBB_OK;
    }
    return ebb_tensor_acquire(exec->context, exec->train_tensors[slot], use, address, error);
}

enum ebb_status ebb__exec_close_slot(struct ebb_exec *exec, uint32_t slot, struct ebb_error *error)
{
    return exec->places || exec->are_held
               ? EBB_OK
               : ebb_tensor_release(exec->context, exec->train_tensors[slot], error);
}

static enum ebb_status hold_all(struct ebb_exec *exec, struct ebb_error *error)
{
    for (uint32_t s = 0; s < exec->train.storages.count; s++) {
        ebb_tensor tensor = exec->train_tensors[exec->train.storages.items[s].slot];
        enum ebb_status status =
            ebb_tensor_acquire(exec->context, tensor, EBB_USE_OVERWRITE, &exec->held[s], error);
        if (status) {
            release_all(exec, s);
            return status;
        }
    }
    exec->are_held = true;
    return EBB_OK;
}

/* He's normal distribution has the variance 2 / outputs here. That suits the gradients, and batch
 * norm makes the values fit. Without it, values grow wherever a convolution has fewer outputs than
 * inputs. So such layers have 2 / inputs: the other choice that He leaves. */
static void fit_to_inputs(const struct ebb_exec *exec, const struct ebb_slot *slot, float *weights)
{
    const struct ebb_layer *layer = &exec->graph.net->layers[slot->layer];
    const struct ebb_op_buffer *buffer = &exec->graph.ops[slot->layer]->buffers[slot->buffer];
    if (layer->kind != EBB_LAYER_CONV || !layer->has_bias || buffer->filling != EBB_OP_NORMAL)
        return;
    const struct ebb_shape *shape = &layer->parameters[0];
    float factor = sqrtf((float)shape->size[0] / (float)shape->size[1]);
    for (uint64_t i = 0; i < slot->bytes / sizeof *weights; i++)
        weights[i] *= factor;
}

static void fill_slot(const struct ebb_exec *exec, const struct ebb_slot *slot, void *address)
{
    if (slot->role == EBB_SLOT_OPTIMIZER) {
        memset(address, 0, slot->bytes);
        return;
    }
    ebb_op_fill(exec->graph.ops[slot->layer], slot->buffer, exec->options.seed, address);
    if (slot->role == EBB_SLOT_PARAMETER)
        fit_to_inputs(exec, slot, address);
}

enum ebb_status ebb__exec_begin(struct ebb_exec *exec, struct ebb_error *error)
{
    enum ebb_status status =
        ebb__mode_is_static(exec->options.mode) ? hold_all(exec, error) : EBB_OK;
    for (uint32_t s = 0; !status && s < exec->train.persistent_count; s++) {
        const struct ebb_slot *slot = &exec->train.slots.items[s];
        void *address;
        status = ebb__exec_open_slot(exec, s, EBB_USE_OVERWRITE, &address, error);
        if (status)
            return status;
        fill_slot(exec, slot, address);
        status = ebb__exec_close_slot(exec, s, error);
    }
    return status;
}

/* --- iterations ------------------------------------------------------------------------------- */

/* Kinds of iterations: each has a plan of its own. */
enum { KIND_TRAINING, KIND_EVALUATION };

static struct ebb_run run_of(struct ebb_exec *exec, uint32_t kind)
{
    bool is_training = kind == KIND_TRAINING;
    return (struct ebb_run){.exec = exec,
                            .schedule = is_training ? &exec->train : &exec->evaluate,
                            .tensors = is_training ? exec->train_tensors : exec->evaluate_tensors};
}

static enum ebb_status run_dry(struct ebb_exec *exec, uint32_t kind, struct ebb_error *error)
{
    enum ebb_status status = ebb_dry_run_begin(exec->context, kind, error);
    if (status)
        return status;
    struct ebb_run run = run_of(exec, kind);
    run.is_dry = true;
    status = ebb__run(&run, error);
    return status ? status : ebb_dry_run_end(exec->context, error);
}

enum ebb_status ebb__exec_dry_run(struct ebb_exec *exec, struct ebb_error *error)
{
    if (exec->places || exec->options.mode != EBB_MODE_EBB)
        return EBB_OK;
    enum ebb_status status = EBB_OK;
    if (ebb__data_test_batches(exec->data))
        status = run_dry(exec, KIND_EVALUATION, error);
    return status ? status : run_dry(exec, KIND_TRAINING, error);
}

static enum ebb_status run_iteration(struct ebb_exec *exec, uint32_t kind, uint64_t batch,
                                     struct ebb_exec_result *result, struct ebb_error *error)
{
    struct ebb_run run = run_of(exec, kind);
    run.batch = batch;
    enum ebb_status status =
        exec->places ? EBB_OK : ebb_iteration_begin(exec->context, kind, error);
    if (!status)
        status = exec->places ? ebb__run_placed(&run, error) : ebb__run(&run, error);
    if (!status && !exec->places)
        status = ebb_iteration_end(exec->context, error);
    *result = run.result;
    return status;
}

enum ebb_status ebb__exec_iterate(struct ebb_exec *exec, struct ebb_exec_result *result,
                                  struct ebb_error *error)
{
    enum ebb_status status = run_iteration(exec, KIND_TRAINING, exec->iteration, result, error);
    if (!status)
        exec->iteration++;
    return status;
}

enum ebb_status ebb__exec_evaluate(struct ebb_exec *exec, uint64_t batch,
                                   struct ebb_exec_result *result, struct ebb_error *error)
{
    return run_iteration(exec, KIND_EVALUATION, batch, result, error);
}
