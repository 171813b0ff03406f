/* The runtime: keeps the managed blocks of one process within the budget.
 *
 *     ebb__runtime_create(&config, &runtime)
 *     p = ebb__runtime_alloc(runtime, bytes, zeroed);   the program's thread
 *     ebb__runtime_free(runtime, p);
 *     ebb__runtime_fault(runtime, address, is_write);   the thread that reads faults
 *
 * A block is in one of these states; each transition is one function of transfer/moves.c:
 *
 *     bare -> resident <-> parked -> leaving -> away -> coming -> resident
 *
 * parked: its pages are in staging, an access is seen and brings it back at once. bare: it has no
 * pages yet (while accesses are traced). All state is guarded by one lock; transfers happen
 * outside of it. Until a script is in force, and whenever the program departs from it, the runtime
 * is reactive: it evicts what is needed latest as far as known, else what was used longest ago,
 * and fetches on access. */
#ifndef EBB_RUNTIME_RUNTIME_H
#define EBB_RUNTIME_RUNTIME_H

#include "base/status.h"
#include "device/device.h"
#include "runtime/ledger.h"
#include "runtime/script.h"
#include "store/store.h"
#include "trace/ring.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ebb_runtime;

struct ebb_runtime_config {
    struct ebb_device device;
    struct ebb_ledger *ledger;
    struct ebb_ledger_slot *slot; /* of it, this process's; NULL: the first */
    struct ebb_ring *ring;        /* events and counters go here */
    bool trace;                   /* observe accesses from the start */
    bool verify;                  /* check what comes back against what left, by a 128-bit hash */
    uint64_t part_from_bytes; /* blocks from here on have parts; 0: part_from_bytes of the tuning */
    uint64_t pause_ns; /* an operation ends after so long without an event; 0: that of the tuning */
    uint64_t
        slab_reclaim_ns; /* slabs are looked at so often at most; 0: slab_look_ns of the tuning */
    uint64_t store_pause_ns; /* a store that failed is tried again after that, doubling; 0:
                                that of the tuning */
    uint32_t exchange_share; /* as a divisor; 0: exchange_divisor of the tuning */
    uint32_t process_id;
    /* Opens the store when something must leave for the first time; may be NULL (nothing moves).
     * Called without the runtime's lock. */
    enum ebb_status (*open_store)(void *context, struct ebb_store *store, struct ebb_error *error);
    /* Tells the person who runs the program something that must not go unsaid. */
    void (*warn)(void *context, const char *message);
    /* The runtime has opened a descriptor that the program must not close, or gives it up. May be NULL. */
    void (*protect)(void *context, int descriptor, bool on);
    /* The only copy of a block could not be read: does not return, or the block stays absent. */
    void (*lost)(void *context, const char *message);
    void *context;
    unsigned out_workers, in_workers; /* transfers in flight a lane; 0: four */
};

/* EBB_ERR_MEMORY, or EBB_ERR_LIMIT where threads cannot be started; nothing is left behind then. */
EBB_NODISCARD enum ebb_status ebb__runtime_create(const struct ebb_runtime_config *config,
                                                  struct ebb_runtime **runtime,
                                                  struct ebb_error *error);
/* Threads that it has started. */
unsigned ebb__runtime_thread_count(const struct ebb_runtime *runtime);
/* Stops the workers, drops everything. No block may be in use. */
void ebb__runtime_destroy(struct ebb_runtime *runtime);

/* A block of `bytes` (> 0), page aligned; aligned to `alignment` (a power of two up to 2 MiB).
 * NULL where address space or memory is out. zeroed: its bytes are zero. Thread-safe. */
void *ebb__runtime_alloc(struct ebb_runtime *runtime, size_t bytes, size_t alignment, bool zeroed);
/* True where `pointer` lies in the arena, but not among the slabs. Thread-safe, no lock. */
bool ebb__runtime_owns(const struct ebb_runtime *runtime, const void *pointer);
/* Free a block by its start; false where no block starts there. Thread-safe. */
bool ebb__runtime_free(struct ebb_runtime *runtime, void *pointer);
/* Bytes that may be used at `pointer`; 0 where no block starts there. Thread-safe. */
size_t ebb__runtime_usable_bytes(struct ebb_runtime *runtime, const void *pointer);

/* Slabs, for small objects: EBB_SLAB_BYTES each, all in one range of `*most` of them that begins at the
 * returned address. Thread-safe. */
