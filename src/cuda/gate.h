/* The gate: the device becomes quiet, so that live bytes can move although any kernel might use
 * them.
 *
 * The mover closes the gate: no work begins. Works that have begun are queued, and what is queued
 * ends. Then the device is *quiet*, and the mover moves what it can. It opens the gate when nothing
 * is left to do, or after a limit (cuda_quiet_ns).
 *
 * Kernels may wait for work that is not queued yet. So the device may never become quiet. Then
 * the gate opens after a limit (cuda_drain_ns). The next attempt comes later, each time twice as
 * late. Meanwhile transfers wait, until the mover's patience ends.
 *
 * A work that waits for a transfer waits on the host, before it is queued. On the device it would
 * keep the device from becoming quiet. */
#ifndef EBB_CUDA_GATE_H
#define EBB_CUDA_GATE_H

#include "cuda/streams.h"

enum cuda_gate_state { CUDA_GATE_OPEN, CUDA_GATE_DRAINS, CUDA_GATE_QUIET };

struct cuda_gate {
    bool is_used;
    _Atomic bool is_closed;
    uint32_t queuing; /* works that may be queued now; expects the engine's lock */
    /* Of the mover's thread: */
    uint8_t state;      /* enum cuda_gate_state */
    uint64_t since_ns;  /* it has been in this state */
    uint64_t closed_ns; /* when it was closed last */
    uint64_t next_ns;   /* it is not closed before */
    uint64_t pause_ns;  /* after an attempt in vain */
    bool is_fenced, has_moved;
    uint32_t events[CUDA_MOST_STREAMS], event_count; /* behind all work that is queued */
};

/* Expect the engine's lock, on threads of the program. */
static inline bool ebb__gate_is_closed(const struct cuda_gate *gate)
{
    return atomic_load_explicit(&gate->is_closed, memory_order_seq_cst);
}

/* The rest is for the mover's thread, without a lock. */
/* One step towards a quiet device, if that is wanted. True: the state has changed. */
bool ebb__gate_step(struct cuda_gate *gate, struct cuda_streams *streams,
                    pthread_mutex_t *engine_lock, bool is_wanted);
static inline bool ebb__gate_is_quiet(const struct cuda_gate *gate)
{
    return gate->state == CUDA_GATE_QUIET;
}
/* Has it been quiet for as long as is permitted? */
bool ebb__gate_is_late(const struct cuda_gate *gate);
void ebb__gate_open(struct cuda_gate *gate, struct cuda_streams *streams);

#endif
