/* Start: hello to the parent when the library is loaded, the runtime when the first block of the
 * threshold's size is asked for, and the thread that serves faults and the parent's messages.
 *
 * Without EBB_RUN in the environment, or where that names no parent that lives, the shim stays inert:
 * the program runs as it would without it. A parent that goes away later changes nothing but plans:
 * the ledger is shared memory, the runtime goes on reactively. */
#include "guard.h"
#include "shim.h"
#include "stacks.h"

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
/* In the child of a fork: more than are open at once, less than programs have. */
#define NEEDED_DESCRIPTORS 64

size_t ebb__shim_threshold = SIZE_MAX;

static struct {
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
    _Atomic int state;                 /* 0: not started, 1: starting, 2: started or failed */
} shim = {.channel = -1, .life_line = -1};

struct ebb_runtime *ebb__shim_runtime_now(void)
{
    return atomic_load_explicit(&shim.runtime, memory_order_acquire);
}

struct ebb_slabs *ebb__shim_slabs(void)
{
    return atomic_load_explicit(&shim.slabs, memory_order_acquire);
}

/* Have a slot of the ledger, whose file, or our parent's life line, is `descriptor`. */
static void enter_ledger(int descriptor)
{
    shim.life_line = ebb__ledger_enter(shim.ledger, descriptor, &shim.slot);
    if (shim.life_line >= 0)
        ebb__shim_protect(shim.life_line);
}

/* In the child of a fork, which has inherited its parent's. */
static void enter_ledger_anew(void)
{
    int parents = shim.life_line;
    shim.slot = shim.ledger->slots;
    shim.life_line = -1;
    if (parents < 0)
        return;
    ebb__shim_unprotect(parents);
    enter_ledger(parents);
    close(parents);
}

/* Past our own munmap(): in the child of a fork it would ask an runtime that is not there yet, where a hole
 * in the arena has taken the mapping in. */
static void unmap(void *memory, size_t bytes)
{
    ebb__os_call(SYS_munmap, (uintptr_t)memory, bytes, 0, 0, 0, 0);
}

static bool say_hello(void)
{
    struct ebb_shim_parent parent;
    if (!ebb__shim_say_hello(&parent))
        return false;
    shim.channel = parent.channel;
    shim.ring = parent.ring;
    if (shim.ledger) { /* in a child, which has inherited it */
        unmap(parent.ledger, sizeof *parent.ledger);
    } else {
        shim.ledger = parent.ledger;
        enter_ledger(parent.ledger_descriptor);
    }
    close(parent.ledger_descriptor);
    atomic_store(&shim.ring->counters.has_slot, shim.life_line >= 0);
    shim.store_limit_bytes = parent.store_limit_bytes;
    shim.trace = parent.trace;
    return true;
}

static void warn(void *context, const char *message)
{
    (void)context;
    struct ebb_message text = {.kind = EBB_MESSAGE_WARN, .process_id = (uint32_t)getpid()};
    snprintf(text.text, sizeof text.text, "%s", message);
    if (shim.channel >= 0)
        ebb__message_send(shim.channel, &text, NULL, 0, 0);
}

void ebb__shim_warn(const char *message)
{
    warn(NULL, message);
}

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
        ebb__store_open(ebb__shim_settings.places, shim.store_limit_bytes, store, error);
    int descriptors[EBB_STORE_MOST_PLACES];
    size_t count = status == EBB_OK
                       ? store->ops->descriptors(store->state, descriptors, EBB_STORE_MOST_PLACES)
                       : 0;
    for (size_t i = 0; i < count; i++)
        ebb__shim_protect(descriptors[i]);
    if (status == EBB_OK && ebb__shim_settings.flags & EBB_PROTOCOL_FLAG_COMPRESS &&
        ebb__store_compress(store, &shim.compress, &shim.ring->counters.saved_bytes) != EBB_OK)
        warn(NULL, "what goes to the store is not compressed: address space is lacking");
    return status;
}

