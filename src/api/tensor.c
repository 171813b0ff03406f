/* Tensors: the life of their contents is that of a block, their uses pin it. */
#include "api/internal.h"

#include "base/geometry.h"
#include "runtime/core/core.h"

#include <stdio.h>
#include <string.h>

#define MOST_BYTES ((uint64_t)1 << 47)

static enum ebb_status refuse(struct ebb_error *error, const struct tensor *tensor, const char *why)
{
    return ebb__fail(error, EBB_ERR_ARGUMENT, tensor->name, "%s", why);
}

struct tensor *ebb__api_tensor(struct ebb_context *context, ebb_tensor tensor,
                               struct ebb_error *error)
{
    if (tensor > 0 && tensor < context->tensors.count && context->tensors.items[tensor].is_declared)
        return &context->tensors.items[context->tensors.items[tensor].of];
    char what[40];
    snprintf(what, sizeof what, "tensor %u", (unsigned)tensor);
    (void)ebb__fail(error, EBB_ERR_ARGUMENT, what, "there is no such tensor");
    return NULL;
}

/* Adds a tensor of `made`; the lock must be held. */
static enum ebb_status add(struct ebb_context *context, const struct tensor *made,
                           ebb_tensor *tensor, struct ebb_error *error)
{
    if (context->tensors.count >= UINT32_MAX || !ebb_vec_push(&context->tensors, *made))
        return ebb__fail(error, EBB_ERR_MEMORY, made->name, "no memory for its description");
    uint32_t index = (uint32_t)context->tensors.count - 1;
    struct tensor *added = &context->tensors.items[index];
    if (added->of == 0)
        added->of = index;
    added->is_alive = context->phase == API_DRY_RUN && ebb__api_is_assumed(added);
    if (!added->name[0])
        snprintf(added->name, sizeof added->name, "tensor %u", (unsigned)index);
    *tensor = index;
    return EBB_OK;
}

enum ebb_status ebb_tensor_declare(struct ebb_context *context, const struct ebb_tensor_desc *desc,
                                   ebb_tensor *tensor, struct ebb_error *error)
{
    struct tensor made = {.is_declared = true};
    if (!desc || !tensor)
        return ebb__fail(error, EBB_ERR_ARGUMENT, "ebb_tensor_declare", "an argument is NULL");
    snprintf(made.name, sizeof made.name, "%s", desc->name ? desc->name : "");
    made.bytes = desc->bytes;
    made.alignment = desc->alignment ? desc->alignment : EBB_PAGE_BYTES;
    made.kind = desc->kind;
    if (desc->bytes == 0 || desc->bytes > MOST_BYTES)
        return refuse(error, &made, "its size is zero or beyond 2^47 bytes");
    if (made.alignment & (made.alignment - 1) || made.alignment > EBB_HUGE_BYTES)
        return refuse(error, &made, "its alignment is no power of two up to 2 MiB");
    if (desc->kind < EBB_TENSOR_PARAMETER || desc->kind >= EBB_TENSOR_KIND_COUNT)
        return refuse(error, &made, "there is no such kind of tensors");
    made.is_small = made.bytes <= EBB_SMALL_MOST_BYTES && made.alignment <= EBB_PAGE_BYTES;
    pthread_mutex_lock(&context->lock);
    enum ebb_status status = add(context, &made, tensor, error);
    if (!status && made.is_small)
        context->small_bytes += made.bytes;
    pthread_mutex_unlock(&context->lock);
    return status;
}

enum ebb_status ebb_tensor_alias(struct ebb_context *context, ebb_tensor of, uint64_t bytes,
                                 ebb_tensor *alias, struct ebb_error *error)
{
    if (!alias)
        return ebb__fail(error, EBB_ERR_ARGUMENT, "ebb_tensor_alias", "an argument is NULL");
    pthread_mutex_lock(&context->lock);
    const struct tensor *base = ebb__api_tensor(context, of, error);
    enum ebb_status status = base ? EBB_OK : EBB_ERR_ARGUMENT;
    if (base && (bytes == 0 || bytes > base->bytes))
        status = refuse(error, base, "an alias of it is empty or larger");
    if (!status) {
        struct tensor made = *base;
        made.bytes = bytes;
        made.holds = 0;
        made.address = NULL;
        made.is_alive = made.was_alive = false;
        status = add(context, &made, alias, error);
    }
    pthread_mutex_unlock(&context->lock);
    return status;
}

