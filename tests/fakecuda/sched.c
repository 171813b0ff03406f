/* Who runs next. There is one worker thread for each stream that ever had work.
 *
 * In a scheduled run one worker at a time has the baton. It gives it up after each operation, and
 * at times between two accesses of a kernel. The next one is drawn by the seed from all streams
 * that could go on. So every interleaving that the order of streams and events permits can
 * happen, and for one host thread a seed names it. The device may also be lazy: for up to
 * `lazy_us` it does nothing, until somebody waits for it. So work runs as late as it may.
 *
 * In a fast run workers are free, and most operations are done by the caller.
 */
#include "fake.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

pthread_mutex_t sched_lock = PTHREAD_MUTEX_INITIALIZER;

/* All below is under sched_lock. */
static pthread_cond_t done = PTHREAD_COND_INITIALIZER;
static pthread_cond_t keeper_wake = PTHREAD_COND_INITIALIZER;
static struct CUstream_st *active, *holder;
static unsigned active_count, waiters;
static uint64_t lazy_until;
static bool keeper_runs;
static _Atomic uint64_t clock_ns;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now); /* what timed waits use */
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void fake_clock_pass(uint64_t ns)
{
    if (!fake_set.fast)
        atomic_fetch_add_explicit(&clock_ns, ns, memory_order_relaxed);
}

uint64_t fake_clock_ns(void)
{
    fake_clock_pass(500);
    return fake_set.fast ? now_ns() : atomic_load(&clock_ns);
}

void fake_take(uint64_t us)
{
    struct timespec left = {(time_t)(us / 1000000), (long)(us % 1000000 * 1000)};
    while (us && fake_set.fast && nanosleep(&left, &left) && errno == EINTR)
        ;
}

static bool may_run(const struct CUstream_st *stream)
{
    if (stream->state == STREAM_YIELDED)
        return true;
    const struct op *op = stream->head;
    if (stream->state != STREAM_IDLE || !op || !fake_op_deps_done(op))
        return false;
    return !op->class->ready || atomic_load(&stream->context->error) || op->class->ready(op);
}

static bool is_lazy(void)
{
    if (waiters)
        return false;
    return lazy_until > now_ns();
}

/* Gives the baton to one of the streams that may run. Who must be woken: best without the lock, for
 * which that thread would wait at once. NULL: nobody. */
static pthread_cond_t *choose(void)
{
    if (holder || !active)
        return NULL;
    if (is_lazy())
        return &keeper_wake;
    struct CUstream_st *drawn = NULL;
    unsigned count = 0;
    for (struct CUstream_st *s = active; s; s = s->next_active)
        if (may_run(s) && fake_random(++count) == 0)
            drawn = s;
    if (!drawn)
        return &keeper_wake;
    holder = drawn;
    return &drawn->wake;
}

static void wake(pthread_cond_t *condition)
{
    if (condition)
        pthread_cond_signal(condition);
}

/* Ends pauses, and asks again for conditions in memory, which the host may change. */
static void *keeper(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&sched_lock);
    for (;;) {
        if (!active || holder) {
            pthread_cond_wait(&keeper_wake, &sched_lock);
            continue;
        }
        wake(choose());
        if (holder)
            continue;
        uint64_t until = now_ns() + 50000;
        if (!waiters && lazy_until > until)
            until = lazy_until;
        struct timespec at = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
        pthread_cond_timedwait(&keeper_wake, &sched_lock, &at);
    }
    return NULL;
}

static void activate(struct CUstream_st *stream)
{
    if (stream->active)
        return;
    stream->active = true;
    stream->next_active = active;
    active = stream;
    active_count++;
    if (fake_set.lazy_us && active_count == 1 && fake_random(4) == 0)
        lazy_until = now_ns() + 1000u * fake_random(fake_set.lazy_us);
}

static void deactivate(struct CUstream_st *stream)
{
    struct CUstream_st **link = &active;
    while (*link != stream)
        link = &(*link)->next_active;
    *link = stream->next_active;
    stream->active = false;
    active_count--;
}

static void perform(struct CUstream_st *stream, struct op *op)
{
    if (!atomic_load(&stream->context->error))
        op->class->run(op, stream);
}

static struct op *pop(struct CUstream_st *stream)
{
    struct op *op = stream->head;
    stream->head = op->next;
    if (!stream->head)
        stream->tail = NULL;
    stream->state = STREAM_RUNNING;
    return op;
}

static void scheduled_worker(struct CUstream_st *stream)
{
    pthread_mutex_lock(&sched_lock);
    for (;;) {
        while (holder != stream)
            pthread_cond_wait(&stream->wake, &sched_lock);
        struct op *op = pop(stream);
        pthread_mutex_unlock(&sched_lock);
        perform(stream, op);
        uint64_t seq = op->seq;
        pthread_mutex_lock(&sched_lock);
        fake_clock_join(stream->done_clock, op->clock);
        fake_clock_join(stream->done_clock, stream->acquired);
        stream->state = STREAM_IDLE;
        atomic_store_explicit(&stream->completed, seq, memory_order_release);
        if (!stream->head)
            deactivate(stream);
        if (waiters)
            pthread_cond_broadcast(&done);
        holder = NULL;
        pthread_cond_t *next = choose();
        pthread_mutex_unlock(&sched_lock);
        wake(next);
        fake_op_free(op);
        pthread_mutex_lock(&sched_lock);
    }
}

