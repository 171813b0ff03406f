/* The mover: one thread that makes real what the launch order has decided.
 *
 * Requests are numbered in launch order and wait in queues: *in* takes device memory (POPULATE,
 * FETCH), *out* returns it (EVICT, DROP). Each queue is first in, first out. Where dead bytes leave
 * at once (`drops_at_once`), DROP and FORGET have a queue of their own, and wait for no transfer. A
 * request waits for earlier ones of another queue only if they concern the same units. In truth:
 *
 * - Device memory is entered in the ledger before pages appear, and taken out when they are gone.
 *   So an *in* waits until *outs* have made room.
 * - An *out* waits for events behind the work that used its units. This work was queued before the
 *   request, and depends on earlier requests only. So the queues never wait for each other in a
 *   circle, unless kernels wait for kernels that are queued later.
 * - For those there is patience. If no *in*, no *out* and no awaited work has ended for so long, an
 *   *in* *gives up*. It counts as arrived, and its contents are used where they are, over the bus.
 *   The block is a *stray* then, and its next use fetches it again. If a move beside that use would
 *   lose bytes, an eviction of the block that has not begun does not happen.
 *
 * Arrivals of *ins* are numbered, too, with even numbers from 2, modulo 2^32. A counter in pinned
 * memory has the newest arrival. Streams wait for it on the device, and the engine looks at it. The
 * lane writes it, behind all copies that are queued there. New memory needs no copy: with
 * `populates_at_once` its arrival is the odd number before its own. That is over when it is issued,
 * and no stream waits for it.
 *
 * The mover's thread takes the engine's lock only to look which work is over, and never waits for
 * it. Functions expect the engine's lock unless stated otherwise. */
#ifndef EBB_CUDA_MOVER_H
#define EBB_CUDA_MOVER_H

#include "cuda/backing.h"
#include "cuda/clock.h"
#include "cuda/gate.h"
#include "cuda/streams.h"
#include "cuda/table.h"

#define CUDA_MOVE_EVENTS 32u
#define CUDA_FLAG_BYTES 4096u /* pinned, for the counter of arrivals */

enum cuda_move_kind {
    CUDA_MOVE_POPULATE,
    CUDA_MOVE_FETCH,
    CUDA_MOVE_EVICT,
    CUDA_MOVE_DROP,
    CUDA_MOVE_FORGET, /* contents in host memory are dead */
    CUDA_MOVE_SERVE,  /* an *in* without device memory: host memory with undefined contents */
};

enum cuda_queue_kind { CUDA_QUEUE_IN, CUDA_QUEUE_OUT, CUDA_QUEUE_DROP, CUDA_QUEUES };

struct cuda_move {
    uint64_t number;
    /* In each queue the newest earlier request that is the newest one of a unit; 0: none. */
    uint64_t after[CUDA_QUEUES];
    uint32_t first, count; /* units */
    uint32_t arrival;      /* of an in */
    uint8_t kind;          /* enum cuda_move_kind */
    bool is_dead;          /* FETCH: the block has been freed. EVICT: what is left of it stays */
    uint32_t left;         /* of an EVICT: units that have left */
    uint32_t events[CUDA_MOVE_EVENTS], event_count; /* to wait for, with references */
};

/* A queue in a ring that grows. Items [first, issued) are on their way, [issued, last) wait. */
struct cuda_queue {
    struct cuda_move *items;
    uint64_t capacity; /* a power of two */
    uint64_t first, issued, last;
};

enum cuda_real { /* what is true of a unit */
                 CUDA_REAL_NOWHERE,
                 CUDA_REAL_DEVICE,
                 CUDA_REAL_HOST,
};

struct cuda_mover_config {
    const struct ebb_cuda_config *engine;
    struct ebb_cuda_backing *backing;
    struct cuda_streams *streams;
    struct cuda_table *table;
    struct ebb_cuda_clock *clock; /* or NULL */
    struct cuda_gate *gate;
    pthread_mutex_t *engine_lock;
    uint32_t first_arrival; /* 2, but for tests of what happens after 2^32 */
};

struct cuda_mover;

EBB_NODISCARD enum ebb_status ebb__mover_create(const struct cuda_mover_config *config,
                                                struct cuda_mover **mover, struct ebb_error *error);
/* Ends the thread. Requests that have not begun are not carried out, and count as arrived. Call it
 * without the lock. is_forked: the thread is not there. */
void ebb__mover_stop(struct cuda_mover *mover, bool is_abandoned, bool is_forked);
void ebb__mover_destroy(struct cuda_mover *mover, bool is_abandoned);

/* The next `count` requests will be accepted. False: memory is exhausted. */
bool ebb__mover_has_room(struct cuda_mover *mover, unsigned count);
/* A request. Its number for an out; in *arrival the arrival of an in. */
uint64_t ebb__mover_add(struct cuda_mover *mover, const struct cuda_move *move, uint32_t *arrival);
/* The contents that a FETCH brings are dead. Nothing happens if it is over. */
void ebb__mover_kill(struct cuda_mover *mover, uint64_t number);
/* What is left of an EVICT stays on the device, and a FETCH brings back what has left. Nothing
 * happens if it is over, or if an *in* waits for memory, which may be that of this EVICT. */
void ebb__mover_call_off(struct cuda_mover *mover, uint64_t number);
/* Starts the thread's work on what was added. */
void ebb__mover_wake(struct cuda_mover *mover);

/* All *outs* up to the number that it points to are over. */
const _Atomic uint64_t *ebb__mover_outs_over(const struct cuda_mover *mover);

/* Thread-safe, without the lock. */
bool ebb__mover_is_over(const struct cuda_mover *mover, uint32_t arrival);
/* The newest arrival that has been given out. */
uint32_t ebb__mover_last_arrival(const struct cuda_mover *mover);
/* Are its transfers queued on the device? A stream may wait for it only then, since what it waits
 * for must not need a call of the driver. Calls that wait for a stream keep others out: a copy from
 * pageable memory, the loading of a module. No lock. */
bool ebb__mover_is_issued(const struct cuda_mover *mover, uint32_t arrival);
/* Queues a wait for the arrival on the stream. False: the device cannot; the caller waits. */
bool ebb__mover_await(struct cuda_mover *mover, CUstream stream, uint32_t arrival);
uint64_t ebb__mover_held_bytes(const struct cuda_mover *mover);
/* Units of evictions that are not over. */
uint64_t ebb__mover_leaving_units(const struct cuda_mover *mover);
/* Bytes that should have left the device and could not. */
uint64_t ebb__mover_stuck_bytes(const struct cuda_mover *mover);
/* Has any block strayed? If so: has one with these units? */
bool ebb__mover_has_strays(const struct cuda_mover *mover);
bool ebb__mover_is_stray(const struct cuda_mover *mover, uint32_t first, uint32_t count);
/* How often has patience ended? */
uint64_t ebb__mover_give_ups(const struct cuda_mover *mover);

#endif