static enum ebb_status may_acquire(const struct ebb_context *context, const struct tensor *tensor,
                                   enum ebb_use use, struct ebb_error *error)
{
    if (use < EBB_USE_READ || use >= EBB_USE_COUNT)
        return refuse(error, tensor, "there is no such use");
    if (use == EBB_USE_OVERWRITE && tensor->holds)
        return refuse(error, tensor, "it is overwritten while another use of it goes on");
    if (use != EBB_USE_OVERWRITE && !tensor->is_alive)
        return refuse(error, tensor, "it is used, but has no contents");
    uint64_t pages = ebb__whole_pages(tensor->bytes);
    uint64_t needed = context->held_bytes + (tensor->holds ? 0 : pages);
    if (needed <= context->budget_bytes || context->phase == API_DRY_RUN)
        return EBB_OK;
    (void)ebb__fail(error, EBB_INFEASIBLE, tensor->name,
                    "what is in use at a time takes %llu bytes, more than the budget",
                    (unsigned long long)needed);
    ebb__error_set_remedy(error, "give a budget of at least %llu bytes",
                          (unsigned long long)needed);
    return EBB_INFEASIBLE;
}

static void count_hold(struct ebb_context *context, struct tensor *tensor, bool begins)
{
    uint64_t pages = ebb__whole_pages(tensor->bytes);
    if (begins ? tensor->holds++ == 0 : --tensor->holds == 0)
        context->held_bytes += begins ? pages : -pages;
}

/* The contents of the tensor end. */
static void end_life(struct ebb_context *context, struct tensor *tensor)
{
    ebb__api_record_event(context, EBB_EVENT_FREE, tensor, EBB_ACCESS_UNKNOWN, false);
    tensor->is_alive = false;
    if (tensor->address && context->phase != API_DRY_RUN) {
        if (tensor->is_small)
            ebb__slabs_free(context->slabs, tensor->address);
        else
            ebb__runtime_free(context->runtime, tensor->address);
        tensor->address = NULL;
    }
}

static void *small_object(struct ebb_context *context, uint64_t bytes, uint64_t alignment)
{
    uint64_t least = bytes < EBB_SMALL_LEAST_BYTES ? EBB_SMALL_LEAST_BYTES : bytes;
    return ebb__slabs_alloc(context->slabs, least, alignment);
}

/* New contents begin. The lock is released meanwhile, and `tensor` is in use. */
static enum ebb_status begin_life(struct ebb_context *context, uint32_t index,
                                  struct ebb_error *error)
{
    struct tensor *tensor = &context->tensors.items[index];
    if (tensor->is_alive)
        end_life(context, tensor);
    tensor->is_alive = true;
    tensor->lives++;
    if (context->phase == API_IDLE)
        context->followed = NULL; /* something came between two iterations */
    ebb__api_record_event(context, EBB_EVENT_ALLOC, tensor, EBB_ACCESS_UNKNOWN, false);
    if (context->phase == API_DRY_RUN)
        return EBB_OK;
    uint64_t bytes = tensor->bytes, alignment = tensor->alignment;
    bool is_small = tensor->is_small;
    pthread_mutex_unlock(&context->lock);
    void *address = is_small ? small_object(context, bytes, alignment)
                             : ebb__runtime_alloc(context->runtime, bytes, alignment, false);
    pthread_mutex_lock(&context->lock);
    tensor = &context->tensors.items[index];
    tensor->address = address;
    if (address)
        return EBB_OK;
    tensor->is_alive = false;
    return ebb__fail(error, EBB_ERR_MEMORY, tensor->name, "there is no memory for it");
}

/* Makes the contents resident. The lock is released meanwhile. */
static enum ebb_status hold(struct ebb_context *context, uint32_t index, enum ebb_use use,
                            bool was_held, struct ebb_error *error)
{
    struct tensor *tensor = &context->tensors.items[index];
    bool write = use != EBB_USE_READ;
    ebb__api_record_event(context, EBB_EVENT_ACCESS, tensor,
                          write ? EBB_ACCESS_WRITE : EBB_ACCESS_READ,
                          was_held || use == EBB_USE_OVERWRITE);
    if (context->phase == API_DRY_RUN || tensor->is_small)
        return EBB_OK;
    const void *address = tensor->address;
    uint64_t time_ns;
    pthread_mutex_unlock(&context->lock);
    bool there = ebb__runtime_acquire(context->runtime, address, write, &time_ns);
    pthread_mutex_lock(&context->lock);
    context->time_ns = time_ns;
    if (there)
        return EBB_OK;
    return ebb__fail(error, EBB_ERR_IO, context->tensors.items[index].name,
                     "its contents are lost: the store could not be read");
}

