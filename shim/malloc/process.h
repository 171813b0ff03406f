/* What Ebb has in this process, and how it came: the state of the shim, for the files that start
 * it and keep it going. Others ask for the runtime (shim.h). */
#ifndef EBB_SHIM_PROCESS_H
#define EBB_SHIM_PROCESS_H

#include "shim.h"

#include "device/device.h"

/* How far the runtime's start has come. */
enum start_state {
    START_NOT_YET,
    START_UNDER_WAY, /* in another thread, or in this one further up */
    START_OVER,      /* it has been started, or could not be */
};

struct ebb_shim {
    int channel; /* to the parent; -1: none */
    struct ebb_ring *ring;
    struct ebb_ledger *ledger;
    struct ebb_ledger_slot *slot; /* of it, ours */
    int life_line;                /* -1: none */
    uint64_t store_limit_bytes;
    bool trace;
    atomic_bool compress; /* what goes to the store */
    struct ebb_device device;
    _Atomic(struct ebb_runtime *) runtime;
    _Atomic(struct ebb_slabs *) slabs; /* NULL also where address space is lacking */
    _Atomic enum start_state state;
};
extern struct ebb_shim ebb__shim;

/* process.c: as ebb__shim_warn(), for the runtime. */
void ebb__shim_tell(void *context, const char *message);

/* join.c: say hello, and enter the ledger unless this process has inherited it. */
bool ebb__shim_join(void);
/* In the child of a fork: a slot of its own. */
void ebb__shim_enter_ledger_anew(void);
/* Past our own munmap(): in the child of a fork it would ask a runtime that is not there yet,
 * where a hole in the arena has taken the mapping in. */
void ebb__shim_unmap(void *memory, size_t bytes);

/* service.c: the runtime's threads run; start the others. False: one of them cannot be started.
 * Then no fault is served. */
bool ebb__shim_start_threads(struct ebb_runtime *runtime);

#endif
