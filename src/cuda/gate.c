/* The gate's states: open, drains, quiet. */
#include "cuda/gate.h"

#include "base/clock.h"
#include "base/tuning.h"

#define LEAST_OPEN_NS 200000u     /* threads that waited need so long to go on, and to queue work */
#define LEAST_PAUSE_NS 1000000u   /* after the first attempt in vain */
#define MOST_PAUSE_NS 1000000000u /* arbitrary: an attempt costs as much as cuda_drain_ns */

static void set_state(struct cuda_gate *gate, enum cuda_gate_state state, uint64_t now_ns)
{
    gate->state = (uint8_t)state;
    gate->since_ns = now_ns;
}

static void release_events(struct cuda_gate *gate, struct cuda_streams *streams)
{
    while (gate->event_count)
        ebb__streams_release(streams, gate->events[--gate->event_count]);
    gate->is_fenced = false;
}

/* Works that have begun are queued now, and events are behind them. */
static bool fence(struct cuda_gate *gate, struct cuda_streams *streams,
                  pthread_mutex_t *engine_lock)
{
    if (gate->is_fenced)
        return true;
    if (pthread_mutex_trylock(engine_lock) != 0)
        return false;
    if (gate->queuing == 0)
        gate->is_fenced = ebb__streams_fence(streams, gate->events, &gate->event_count);
    pthread_mutex_unlock(engine_lock);
    return gate->is_fenced;
}

static bool is_drained(struct cuda_gate *gate, struct cuda_streams *streams)
{
    while (gate->event_count &&
           ebb__streams_event_is_over(streams, gate->events[gate->event_count - 1]))
        ebb__streams_release(streams, gate->events[--gate->event_count]);
    return gate->event_count == 0;
}

bool ebb__gate_step(struct cuda_gate *gate, struct cuda_streams *streams,
                    pthread_mutex_t *engine_lock, bool is_wanted)
{
    uint64_t now_ns = ebb__now_ns();
    if (gate->state == CUDA_GATE_OPEN && is_wanted && now_ns >= gate->next_ns) {
        atomic_store_explicit(&gate->is_closed, true, memory_order_seq_cst);
        gate->closed_ns = now_ns;
        gate->has_moved = false;
        set_state(gate, CUDA_GATE_DRAINS, now_ns);
    }
    if (gate->state != CUDA_GATE_DRAINS)
        return false;
    if (fence(gate, streams, engine_lock) && is_drained(gate, streams)) {
        set_state(gate, CUDA_GATE_QUIET, now_ns);
        return true;
    }
    if (is_wanted && now_ns - gate->since_ns < ebb__tuning()->cuda_drain_ns)
        return false;
    ebb__gate_open(gate, streams);
    return true;
}

bool ebb__gate_is_late(const struct cuda_gate *gate)
{
    return ebb__now_ns() - gate->since_ns > ebb__tuning()->cuda_quiet_ns;
}

void ebb__gate_open(struct cuda_gate *gate, struct cuda_streams *streams)
{
    uint64_t now_ns = ebb__now_ns();
    uint64_t open_ns = (now_ns - gate->closed_ns) / 4; /* a fifth of the time at least */
    release_events(gate, streams);
    if (gate->has_moved)
        gate->pause_ns = 0;
    else if (gate->pause_ns < MOST_PAUSE_NS)
        gate->pause_ns = gate->pause_ns ? 2 * gate->pause_ns : LEAST_PAUSE_NS;
    gate->next_ns = now_ns + gate->pause_ns + (open_ns > LEAST_OPEN_NS ? open_ns : LEAST_OPEN_NS);
    set_state(gate, CUDA_GATE_OPEN, now_ns);
    atomic_store_explicit(&gate->is_closed, false, memory_order_seq_cst);
}