enum ebb_status ebb_tensor_acquire(struct ebb_context *context, ebb_tensor tensor, enum ebb_use use,
                                   void **address, struct ebb_error *error)
{
    pthread_mutex_lock(&context->lock);
    struct tensor *base = ebb__api_tensor(context, tensor, error);
    enum ebb_status status = base ? may_acquire(context, base, use, error) : EBB_ERR_ARGUMENT;
    if (!status && !address)
        status = refuse(error, base, "its address is wanted at NULL");
    if (status) {
        pthread_mutex_unlock(&context->lock);
        return status;
    }
    uint32_t index = base->of;
    bool was_held = base->holds > 0;
    count_hold(context, base, true);
    if (use == EBB_USE_OVERWRITE)
        status = begin_life(context, index, error);
    if (!status)
        status = hold(context, index, use, was_held, error);
    base = &context->tensors.items[index];
    if (status)
        count_hold(context, base, false);
    else
        *address = context->phase == API_DRY_RUN ? NULL : base->address;
    pthread_mutex_unlock(&context->lock);
    return status;
}

enum ebb_status ebb_tensor_release(struct ebb_context *context, ebb_tensor tensor,
                                   struct ebb_error *error)
{
    pthread_mutex_lock(&context->lock);
    struct tensor *base = ebb__api_tensor(context, tensor, error);
    enum ebb_status status = base ? EBB_OK : EBB_ERR_ARGUMENT;
    if (base && !base->holds)
        status = refuse(error, base, "it is released, but not acquired");
    if (!status) {
        /* Only then may another thread take its memory. The runtime does not wait here for it. */
        if (context->phase != API_DRY_RUN && !base->is_small)
            ebb__runtime_release(context->runtime, base->address, &context->time_ns);
        ebb__api_record_event(context, EBB_EVENT_ACCESS, base, EBB_ACCESS_READ, true);
        count_hold(context, base, false);
    }
    pthread_mutex_unlock(&context->lock);
    return status;
}

/* `tensor`, if it is declared and not in use. */
static struct tensor *unused(struct ebb_context *context, ebb_tensor tensor,
                             struct ebb_error *error)
{
    struct tensor *base = ebb__api_tensor(context, tensor, error);
    if (!base || !base->holds)
        return base;
    (void)refuse(error, base, "it is discarded while it is in use");
    return NULL;
}

enum ebb_status ebb_tensor_discard(struct ebb_context *context, ebb_tensor tensor,
                                   struct ebb_error *error)
{
    pthread_mutex_lock(&context->lock);
    struct tensor *base = unused(context, tensor, error);
    if (base && base->is_alive)
        end_life(context, base);
    pthread_mutex_unlock(&context->lock);
    return base ? EBB_OK : EBB_ERR_ARGUMENT;
}

enum ebb_status ebb_tensor_remove(struct ebb_context *context, ebb_tensor tensor,
                                  struct ebb_error *error)
{
    pthread_mutex_lock(&context->lock);
    struct tensor *base = unused(context, tensor, error);
    if (base) {
        if (base->is_alive)
            end_life(context, base);
        uint32_t of = base->of;
        for (size_t i = of; i < context->tensors.count; i++)
            if (context->tensors.items[i].of == of)
                context->tensors.items[i].is_declared = false;
    }
    pthread_mutex_unlock(&context->lock);
    return base ? EBB_OK : EBB_ERR_ARGUMENT;
}

static enum ebb_status hint(struct ebb_context *context, ebb_tensor tensor,
                            void (*does)(struct ebb_runtime *, const void *),
                            struct ebb_error *error)
{
    pthread_mutex_lock(&context->lock);
    const struct tensor *base = ebb__api_tensor(context, tensor, error);
    if (base && base->address && !base->is_small && context->phase != API_DRY_RUN)
        does(context->runtime, base->address);
    pthread_mutex_unlock(&context->lock);
    return base ? EBB_OK : EBB_ERR_ARGUMENT;
}

enum ebb_status ebb_tensor_evict(struct ebb_context *context, ebb_tensor tensor,
                                 struct ebb_error *error)
{
    return hint(context, tensor, ebb__runtime_evict, error);
}

enum ebb_status ebb_tensor_prefetch(struct ebb_context *context, ebb_tensor tensor,
                                    struct ebb_error *error)
{
    return hint(context, tensor, ebb__runtime_prefetch, error);
}

enum ebb_status ebb_barrier(struct ebb_context *context, struct ebb_error *error)
{
    (void)error;
    if (context->phase != API_DRY_RUN)
        ebb__runtime_settle(context->runtime);
    return EBB_OK;
}
