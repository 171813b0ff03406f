/* Transfer: the transitions of a block, and the lanes that write blocks back and fetch them. */
#ifndef EBB_RUNTIME_TRANSFER_TRANSFER_H
#define EBB_RUNTIME_TRANSFER_TRANSFER_H

#include "runtime/memory/memory.h"

/* The state of the store; store.c has the table of transitions. */
enum store_state {
    STORE_CLOSED = 0, /* it is opened before the first eviction */
    STORE_OPENING,
    STORE_WORKS,
    STORE_FAILED, /* nothing is evicted until it is retried */
    STORE_TRIED,  /* being retried; nothing has been written since */
    /* It could not be opened, or the parent's has failed. It is opened at the retry time. */
    STORE_PUT_OFF,
    STORE_REFUSED,  /* there is none: nothing is evicted */
    STORE_TOO_DEEP, /* no place for it beside the stores of ancestors: nothing is evicted */
};

struct store_health {
    enum store_state state;
    bool recovered;    /* the message that the store works again has been sent */
    uint64_t retry_ns; /* when the store is retried; 0: never */
    uint64_t pause_ns; /* from the last failure to the retry; 0: it has never failed */
};

/* One of the two directions of transfer. It transfers one block at a time; see lanes.c. */
struct lane {
    struct transfer *transfer;
    const struct direction *direction;
    pthread_cond_t work;
    struct list queue;
    uint32_t current;   /* block in transfer that has further chunks to start */
    unsigned transfers; /* chunks in flight */
};

enum lanes_phase {
    LANES_RUN = 0,
    LANES_FROZEN, /* around fork: workers start no transfers */
    LANES_STOP,
};

struct transfer {
    struct core *core;
    struct table *table;
    struct addresses *addresses;
    struct memory *memory;
    struct store_health store;
    struct lane out, in;
    /* Bytes of blocks queued for write back, being written back or given up. Their pages will be
     * freed. */
    uint64_t out_pending_bytes;
    uint64_t no_room_ns; /* when memory for fetches was last exhausted */
    unsigned room_waits; /* threads of the program that wait for memory */
    pthread_t workers[16];
    unsigned worker_count;
    enum lanes_phase phase;
    unsigned transfers;      /* chunks in flight, and blocks being hashed */
    uint64_t lanes_since_ns; /* when the transfers in a lane last changed */
    /* When blocks are observed again that a fork has made resident. 0: they are. */
    uint64_t observe_ns;
    bool may_exceed; /* the budget may be exceeded, since nothing could be evicted */
};

/* Is eviction possible, as far as is known? */
static inline bool ebb__store_may_write(const struct store_health *store)
{
    return store->state <= STORE_WORKS || store->state == STORE_TRIED;
}
/* Is our own store open? */
static inline bool ebb__store_is_open(const struct store_health *store)
{
    return store->state >= STORE_WORKS && store->state <= STORE_TRIED;
}

/* fork.c */
void ebb__transfer_init(struct transfer *transfer, struct memory *memory);
/* Before fork: ends transfers and unparks all parked blocks. Releases the lock while it waits.
 * True: the only copy of some block is in our store. */
bool ebb__transfer_before_fork(struct transfer *transfer);
/* In the parent after fork. */
void ebb__transfer_after_fork(struct transfer *transfer);
/* In the child, after ebb__block_forked(): nothing is queued, no worker runs, the store is
 * closed. */
void ebb__transfer_forked(struct transfer *transfer);

/* moves.c, write_back.c, fetch.c: the transitions of a block */
bool ebb__move_park(struct transfer *transfer, struct block *block);   /* RESIDENT -> PARKED */
void ebb__move_unpark(struct transfer *transfer, struct block *block); /* -> RESIDENT, wakes
                                                                          waiting threads */
/* Begins to evict a block because memory is short, not by plan. */
void ebb__move_evict(struct transfer *transfer, struct block *block);
void ebb__move_queue_out(struct transfer *transfer, struct block *block, bool urgent);
void ebb__move_unqueue_out(struct transfer *transfer, struct block *block);
void ebb__move_queue_in(struct transfer *transfer, struct block *block, bool urgent);
/* A thread waits for a block that is being written back or is evicted: cancels the write back, or
 * fetches the block. */