static void take_script(struct ebb_runtime *runtime, int descriptor, uint64_t bytes)
{
    struct ebb_script *script = ebb__script_copy(descriptor, bytes);
    if (script && ebb__runtime_set_script(runtime, script, bytes) == EBB_OK)
        return;
    if (script)
        munmap(script, bytes);
    warn(NULL, script ? "a plan was refused: malformed" : "a plan was refused: it cannot be read");
}

/* False: the parent is gone. */
static bool serve_message(struct ebb_runtime *runtime)
{
    struct ebb_message message;
    int came[EBB_MESSAGE_DESCRIPTORS];
    size_t count;
    int got = ebb__message_receive(shim.channel, &message, came, &count);
    if (got != 1)
        return got == 0;
    if (message.kind == EBB_MESSAGE_SCRIPT && message.value == 0)
        ebb__runtime_forget_scripts(runtime);
    else if (message.kind == EBB_MESSAGE_SCRIPT)
        take_script(runtime, count ? came[0] : -1, message.value);
    else if (message.kind == EBB_MESSAGE_TRACE)
        ebb__runtime_set_trace(runtime, message.value != 0);
    else if (message.kind == EBB_MESSAGE_SHRINK)
        ebb__runtime_shrink(runtime, message.value);
    else if (message.kind == EBB_MESSAGE_COMPRESS)
        atomic_store(&shim.compress, true);
    else if (message.kind == EBB_MESSAGE_TRIM)
        ebb__runtime_trim(runtime);
    ebb__message_close(came, count);
    return true;
}

/* As poll() for something to read. That fails where the program has limited itself to fewer descriptors than
 * are asked for; select() does not look at the limit, but has room for so many numbers only. */
#define MOST_SELECTED 16384u
#define WORD_BITS (8 * sizeof(unsigned long))

static bool await_input(struct pollfd watched[2])
{
    if (poll(watched, 2, -1) > 0)
        return true;
    if (errno != EINVAL)
        return false;
    static unsigned long words[MOST_SELECTED / WORD_BITS]; /* of the one thread that serves */
    int last = -1;
    for (int i = 0; i < 2; i++) {
        unsigned number = (unsigned)watched[i].fd;
        if (number >= MOST_SELECTED)
            continue; /* none, or out of reach */
        words[number / WORD_BITS] |= 1ul << number % WORD_BITS;
        last = watched[i].fd > last ? watched[i].fd : last;
    }
    bool came = select(last + 1, (fd_set *)(void *)words, NULL, NULL, NULL) > 0;
    for (int i = 0; i < 2; i++) {
        unsigned number = (unsigned)watched[i].fd;
        watched[i].revents = 0;
        if (number >= MOST_SELECTED)
            continue;
        unsigned long bit = 1ul << number % WORD_BITS;
        watched[i].revents = came && words[number / WORD_BITS] & bit ? POLLIN : 0;
        words[number / WORD_BITS] &= ~bit;
    }
    return came;
}

/* Serves the faults of the program and the messages of the parent, for the life of the process. */
static void *service(void *argument)
{
    struct ebb_runtime *runtime = argument;
    struct pollfd watched[2] = {
        {.fd = ebb__host_descriptor(&shim.device), .events = POLLIN},
        {.fd = shim.channel, .events = POLLIN},
    };
    for (;;) {
        if (!await_input(watched))
            continue;
        if (watched[0].revents) {
            struct ebb_fault faults[64];
            size_t count = ebb__host_faults(&shim.device, faults, 64);
            for (size_t i = 0; i < count; i++)
                ebb__runtime_fault(runtime, faults[i].address, faults[i].write);
        }
        /* A parent that is gone reads as something to read, too. */
        struct ebb_wait *wait = watched[1].revents
                                    ? ebb__wait_begin(shim.ring->waits.answers, EBB_WAIT_ANSWERS,
                                                      EBB_WAIT_MESSAGE, 0, 0, 0)
                                    : NULL;
        bool heard =
            !watched[1].revents || ((watched[1].revents & POLLIN) && serve_message(runtime));
        ebb__wait_end(wait);
        if (!heard) {
            atomic_store(&shim.ring->parent_gone, 1);
            watched[1].fd = -1;
            ebb__runtime_set_trace(runtime, false); /* nobody is there to end it */
        }
    }
    return NULL;
}