uintptr_t ebb__runtime_slabs(const struct ebb_runtime *runtime, size_t *most);
/* One with its pages, waiting for blocks to leave if need be, over the budget if that is of no use; 0
 * where memory is out. Its bytes are any. And back, whatever is in it. Thread-safe. */
uintptr_t ebb__runtime_take_slab(struct ebb_runtime *runtime);
void ebb__runtime_give_slab(struct ebb_runtime *runtime, uintptr_t slab);
/* So many bytes more (or fewer) are in use. Thread-safe, no lock. */
void ebb__runtime_count_live(struct ebb_runtime *runtime, int64_t bytes);

/* A thread of the program waits for the page at `address`. Never blocks on a transfer. */
void ebb__runtime_fault(struct ebb_runtime *runtime, uintptr_t address, bool write);

/* As ebb__runtime_fault(), from the thread that waits, and until the page is there: for devices whose
 * faults are signals. False: the block is kept and here, so that the fault may be the program's own. */
bool ebb__runtime_await(struct ebb_runtime *runtime, uintptr_t address, bool write);

/* Bring [pointer, + bytes), as far as it lies in the block that `pointer` points into, into memory
 * and keep it there until the same range is unpinned as often: for the buffers of a system call on devices
 * with calls_need_pins. False: it lies in none. Thread-safe; touches the pages. */
bool ebb__runtime_pin(struct ebb_runtime *runtime, const void *pointer, uint64_t bytes);
void ebb__runtime_unpin(struct ebb_runtime *runtime, const void *pointer, uint64_t bytes);

/* Bring what [pointer, + bytes) meets of blocks into memory and keep it there, with the pages that it
 * has, until it is freed: before the program changes the mapping there, or lends the pages to the
 * kernel for longer than a call. Of a large block whole parts are kept. Slabs, too. False: no
 * block is there. Thread-safe; waits for transfers, touches nothing. */
bool ebb__runtime_keep(struct ebb_runtime *runtime, const void *pointer, uint64_t bytes);
/* Does the block at `pointer`, which stays alive meanwhile, stay in memory for good? No lock. */
bool ebb__runtime_stays(const struct ebb_runtime *runtime, const void *pointer);
/* Is some of that kept? Thread-safe. */
bool ebb__runtime_is_kept(struct ebb_runtime *runtime, const void *pointer, uint64_t bytes);

/* Put a script in force (copied by reference: `script` stays mapped for life); it takes effect as
 * soon as the live stream is found in it; where one of the same iteration plays, when the least lies at
 * the addresses of that one. EBB_ERR_FORMAT where it is not valid. */
EBB_NODISCARD enum ebb_status ebb__runtime_set_script(struct ebb_runtime *runtime,
                                                      const struct ebb_script *script,
                                                      uint64_t bytes);
/* None of the scripts is in force any more. */
void ebb__runtime_forget_scripts(struct ebb_runtime *runtime);
/* Start or stop observing accesses. */
void ebb__runtime_set_trace(struct ebb_runtime *runtime, bool on);
/* The ledger's budget has changed: give back what is over it. */
void ebb__runtime_trim(struct ebb_runtime *runtime);

/* Give `bytes` back to the system as soon as may be: another process of the run starves. */
void ebb__runtime_shrink(struct ebb_runtime *runtime, uint64_t bytes);

/* Around fork(): before, in the parent, and in the child (where `device` must have been set up
 * again already). The child starts reactive, with the parent's absent blocks readable from the
 * store that both share. */
void ebb__runtime_before_fork(struct ebb_runtime *runtime);
void ebb__runtime_after_fork_parent(struct ebb_runtime *runtime);
EBB_NODISCARD enum ebb_status ebb__runtime_after_fork_child(struct ebb_runtime *runtime,
                                                            struct ebb_ledger *ledger,
                                                            struct ebb_ring *ring);

/* In the child, first of all: what the program does not let a child have (MADV_DONTFORK) is a place without
 * access there, where nothing else comes to lie. Takes no lock. */
void ebb__runtime_close_holes(struct ebb_runtime *runtime);

/* In the child, directly behind the device's own setting up: what is kept waits for nobody there either. The
 * thread that forks may stand on it, and no fault is served yet. Takes no lock. */
void ebb__runtime_let_kept(struct ebb_runtime *runtime);
/* In the child, before ebb__runtime_after_fork_child(): its own slot of the ledger, instead of its
 * parent's. */
void ebb__runtime_set_slot(struct ebb_runtime *runtime, struct ebb_ledger_slot *slot);

/* For tests and debugging: wait until no transfer is queued or in flight. */
void ebb__runtime_settle(struct ebb_runtime *runtime);

#endif
