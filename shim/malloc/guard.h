/* The guard: how every entry of the shim is made safe against what a thread of the program may meet
 * while it is in there. The rules, for all entries, in one place:
 *
 * 1. A thread of the program calls a function of the runtime that takes its lock only between
 *    ebb__guard_enter() and ebb__guard_leave(), in hooks.c, pins.c, lent.c, mappings.c, stacks.c,
 *    signals.c, start.c and atfork.c.
 * 2. Signals are blocked there. A handler that ran meanwhile could touch an absent page, and whoever is
 *    to fetch it needs the lock that this very thread has; and it could leave by longjmp. What arrives
 *    is delivered when the thread leaves. Those that an instruction itself raises (SIGSEGV, which is a
 *    fault on one device, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS) stay as they are: blocked, they
 *    would kill.
 * 3. Cancellation is disabled there: the runtime waits, sleeps and writes, all of which are
 *    cancellation points, and a thread that ended in one would keep the lock.
 * 4. What is undone after a libc call that may be cancelled (a pin, calls.h) is undone by a cleanup
 *    handler.
 * 5. What does not take the runtime's lock needs no guard, and small blocks mostly do not: an object
 *    comes from a slab that is there, and only a new slab is asked of the runtime. Under the lock of a
 *    slab's class signals may come: what serves faults takes none of these.
 * 6. A thread may stand on a stack that is a block. That block is kept in memory before the thread takes
 *    the lock (keeper.c).
 * 7. Nothing of the program's is touched under the runtime's lock, nor by the threads that serve faults:
 *    they wait for no lock that a thread of the program may hold while it waits for a page. So
 *    statistics of the C library, which take the locks of its allocator, are another thread's
 *    (sampler.c), and a function behind ours is looked up before it is needed (next.c).
 * 8. Around a fork the lock is held by the one that forks, from the last handler before it to the
 *    first after it (atfork.c): what other handlers allocate, they allocate without it.
 *
 * A guard costs two system calls, a fifth of a microsecond (bench_malloc_pairs): an allocation of 128
 * KiB and more has one, and so has its free. Guards nest. */
#ifndef EBB_SHIM_GUARD_H
#define EBB_SHIM_GUARD_H

#include <stdbool.h>
#include <stdint.h>

/* What it was like before. */
struct ebb_guard {
    uint64_t signals; /* the mask as the kernel has it */
    int cancellation, kind;
};

void ebb__guard_enter(struct ebb_guard *guard);
void ebb__guard_leave(const struct ebb_guard *guard);
/* Is the calling thread between the two? What it calls then is not the program's. */
bool ebb__guard_is_entered(void);

#endif
