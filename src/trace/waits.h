/* Waits: what threads of a process wait for, in shared memory, so that the parent sees a hang.
 *
 * Whoever may have to wait for long says so in a place of a table before, and clears it after: the
 * threads that answer faults before they take the runtime's lock, the runtime for each block that is
 * waited for, the lanes for each transfer. The parent reads the table at any time, without a lock:
 * it is true even where the runtime is stuck. A table that is full says nothing of what comes on top,
 * which is no loss: what has filled it hangs, or goes on. */
#ifndef EBB_TRACE_WAITS_H
#define EBB_TRACE_WAITS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum ebb_wait_kind {
    EBB_WAIT_ANSWER = 1, /* a fault that nobody has looked at yet; the subject is its address */
    EBB_WAIT_MESSAGE,    /* a message of the parent, likewise */
    EBB_WAIT_NEW,        /* for a block that has no pages yet; from here the subject is its index */
    EBB_WAIT_WRITING_BACK, /* for one that is being written back */
    EBB_WAIT_EVICTED,      /* for one that is evicted */
    EBB_WAIT_FETCHING,     /* for one that is being fetched */
    EBB_WAIT_READ,         /* a transfer from the store */
    EBB_WAIT_WRITE,        /* to it */
    EBB_WAIT_OPEN,         /* the store is being opened; no subject */
};

struct ebb_wait {
    _Atomic uint64_t since_ns; /* CLOCK_MONOTONIC; 0: the place is free, UINT64_MAX: not said yet */
    _Atomic uint64_t subject;
    _Atomic uint64_t serial; /* of the block; 0: small objects, or no block */
    _Atomic uint64_t bytes;  /* of the block */
    _Atomic uint32_t kind;   /* enum ebb_wait_kind */
};

#define EBB_WAIT_ANSWERS 16u
#define EBB_WAIT_BLOCKS 24u
#define EBB_WAIT_TRANSFERS 24u

struct ebb_waits {
    struct ebb_wait answers[EBB_WAIT_ANSWERS];
    struct ebb_wait blocks[EBB_WAIT_BLOCKS];
    struct ebb_wait transfers[EBB_WAIT_TRANSFERS];
};

/* Take a free place of `count` at `waits`; NULL: none is. Thread-safe, no lock. */
struct ebb_wait *ebb__wait_begin(struct ebb_wait *waits, size_t count, enum ebb_wait_kind kind,
                                 uint64_t subject, uint64_t serial, uint64_t bytes);
/* NULL is fine. */
void ebb__wait_end(struct ebb_wait *wait);

#endif
