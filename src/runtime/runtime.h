/* The runtime: keeps the managed blocks of one process within the budget.
 *
 *     ebb__runtime_create(&config, &runtime)
 *     p = ebb__runtime_alloc(runtime, bytes, zeroed);   the program's thread
 *     ebb__runtime_free(runtime, p);
 *     ebb__runtime_fault(runtime, address, is_write);   the thread that reads faults
 *
 * A block is in one of these states. Each transition is one function of transfer/moves.c:
 *
 *     bare -> resident <-> parked -> writing back -> evicted -> fetching -> resident
 *
 * A parked block has its pages in staging. An access to it is seen, and unparks it at once. A bare
 * block has no pages yet, while accesses are traced. One lock protects all state; transfers run
 * without it. The runtime is reactive until a script is in force, and whenever the program departs
 * from it. It then evicts the block with the latest known next use, else the least recently used
 * one. It fetches on access. */
#ifndef EBB_RUNTIME_RUNTIME_H
#define EBB_RUNTIME_RUNTIME_H

#include "runtime/config.h"
#include "runtime/protocol.h"
#include "runtime/script.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ebb_runtime;

/* EBB_ERR_MEMORY, or EBB_ERR_LIMIT if threads cannot be started. Nothing remains after a
 * failure. */
EBB_NODISCARD enum ebb_status ebb__runtime_create(const struct ebb_runtime_config *config,
                                                  struct ebb_runtime **runtime,
                                                  struct ebb_error *error);
/* The number of threads that it has started. */
unsigned ebb__runtime_thread_count(const struct ebb_runtime *runtime);
/* Stops the workers and frees everything. No block may be in use. */
void ebb__runtime_destroy(struct ebb_runtime *runtime);

/* A block of `bytes` (> 0), page aligned and aligned to `alignment`, a power of two up to 2 MiB.
 * NULL if address space or memory is exhausted. zeroed: its bytes are zero. Thread-safe. */
void *ebb__runtime_alloc(struct ebb_runtime *runtime, size_t bytes, size_t alignment, bool zeroed);
/* True if `pointer` lies in the arena, but not among the slabs. Thread-safe, no lock. */
bool ebb__runtime_owns(const struct ebb_runtime *runtime, const void *pointer);
/* Frees the block that starts at `pointer`. False if no block starts there. Thread-safe. */
bool ebb__runtime_free(struct ebb_runtime *runtime, void *pointer);
/* Usable bytes of the block at `pointer`. 0 if no block starts there. Thread-safe. */
size_t ebb__runtime_usable_bytes(struct ebb_runtime *runtime, const void *pointer);

/* Start of the range of all slabs, which hold small objects. *most: slabs in the range,
 * EBB_SLAB_BYTES each. Thread-safe. */
uintptr_t ebb__runtime_slabs(const struct ebb_runtime *runtime, size_t *most);
/* Takes a slab with its pages; its bytes are undefined. Waits for evictions if necessary, and
 * exceeds the budget if they do not suffice. 0 if memory is exhausted. Giving ignores the slab's
 * content. Thread-safe. */
uintptr_t ebb__runtime_take_slab(struct ebb_runtime *runtime);
void ebb__runtime_give_slab(struct ebb_runtime *runtime, uintptr_t slab);
/* The program tells where it is: an iteration, a layer or a phase begins. Thread-safe. */
void ebb__runtime_mark(struct ebb_runtime *runtime, enum ebb_mark mark, uint64_t value);
/* `bytes` more are in use, or fewer if negative. Thread-safe, no lock. */
void ebb__runtime_count_live(struct ebb_runtime *runtime, int64_t bytes);

/* The process steps back from the run, for good: a device that it begins to use has the budget.
 * Brings all blocks back, which stay until they are freed. Then it takes no blocks and slabs, obeys
 * no message, and its pages are not in the run's ledger. Any further call does nothing, and waits
 * for the first. False: the only copy of some block cannot be read; accesses to that one are still
 * served. Thread-safe; waits for transfers. */
bool ebb__runtime_retire(struct ebb_runtime *runtime);

/* A thread of the program waits for the page at `address`. Never blocks on a transfer. */
void ebb__runtime_fault(struct ebb_runtime *runtime, uintptr_t address, bool write);

/* As ebb__runtime_fault(), but the thread that faulted calls it, and it returns when the page is
 * mapped. For devices whose faults are signals. False: the block is kept and resident, so the fault
 * may be the program's own. */
bool ebb__runtime_await(struct ebb_runtime *runtime, uintptr_t address, bool write);

/* Makes [pointer, + bytes) resident, as far as it lies in the block of `pointer`. It stays resident
 * until the same range is unpinned as often. For the buffers of system calls on devices with
 * calls_need_pins. False: it lies in no block. Thread-safe; touches the pages. */
bool ebb__runtime_pin(struct ebb_runtime *runtime, const void *pointer, uint64_t bytes);
void ebb__runtime_unpin(struct ebb_runtime *runtime, const void *pointer, uint64_t bytes);

