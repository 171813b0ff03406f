/* The runtime: keeps the managed blocks of one process within the budget.
 *
 *     ebb__runtime_create(&config, &runtime)
 *     p = ebb__runtime_alloc(runtime, bytes, zeroed);   the program's thread
 *     ebb__runtime_free(runtime, p);
 *     ebb__runtime_fault(runtime, address, is_write);   the thread that reads faults
 *
 * A block is in one of these states; each transition is one function of transfer/moves.c:
 *
 *     bare -> resident <-> parked -> writing back -> evicted -> fetching -> resident
 *
 * parked: its pages are in staging; an access is seen and unparks it at once. bare: it has no pages
 * yet (while accesses are traced). One lock protects all state; transfers happen outside of it.
 * Until a script is in force, and whenever the program departs from it, the runtime is reactive: it
 * evicts the block that is needed latest as far as known, else the least recently used one, and
 * fetches on access. */
#ifndef EBB_RUNTIME_RUNTIME_H
#define EBB_RUNTIME_RUNTIME_H

#include "runtime/config.h"
#include "runtime/script.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ebb_runtime;

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
/* One with its pages. Waits for evictions if need be, and exceeds the budget if those do not help;
 * 0 if memory is out. Its bytes are undefined. And the reverse, whatever it holds. Thread-safe. */
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
 * soon as the live stream is found in it; if a script of the same iteration is in force, when the
 * static placement of that one holds the fewest bytes. EBB_ERR_FORMAT if it is not valid. */
EBB_NODISCARD enum ebb_status ebb__runtime_set_script(struct ebb_runtime *runtime,
                                                      const struct ebb_script *script,
                                                      uint64_t bytes);
/* None of the scripts is in force any more. */
void ebb__runtime_forget_scripts(struct ebb_runtime *runtime);
/* Start or stop observing accesses. */
void ebb__runtime_set_trace(struct ebb_runtime *runtime, bool on);
/* The ledger's budget has changed: release what exceeds it. */
void ebb__runtime_trim(struct ebb_runtime *runtime);

/* Release `bytes` to the system as soon as possible: another process of the run starves. */
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
