/* Waits: a table in shared memory of what the threads of a process wait for. It lets the parent see
 * a hang.
 *
 * A thread fills an entry before a wait that may be long, and clears it afterwards. Threads that
 * handle page faults make entries before they take the runtime's lock. The runtime makes one for
 * each awaited block, and the lanes one for each transfer. The parent reads the table at any time
 * without a lock: it is correct even if the runtime is stuck. If the table is full, further waits
 * are not recorded. That is harmless: the recorded waits either hang or end. */
#ifndef EBB_TRACE_WAITS_H
#define EBB_TRACE_WAITS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum ebb_wait_kind {
    EBB_WAIT_ANSWER = 1, /* a page fault that no thread has handled yet; the subject is its
                            address */
    EBB_WAIT_MESSAGE,    /* a message of the parent that no thread has handled yet */
    EBB_WAIT_NEW,        /* for a block without pages yet; from here on the subject is its index */
    EBB_WAIT_WRITING_BACK, /* for a block that is being written back */
    EBB_WAIT_EVICTED,      /* for a block that is evicted */
    EBB_WAIT_FETCHING,     /* for a block that is being fetched */
    EBB_WAIT_READ,         /* a transfer from the store */
    EBB_WAIT_WRITE,        /* a transfer to the store */
    EBB_WAIT_OPEN,         /* the store is being opened; no subject */
};

struct ebb_wait {
    _Atomic uint64_t since_ns; /* CLOCK_MONOTONIC; 0: the entry is free, UINT64_MAX: it is being
                                  filled */
    _Atomic uint64_t subject;
    _Atomic uint64_t serial; /* serial of the block; 0: small objects, or no block */
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

/* Takes a free entry of the `count` at `waits`; NULL if none is free. Thread-safe, without a
 * lock. */
struct ebb_wait *ebb__wait_begin(struct ebb_wait *waits, size_t count, enum ebb_wait_kind kind,
                                 uint64_t subject, uint64_t serial, uint64_t bytes);
/* `wait` may be NULL. */
void ebb__wait_end(struct ebb_wait *wait);

#endif
