/* Transfer: the transitions of a block, and the lanes in which it is written and read. */
#ifndef EBB_RUNTIME_TRANSFER_TRANSFER_H
#define EBB_RUNTIME_TRANSFER_TRANSFER_H

#include "runtime/memory/memory.h"

/* How the store does; store.c has the table of transitions. */
enum store_state {
    STORE_CLOSED = 0, /* it is opened when something is to leave */
    STORE_OPENING,
    STORE_WORKS,
    STORE_FAILED,   /* nothing leaves until it is tried again */
    STORE_TRIED,    /* again, and nothing has been written since */
    STORE_PUT_OFF,  /* the parent's has failed: ours is not opened before it is time */
    STORE_REFUSED,  /* it cannot be opened, or there is none: nothing leaves */
    STORE_TOO_DEEP, /* no place for it beside those of our ancestors: likewise */
};

struct store_health {
    enum store_state state;
    bool recovered;    /* that a store works again has been said */
    uint64_t retry_ns; /* when it is tried again; 0: never */
    uint64_t pause_ns; /* from the last failure to then; 0: it has never failed */
};

/* One of the two directions in which blocks are transferred, one block at a time; see lanes.c. */
struct lane {
    struct transfer *transfer;
    const struct direction *direction;
    pthread_cond_t work;
    struct list queue;
    uint32_t current;   /* block being transferred with chunks left */
    unsigned transfers; /* chunks in flight */
};

enum lanes_phase {
    LANES_RUN = 0,
    LANES_FROZEN, /* around fork: workers take nothing new */
    LANES_STOP,
};

struct transfer {
    struct core *core;
    struct table *table;
    struct addresses *addresses;
    struct memory *memory;
    struct store_health store;
    struct lane out, in;
    uint64_t out_pending_bytes; /* queued, leaving or given up: pages that will come free */
    uint64_t no_room_ns;        /* when there was no room last for what comes back */
    unsigned room_waits;        /* threads of the program that wait for room */
    pthread_t workers[16];
    unsigned worker_count;
    enum lanes_phase phase;
    unsigned transfers;      /* chunks in flight, and blocks being hashed */
    uint64_t lanes_since_ns; /* when a lane's transfers changed last */
    bool may_exceed;         /* the budget may be exceeded: nothing could leave */
};

/* May something leave, as far as is known? */
static inline bool ebb__store_may_write(const struct store_health *store)
{
    return store->state <= STORE_WORKS || store->state == STORE_TRIED;
}
/* Is there a store of ours? */
static inline bool ebb__store_is_open(const struct store_health *store)
{
    return store->state >= STORE_WORKS && store->state <= STORE_TRIED;
}

/* fork.c */
void ebb__transfer_init(struct transfer *transfer, struct memory *memory);
/* Around fork: transfers end, and all that is parked goes home. Releases the lock while it waits. True:
 * some block's only copy is in our store. */
bool ebb__transfer_before_fork(struct transfer *transfer);
/* In the parent: what was watched before is watched again. */
void ebb__transfer_after_fork(struct transfer *transfer);
/* In the child, after ebb__block_forked(): nothing is queued, no worker runs, the store is closed. */
void ebb__transfer_forked(struct transfer *transfer);

/* moves.c, write_back.c, fetch.c: the transitions of a block */
bool ebb__move_park(struct transfer *transfer, struct block *block);   /* RESIDENT -> PARKED */
void ebb__move_unpark(struct transfer *transfer, struct block *block); /* -> RESIDENT, wakes */
/* A block leaves for want of room, not by plan. */
void ebb__move_evict(struct transfer *transfer, struct block *block);
void ebb__move_queue_out(struct transfer *transfer, struct block *block, bool urgent);
void ebb__move_unqueue_out(struct transfer *transfer, struct block *block);
void ebb__move_queue_in(struct transfer *transfer, struct block *block, bool urgent);
/* Somebody waits for what is leaving or away: it stays, or is sent for. */
void ebb__move_call_back(struct transfer *transfer, struct block *block);
bool ebb__move_start_out(struct transfer *transfer, struct block *block); /* -> WRITING_BACK */
void ebb__move_finish_out(struct transfer *transfer, struct block *block);
bool ebb__move_start_in(struct transfer *transfer, struct block *block); /* -> FETCHING */
void ebb__move_finish_in(struct transfer *transfer, struct block *block);
/* FETCHING, nobody waits for it: its pages will come free, it goes back to where it came from. */
void ebb__move_give_up(struct transfer *transfer, struct block *block);
void ebb__move_discard(struct transfer *transfer, struct block *block); /* freed by the program */
void ebb__move_touch(struct transfer *transfer, struct block *block);   /* used now */
/* Within this part: the pages of a block, in its frames or else at its address, are not its own any more;
 * its pages are given and its end is recorded; pages have come free. */
void ebb__move_give_pages(struct transfer *transfer, struct block *block);
void ebb__move_bury(struct transfer *transfer, struct block *block);
void ebb__move_pages_came_free(struct transfer *transfer);
/* 128 bits of the bytes in its frames. No lock needed while it is in transfer. */
void ebb__move_hash(const struct block *block, uint64_t hash[2]);

/* lanes.c */
/* Nothing is queued, no worker runs. No lock needed. */
void ebb__lanes_init(struct transfer *transfer);
/* Is nothing queued or in flight? */
bool ebb__lanes_are_idle(const struct transfer *transfer);
void ebb__lanes_wake(struct transfer *transfer);
/* False, with errno, where threads cannot be started: none is left then. */
EBB_NODISCARD bool ebb__mover_start(struct transfer *transfer);
void ebb__mover_stop(struct transfer *transfer);

/* store.c */
bool ebb__store_may_become(enum store_state from, enum store_state to);
/* Opens the store at the first need; false where there is none. Releases the lock meanwhile. */
bool ebb__store_have(struct transfer *transfer);
/* It has failed with errno `why`: nothing leaves until it is tried again. */
void ebb__store_fail(struct transfer *transfer, int why);
/* A store that has failed is tried again where it is time. */
void ebb__store_retry(struct transfer *transfer, uint64_t now_ns);
/* Something has been written. */
void ebb__store_worked(struct transfer *transfer);
/* In the child of a fork: the parent's is an ancestor's. */
void ebb__store_forked(struct transfer *transfer);

/* observe.c */
/* What was touched since the last event is watched again. */
void ebb__observe_close(struct transfer *transfer);
/* Another operation begins. */
void ebb__observe_begin(struct transfer *transfer, uint64_t now_ns);
/* A fault has happened: where the operation in progress has become long, another begins (true). */
bool ebb__observe_pause(struct transfer *transfer);
/* Accesses have begun to be observed: say so once nothing lies in the pool any more, where none is seen. */
void ebb__observe_note(struct transfer *transfer);

#endif
