/* Start: says hello to the parent when the library is loaded. Starts the runtime at the first
 * request of the threshold's size, with the thread that serves faults and messages.
 *
 * Without EBB_RUN in the environment, or if it names no living parent, the shim does nothing: the
 * program runs as without it. If the parent ends later, only plans are lost: the ledger is shared
 * memory, and the runtime continues reactively. */
#include "guard.h"
#include "process.h"

#include "base/clock.h"
#include "base/limits.h"
#include "base/lines.h"
#include "device/os.h"
#include "device/support.h"
#include "runtime/protocol.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LEAST_ARENA_BYTES ((uint64_t)16 << 30)

static void protect(void *context, int descriptor, bool on)
{
    (void)context;
    if (on)
        ebb__shim_protect(descriptor);
    else
        ebb__shim_unprotect(descriptor);
}

static enum ebb_status open_store(void *context, struct ebb_store *store, struct ebb_error *error)
{
    (void)context;
    enum ebb_status status =
        ebb__store_open(ebb__join_settings.places, ebb__shim.store_limit_bytes, store, error);
    int descriptors[EBB_STORE_MOST_PLACES];
    size_t count = status == EBB_OK
                       ? store->ops->descriptors(store->state, descriptors, EBB_STORE_MOST_PLACES)
                       : 0;
    for (size_t i = 0; i < count; i++)
        ebb__shim_protect(descriptors[i]);
    if (status == EBB_OK && ebb__join_settings.flags & EBB_PROTOCOL_FLAG_COMPRESS &&
        ebb__store_compress(store, &ebb__shim.compress, &ebb__shim.ring->counters.saved_bytes) !=
            EBB_OK)
        ebb__shim_tell(NULL, "what goes to the store is not compressed: address space is lacking");
    return status;
}

/* The program runs as without Ebb, and the user is told. */
static void go_without(const struct ebb_error *error)
{
    char text[900];
    snprintf(text, sizeof text, "%s: %s: the budget is NOT enforced%s%s", error->what, error->why,
             error->remedy[0] ? "; " : "", error->remedy);
    ebb__shim_tell(NULL, text);
}

static void go_without_runtime(const struct ebb_error *error)
{
    ebb__shim_unprotect(ebb__host_descriptor(&ebb__shim.device));
    ebb__host_destroy(&ebb__shim.device);
    go_without(error);
}

static struct ebb_runtime_config settings(void)
{
    size_t disks = ebb__line_count(ebb__join_settings.places);
    /* Four transfers in flight per disk, within a limit. */
    unsigned workers = disks > 1 ? 8 : 0;
    return (struct ebb_runtime_config){
        .device = ebb__shim.device,
        .out_workers = workers,
        .in_workers = workers,
        .ledger = ebb__shim.budget.shared,
        .slot = ebb__shim.budget.slot,
        .store_ledger = ebb__shim_store_ledger(),
        .store_slot = ebb__shim.store.slot,
        .ring = ebb__shim.ring,
        .trace = ebb__shim.trace,
        .verify = ebb__join_settings.flags & EBB_PROTOCOL_FLAG_VERIFY,
        .process_id = (uint32_t)getpid(),
        .open_store = ebb__join_settings.flags & EBB_PROTOCOL_FLAG_RECORD ? NULL : open_store,
        .warn = ebb__shim_tell,
        .protect = protect,
        .lost = ebb__shim_lost,
    };
}

static void start_runtime(void)
{
    struct ebb_error error = {0};
    struct ebb_runtime *runtime;
    if (!ebb__host_support_holds()) {
        ebb__fail(&error, EBB_ERR_UNSUPPORTED, "seccomp", "the program filters its system calls");
        go_without(&error);
        return;
    }
    if (ebb__host_create(LEAST_ARENA_BYTES, &ebb__shim.device, &error) != EBB_OK) {
        go_without(&error);
        return;
    }
    if (ebb__shim.device.ops->faults_are_signals && !ebb__shim_take_faults()) {
        (void)ebb__fail(&error, EBB_ERR_UNSUPPORTED, "SIGSEGV", "it cannot be handled");
        go_without_runtime(&error);
        return;
    }
    ebb__shim_protect(ebb__host_descriptor(&ebb__shim.device));
    ebb__shim_protect(ebb__uffd_node());
    const struct ebb_runtime_config config = settings();
    if (ebb__runtime_create(&config, &runtime, &error) != EBB_OK) {
        go_without_runtime(&error);
        return;
    }
    if (!ebb__shim_start_threads(runtime)) {
        (void)ebb__fail(&error, EBB_ERR_LIMIT, "the service thread", "it cannot be started: %s",
                        strerror(errno));
        ebb__runtime_destroy(runtime);
        go_without_runtime(&error);
        return;
    }
    if (ebb__shim.device.ops->calls_need_pins)
        ebb__shim_pin_buffers(true);
    ebb__shim_know_arena(ebb__shim.device.layout.arena);
    atomic_store_explicit(&ebb__shim.runtime, runtime, memory_order_release);
    struct ebb_slabs *slabs;
    if (ebb__slabs_create(runtime, &slabs) == EBB_OK) {
        atomic_store_explicit(&ebb__shim.slabs, slabs, memory_order_release);
        atomic_store_explicit(&ebb__shim.serving_slabs, slabs, memory_order_release);
    }
}

struct ebb_runtime *ebb__shim_runtime(void)
{
    enum start_state state = atomic_load(&ebb__shim.state);
    if (state == START_RETIRED)
        return NULL;
    struct ebb_runtime *runtime = ebb__shim_runtime_now();
    if (runtime || state == START_OVER)
        return runtime;
    if (!ebb__shim_begin_start())
        return NULL;
    struct ebb_guard guard;
    ebb__guard_enter(&guard);
    start_runtime();
    ebb__guard_leave(&guard);
    ebb__shim_end_start();
    return ebb__shim_runtime_now();
}

__attribute__((constructor)) static void start(void)
{
    int saved = errno;
    ebb__shim_look_up_behind();
    if (ebb__join_read_settings() && ebb__shim_join()) {
        ebb__shim_register_fork();
        ebb__shim_know_libc();
        ebb__shim_threshold = ebb__join_settings.threshold;
        struct ebb_host_support support;
        ebb__host_support_look(&support);
        if (support.kind != EBB_DEVICE_UFFD_MOVE && support.kind != EBB_DEVICE_NONE &&
            !(ebb__join_settings.flags & EBB_PROTOCOL_FLAG_RECORD))
            ebb__shim_refuse_async(); /* before the program looks for them */
        if (support.kind == EBB_DEVICE_PROTECT)
            ebb__shim_keep_signal(); /* before any thread can block it */
    }
    errno = saved;
}
