/* Transfer: the transitions of a block, and the lanes in which it is written and read. */
#ifndef EBB_RUNTIME_TRANSFER_TRANSFER_H
#define EBB_RUNTIME_TRANSFER_TRANSFER_H

#include "runtime/memory/memory.h"

/* How the store does. */
struct store_health {
    bool open, opening;
    bool failed;       /* nothing leaves */
    bool doubtful;     /* it has failed, and nothing has been written since */
    bool recovered;    /* has been said */
    uint64_t retry_ns; /* when it is tried again; 0: never */
    uint64_t pause_ns; /* from the last failure to then; 0: it has never failed */
};

/* transfer/moves.c, transfer/lanes.c */
struct transfer {
    pthread_cond_t out_work, in_work;
    struct list out_queue, in_queue;
    uint32_t out_current, in_current; /* block being transferred with chunks left */
    uint64_t out_pending_bytes;       /* queued, leaving or given up: pages that will come free */
    uint64_t no_room_ns;              /* when there was no room last for what comes back */
    unsigned room_waits;              /* threads of the program that wait for room */
    pthread_t workers[16];
    unsigned worker_count;
    bool stopping;
    bool frozen;                /* around fork: workers take nothing new */
    unsigned transfers;         /* chunks in flight */
    unsigned lane_transfers[2]; /* likewise, only in the lanes: in, out */
    uint64_t lanes_since_ns;    /* when that changed last */
};

/* moves.c: the transitions of a block */
bool ebb__move_park(struct ebb_runtime *runtime, struct block *block);   /* RESIDENT -> PARKED */
void ebb__move_unpark(struct ebb_runtime *runtime, struct block *block); /* -> RESIDENT, wakes */
/* A block leaves for want of room, not by plan. */
void ebb__move_evict(struct ebb_runtime *runtime, struct block *block);
void ebb__move_queue_out(struct ebb_runtime *runtime, struct block *block, bool urgent);
void ebb__move_unqueue_out(struct ebb_runtime *runtime, struct block *block);
void ebb__move_queue_in(struct ebb_runtime *runtime, struct block *block, bool urgent);
/* Somebody waits for what is leaving or away: it stays, or is sent for. */
void ebb__move_call_back(struct ebb_runtime *runtime, struct block *block);
bool ebb__move_start_out(struct ebb_runtime *runtime, struct block *block); /* -> WRITING_BACK */
void ebb__move_finish_out(struct ebb_runtime *runtime, struct block *block);
bool ebb__move_start_in(struct ebb_runtime *runtime, struct block *block); /* -> FETCHING */
void ebb__move_finish_in(struct ebb_runtime *runtime, struct block *block);
/* FETCHING, nobody waits for it: its pages will come free, it goes back to where it came from. */
void ebb__move_give_up(struct ebb_runtime *runtime, struct block *block);
void ebb__move_discard(struct ebb_runtime *runtime, struct block *block); /* freed by the program */
void ebb__move_touch(struct ebb_runtime *runtime, struct block *block);   /* used now */

/* lanes.c */
/* False, with errno, where threads cannot be started: none is left then. */
EBB_NODISCARD bool ebb__mover_start(struct ebb_runtime *runtime);
void ebb__mover_stop(struct ebb_runtime *runtime);

/* store.c */
/* Opens the store at the first need; false where there is none. Releases the lock meanwhile. */
bool ebb__store_have(struct ebb_runtime *runtime);
/* It has failed with errno `why`: nothing leaves until it is tried again. */
void ebb__store_fail(struct ebb_runtime *runtime, int why);
/* A store that has failed is tried again where it is time. */
void ebb__store_retry(struct ebb_runtime *runtime, uint64_t now_ns);
/* Something has been written. */
void ebb__store_worked(struct ebb_runtime *runtime);

/* observe.c */
/* What was touched since the last event is watched again. */
void ebb__observe_close(struct ebb_runtime *runtime);
/* Another operation begins. */
void ebb__observe_begin(struct ebb_runtime *runtime, uint64_t now_ns);
/* A fault has happened: where the operation in progress has become long, another begins (true). */
bool ebb__observe_pause(struct ebb_runtime *runtime);
/* Accesses have begun to be observed: say so once nothing lies in the pool any more, where none is seen. */
void ebb__observe_note(struct ebb_runtime *runtime);

#endif