static void short_sleep(void)
{
    usleep(20);
}

/* In a fast run: dependencies on other streams are polled for. */
static void free_worker(struct CUstream_st *stream)
{
    pthread_mutex_lock(stream->lock);
    for (;;) {
        while (!stream->head)
            pthread_cond_wait(&stream->wake, stream->lock);
        if (!may_run(stream)) {
            pthread_mutex_unlock(stream->lock);
            short_sleep();
            pthread_mutex_lock(stream->lock);
            continue;
        }
        struct op *op = pop(stream);
        pthread_mutex_unlock(stream->lock);
        perform(stream, op);
        uint64_t seq = op->seq;
        fake_op_free(op);
        pthread_mutex_lock(stream->lock);
        stream->state = STREAM_IDLE;
        atomic_store_explicit(&stream->completed, seq, memory_order_release);
        pthread_cond_broadcast(&stream->wake);
    }
}

static void *worker(void *argument)
{
    struct CUstream_st *stream = argument;
    if (fake_set.fast)
        free_worker(stream);
    else
        scheduled_worker(stream);
    return NULL;
}

static void start_thread(void *(*body)(void *), void *argument)
{
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 512 << 10);
    sigset_t all, before; /* they take no signals, as those of the driver */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int why = pthread_create(&thread, &attributes, body, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (why) {
        fprintf(stderr, "fakecuda: no thread for a stream\n");
        abort();
    }
    pthread_attr_destroy(&attributes);
}

void fake_sched_push(struct CUstream_st *stream, struct op *op)
{
    op->next = NULL;
    if (stream->tail)
        stream->tail->next = op;
    else
        stream->head = op;
    stream->tail = op;
    if (!stream->has_thread) {
        stream->has_thread = true;
        start_thread(worker, stream);
    }
    if (fake_set.fast) {
        pthread_cond_broadcast(&stream->wake);
        return;
    }
    if (!keeper_runs) {
        keeper_runs = true;
        start_thread(keeper, NULL);
    }
    activate(stream);
    wake(choose());
}

/* A host that polls is a host that waits, now and then. At times it rests, so that a worker gets
 * the CPU that asking again would take. */
void fake_sched_poll(void)
{
    if (fake_set.fast)
        return;
    pthread_mutex_lock(&sched_lock);
    if (fake_random(8) == 0)
        lazy_until = 0;
    bool rests = fake_random(4) == 0;
    pthread_cond_t *next = choose();
    pthread_mutex_unlock(&sched_lock);
    wake(next);
    if (rests)
        short_sleep();
}

/* The lock is taken even if nothing is left to wait for. The fake is not instrumented, so
 * ThreadSanitizer sees the order of its locks only, not that of its atomics. */
void fake_wait(struct CUstream_st *stream, uint64_t seq)
{
    if (fake_set.fast && fake_stream_done(stream, seq))
        return;
    pthread_mutex_lock(stream->lock);
    if (!fake_set.fast && !fake_stream_done(stream, seq)) {
        waiters++;
        wake(choose());
        while (!fake_stream_done(stream, seq))
            pthread_cond_wait(&done, stream->lock);
        waiters--;
    }
    while (!fake_stream_done(stream, seq))
        pthread_cond_wait(&stream->wake, stream->lock);
    pthread_mutex_unlock(stream->lock);
    fake_observe(stream, seq);
}

static void give_way(struct CUstream_st *stream, bool waits)
{
    if (fake_set.fast) {
        if (waits)
            short_sleep();
        return;
    }
    pthread_mutex_lock(&sched_lock);
    bool alone = active_count < 2;
    if (!alone) {
        stream->state = STREAM_YIELDED;
        holder = NULL;
        pthread_cond_t *next = choose();
        alone = holder == stream;
        if (!alone) {
            pthread_mutex_unlock(&sched_lock);
            wake(next);
            pthread_mutex_lock(&sched_lock);
        }
        while (holder != stream)
            pthread_cond_wait(&stream->wake, &sched_lock);
        stream->state = STREAM_RUNNING;
    }
    pthread_mutex_unlock(&sched_lock);
    /* Who waits alone waits for the host, and must not keep a CPU busy. */
    if (alone && (waits || fake_random(64) == 0))
        short_sleep();
}

void fake_yield(struct CUstream_st *stream)
{
    give_way(stream, false);
}

void fake_yield_waiting(struct CUstream_st *stream)
{
    give_way(stream, true);
}
