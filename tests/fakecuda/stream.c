/* Streams: queues of operations. How they run is in sched.c.
 *
 * An operation depends on operations of other streams by (stream, number): an event's wait, and the
 * rules of the legacy default stream. That one waits for all blocking streams of its context, and
 * they wait for it. Streams are never freed, so that a dependency can always be asked for.
 */
#include "fake.h"
#include <stdlib.h>

static _Atomic uint64_t stream_id;
static _Atomic int slot;
/* Of each slot, the last operation that some host thread knows to be done. */
static _Atomic uint64_t observed[MOST_SLOTS];

void *fake_op_new(const struct op_class *class, size_t bytes)
{
    struct op *op = calloc(1, bytes);
    if (op) {
        op->class = class;
        op->bytes = bytes;
    }
    return op;
}

/* Operations of graphs have no number and no order yet, so the copy has none. */
struct op *fake_op_clone(const struct op *op)
{
    struct op *copy = malloc(op->bytes);
    if (copy) {
        memcpy(copy, op, op->bytes);
        copy->deps = NULL;
        copy->dep_count = 0;
        copy->clock = NULL;
        copy->seq_to = NULL;
    }
    return copy;
}

void fake_op_free(struct op *op)
{
    if (op->class->destroy)
        op->class->destroy(op);
    free(op->deps);
    free(op->clock);
    free(op);
}

static void start_clocks(struct CUstream_st *stream)
{
    uint64_t *all = calloc(3 * MOST_SLOTS, sizeof(*all));
    if (!all)
        abort();
    stream->clock = all;
    stream->acquired = all + MOST_SLOTS;
    stream->done_clock = all + 2 * MOST_SLOTS;
}

