/* Start: hello to the parent when the library is loaded, the engine when the first block of the
 * threshold's size is asked for, and the thread that serves faults and the parent's messages.
 *
 * Without EBB_RUN in the environment, or without a parent that answers, the shim stays inert: the
 * program runs as it would without it. A parent that goes away later changes nothing but plans:
 * the ledger is shared memory, the engine goes on reactively. */
#include "guard.h"
#include "shim.h"

#include "base/clock.h"
#include "base/lines.h"
#include "device/support.h"
#include "engine/protocol.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define WELCOME_TIMEOUT_MS 5000
#define LEAST_ARENA_BYTES ((uint64_t)16 << 30)

size_t ebb__shim_threshold = SIZE_MAX;

static struct {
    int inherited;
    unsigned long long inode;
    char name[64];
    size_t threshold;
    unsigned flags;
    char places[PATH_MAX]; /* of the store, one a line */
} settings;

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
    _Atomic(struct ebb_engine *) engine;
    _Atomic(struct ebb_slabs *) slabs; /* NULL also where address space is lacking */
    _Atomic int state;                 /* 0: not started, 1: starting, 2: started or failed */
} shim = {.channel = -1, .life_line = -1};

struct ebb_engine *ebb__shim_engine_now(void)
{
    return atomic_load_explicit(&shim.engine, memory_order_acquire);
}

struct ebb_slabs *ebb__shim_slabs(void)
{
    return atomic_load_explicit(&shim.slabs, memory_order_acquire);
}

/* "1:<fd>:<inode>:<name>:<threshold>:<flags>:<places of the store>" */
static bool read_settings(const char *text)
{
    int consumed = 0;
    unsigned long long threshold;
    if (!text ||
        sscanf(text, "1:%d:%llu:%63[^:]:%llu:%u:%n", &settings.inherited, &settings.inode,
               settings.name, &threshold, &settings.flags, &consumed) != 5 ||
        consumed == 0)
        return false;
    settings.threshold = (size_t)threshold;
    snprintf(settings.places, sizeof settings.places, "%s", text + consumed);
    return true;
}

static bool is_socket_of_inode(int descriptor)
{
    struct stat status;
    return fstat(descriptor, &status) == 0 && S_ISSOCK(status.st_mode) &&
           (unsigned long long)status.st_ino == settings.inode;
}

/* A socket on which the parent hears a hello; -1: none. *ours: close it afterwards. */
static int reach_parent(bool *ours)
{
    *ours = false;
    if (is_socket_of_inode(settings.inherited))
        return settings.inherited;
    int descriptor = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (descriptor < 0)
        return -1;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(settings.name);
    memcpy(address.sun_path + 1, settings.name, length);
    if (connect(descriptor, (struct sockaddr *)&address,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length)) != 0) {
        close(descriptor);
        return -1;
    }
    *ours = true;
    return descriptor;
}

