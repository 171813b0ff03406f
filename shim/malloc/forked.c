/* The child of a fork is a process of its own: it gets a new channel, a new ring and new
 * descriptors. It shares the ledger of the run. */
#include "process.h"

#include "base/clock.h"
#include "base/limits.h"
#include "device/host.h"
#include "device/os.h"
#include "device/support.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

/* For the child of a fork: more than are open at a time, fewer than programs have. */
#define NEEDED_DESCRIPTORS 64

/* What this thread has locked for a fork. Another thread may start it meanwhile. */
static _Thread_local struct ebb_runtime *locked_runtime;
static _Thread_local struct ebb_slabs *locked_slabs;

void ebb__shim_before_fork(void)
{
    locked_runtime = ebb__shim_runtime_now();
    locked_slabs = ebb__shim_slabs();
    if (locked_slabs)
        ebb__slabs_before_fork(locked_slabs);
    if (locked_runtime)
        ebb__runtime_before_fork(locked_runtime);
}

void ebb__shim_after_fork_parent(void)
{
    if (locked_runtime)
        ebb__runtime_after_fork_parent(locked_runtime);
    if (locked_slabs)
        ebb__slabs_after_fork_parent(locked_slabs);
}

/* Touches the stack's next pages, which may be in a block, while the kernel still serves them. */
__attribute__((noinline)) static void touch_stack(void)
{
    volatile char below[2 * EBB_PAGE_BYTES];
    below[0] = below[EBB_PAGE_BYTES] = 0;
}

void ebb__shim_after_fork_child(void)
{
    if (!ebb__shim.ring)
        return;
    int saved = errno;
    struct ebb_runtime *runtime = ebb__shim_runtime_now();
    struct ebb_slabs *slabs = ebb__shim_slabs();
    struct ebb_ring *parents_ring = ebb__shim.ring;
    struct ebb_error error;
    struct rlimit files;
    ebb__limit_raise(RLIMIT_NOFILE, NEEDED_DESCRIPTORS, &files);
    /* Do this first, before anything is mapped in place of staging. */
    if (runtime) {
        ebb__shim_unprotect(ebb__host_descriptor(&ebb__shim.device));
        touch_stack();
        ebb__runtime_close_holes(runtime);
        if (ebb__host_after_fork(&ebb__shim.device, &error) != EBB_OK)
            ebb__shim_lost(NULL, error.why);
        ebb__runtime_let_kept(runtime);
        ebb__shim_protect(ebb__host_descriptor(&ebb__shim.device));
        /* It may have dropped rights since its start. */
        if (ebb__shim.device.ops->calls_need_pins && atomic_load(&ebb__shim.state) != START_RETIRED)
            ebb__shim_pin_buffers(true);
    }
    if (ebb__shim.channel >= 0) {
        ebb__shim_unprotect(ebb__shim.channel);
        close(ebb__shim.channel);
        ebb__shim.channel = -1;
    }
    ebb__shim_enter_ledgers_anew();
    if (!ebb__shim_join()) {
        size_t bytes = ebb__ring_bytes(64);
        void *memory =
            mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory != MAP_FAILED) {
            ebb__shim.ring = memory;
            ebb__ring_init(ebb__shim.ring, 64, ebb__now_ns());
            atomic_store(&ebb__shim.ring->parent_gone, 1);
        }
    }
    if (runtime) {
        ebb__runtime_set_slots(runtime, ebb__shim.budget.slot, ebb__shim_store_ledger(),
                               ebb__shim.store.slot);
        uint64_t small_bytes = slabs ? ebb__slabs_after_fork_child(slabs) : 0;
        if (ebb__runtime_after_fork_child(runtime, ebb__shim.budget.shared, ebb__shim.ring) !=
                EBB_OK ||
            !ebb__shim_start_threads(runtime))
            ebb__shim_lost(NULL, "the child of a fork cannot start threads");
        ebb__runtime_count_live(runtime, (int64_t)small_bytes);
        ebb__shim_watch_ending(&ebb__shim.ring->counters);
    }
    enum start_state starting = START_UNDER_WAY; /* by a thread that is not here */
    atomic_compare_exchange_strong(&ebb__shim.state, &starting, START_OVER);
    if (parents_ring && parents_ring != ebb__shim.ring)
        ebb__shim_unmap(parents_ring, ebb__ring_bytes(EBB_RING_EVENTS));
    ebb__limit_restore(RLIMIT_NOFILE, &files);
    errno = saved;
}
