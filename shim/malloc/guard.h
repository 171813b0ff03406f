/* The guard: it protects every entry of the shim from what may happen to a thread of the program
 * while it is inside. The rules for all entries:
 *
 * 1. A thread of the program calls a function of the runtime that takes its lock only inside a
 *    guard: between ebb__guard_enter() and ebb__guard_leave(). These calls are in hooks.c, pins.c,
 *    lent.c, mappings.c, stacks.c, signals.c, start.c and atfork.c.
 * 2. Signals are blocked there. Otherwise a handler could touch an absent page, whose fetch needs
 *    the lock that this thread holds. It could also exit by longjmp. Pending signals are delivered
 *    after the guard. Signals that an instruction raises are not blocked: they would kill. These
 *    are SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, and SIGSEGV, which is a page fault on one device.
 * 3. Cancellation is disabled there. The runtime waits, sleeps and writes, which are cancellation
 *    points, and a cancelled thread would keep the lock. A cancellation that is under way then
 *    comes before the lock is taken.
 * 4. If a libc call may be cancelled, what must be undone after it (a pin, calls.h) is undone by a
 *    cleanup handler.
 * 5. Code that does not take the runtime's lock needs no guard. Small blocks mostly need none: an
 *    object comes from an existing slab, and only a new slab needs the runtime. Signals may arrive
 *    under the lock of a slab's class: the code that serves faults never takes these locks.
 * 6. A thread's stack may lie in a block. That block is made resident, and stays so, before the
 *    thread takes the lock (keeper.c).
 * 7. Nobody touches the program's memory under the runtime's lock. Threads that serve faults do not
 *    touch it either. They take no lock that a thread of the program may hold while it waits for a
 *    page. So another thread (sampler.c) asks for the C library's statistics, which take its
 *    allocator's locks. libc's functions are looked up before they are needed (next.c).
 * 8. Around a fork the forking thread holds the lock, from the last handler before it to the first
 *    after it (atfork.c). Other handlers allocate without the lock.
 *
 * A guard costs two system calls, a fifth of a microsecond (bench_malloc_pairs). An allocation of
 * 128 KiB or more has one, and so has its free. Guards nest. */
#ifndef EBB_SHIM_GUARD_H
#define EBB_SHIM_GUARD_H

#include <stdbool.h>
#include <stdint.h>

/* The signal mask and cancellation state before the guard. */
struct ebb_guard {
    uint64_t signals; /* the mask as the kernel has it */
    int cancellation, kind;
};

void ebb__guard_enter(struct ebb_guard *guard);
void ebb__guard_leave(const struct ebb_guard *guard);
/* True if the calling thread is inside a guard. Its calls then belong to Ebb, not to the
 * program. */
bool ebb__guard_is_entered(void);

#endif
