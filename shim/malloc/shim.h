/* The shim for programs on the CPU: what its files share. README.md says what each file is for.
 *
 * All of it is thread-safe. No function here may call an allocating libc function while it holds
 * the runtime's lock. */
#ifndef EBB_SHIM_SHIM_H
#define EBB_SHIM_SHIM_H

#include "../join/join.h"
#include "runtime/runtime.h"
#include "runtime/slabs.h"

#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <ucontext.h>

/* The functions of the next allocator in the chain. */
struct ebb_next {
    void *(*malloc)(size_t bytes);
    void (*free)(void *pointer);
    void *(*calloc)(size_t count, size_t bytes);
    void *(*realloc)(void *pointer, size_t bytes);
    void *(*memalign)(size_t alignment, size_t bytes);
    int (*posix_memalign)(void **pointer, size_t alignment, size_t bytes);
    void *(*aligned_alloc)(size_t alignment, size_t bytes);
    size_t (*malloc_usable_size)(void *pointer);
};

/* The next allocator, or NULL during its look-up. Then ebb__shim_bootstrap_*() serve. */
const struct ebb_next *ebb__shim_next(void);
/* on: the next allocator is not used; off: it is used again. In a child of a fork that has bypassed
 * its handlers, threads that no longer exist may hold its locks. */
void ebb__shim_spare_next(bool on);
/* on: the next allocator is not used; off: it is used again. In a child whose fork called no
 * handlers, threads that no longer exist may hold the allocator's locks. */
void *ebb__shim_bootstrap_alloc(size_t bytes, size_t alignment);
bool ebb__shim_bootstrap_owns(const void *pointer);

