/* Creation and end of a context: a runtime without faults, on a device of remapped pages. */
#include "api/internal.h"

#include "base/clock.h"
#include "runtime/core/core.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LEAST_ARENA_BYTES ((uint64_t)1 << 34)
#define RING_EVENTS 64u /* nobody reads it: records are kept here */

static atomic_bool exists; /* the device's addresses are the process's */

static enum ebb_status open_store(void *given, struct ebb_store *store, struct ebb_error *error)
{
    struct ebb_context *context = given;
    return ebb__store_open(context->places, UINT64_MAX, store, error);
}

static void on_warn(void *given, const char *message)
{
    const struct ebb_context *context = given;
    if (context->warn)
        context->warn(context->user, message);
}

/* Acquire reports it. */
static void on_lost(void *context, const char *message)
{
    (void)context;
    (void)message;
}

static enum ebb_status find_machine(struct ebb_context *context, const char *name,
                                    struct ebb_error *error)
{
    if (name && strcmp(name, "host") != 0)
        return ebb__machine_find(name, &context->machine, error);
    if (context->budget_bytes == UINT64_MAX)
        return ebb__machine_named("nvme", &context->machine, error); /* nothing will move */
    return ebb__machine_probe(context->places, ebb__machine_probe_bytes(context->budget_bytes),
                              &context->machine, error);
}

static enum ebb_status start_runtime(struct ebb_context *context, struct ebb_error *error)
{
    enum ebb_status status = ebb__host_create_explicit(LEAST_ARENA_BYTES, &context->device, error);
    if (status)
        return status;
    struct ebb_runtime_config config = {
        .device = context->device,
        .ledger = context->ledger,
        .ring = context->ring,
        .announced = true,
        .part_from_bytes = UINT64_MAX, /* a tensor moves as a whole */
        .process_id = (uint32_t)getpid(),
        .open_store = open_store,
        .warn = on_warn,
        .lost = on_lost,
        .context = context,
    };
    status = ebb__runtime_create(&config, &context->runtime, error);
    if (!status && ebb__slabs_create(context->runtime, &context->slabs) != EBB_OK) {
        status = ebb__fail(error, EBB_ERR_MEMORY, "context", "no memory");
        ebb__runtime_destroy(context->runtime);
    }
    if (status)
        ebb__host_destroy(&context->device);
    return status;
}

static void release(struct ebb_context *context)
{
    ebb__core_unmap(context->ledger, sizeof *context->ledger);
    ebb__core_unmap(context->ring, ebb__ring_bytes(RING_EVENTS));
    ebb_vec_free(&context->tensors);
    free(context->places);
    pthread_mutex_destroy(&context->lock);
    free(context);
}

static enum ebb_status prepare(struct ebb_context *context, const struct ebb_options *options,
                               struct ebb_error *error)
{
    const char *folder = getenv("TMPDIR");
    context->places = strdup(options->store ? options->store : folder && *folder ? folder : "/tmp");
    context->ledger = ebb__core_memory(sizeof *context->ledger);
    context->ring = ebb__core_memory(ebb__ring_bytes(RING_EVENTS));
    if (!context->places || !context->ledger || !context->ring ||
        !ebb_vec_push(&context->tensors, (struct tensor){0}))
        return ebb__fail(error, EBB_ERR_MEMORY, "context", "no memory");
    context->no_plan = options->no_plan;
    context->warn = options->warn;
    context->user = options->user;
    context->budget_bytes = options->budget_bytes ? options->budget_bytes : UINT64_MAX;
    context->ledger->magic = EBB_LEDGER_MAGIC;
    atomic_store(&context->ledger->budget_bytes, context->budget_bytes);
    atomic_store(&context->ledger->in_force, 1);
    ebb__ring_init(context->ring, RING_EVENTS, ebb__now_ns());
    atomic_store(&context->ring->parent_gone, 1);
    return find_machine(context, options->machine, error);
}

enum ebb_status ebb_context_create(const struct ebb_options *options, struct ebb_context **context,
                                   struct ebb_error *error)
{
    if (!options || !context)
        return ebb__fail(error, EBB_ERR_ARGUMENT, "ebb_context_create", "an argument is NULL");
    if (atomic_exchange(&exists, true))
        return ebb__fail(error, EBB_ERR_LIMIT, "context", "this process has one already");
    struct ebb_context *made = calloc(1, sizeof *made);
    enum ebb_status status =
        made ? EBB_OK : ebb__fail(error, EBB_ERR_MEMORY, "context", "no memory");
    if (made)
        pthread_mutex_init(&made->lock, NULL);
    if (!status)
        status = prepare(made, options, error);
    if (!status)
        status = start_runtime(made, error);
    if (status) {
        if (made)
            release(made);
        atomic_store(&exists, false);
        return status;
    }
    *context = made;
    return EBB_OK;
}

void ebb_context_destroy(struct ebb_context *context)
{
    if (!context)
        return;
    for (size_t i = 1; i < context->tensors.count; i++)
        if (context->tensors.items[i].address && !context->tensors.items[i].is_small)
            ebb__runtime_free(context->runtime, context->tensors.items[i].address);
    ebb__slabs_destroy(context->slabs);
    ebb__runtime_destroy(context->runtime);
    ebb__host_destroy(&context->device);
    ebb__api_plan_fini(context);
    /* A file that could not be written has no footer, which its readers see. */
    enum ebb_status closed = context->recording.writer
                                 ? ebb__trace_writer_close(context->recording.writer, NULL)
                                 : EBB_OK;
    (void)closed;
    release(context);
    atomic_store(&exists, false);
}
