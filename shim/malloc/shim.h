/* The shim for programs on the CPU: what its files share.
 *
 * README.md says what each file is for.
 * All of it is thread-safe. Nothing here may call an allocating libc function while it holds the
 * runtime's lock. */
#ifndef EBB_SHIM_SHIM_H
#define EBB_SHIM_SHIM_H

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

/* The next allocator; NULL while it is being looked up (then ebb__shim_bootstrap_*() serve). */
const struct ebb_next *ebb__shim_next(void);
/* Memory for the look-up itself, never given back. */
/* Nothing is asked of it from here on, or it is again: in a child that it has not heard of,
 * threads that are not there may have left its locks held. */
void ebb__shim_spare_next(bool on);
void *ebb__shim_bootstrap_alloc(size_t bytes, size_t alignment);
bool ebb__shim_bootstrap_owns(const void *pointer);

/* A function of libc behind the shim's own of that name. */
struct ebb_behind {
    const char *name;
    _Atomic(void *) function; /* NULL: not looked up yet */
};
/* Set `next`, a pointer to a function, to the one behind `of`. */
#define EBB_BEHIND(next, of)                                                                       \
    do {                                                                                           \
        static struct ebb_behind behind                                                            \
            __attribute__((used, section("ebb_behind"))) = {.name = #of};                          \
        void *function = ebb__shim_behind(&behind);                                                \
        memcpy(&(next), &function, sizeof(next));                                                  \
    } while (0)
/* Look up all of them; once, before there is a runtime. The loader's lock, which a look-up takes,
 * may be held by a thread that waits for an absent block (a constructor in dlopen()), so the
 * runtime's threads, which would bring that block, must not need it. Nor may a signal handler. */
void ebb__shim_look_up_behind(void);
/* The function, looked up now where it is called before that. */
void *ebb__shim_behind(struct ebb_behind *behind);

/* settings.c: what EBB_RUN says. */
struct ebb_shim_settings {
    int inherited;            /* descriptor of the socket on which the parent hears hellos */
    unsigned long long inode; /* its */
    long parent_id;
    unsigned long user_id;
    unsigned long long secret[2];
    char parent_name[64]; /* abstract address, for those without the descriptor */
    size_t threshold;
    unsigned flags;        /* EBB_PROTOCOL_FLAG_* */
    char places[PATH_MAX]; /* of the store, one a line */
};
extern struct ebb_shim_settings ebb__shim_settings;
/* Is this, of which fstat() says that, the socket by which programs inherit the way to the
 * parent? */
bool ebb__shim_is_hello(int descriptor, unsigned long long inode, unsigned mode);
/* False: this process is of no run. */
bool ebb__shim_read_settings(void);

/* What a process shares with its parent. */
struct ebb_shim_parent {
    int channel; /* -1: none */
    struct ebb_ring *ring;
    struct ebb_ledger *ledger;
    int ledger_descriptor; /* of its file; the caller closes it */
    uint64_t store_limit_bytes;
    bool trace;
};
/* Say hello and be welcomed, however long that takes; false, and all is empty: there is no
 * parent. */
bool ebb__shim_say_hello(struct ebb_shim_parent *parent);

/* lost.c: say why on stderr, and end the process. */
void ebb__shim_lost(void *context, const char *message) __attribute__((noreturn));

/* Blocks of at least so many bytes are managed; SIZE_MAX: none. */
extern size_t ebb__shim_threshold;
/* The runtime, started if need be; NULL: nothing is managed. */
struct ebb_runtime *ebb__shim_runtime(void);
/* Small blocks, once the runtime has been started; NULL: the next allocator has them all. */
struct ebb_slabs *ebb__shim_slabs(void);
/* The runtime if it has been started. */
struct ebb_runtime *ebb__shim_runtime_now(void);

/* mappings.c: where blocks lie; once the device is there. pins.c has the last two. */
void ebb__shim_know_arena(struct ebb_device_range arena);
/* True where a function of mappings.c does what the system call means: *result is its result,
 * errno as it sets it. False: the call is still to be made. */
bool ebb__shim_maps(long number, const long arguments[6], long *result);
/* Where system calls cannot wait for absent pages: the block with [address, + bytes) is kept. The
 * kernel is about to read there, and others' threads sleep on it for as long as they like. */
void ebb__shim_wait_in(const void *address, size_t bytes);
/* True where it may do so: for that address, on that device. */
bool ebb__shim_may_wait_in(const void *address);

/* callers.c: find out where libc and the loader are; once, before the next. */
void ebb__shim_know_libc(void);
/* True where the caller, by its return address, is one of them. What they keep is none of ours
 * while it is small: the runtime's own threads may come to use it, and the child of a fork before
 * it has a runtime. */
bool ebb__shim_is_of_libc(const void *caller);
/* True where it is the loader. What that keeps (tables of symbols, thread-local variables) is none
 * of ours at all: every thread may come to use it, and under the loader's lock. */
bool ebb__shim_is_of_loader(const void *caller);
/* True where it is libc itself. */
bool ebb__shim_is_in_libc(const void *caller);
/* pins.c: from here on buffers are pinned while libc calls have them; or are not any more. */
void ebb__shim_pin_buffers(bool on);
/* True where the caller, by its return address, is libc itself and buffers are pinned: a buffer of
 * libc's own, whose system calls nobody sees. */
bool ebb__shim_is_buffer_of_libc(const void *caller);
/* masks.c: from here on no thread blocks SIGSEGV; is it so? */
void ebb__shim_keep_signal(void);
bool ebb__shim_keeps_signal(void);
/* `set`, or `copy`, which is without SIGSEGV. */
const sigset_t *ebb__shim_mask(const sigset_t *set, sigset_t *copy);
/* As ebb__shim_maps(). */
bool ebb__shim_masks(long number, const long arguments[6], long *result);
/* A context, and those that it is linked with, before the kernel takes their masks. */
void ebb__shim_mask_contexts(const ucontext_t *context);
/* fault_stacks.c: the calling thread and all that are created from here on get a stack for
 * signals. */
void ebb__shim_give_signal_stacks(void);
/* fault_stacks.c: as sigaltstack(), of which the program sees its own stack only. */
int ebb__shim_signal_stack(const stack_t *stack, stack_t *before);
/* signals.c: take SIGSEGV; false where it cannot be had. */
bool ebb__shim_take_faults(void);

/* forked.c, for atfork.c: in the thread that forks, under a guard. */
void ebb__shim_before_fork(void);
void ebb__shim_after_fork_parent(void);
void ebb__shim_after_fork_child(void);
/* atfork.c: the handlers themselves, for forks that have none; and whether this thread is between
 * them. */
void ebb__fork_before(void);
void ebb__fork_after_parent(void);
void ebb__fork_after_child(void);
bool ebb__fork_is_under_way(void);
/* lent.c: the kernel keeps these pages for longer than a call: the blocks there stay where they
 * are. */
struct iovec;
struct msghdr;
void ebb__shim_lend(const struct iovec *vector, size_t count);
/* Likewise where `flags` say so; returns the first argument. */
const void *ebb__shim_lend_to_send(const void *from, size_t bytes, int flags);
const struct msghdr *ebb__shim_lend_message(const struct msghdr *message, int flags);
/* From here on what writes while no call is under way cannot be set up; is it so? Then that is
 * said. */
void ebb__shim_refuse_async(void);
bool ebb__shim_refuses_async(void);
/* ending.c: this is the child of a fork, with counters of its own. */
void ebb__shim_watch_ending(struct ebb_counters *own);
/* process.c: tell it to the person who runs the program. */
void ebb__shim_warn(const char *message);
/* atfork.c: see to it that these are called; any number of times. */
void ebb__shim_register_fork(void);
/* threads.c: a thread without signals; false where it cannot be had. */
bool ebb__shim_start_thread(void *(*function)(void *), void *argument);
/* `count` threads more are ours: the process ends without them. */
void ebb__shim_hide_threads(unsigned count);
/* Is the caller the only one of the program's threads? */
bool ebb__shim_is_last_thread(void);
/* sampler.c: once a process. */
bool ebb__shim_start_sampler(struct ebb_ring *ring);

/* Descriptors that must stay open; at most a handful. */
void ebb__shim_protect(int descriptor);
void ebb__shim_unprotect(int descriptor);
/* True where a function of descriptors.c does what the system call means; as ebb__shim_maps(). */
bool ebb__shim_describes(long number, const long arguments[6], long *result);

#endif