/* The runtime's threads run; false: one of the others cannot be started. Then no fault is served. */
static bool start_threads(struct ebb_runtime *runtime)
{
    /* The last one is at work at once; the others do nothing with an runtime that nobody enters. */
    bool good = ebb__shim_start_sampler(shim.ring) &&
                ebb__stacks_start(runtime, shim.device.layout.arena) &&
                ebb__shim_start_thread(service, runtime);
    if (good)
        ebb__shim_hide_threads(ebb__runtime_thread_count(runtime) + 3);
    return good;
}

/* The program runs as it would without Ebb, and that is said. */
static void go_without(const struct ebb_error *error)
{
    char text[900];
    snprintf(text, sizeof text, "%s: %s: the budget is NOT enforced%s%s", error->what, error->why,
             error->remedy[0] ? "; " : "", error->remedy);
    warn(NULL, text);
}

static void go_without_runtime(const struct ebb_error *error)
{
    ebb__shim_unprotect(ebb__host_descriptor(&shim.device));
    ebb__host_destroy(&shim.device);
    go_without(error);
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
    if (ebb__host_create(LEAST_ARENA_BYTES, &shim.device, &error) != EBB_OK) {
        go_without(&error);
        return;
    }
    if (shim.device.ops->faults_are_signals && !ebb__shim_take_faults()) {
        (void)ebb__fail(&error, EBB_ERR_UNSUPPORTED, "SIGSEGV", "it cannot be handled");
        go_without_runtime(&error);
        return;
    }
    ebb__shim_protect(ebb__host_descriptor(&shim.device));
    ebb__shim_protect(ebb__uffd_node());
    size_t disks = ebb__line_count(ebb__shim_settings.places);
    /* Four transfers in flight on each disk, as far as that goes. */
    unsigned workers = disks > 1 ? 8 : 0;
    struct ebb_runtime_config config = {
        .device = shim.device,
        .out_workers = workers,
        .in_workers = workers,
        .ledger = shim.ledger,
        .slot = shim.slot,
        .ring = shim.ring,
        .trace = shim.trace,
        .verify = ebb__shim_settings.flags & EBB_PROTOCOL_FLAG_VERIFY,
        .process_id = (uint32_t)getpid(),
        .open_store = ebb__shim_settings.flags & EBB_PROTOCOL_FLAG_RECORD ? NULL : open_store,
        .warn = warn,
        .protect = protect,
        .lost = ebb__shim_lost,
    };
    if (ebb__runtime_create(&config, &runtime, &error) != EBB_OK) {
        go_without_runtime(&error);
        return;
    }
    if (!start_threads(runtime)) {
        (void)ebb__fail(&error, EBB_ERR_LIMIT, "the service thread", "it cannot be started: %s",
                        strerror(errno));
        ebb__runtime_destroy(runtime);
        go_without_runtime(&error);
        return;
    }
    if (shim.device.ops->calls_need_pins)
        ebb__shim_pin_buffers(true);
    ebb__shim_know_arena(shim.device.layout.arena);
    atomic_store_explicit(&shim.runtime, runtime, memory_order_release);
    struct ebb_slabs *slabs;
    if (ebb__slabs_create(runtime, &slabs) == EBB_OK)
        atomic_store_explicit(&shim.slabs, slabs, memory_order_release);
}

struct ebb_runtime *ebb__shim_runtime(void)
{
    struct ebb_runtime *runtime = ebb__shim_runtime_now();
    if (runtime || atomic_load(&shim.state) == 2)
        return runtime;
    int expected = 0;
    if (!atomic_compare_exchange_strong(&shim.state, &expected, 1))
        return NULL; /* another thread, or this one further up, is at it */
    struct ebb_guard guard;
    ebb__guard_enter(&guard);
    start_runtime();
    ebb__guard_leave(&guard);
    atomic_store(&shim.state, 2);
    return ebb__shim_runtime_now();
}