/* The libc function that a shim function of the same name replaces. */
struct ebb_behind {
    const char *name;
    _Atomic(void *) function; /* NULL: not looked up yet */
};
/* Sets the function pointer `next` to the libc function `of`. */
#define EBB_BEHIND(next, of)                                                                       \
    do {                                                                                           \
        static struct ebb_behind behind                                                            \
            __attribute__((used, section("ebb_behind"))) = {.name = #of};                          \
        void *function = ebb__shim_behind(&behind);                                                \
        memcpy(&(next), &function, sizeof(next));                                                  \
    } while (0)
/* Looks up all such functions. Call once, before there is a runtime. A look-up takes the loader's
 * lock. A thread that waits for an absent block (a constructor in dlopen()) may hold it. So the
 * runtime's threads, which fetch that block, must not need it. Signal handlers must not either. */
void ebb__shim_look_up_behind(void);
/* Returns the function. Looks it up if that was not done yet. */
void *ebb__shim_behind(struct ebb_behind *behind);

/* lost.c: prints the reason on stderr and ends the process. */
void ebb__shim_lost(void *context, const char *message) __attribute__((noreturn));

/* Blocks of at least this many bytes are managed. SIZE_MAX: none. */
extern size_t ebb__shim_threshold;
/* Returns the runtime for a new block, and starts it if necessary. NULL: none is managed. */
struct ebb_runtime *ebb__shim_runtime(void);
/* The slabs that have small blocks, or NULL before the runtime is started. */
struct ebb_slabs *ebb__shim_slabs(void);
/* The slabs that serve new small blocks. NULL: the next allocator serves them. */
struct ebb_slabs *ebb__shim_serving_slabs(void);
/* The runtime, or NULL if it was not started yet. */
struct ebb_runtime *ebb__shim_runtime_now(void);

/* mappings.c: the arena's addresses, set once the device exists. pins.c defines the last two
 * below. */
void ebb__shim_know_arena(struct ebb_device_range arena);
/* Returns true if a function of mappings.c emulated the system call. *result is its result, and
 * errno is set as the call does. False: the caller must make the call. */
bool ebb__shim_maps(long number, const long arguments[6], long *result);
/* If system calls cannot wait for absent pages: keeps the block of [address, + bytes) resident
 * until it is freed. The kernel will read there, and other threads sleep on it without a limit. */
void ebb__shim_wait_in(const void *address, size_t bytes);
/* The same on every device, for what the kernel cannot wait for on any. */
void ebb__shim_keep_for_kernel(const void *address, size_t bytes);
/* True if that is necessary for this address on this device. */
bool ebb__shim_may_wait_in(const void *address);

/* callers.c: finds the addresses of libc and the loader. Call once, before the functions below. */
void ebb__shim_know_libc(void);
/* True if the caller, by its return address, is libc or the loader. Their small allocations are not
 * managed. The runtime's own threads may use them, and so may the child of a fork before it has a
 * runtime. */
bool ebb__shim_is_of_libc(const void *caller);
/* True if it is the loader. None of its allocations (symbol tables, thread-local variables) is
 * managed. Every thread may use them, even under the loader's lock. */
bool ebb__shim_is_of_loader(const void *caller);
/* True if it is libc itself. */
bool ebb__shim_is_in_libc(const void *caller);
/* pins.c: switches the pinning of buffers during libc calls on or off. */
void ebb__shim_pin_buffers(bool on);
/* True if buffers are pinned and the caller, by its return address, is libc. Such a buffer is
 * libc's own, and the shim does not see its system calls. */
bool ebb__shim_is_buffer_of_libc(const void *caller);
/* masks.c: after the first function no thread blocks SIGSEGV. The second returns whether that is
 * so. */
void ebb__shim_keep_signal(void);
bool ebb__shim_keeps_signal(void);
/* Returns `set`, or `copy` without SIGSEGV. */
const sigset_t *ebb__shim_mask(const sigset_t *set, sigset_t *copy);
/* Emulates system calls that set signal masks, as ebb__shim_maps(). */
bool ebb__shim_masks(long number, const long arguments[6], long *result);
/* Removes SIGSEGV from the masks of a context and the contexts linked to it, before the kernel uses
 * them. */
void ebb__shim_mask_contexts(const ucontext_t *context);
/* fault_stacks.c: gives a signal stack to the calling thread and to all threads created later. */
void ebb__shim_give_signal_stacks(void);
/* fault_stacks.c: emulates sigaltstack(). The program sees only its own stack. */
int ebb__shim_signal_stack(const stack_t *stack, stack_t *before);
/* signals.c: installs the shim's handler of SIGSEGV. Returns false on failure. */
bool ebb__shim_take_faults(void);

/* process.c, for atfork.c: no start of the runtime begins until the second call, after the fork.
 * One that is under way in another thread ends first, if that takes less than a limit. That thread
 * may wait for locks that other handlers have taken for the fork. */
void ebb__shim_hold_start(void);
void ebb__shim_let_start(bool is_child);
/* forked.c, for atfork.c: called in the forking thread, under a guard. */
void ebb__shim_before_fork(void);
void ebb__shim_after_fork_parent(void);
void ebb__shim_after_fork_child(void);
/* atfork.c: the handlers, for forks that do not call them. ebb__fork_is_under_way(): this thread is
 * between them. */
void ebb__fork_before(void);
void ebb__fork_after_parent(void);
void ebb__fork_after_child(void);
bool ebb__fork_is_under_way(void);
/* lent.c: the kernel uses these pages after the call has returned. Their blocks stay resident until
 * they are freed. */
struct iovec;
struct msghdr;
void ebb__shim_lend(const struct iovec *vector, size_t count);
/* The same if `flags` say so. Returns the first argument. */
const void *ebb__shim_lend_to_send(const void *from, size_t bytes, int flags);
const struct msghdr *ebb__shim_lend_message(const struct msghdr *message, int flags);
/* After the first function, asynchronous writes cannot be set up, until the second. The third
 * returns whether that is so. Then the user is told. */
void ebb__shim_refuse_async(void);
void ebb__shim_allow_async(void);
bool ebb__shim_refuses_async(void);
/* ending.c: call in the child of a fork, which has its own counters. */
void ebb__shim_watch_ending(struct ebb_counters *own);
/* process.c: prints a warning for the user who runs the program. */
void ebb__shim_warn(const char *message);
/* atfork.c: registers these handlers. May be called any number of times. */
void ebb__shim_register_fork(void);
/* threads.c: subtracts `count` threads of Ebb from libc's count. The process then ends without
 * waiting for them. */
void ebb__shim_hide_threads(unsigned count);
/* True if the caller is the program's only thread. */
bool ebb__shim_is_last_thread(void);
/* sampler.c: call once per process. */
bool ebb__shim_start_sampler(struct ebb_ring *ring);

/* Registers a descriptor that must stay open. At most a handful. */
void ebb__shim_protect(int descriptor);
void ebb__shim_unprotect(int descriptor);
/* The same as ebb__shim_maps(), for descriptors.c. */
bool ebb__shim_describes(long number, const long arguments[6], long *result);

#endif