CUresult fake_stream_new(CUcontext context, unsigned flags, int priority, struct CUstream_st **to)
{
    struct CUstream_st *stream = calloc(1, sizeof(*stream));
    if (!stream || fake_fault(FAULT_STREAM)) {
        free(stream);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    stream->context = context;
    stream->flags = flags;
    stream->priority = priority;
    stream->id = atomic_fetch_add(&stream_id, 1) + 1;
    stream->slot = atomic_fetch_add(&slot, 1) % MOST_SLOTS;
    stream->alive = true;
    pthread_mutex_init(&stream->own, NULL);
    pthread_cond_init(&stream->wake, NULL);
    stream->lock = fake_set.fast ? &stream->own : &sched_lock;
    if (fake_set.races)
        start_clocks(stream);
    struct CUstream_st *first = atomic_load(&context->streams);
    do
        stream->next = first;
    while (!atomic_compare_exchange_weak(&context->streams, &first, stream));
    *to = stream;
    return CUDA_SUCCESS;
}

CUresult fake_stream_of(CUstream handle, CUcontext context, struct CUstream_st **stream)
{
    if (!handle || handle == CU_STREAM_LEGACY) {
        *stream = context->legacy;
        return CUDA_SUCCESS;
    }
    if (handle == CU_STREAM_PER_THREAD) {
        *stream = fake_thread_stream(context);
        return CUDA_SUCCESS;
    }
    if (!handle->alive) {
        fake_violation("destroyed-stream", "stream %llu is used after its destruction",
                       (unsigned long long)handle->id);
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    *stream = handle;
    return CUDA_SUCCESS;
}

bool fake_stream_done(const struct CUstream_st *stream, uint64_t seq)
{
    return atomic_load_explicit(&stream->completed, memory_order_acquire) >= seq;
}

bool fake_op_deps_done(const struct op *op)
{
    for (unsigned i = 0; i < op->dep_count; i++)
        if (!fake_stream_done(op->deps[i].stream, op->deps[i].seq))
            return false;
    return true;
}

void fake_op_after(struct op *op, struct CUstream_st *on, uint64_t seq)
{
    struct dep *more = realloc(op->deps, (op->dep_count + 1) * sizeof(*more));
    if (!more)
        abort();
    op->deps = more;
    more[op->dep_count++] = (struct dep){on, seq};
}

/* The clock of an operation: for each slot, the last operation that is surely before it. */
void fake_clock_join(uint64_t *clock, const uint64_t *other)
{
    for (int i = 0; clock && other && i < MOST_SLOTS; i++)
        if (other[i] > clock[i])
            clock[i] = other[i];
}

static void join_observed(uint64_t *clock)
{
    for (int i = 0; clock && i < MOST_SLOTS; i++) {
        uint64_t seen = atomic_load(&observed[i]);
        if (seen > clock[i])
            clock[i] = seen;
    }
}

void fake_race_host(struct CUstream_st *stream)
{
    join_observed(stream->acquired);
}

static void set_clock(struct CUstream_st *stream, struct op *op)
{
    for (unsigned i = 0; i < op->dep_count; i++) {
        const struct CUstream_st *on = op->deps[i].stream;
        if (op->deps[i].seq == atomic_load(&on->enqueued))
            fake_clock_join(stream->clock,
                            on->clock); /* else the operation brings the event's clock */
        if (op->deps[i].seq > stream->clock[on->slot])
            stream->clock[on->slot] = op->deps[i].seq;
    }
    fake_clock_join(stream->clock, op->clock);
    join_observed(stream->clock);
    stream->clock[stream->slot] = op->seq;
    free(op->clock);
    op->clock = malloc(MOST_SLOTS * sizeof(*op->clock));
    if (op->clock)
        memcpy(op->clock, stream->clock, MOST_SLOTS * sizeof(*op->clock));
}

static void add_legacy_deps(struct CUstream_st *stream, struct op *op)
{
    CUcontext context = stream->context;
    struct CUstream_st *legacy = context->legacy;
    if (stream->flags & CU_STREAM_NON_BLOCKING || !legacy)
        return;
    if (stream != legacy) {
        uint64_t seq = atomic_load(&legacy->enqueued);
        if (fake_set.races || !fake_stream_done(legacy, seq))
            fake_op_after(op, legacy, seq);
        return;
    }
    struct CUstream_st *s = atomic_load(&context->streams);
    for (; s; s = s->next) {
        uint64_t seq = atomic_load(&s->enqueued);
        if (s != stream && !(s->flags & CU_STREAM_NON_BLOCKING) &&
            (fake_set.races || !fake_stream_done(s, seq)))
            fake_op_after(op, s, seq);
    }
}

/* In a fast run the operation is done here and now, if nothing is before it. */
static bool run_here(struct CUstream_st *stream, struct op *op)
{
    if (fake_set.kernel_us || fake_set.move_us) /* the caller does not wait for what takes time */
        return false;
    if (stream->head || stream->state != STREAM_IDLE || !fake_op_deps_done(op) ||
        (op->class->ready && !op->class->ready(op)))
        return false;
    stream->state = STREAM_RUNNING;
    if (!atomic_load_explicit(&stream->context->error, memory_order_relaxed))
        op->class->run(op, stream);
    stream->state = STREAM_IDLE;
    atomic_store_explicit(&stream->completed, op->seq, memory_order_release);
    return true;
}

CUresult fake_enqueue(struct CUstream_st *stream, struct op *op)
{
    if (atomic_load_explicit(&fake_capturing, memory_order_relaxed)) {
        if (stream->capture)
            return fake_capture_add(stream, op);
        CUresult implicit = fake_capture_implicit(stream->context, stream);
        if (implicit) {
            fake_op_free(op);
            return implicit;
        }
    }
    op->context = stream->context;
    pthread_mutex_lock(stream->lock);
    add_legacy_deps(stream, op);
    op->seq = atomic_load_explicit(&stream->enqueued, memory_order_relaxed) + 1;
    atomic_store_explicit(&stream->enqueued, op->seq, memory_order_release);
    if (op->seq_to)
        *op->seq_to = op->seq;
    if (fake_set.races && stream->clock)
        set_clock(stream, op);
    bool done = fake_set.fast && run_here(stream, op);
    if (!done)
        fake_sched_push(stream, op);
    pthread_mutex_unlock(stream->lock);
    if (done)
        fake_op_free(op);
    return CUDA_SUCCESS;
}

static void observe_slot(int at, uint64_t seq)
{
    uint64_t seen = atomic_load(&observed[at]);
    while (seen < seq && !atomic_compare_exchange_weak(&observed[at], &seen, seq))
        ;
}

/* What comes before the operation is done, too. */
void fake_observe(struct CUstream_st *stream, uint64_t seq)
{
    if (!fake_set.races)
        return;
    observe_slot(stream->slot, seq);
    pthread_mutex_lock(stream->lock);
    for (int i = 0; i < MOST_SLOTS; i++)
        observe_slot(i, stream->done_clock[i]);
    pthread_mutex_unlock(stream->lock);
}

void fake_wait_context(CUcontext context)
{
    for (struct CUstream_st *s = atomic_load(&context->streams); s; s = s->next)
        fake_wait(s, atomic_load(&s->enqueued));
}

/* --- the interface ---------------------------------------------------------------------------- */

static CUresult create(CUstream *stream, unsigned flags, int priority)
{
    CUcontext context;
    TRY(fake_usable(&context));
    if (!stream || flags > CU_STREAM_NON_BLOCKING)
        DONE(CUDA_ERROR_INVALID_VALUE);
    priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
    DONE(fake_stream_new(context, flags, priority, stream));
}

API cuStreamCreate(CUstream *stream, unsigned flags)
{
    return create(stream, flags, 0);
}

API cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority)
{
    return create(stream, flags, priority);
}

/* Queued work still runs. The pool's blocks that were freed in the stream are for all. */
API cuStreamDestroy_v2(CUstream stream)
{
    TRY(fake_ready());
    if (!stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD || !stream->alive)
        DONE(CUDA_ERROR_INVALID_HANDLE);
    if (stream->capture)
        fake_capture_spoil(stream);
    fake_pool_trim_stream(stream);
    stream->alive = false;
    return CUDA_SUCCESS;
}

/* The context is the stream's own, which need not be current. */
static CUresult find(CUstream handle, struct CUstream_st **stream)
{
    CUcontext context;
    CUresult current = fake_current(&context);
    if (current && (current != CUDA_ERROR_INVALID_CONTEXT || (uintptr_t)handle <= 2))
        return current;
    CUresult result = fake_stream_of(handle, current ? NULL : context, stream);
    return result ? result : atomic_load(&(*stream)->context->error);
}

API cuStreamSynchronize(CUstream handle)
{
    struct CUstream_st *stream;
    TRY(find(handle, &stream));
    if (stream->capture) {
        fake_capture_spoil(stream);
        DONE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    TRY(fake_capture_implicit(stream->context, stream));
    fake_count(COUNT_SYNCS, 1);
    uint64_t seq = atomic_load(&stream->enqueued);
    fake_wait(stream, seq);
    /* The legacy stream stands for the blocking ones, too. */
    if (stream == stream->context->legacy) {
        struct CUstream_st *s = atomic_load(&stream->context->streams);
        for (; s; s = s->next)
            if (!(s->flags & CU_STREAM_NON_BLOCKING))
                fake_wait(s, atomic_load(&s->enqueued));
    }
    DONE(atomic_load(&stream->context->error));
}

API cuStreamQuery(CUstream handle)
{
    struct CUstream_st *stream;
    TRY(find(handle, &stream));
    if (stream->capture) {
        fake_capture_spoil(stream);
        DONE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    TRY(fake_capture_implicit(stream->context, stream));
    fake_sched_poll();
    uint64_t seq = atomic_load(&stream->enqueued);
    if (!fake_stream_done(stream, seq))
        return CUDA_ERROR_NOT_READY;
    fake_observe(stream, seq);
    return CUDA_SUCCESS;
}

API cuStreamGetFlags(CUstream handle, unsigned *flags)
{
    struct CUstream_st *stream;
    TRY(find(handle, &stream));
    *flags = stream->flags;
    return CUDA_SUCCESS;
}

API cuStreamGetPriority(CUstream handle, int *priority)
{
    struct CUstream_st *stream;
    TRY(find(handle, &stream));
    *priority = stream->priority;
    return CUDA_SUCCESS;
}

API cuStreamGetId(CUstream handle, unsigned long long *id)
{
    struct CUstream_st *stream;
    TRY(find(handle, &stream));
    *id = stream->id;
    return CUDA_SUCCESS;
}

API cuStreamGetCtx(CUstream handle, CUcontext *context)
{
    struct CUstream_st *stream;
    TRY(find(handle, &stream));
    *context = stream->context;
    return CUDA_SUCCESS;
}

API cuStreamGetDevice(CUstream handle, CUdevice *device)
{
    struct CUstream_st *stream;
    TRY(find(handle, &stream));
    *device = stream->context->device;
    return CUDA_SUCCESS;
}

API cuStreamGetAttribute(CUstream handle, CUstreamAttrID attribute, CUstreamAttrValue *value)
{
    struct CUstream_st *stream;
    TRY(find(handle, &stream));
    memset(value, 0, sizeof(*value));
    if (attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY)
        value->priority = stream->priority;
    return CUDA_SUCCESS;
}

API cuStreamSetAttribute(CUstream handle, CUstreamAttrID attribute, const CUstreamAttrValue *value)
{
    struct CUstream_st *stream;
    TRY(find(handle, &stream));
    if (attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY)
        stream->priority = value->priority;
    return CUDA_SUCCESS;
}

API cuStreamCopyAttributes(CUstream to, CUstream from)
{
    struct CUstream_st *a, *b;
    TRY(find(to, &a));
    TRY(find(from, &b));
    a->priority = b->priority;
    return CUDA_SUCCESS;
}

/* Managed memory belongs to all streams here. */
API cuStreamAttachMemAsync(CUstream handle, CUdeviceptr address, size_t bytes, unsigned flags)
{
    struct CUstream_st *stream;
    (void)bytes;
    (void)flags;
    TRY(find(handle, &stream));
    pthread_mutex_lock(&memory_lock);
    struct range *range = fake_range_find(address);
    bool managed = range && range->kind == RANGE_MANAGED;
    pthread_mutex_unlock(&memory_lock);
    DONE(managed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

static CUresult synchronize(CUcontext context)
{
    TRY(atomic_load(&context->error));
    if (atomic_load(&fake_capturing))
        for (struct CUstream_st *s = atomic_load(&context->streams); s; s = s->next)
            if (s->capture) {
                fake_capture_spoil(s);
                DONE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
            }
    fake_count(COUNT_SYNCS, 1);
    fake_wait_context(context);
    DONE(atomic_load(&context->error));
}

API cuCtxSynchronize(void)
{
    CUcontext context;
    TRY(fake_current(&context));
    return synchronize(context);
}

API cuCtxSynchronize_v2(CUcontext context)
{
    CUcontext now;
    TRY(fake_current(&now));
    return synchronize(context ? context : now);
}
