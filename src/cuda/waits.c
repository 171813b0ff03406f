/* Waits of the program's threads: on the host, without the lock. */
#include "cuda/internal.h"

#include "base/clock.h"
#include "base/tuning.h"

#include <time.h>

#define PAUSE_NS 20000u
#define SPIN_NS 50000u /* before the first pause: the system adds as much to each */

void ebb__cuda_count_stall(struct ebb_cuda *engine, uint64_t since_ns)
{
    atomic_fetch_add(&engine->config.ring->counters.stall_ns, ebb__now_ns() - since_ns);
}

/* A moment of a wait that has lasted since then. */
static void pause_since(uint64_t since_ns)
{
    if (ebb__now_ns() - since_ns >= SPIN_NS) {
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
        return;
    }
    for (unsigned i = 0; i < 16; i++)
#if defined __x86_64__
        __builtin_ia32_pause();
#else
        __asm__ volatile("" ::: "memory");
#endif
}

static void wait_until(struct ebb_cuda *engine,
                       bool (*holds)(const struct cuda_mover *mover, uint32_t arrival),
                       uint32_t arrival)
{
    uint64_t since_ns = ebb__now_ns();
    while (!holds(engine->mover, arrival) && !atomic_load(&engine->is_abandoned))
        pause_since(since_ns);
}

/* On devices without waits on memory. An arrival always comes: the mover has patience, not more. */
void ebb__cuda_wait_for_arrival(struct ebb_cuda *engine, uint32_t arrival)
{
    wait_until(engine, ebb__mover_is_over, arrival);
}

/* Its transfer is queued soon, unless it waits for memory. */
void ebb__cuda_wait_for_issue(struct ebb_cuda *engine, uint32_t arrival)
{
    wait_until(engine, ebb__mover_is_issued, arrival);
}

void ebb__cuda_wait_for_evictions(struct ebb_cuda *engine)
{
    uint64_t since_ns = ebb__now_ns(), most_ns = (uint64_t)ebb__tuning()->cuda_patience_ns;
    while (ebb__now_ns() - since_ns < most_ns && ebb__cuda_lock(engine)) {
        uint64_t leaving = ebb__mover_leaving_units(engine->mover);
        ebb__cuda_unlock(engine);
        if (!leaving)
            return;
        pause_since(since_ns);
    }
}

void ebb__cuda_wait_alone(struct ebb_cuda *engine, uint32_t arrival)
{
    uint64_t since_ns = ebb__now_ns();
    if (!arrival)
        return;
    ebb__cuda_wait_for_arrival(engine, arrival);
    ebb__cuda_count_stall(engine, since_ns);
}

/* For a work in a stream that is not listed: nothing can be queued there. */
bool ebb__cuda_is_behind(struct ebb_cuda *engine, const struct cuda_passages *before)
{
    struct cuda_streams *streams = &engine->streams;
    const struct cuda_passages *awaited = before ? before : &streams->owed;
    if (ebb__passages_are_over(streams, awaited))
        return true;
    struct cuda_visit visit = ebb__streams_enter(streams);
    ebb__streams_mark_all(streams);
    ebb__streams_poll(streams);
    ebb__streams_leave(streams, visit);
    return ebb__passages_are_over(streams, awaited);
}

/* Earlier work in a stream of which no event can be had now, since it is being captured. Or any
 * earlier work, if the stream itself is not listed. */
void ebb__cuda_wait_for_work(struct ebb_cuda *engine, uint32_t stream,
                             const struct cuda_passages *before)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    uint64_t since_ns = ebb__now_ns();
    bool is_ordered = false;
    while (!is_ordered && ebb__now_ns() - since_ns < ebb__tuning()->cuda_patience_ns) {
        nanosleep(&pause, NULL);
        if (!ebb__cuda_lock(engine))
            return;
        is_ordered = stream == CUDA_NO_STREAM
                         ? ebb__cuda_is_behind(engine, before)
                         : ebb__passages_settle(&engine->streams, stream, before);
        ebb__cuda_unlock(engine);
    }
}

/* ---- the gate -------------------------------------------------------------------------------- */

bool ebb__cuda_hears_all(const struct ebb_cuda *engine)
{
    return engine->gate.is_used;
}

/* With the lock, which is released meanwhile. False: the engine has been abandoned. */
bool ebb__cuda_await_gate(struct ebb_cuda *engine)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    while (ebb__gate_is_closed(&engine->gate)) {
        ebb__cuda_unlock(engine);
        nanosleep(&pause, NULL);
        if (!ebb__cuda_lock(engine))
            return false;
    }
    return true;
}

void ebb__cuda_enter_gate(struct ebb_cuda *engine, struct ebb_cuda_work *work)
{
    work->is_counted = engine->gate.is_used && !work->is_captured;
    engine->gate.queuing += work->is_counted;
}

/* The work has waited on the host. Now it may be queued. */
void ebb__cuda_pass_gate(struct ebb_cuda *engine, struct ebb_cuda_work *work)
{
    if (!engine->gate.is_used || !ebb__cuda_lock(engine))
        return;
    if (!ebb__cuda_await_gate(engine))
        return;
    ebb__cuda_enter_gate(engine, work);
    ebb__cuda_unlock(engine);
}