/* acquire.c, for programs that announce each use (config.announced). `pointer` is that of a live
 * block. Makes it resident until it is released as often. False: its only copy is lost, and it is
 * not acquired. *time_ns: when, on the clock of ebb__runtime_progress_ns(). Thread-safe; waits for
 * transfers, touches no page. */
bool ebb__runtime_acquire(struct ebb_runtime *runtime, const void *pointer, bool write,
                          uint64_t *time_ns);
void ebb__runtime_release(struct ebb_runtime *runtime, const void *pointer, uint64_t *time_ns);
/* An iteration of `script`, a known one, begins. continues: the one before followed it, too, and
 * nothing came between. False: it is not known. */
bool ebb__runtime_begin(struct ebb_runtime *runtime, const struct ebb_script *script,
                        bool continues);
/* The iteration is over. Was its script followed to the end? */
bool ebb__runtime_end(struct ebb_runtime *runtime);
/* Starts writing the block back, or fetching it, unless it is on its way already. */
void ebb__runtime_evict(struct ebb_runtime *runtime, const void *pointer);
void ebb__runtime_prefetch(struct ebb_runtime *runtime, const void *pointer);
/* The serial of the block, by which a script knows it. */
uint64_t ebb__runtime_serial(struct ebb_runtime *runtime, const void *pointer);
/* CLOCK_MONOTONIC minus the time that the program has waited for the runtime. */
uint64_t ebb__runtime_progress_ns(struct ebb_runtime *runtime);

/* Makes all blocks in [pointer, + bytes) resident, slabs too. They keep their pages until they are
 * freed. For a large block this applies to whole parts. Call it before the program changes the
 * mapping there, or lends the pages to the kernel beyond a system call. False: no block is there.
 * Thread-safe; waits for transfers, touches no page. */
bool ebb__runtime_keep(struct ebb_runtime *runtime, const void *pointer, uint64_t bytes);
/* Does the block at `pointer` stay resident until it is freed? The block must live during the call.
 * No lock. */
bool ebb__runtime_stays(const struct ebb_runtime *runtime, const void *pointer);
/* Is any block in [pointer, + bytes) kept? Thread-safe. */
bool ebb__runtime_is_kept(struct ebb_runtime *runtime, const void *pointer, uint64_t bytes);

/* Puts a script in force, by reference: `script` must stay mapped for life. It takes effect as soon
 * as the live stream matches it. If a script of the same iteration is in force, the new one waits
 * until the old one's static placement holds the fewest bytes. EBB_ERR_FORMAT if it is not
 * valid. */
EBB_NODISCARD enum ebb_status ebb__runtime_set_script(struct ebb_runtime *runtime,
                                                      const struct ebb_script *script,
                                                      uint64_t bytes);
/* Forgets all scripts. */
void ebb__runtime_forget_scripts(struct ebb_runtime *runtime);
/* Scripts name persistent blocks by serials. Those of all known scripts change as `renamings` says,
 * which are ordered by `from`. Blocks that the script in force now names are evicted and fetched as
 * its plan says. Thread-safe. */
void ebb__runtime_rename(struct ebb_runtime *runtime, const struct ebb_renaming *renamings,
                         size_t count);
/* Sets when accesses are observed. A departure is observed for `allocations` at least, even if a
 * script is followed again before. */
void ebb__runtime_set_trace(struct ebb_runtime *runtime, enum ebb_observe observe,
                            uint64_t allocations);
/* The ledger's budget has changed: releases the excess. */
void ebb__runtime_trim(struct ebb_runtime *runtime);

/* Releases `bytes` to the system as soon as possible, since another process of the run starves. */
void ebb__runtime_shrink(struct ebb_runtime *runtime, uint64_t bytes);

/* Around fork(): before it, after it in the parent, and after it in the child. In the child,
 * `device` must have been set up first. The child starts reactive. It reads the parent's absent
 * blocks from the store that both share. */
void ebb__runtime_before_fork(struct ebb_runtime *runtime);
void ebb__runtime_after_fork_parent(struct ebb_runtime *runtime);
EBB_NODISCARD enum ebb_status ebb__runtime_after_fork_child(struct ebb_runtime *runtime,
                                                            struct ebb_ledger *ledger,
                                                            struct ebb_ring *ring);

/* The child must call this first. It reserves address ranges that the child does not inherit
 * (MADV_DONTFORK), without access, so that nothing else is mapped there. Takes no lock. */
void ebb__runtime_close_holes(struct ebb_runtime *runtime);

/* The child calls this right after the device's setup. Accesses to kept memory no longer fault
 * there: the forking thread's stack may be kept, and no fault is served yet. Takes no lock. */
void ebb__runtime_let_kept(struct ebb_runtime *runtime);
/* The child calls this before ebb__runtime_after_fork_child(). It gets its own slots of the ledgers
 * instead of its parent's. */
void ebb__runtime_set_slots(struct ebb_runtime *runtime, struct ebb_ledger_slot *slot,
                            struct ebb_ledger *store_ledger, struct ebb_ledger_slot *store_slot);

/* Waits until no transfer is queued or in flight. */
void ebb__runtime_settle(struct ebb_runtime *runtime);

#endif