void ebb__shim_before_fork(void)
{
    struct ebb_runtime *runtime = ebb__shim_runtime_now();
    struct ebb_slabs *slabs = ebb__shim_slabs();
    if (slabs)
        ebb__slabs_before_fork(slabs);
    if (runtime)
        ebb__runtime_before_fork(runtime);
}

void ebb__shim_after_fork_parent(void)
{
    struct ebb_runtime *runtime = ebb__shim_runtime_now();
    if (runtime)
        ebb__runtime_after_fork_parent(runtime);
    struct ebb_slabs *slabs = ebb__shim_slabs();
    if (slabs)
        ebb__slabs_after_fork_parent(slabs);
}

/* Have the stack's next pages, which may be in a block, while the kernel still gives them. */
__attribute__((noinline)) static void touch_stack(void)
{
    volatile char below[2 * EBB_PAGE_BYTES];
    below[0] = below[EBB_PAGE_BYTES] = 0;
}

/* The child is a process of its own: new channel, new ring, new descriptors, the same ledger. */
void ebb__shim_after_fork_child(void)
{
    if (!shim.ring)
        return;
    int saved = errno;
    struct ebb_runtime *runtime = ebb__shim_runtime_now();
    struct ebb_slabs *slabs = ebb__shim_slabs();
    struct ebb_ring *parents_ring = shim.ring;
    struct ebb_error error;
    struct rlimit files;
    ebb__limit_raise(RLIMIT_NOFILE, NEEDED_DESCRIPTORS, &files);
    /* First of all, before anything is mapped where staging was. */
    if (runtime) {
        ebb__shim_unprotect(ebb__host_descriptor(&shim.device));
        touch_stack();
        ebb__runtime_close_holes(runtime);
        if (ebb__host_after_fork(&shim.device, &error) != EBB_OK)
            ebb__shim_lost(NULL, error.why);
        ebb__runtime_let_kept(runtime);
        ebb__shim_protect(ebb__host_descriptor(&shim.device));
        if (shim.device.ops->calls_need_pins) /* it may have given rights away since it started */
            ebb__shim_pin_buffers(true);
    }
    if (shim.channel >= 0) {
        ebb__shim_unprotect(shim.channel);
        close(shim.channel);
        shim.channel = -1;
    }
    enter_ledger_anew();
    if (!say_hello()) {
        size_t bytes = ebb__ring_bytes(64);
        void *memory =
            mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory != MAP_FAILED) {
            shim.ring = memory;
            ebb__ring_init(shim.ring, 64, ebb__now_ns());
            atomic_store(&shim.ring->parent_gone, 1);
        }
    }
    if (runtime) {
        ebb__runtime_set_slot(runtime, shim.slot);
        uint64_t small_bytes = slabs ? ebb__slabs_after_fork_child(slabs) : 0;
        if (ebb__runtime_after_fork_child(runtime, shim.ledger, shim.ring) != EBB_OK ||
            !start_threads(runtime))
            ebb__shim_lost(NULL, "the child of a fork cannot start threads");
        ebb__runtime_count_live(runtime, (int64_t)small_bytes);
        ebb__shim_watch_ending(&shim.ring->counters);
    }
    if (parents_ring && parents_ring != shim.ring)
        unmap(parents_ring, ebb__ring_bytes(EBB_RING_EVENTS));
    ebb__limit_restore(RLIMIT_NOFILE, &files);
    errno = saved;
}

__attribute__((constructor)) static void start(void)
{
    int saved = errno;
    ebb__shim_look_up_behind();
    if (ebb__shim_read_settings() && say_hello()) {
        ebb__shim_register_fork();
        ebb__shim_know_libc();
        ebb__shim_threshold = ebb__shim_settings.threshold;
        struct ebb_host_support support;
        ebb__host_support_look(&support);
        if (support.kind != EBB_DEVICE_UFFD_MOVE && support.kind != EBB_DEVICE_NONE &&
            !(ebb__shim_settings.flags & EBB_PROTOCOL_FLAG_RECORD))
            ebb__shim_refuse_async(); /* before the program looks for them */
        if (support.kind == EBB_DEVICE_PROTECT)
            ebb__shim_keep_signal(); /* before any thread can block it */
    }
    errno = saved;
}