void ebb__move_call_back(struct transfer *transfer, struct block *block);
bool ebb__move_start_out(struct transfer *transfer, struct block *block); /* -> WRITING_BACK */
void ebb__move_finish_out(struct transfer *transfer, struct block *block);
bool ebb__move_start_in(struct transfer *transfer, struct block *block); /* -> FETCHING */
void ebb__move_finish_in(struct transfer *transfer, struct block *block);
/* A FETCHING block that no thread waits for: cancels the fetch. Its pages will be freed. */
void ebb__move_give_up(struct transfer *transfer, struct block *block);
void ebb__move_discard(struct transfer *transfer, struct block *block); /* the program has freed
                                                                           it */
void ebb__move_touch(struct transfer *transfer, struct block *block);   /* the program uses it
                                                                           now */
/* Within this part. `give_pages`: takes the pages from a block, in its frames or else at its
 * address. `bury`: frees a block's pages, copy and addresses. `pages_came_free`: wakes the threads
 * that wait for memory. */
void ebb__move_give_pages(struct transfer *transfer, struct block *block);
void ebb__move_bury(struct transfer *transfer, struct block *block);
void ebb__move_pages_came_free(struct transfer *transfer);
/* A 128-bit hash of the bytes in the block's frames. No lock needed while it is in transfer. */
void ebb__move_hash(const struct block *block, uint64_t hash[2]);

/* lanes.c */
/* Empties the queues; no worker runs yet. No lock needed. */
void ebb__lanes_init(struct transfer *transfer);
/* Is nothing queued or in flight? */
bool ebb__lanes_are_idle(const struct transfer *transfer);
void ebb__lanes_wake(struct transfer *transfer);
/* Starts the workers. False, with errno, if threads cannot be started; none runs then. */
EBB_NODISCARD bool ebb__mover_start(struct transfer *transfer);
void ebb__mover_stop(struct transfer *transfer);

/* store.c */
bool ebb__store_may_become(enum store_state from, enum store_state to);
/* Opens the store if it is not open. False if there is none. Releases the lock meanwhile. */
bool ebb__store_have(struct transfer *transfer);
/* The store has failed with errno `why`: nothing is evicted until it is retried. */
void ebb__store_fail(struct transfer *transfer, int why);
/* Retries a failed store if its time has come. */
void ebb__store_retry(struct transfer *transfer, uint64_t now_ns);
/* A write to the store has succeeded. */
void ebb__store_worked(struct transfer *transfer);
/* In the child of a fork: the parent's store becomes an ancestor's. */
void ebb__store_forked(struct transfer *transfer);

/* observe.c */
/* Observes again the open blocks that have been open for long enough. */
void ebb__observe_close(struct transfer *transfer);
/* True if accesses are observed but for those that follow another one of the block closely. */
bool ebb__observe_is_coarse(const struct transfer *transfer);
/* Tells the parent of an access. `flags`: EBB_EVENT_DEMAND, and EBB_EVENT_LATE, or 0. */
void ebb__observe_access(struct transfer *transfer, const struct block *block,
                         enum ebb_access_kind access, uint8_t flags);
/* Tells the parent that an open block may have been used until now. */
void ebb__observe_last_use(struct transfer *transfer, const struct block *block);
/* Observes again what was observed before a fork, if it is time. Returns when to call again
 * (CLOCK_MONOTONIC); 0: nothing is to be done. */
uint64_t ebb__observe_forked(struct transfer *transfer, uint64_t now_ns);
/* Begins another operation. */
void ebb__observe_begin(struct transfer *transfer, uint64_t now_ns);
/* A fault has happened. If the current operation has become long, begins another and returns
 * true. */
bool ebb__observe_pause(struct transfer *transfer);
/* Accesses are now being observed. Says so as soon as the static placement is empty, since none is
 * seen there. */
void ebb__observe_note(struct transfer *transfer);

#endif