static int high_descriptor(int descriptor)
{
    int high = fcntl(descriptor, F_DUPFD_CLOEXEC, 702);
    if (high < 0)
        return descriptor;
    close(descriptor);
    return high;
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

/* Say hello, be welcomed: ring, channel and ledger are there afterwards. */
static bool say_hello(void)
{
    size_t bytes = ebb__ring_bytes(EBB_RING_EVENTS);
    int memory = memfd_create("ebb-ring", MFD_CLOEXEC);
    if (memory < 0)
        return false;
    struct ebb_ring *ring = MAP_FAILED;
    if (ftruncate(memory, (off_t)bytes) == 0)
        ring = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    if (ring == MAP_FAILED) {
        close(memory);
        return false;
    }
    ebb__ring_init(ring, EBB_RING_EVENTS, ebb__now_ns());
    int pair[2];
    bool ours, good = false;
    int parent = reach_parent(&ours);
    if (parent >= 0 && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0) {
        struct ebb_message hello = {.kind = EBB_MESSAGE_HELLO,
                                    .process_id = (uint32_t)getpid(),
                                    .parent_process_id = (uint32_t)getppid()};
        prctl(PR_GET_NAME, hello.text);
        int descriptors[2] = {pair[1], memory};
        good = ebb__message_send(parent, &hello, descriptors, 2, 0);
        close(pair[1]);
        shim.channel = high_descriptor(pair[0]);
    }
    if (parent >= 0 && ours)
        close(parent);
    close(memory);
    struct ebb_message welcome;
    int came[EBB_MESSAGE_DESCRIPTORS];
    size_t count = 0;
    struct pollfd answer = {.fd = shim.channel, .events = POLLIN};
    if (good)
        good = poll(&answer, 1, WELCOME_TIMEOUT_MS) == 1 &&
               ebb__message_receive(shim.channel, &welcome, came, &count) == 1 &&
               welcome.kind == EBB_MESSAGE_WELCOME && count == 1;
    if (good) {
        void *shared =
            mmap(NULL, sizeof *shim.ledger, PROT_READ | PROT_WRITE, MAP_SHARED, came[0], 0);
        good = shared != MAP_FAILED && ((struct ebb_ledger *)shared)->magic == EBB_LEDGER_MAGIC;
        if (good && !shim.ledger) {
            shim.ledger = shared;
            enter_ledger(came[0]);
        } else if (shared != MAP_FAILED) { /* in a child, which has inherited it */
            munmap(shared, sizeof *shim.ledger);
        }
    }
    ebb__message_close(came, count);
    if (!good) {
        if (shim.channel >= 0)
            close(shim.channel);
        shim.channel = -1;
        munmap(ring, bytes);
        return false;
    }
    atomic_store(&ring->counters.has_slot, shim.life_line >= 0);
    shim.ring = ring;
    shim.store_limit_bytes = welcome.limit_bytes;
    shim.trace = welcome.value != 0;
    ebb__shim_protect(shim.channel);
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

static void guard(void *context, int descriptor, bool on)
{
    (void)context;
    if (on)
        ebb__shim_protect(descriptor);
    else
        ebb__shim_unprotect(descriptor);
}

static void lost(void *context, const char *message)
{
    (void)context;
    char line[300];
    int length = snprintf(line, sizeof line, "ebb: process %ld: %s\n", (long)getpid(), message);
    if (length > 0 && write(STDERR_FILENO, line, (size_t)length) < 0) {
        /* nobody to tell */
    }
    signal(SIGBUS, SIG_DFL);
    kill(getpid(), SIGBUS);
}

static enum ebb_status open_store(void *context, struct ebb_store *store, struct ebb_error *error)
{
    (void)context;
    enum ebb_status status = ebb__store_open(settings.places, shim.store_limit_bytes, store, error);
    int descriptors[EBB_STORE_MOST_PLACES];
    size_t count = status == EBB_OK
                       ? store->ops->descriptors(store->state, descriptors, EBB_STORE_MOST_PLACES)
                       : 0;
    for (size_t i = 0; i < count; i++)
        ebb__shim_protect(descriptors[i]);
    if (status == EBB_OK && settings.flags & EBB_PROTOCOL_FLAG_COMPRESS &&
        ebb__store_compress(store, &shim.compress, &shim.ring->counters.saved_bytes) != EBB_OK)
        warn(NULL, "what goes to the store is not compressed: address space is lacking");
    return status;
}

static void take_script(struct ebb_engine *engine, int descriptor, uint64_t bytes)
{
    struct stat status;
    if (descriptor < 0 || fstat(descriptor, &status) != 0 || (uint64_t)status.st_size < bytes)
        return;
    void *script = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (script == MAP_FAILED)
        return;
    if (ebb__engine_set_script(engine, script, bytes) != EBB_OK) {
        munmap(script, bytes);
        warn(NULL, "a plan was refused: malformed");
    }
}

/* False: the parent is gone. */
static bool serve_message(struct ebb_engine *engine)
{
    struct ebb_message message;
    int came[EBB_MESSAGE_DESCRIPTORS];
    size_t count;
    int got = ebb__message_receive(shim.channel, &message, came, &count);
    if (got != 1)
        return got == 0;
    if (message.kind == EBB_MESSAGE_SCRIPT && message.value == 0)
        ebb__engine_forget_scripts(engine);
    else if (message.kind == EBB_MESSAGE_SCRIPT)
        take_script(engine, count ? came[0] : -1, message.value);
    else if (message.kind == EBB_MESSAGE_TRACE)
        ebb__engine_set_trace(engine, message.value != 0);
    else if (message.kind == EBB_MESSAGE_SHRINK)
        ebb__engine_shrink(engine, message.value);
    else if (message.kind == EBB_MESSAGE_COMPRESS)
        atomic_store(&shim.compress, true);
    else if (message.kind == EBB_MESSAGE_TRIM)
        ebb__engine_trim(engine);
    ebb__message_close(came, count);
    return true;
}

/* Serves the faults of the program and the messages of the parent, for the life of the process. */
static void *service(void *argument)
{
    struct ebb_engine *engine = argument;
    struct pollfd watched[2] = {
        {.fd = ebb__host_descriptor(&shim.device), .events = POLLIN},
        {.fd = shim.channel, .events = POLLIN},
    };
    for (;;) {
        if (poll(watched, 2, -1) <= 0)
            continue;
        if (watched[0].revents) {
            struct ebb_fault faults[64];
            size_t count = ebb__host_faults(&shim.device, faults, 64);
            for (size_t i = 0; i < count; i++)
                ebb__engine_fault(engine, faults[i].address, faults[i].write);
        }
        /* A parent that is gone reads as something to read, too. */
        if (watched[1].revents && !((watched[1].revents & POLLIN) && serve_message(engine))) {
            atomic_store(&shim.ring->parent_gone, 1);
            watched[1].fd = -1;
        }
    }
    return NULL;
}

/* The engine's threads run; false: one of the others cannot be started. Then no fault is served. */
static bool start_threads(struct ebb_engine *engine)
{
    bool good = ebb__shim_start_thread(service, engine) && ebb__shim_start_sampler(shim.ring);
    if (good)
        ebb__shim_hide_threads(ebb__engine_thread_count(engine) + 2);
    return good;
}

static void start_engine(void)
{
    struct ebb_error error;
    struct ebb_engine *engine;
    if (ebb__host_create(LEAST_ARENA_BYTES, &shim.device, &error) != EBB_OK) {
        char text[500];
        snprintf(text, sizeof text, "%s: %s: the budget is NOT enforced", error.what, error.why);
        warn(NULL, text);
        return;
    }
    if (shim.device.ops->faults_are_signals && !ebb__shim_take_faults()) {
        warn(NULL, "SIGSEGV cannot be handled: the budget is NOT enforced");
        return;
    }
    ebb__shim_protect(ebb__host_descriptor(&shim.device));
    size_t disks = ebb__line_count(settings.places);
    /* Four transfers in flight on each disk, as far as that goes. */
    unsigned workers = disks > 1 ? 8 : 0;
    struct ebb_engine_config config = {
        .device = shim.device,
        .out_workers = workers,
        .in_workers = workers,
        .ledger = shim.ledger,
        .slot = shim.slot,
        .ring = shim.ring,
        .trace = shim.trace,
        .verify = settings.flags & EBB_PROTOCOL_FLAG_VERIFY,
        .process_id = (uint32_t)getpid(),
        .open_store = settings.flags & EBB_PROTOCOL_FLAG_RECORD ? NULL : open_store,
        .warn = warn,
        .guard = guard,
        .lost = lost,
    };
    if (ebb__engine_create(&config, &engine) != EBB_OK || !start_threads(engine)) {
        warn(NULL, "threads cannot be started: the budget is NOT enforced");
        return;
    }
    if (shim.device.ops->calls_need_pins)
        ebb__shim_pin_buffers(true);
    ebb__shim_know_arena(shim.device.layout.arena);
    atomic_store_explicit(&shim.engine, engine, memory_order_release);
    struct ebb_slabs *slabs;
    if (ebb__slabs_create(engine, &slabs) == EBB_OK)
        atomic_store_explicit(&shim.slabs, slabs, memory_order_release);
}

struct ebb_engine *ebb__shim_engine(void)
{
    struct ebb_engine *engine = ebb__shim_engine_now();
    if (engine || atomic_load(&shim.state) == 2)
        return engine;
    int expected = 0;
    if (!atomic_compare_exchange_strong(&shim.state, &expected, 1))
        return NULL; /* another thread, or this one further up, is at it */
    struct ebb_guard guard;
    ebb__guard_enter(&guard);
    start_engine();
    ebb__guard_leave(&guard);
    atomic_store(&shim.state, 2);
    return ebb__shim_engine_now();
}

void ebb__shim_before_fork(void)
{
    struct ebb_engine *engine = ebb__shim_engine_now();
    struct ebb_slabs *slabs = ebb__shim_slabs();
    if (slabs)
        ebb__slabs_before_fork(slabs);
    if (engine)
        ebb__engine_before_fork(engine);
}

void ebb__shim_after_fork_parent(void)
{
    struct ebb_engine *engine = ebb__shim_engine_now();
    if (engine)
        ebb__engine_after_fork_parent(engine);
    struct ebb_slabs *slabs = ebb__shim_slabs();
    if (slabs)
        ebb__slabs_after_fork_parent(slabs);
}

/* The child is a process of its own: new channel, new ring, new descriptors, the same ledger. */
void ebb__shim_after_fork_child(void)
{
    if (!shim.ring)
        return;
    int saved = errno;
    struct ebb_engine *engine = ebb__shim_engine_now();
    struct ebb_slabs *slabs = ebb__shim_slabs();
    struct ebb_ring *parents_ring = shim.ring;
    struct ebb_error error;
    /* First of all, before anything is mapped where staging was. */
    if (engine) {
        ebb__shim_unprotect(ebb__host_descriptor(&shim.device));
        if (ebb__host_after_fork(&shim.device, &error) != EBB_OK)
            lost(NULL, error.why);
        ebb__shim_protect(ebb__host_descriptor(&shim.device));
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
    if (engine) {
        ebb__engine_set_slot(engine, shim.slot);
        uint64_t small_bytes = slabs ? ebb__slabs_after_fork_child(slabs) : 0;
        if (ebb__engine_after_fork_child(engine, shim.ledger, shim.ring) != EBB_OK ||
            !start_threads(engine))
            lost(NULL, "the child of a fork cannot start threads");
        ebb__engine_count_live(engine, (int64_t)small_bytes);
    }
    if (parents_ring && parents_ring != shim.ring)
        munmap(parents_ring, ebb__ring_bytes(EBB_RING_EVENTS));
    errno = saved;
}

__attribute__((constructor)) static void start(void)
{
    int saved = errno;
    ebb__shim_look_up_behind();
    if (read_settings(getenv(EBB_PROTOCOL_ENV)) && say_hello()) {
        ebb__shim_register_fork();
        ebb__shim_know_libc();
        ebb__shim_threshold = settings.threshold;
        struct ebb_host_support support;
        ebb__host_support_look(&support);
        if (support.kind != EBB_DEVICE_UFFD_MOVE && support.kind != EBB_DEVICE_NONE &&
            !(settings.flags & EBB_PROTOCOL_FLAG_RECORD))
            ebb__shim_refuse_async(); /* before the program looks for them */
        if (support.kind == EBB_DEVICE_PROTECT)
            ebb__shim_keep_signal(); /* before any thread can block it */
    }
    errno = saved;
}
