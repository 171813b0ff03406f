/* The state of the shim in this process, for the files that start it and keep it running. Other
 * files ask for the runtime (shim.h). */
#ifndef EBB_SHIM_PROCESS_H
#define EBB_SHIM_PROCESS_H

#include "shim.h"

#include "device/device.h"

/* Progress of the runtime's start. */
enum start_state {
    START_NOT_YET,
    START_UNDER_WAY, /* in another thread, or in a caller of this function */
    START_OVER,      /* it was started, or the start failed */
    START_RETIRED,   /* the process uses a device: the runtime, if there is one, only frees */
};

/* A ledger of the run. */
struct shim_ledger {
    struct ebb_ledger *shared;    /* NULL: none */
    struct ebb_ledger_slot *slot; /* this process's slot in it */
    int life_line;                /* -1: none */
};

struct ebb_shim {
    int channel; /* to the parent; -1: none */
    struct ebb_ring *ring;
    struct shim_ledger budget;
    struct shim_ledger store; /* what all processes have in their stores, if it is limited */
    uint64_t store_limit_bytes;
    bool trace;
    atomic_bool compress; /* writes to the store leave out zeros */
    struct ebb_device device;
    _Atomic(struct ebb_runtime *) runtime;
    _Atomic(struct ebb_slabs *) slabs;         /* NULL also if address space is lacking */
    _Atomic(struct ebb_slabs *) serving_slabs; /* the same, for new objects: NULL once retired */
    _Atomic enum start_state state;
};
extern struct ebb_shim ebb__shim;

/* process.c, for start.c: the calling thread may start the runtime, and calls the second function
 * afterwards. False: another thread does or has, or a fork is under way. */
bool ebb__shim_begin_start(void);
void ebb__shim_end_start(void);
/* process.c: ebb__shim_warn() for the runtime. */
void ebb__shim_tell(void *context, const char *message);

/* join.c: says hello, and enters the ledgers unless this process has inherited them. */
bool ebb__shim_join(void);
/* For the child of a fork: takes its own slots. */
void ebb__shim_enter_ledgers_anew(void);
/* The ledger of the store for the runtime. NULL: it is not limited, or this process has no slot of
 * its own, so that what it takes would be counted for ever. Then it has the limit for itself. */
struct ebb_ledger *ebb__shim_store_ledger(void);
/* Bypasses the shim's munmap(). If the mapping lies in a hole of the arena, that function would
 * call the runtime. The child of a fork has no runtime yet. */
void ebb__shim_unmap(void *memory, size_t bytes);

/* service.c: starts the other threads, after those of the runtime. Returns false if a thread cannot
 * be started. Then no fault is served. */
bool ebb__shim_start_threads(struct ebb_runtime *runtime);

#endif
