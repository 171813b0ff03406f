#include "parent/internal.h"

#include "base/clock.h"
#include "base/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* How often rings are looked at while processes allocate. A ring of 65,536 events then holds what a
 * program does at 6 million events a second. */
#define DRAIN_MS 10
#define BATCH_EVENTS 4096
#define REAP_NS ((uint64_t)100000000)
/* Programs that never have this much to move are not worth a probe of the disk. Arbitrary. */
#define PROBE_FROM_BYTES ((uint64_t)16 << 20)

void ebb__parent_warn(struct ebb_parent *parent, const char *format, ...)
{
    char message[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    if (parent->options.warn)
        parent->options.warn(parent->options.context, message);
}

/* Unknown to all others, or the caller cannot be served. */
static bool make_secret(uint64_t *words, size_t count)
{
    return getrandom(words, count * sizeof *words, 0) == (ssize_t)(count * sizeof *words);
}

static enum ebb_status open_doors(struct ebb_parent *parent, struct ebb_error *error)
{
    uint64_t number;
    if (!make_secret(&number, 1) || !make_secret(parent->secret, 2))
        return ebb__fail(error, EBB_ERR_IO, "getrandom", "%s", strerror(errno));
    char name[64];
    snprintf(name, sizeof name, "ebb-%ld-%016llx", (long)getpid(), (unsigned long long)number);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path + 1, name, strlen(name));
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
    const int yes = 1;
    parent->listening = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (parent->listening < 0 || bind(parent->listening, (struct sockaddr *)&address, bytes) != 0 ||
        listen(parent->listening, 128) != 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, parent->hello_pair) != 0 ||
        setsockopt(parent->hello_pair[0], SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes) != 0)
        return ebb__fail(error, EBB_ERR_IO, "socket", "%s", strerror(errno));
    parent->hello_pair[1] = ebb__descriptor_high(parent->hello_pair[1]);
    fcntl(parent->hello_pair[0], F_SETFL, O_NONBLOCK);
    struct stat status;
    if (fstat(parent->hello_pair[1], &status) != 0)
        return ebb__fail(error, EBB_ERR_IO, "socket", "%s", strerror(errno));
    unsigned flags =
        (parent->options.record ? EBB_PROTOCOL_FLAG_RECORD : 0) |
        (parent->options.verify ? EBB_PROTOCOL_FLAG_VERIFY : 0) |
        (parent->options.compress != EBB_COMPRESS_OFF ? EBB_PROTOCOL_FLAG_COMPRESS : 0);
    int length = snprintf(parent->environment, sizeof parent->environment,
                          EBB_PROTOCOL_ENV "=2:%d:%llu:%ld:%lu:%016llx%016llx:%s:%llu:%u:%s",
                          parent->hello_pair[1], (unsigned long long)status.st_ino, (long)getpid(),
                          (unsigned long)geteuid(), (unsigned long long)parent->secret[0],
                          (unsigned long long)parent->secret[1], name,
                          (unsigned long long)parent->options.threshold_bytes, flags,
                          parent->options.store ? parent->options.store : "");
    if (length < 0 || (size_t)length >= sizeof parent->environment)
        return ebb__fail(error, EBB_ERR_ARGUMENT, "--store", "path too long");
    return EBB_OK;
}

static enum ebb_status make_ledger(struct ebb_parent *parent, struct ebb_error *error)
{
    parent->ledger_descriptor = memfd_create("ebb-ledger", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    /* No process of the run can cut it short under the others. */
    uint64_t bytes = sizeof *parent->ledger;
    if (parent->ledger_descriptor >= 0 && !ebb__memory_file_size(parent->ledger_descriptor, bytes))
        bytes = EBB_LEDGER_LEAST_BYTES;
    if (parent->ledger_descriptor < 0 || !ebb__memory_file_size(parent->ledger_descriptor, bytes) ||
        fcntl(parent->ledger_descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) !=
            0)
        return ebb__fail(error, EBB_ERR_IO, "memfd", "%s", strerror(errno));
    parent->ledger = mmap(NULL, sizeof *parent->ledger, PROT_READ | PROT_WRITE, MAP_SHARED,
                          parent->ledger_descriptor, 0);
    if (parent->ledger == MAP_FAILED)
        return ebb__fail(error, EBB_ERR_MEMORY, "ledger", "%s", strerror(errno));
    parent->ledger->magic = EBB_LEDGER_MAGIC;
    parent->ledger->slot_count =
        (bytes - offsetof(struct ebb_ledger, slots)) / sizeof parent->ledger->slots[0];
    bool known = parent->options.budget_fraction <= 0;
    atomic_store(&parent->ledger->budget_bytes, known ? parent->options.budget_bytes : UINT64_MAX);
    atomic_store(&parent->ledger->in_force, known && parent->options.budget_bytes != UINT64_MAX);
    return EBB_OK;
}

enum ebb_status ebb__parent_create(const struct ebb_parent_options *options,
                                   struct ebb_parent **created, struct ebb_error *error)
{
    struct ebb_parent *parent = calloc(1, sizeof *parent);
    if (!parent)
        return ebb__fail(error, EBB_ERR_MEMORY, "", "out of memory");
    parent->options = *options;
    parent->listening = parent->hello_pair[0] = parent->hello_pair[1] = -1;
    enum ebb_status status = open_doors(parent, error);
    if (status == EBB_OK)
        status = make_ledger(parent, error);
    if (status == EBB_OK && options->record_path) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        struct ebb_trace_info info = {
            .threshold_bytes = options->threshold_bytes,
            .page_bytes = 4096,
            .start_unix_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec,
        };
        snprintf(info.command, sizeof info.command, "%s", options->command);
        status = ebb__trace_writer_open(options->record_path, &info, &parent->writer, error);
    }
    if (status != EBB_OK) {
        ebb__parent_destroy(parent);
        return status;
    }
    *created = parent;
    return EBB_OK;
}

const char *ebb__parent_environment(const struct ebb_parent *parent)
{
    return parent->environment;
}

int ebb__parent_inherited(const struct ebb_parent *parent)
{
    return parent->hello_pair[1];
}

void ebb__parent_set_main(struct ebb_parent *parent, int process_id)
{
    parent->main_process_id = process_id;
}

bool ebb__parent_main_said_hello(const struct ebb_parent *parent)
{
    return parent->main_said_hello;
}

bool ebb__parent_send(struct process *process, const struct ebb_message *message, int descriptor)
{
    return ebb__message_send(process->channel, message, &descriptor, descriptor >= 0, MSG_DONTWAIT);
}

void ebb__parent_tell(struct process *process, enum ebb_message_kind kind, uint64_t value)
{
    ebb__parent_send(process, &(struct ebb_message){.kind = kind, .value = value}, -1);
}

static struct ebb_ring *map_ring(int descriptor, size_t *bytes)
{
    struct stat status;
    *bytes = ebb__ring_bytes(EBB_RING_EVENTS);
    int seals = fcntl(descriptor, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(descriptor, &status) != 0 ||
        (uint64_t)status.st_size < *bytes)
        return NULL;
    void *memory = mmap(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (memory == MAP_FAILED)
        return NULL;
    if (((struct ebb_ring *)memory)->magic != EBB_RING_MAGIC) {
        munmap(memory, *bytes);
        return NULL;
    }
    return memory;
}

/* process_id: in this process's own numbers. */
static void welcome(struct ebb_parent *parent, const struct ebb_message *hello, int process_id,
                    int channel, int ring_descriptor)
{
    size_t bytes;
    struct ebb_ring *ring = map_ring(ring_descriptor, &bytes);
    close(ring_descriptor);
    struct process *process = ring ? calloc(1, sizeof *process) : NULL;
    if (process) {
        process->ring = ring;
        process->ring_bytes = bytes;
    }
    if (!process || ebb__watch_create(&process->watch) != EBB_OK ||
        ebb__recurrence_create(&process->recurrence) != EBB_OK ||
        !ebb_vec_push(&parent->processes, process)) {
        ebb__parent_warn(parent, "process %d is not managed: %s", process_id,
                         ring ? "out of memory" : "its ring is none");
        if (process)
            ebb__gone_release(process);
        else if (ring)
            munmap(ring, bytes);
        close(channel);
        return;
    }
    process->number = ++parent->hello_count;
    process->process_id = process_id;
    process->channel = channel;
    process->reactive_from = -1;
    process->budget_from = parent->options.budget_fraction > 0 ? -1 : 0;
    parent->main_said_hello |= process->process_id == parent->main_process_id;
    ebb__recall_find(parent, process, (int)hello->parent_process_id);
    ebb__parent_send(process,
                     &(struct ebb_message){.kind = EBB_MESSAGE_WELCOME,
                                           .value = process->state == LEARNER_TRACING,
                                           .limit_bytes = parent->options.store_limit_bytes},
                     parent->ledger_descriptor);
    if (parent->options.compress == EBB_COMPRESS_ON || parent->compressed)
        ebb__parent_tell(process, EBB_MESSAGE_COMPRESS, 0);
    ebb__recall_plan(parent, process);
}

static bool is_known(const struct ebb_parent *parent, const struct ebb_message *hello,
                     const struct ucred *sender)
{
    bool knows = hello->secret[0] == parent->secret[0] && hello->secret[1] == parent->secret[1];
    /* Root's programs may become other users; nobody else's do. */
    return knows && (sender->uid == geteuid() || geteuid() == 0);
}

/* `peer`: who made the connection; NULL: each message says who sent it. */
static void take_hellos(struct ebb_parent *parent, int socket, const struct ucred *peer)
{
    struct ebb_message message;
    struct ucred sender;
    int descriptors[EBB_MESSAGE_DESCRIPTORS];
    size_t count;
    while (ebb__message_receive_from(socket, &message, descriptors, &count, &sender) == 1) {
        if (peer)
            sender = *peer;
        if (message.kind == EBB_MESSAGE_HELLO && count == 2 &&
            is_known(parent, &message, &sender)) {
            int process_id = sender.pid ? (int)sender.pid : (int)message.process_id;
            welcome(parent, &message, process_id, descriptors[0], descriptors[1]);
        } else {
            ebb__message_close(descriptors, count);
        }
    }
}

static bool peer_of(int connection, struct ucred *peer)
{
    socklen_t bytes = sizeof *peer;
    return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, peer, &bytes) == 0;
}

static void accept_connections(struct ebb_parent *parent)
{
    int connection;
    struct ucred peer;
    while ((connection = accept4(parent->listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >=
           0) {
        bool ours = peer_of(connection, &peer) && (peer.uid == geteuid() || geteuid() == 0);
        if (!ours || !ebb_vec_push(&parent->accepted, connection))
            close(connection);
    }
    for (size_t i = 0; i < parent->accepted.count;) {
        char byte;
        int waiting = parent->accepted.items[i];
        if (peer_of(waiting, &peer))
            take_hellos(parent, waiting, &peer);
        ssize_t got = recv(waiting, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
            close(waiting);
            parent->accepted.items[i] = parent->accepted.items[--parent->accepted.count];
        } else {
            i++;
        }
    }
}

/* The trace is that of the first process with managed blocks. */
static void record_events(struct ebb_parent *parent, struct process *process,
                          const struct ebb_event *events, size_t count)
{
    if (!parent->writer || parent->writer_status != EBB_OK)
        return;
    if (!parent->recorded)
        parent->recorded = process->number;
    if (parent->recorded != process->number)
        return;
    parent->writer_status =
        ebb__trace_writer_append(parent->writer, events, count, &parent->writer_error);
    if (parent->writer_status != EBB_OK)
        ebb__parent_warn(parent, "%s: %s: the trace ends here", parent->writer_error.what,
                         parent->writer_error.why);
}

static void stop_watching(struct ebb_parent *parent, struct process *process, const char *why)
{
    ebb__parent_warn(parent, "process %d is not watched any more: %s", process->process_id, why);
    ebb__watch_destroy(process->watch);
    process->watch = NULL;
}

static enum ebb_status watch_event(struct process *process, const struct ebb_event *event)
{
    bool begins = process->guarded && event->kind == EBB_EVENT_MARK && event->mark == EBB_MARK_LAP;
    enum ebb_status status = EBB_OK;
    if (!begins && !process->playing)
        status = ebb__recurrence_push(process->recurrence, event, &begins);
    if (!status && begins)
        status = ebb__watch_push(process->watch,
                                 &(struct ebb_event){.time_ns = event->time_ns,
                                                     .size_bytes = EBB_ITERATION_BY_ACCESSES,
                                                     .kind = EBB_EVENT_MARK,
                                                     .mark = EBB_MARK_ITERATION});
    return status ? status : ebb__watch_push(process->watch, event);
}

static void drain(struct ebb_parent *parent, struct process *process)
{
    struct ebb_event events[BATCH_EVENTS];
    size_t count;
    while ((count = ebb__ring_read(process->ring, events, BATCH_EVENTS)) > 0) {
        parent->events += count;
        record_events(parent, process, events, count);
        for (size_t i = 0; i < count; i++) {
            ebb__parent_note_event(parent, process, &events[i]);
            enum ebb_status pushed = process->watch ? watch_event(process, &events[i]) : EBB_OK;
            if (pushed != EBB_OK)
                stop_watching(parent, process,
                              pushed == EBB_ERR_FORMAT ? "its events are none" : "out of memory");
        }
        if (count < BATCH_EVENTS)
            break;
    }
    if (process->watch && !ebb__ring_is_sound(process->ring))
        stop_watching(parent, process, "its ring has been overwritten");
}

static void say_goodbye(struct ebb_parent *parent, struct process *process)
{
    drain(parent, process);
    uint64_t copied_bytes = atomic_load(&process->ring->counters.copied_bytes);
    if (copied_bytes)
        ebb__copies_note(parent,
                         parent->copied_bytes > copied_bytes ? parent->copied_bytes : copied_bytes);
    if (atomic_load(&process->ring->counters.has_slot))
        parent->departed++;
    else
        ebb__ledger_release(parent->ledger, parent->ledger->slots,
                            atomic_load(&process->ring->counters.held_bytes));
    close(process->channel);
    process->channel = -1;
}

static void take_messages(struct ebb_parent *parent, struct process *process)
{
    struct ebb_message message;
    int descriptors[2], got;
    size_t count;
    while ((got = ebb__message_receive(process->channel, &message, descriptors, &count)) == 1) {
        message.text[sizeof message.text - 1] = 0;
        if (message.kind == EBB_MESSAGE_WARN)
            ebb__parent_warn(parent, "process %d: %s", process->process_id, message.text);
        for (size_t i = 0; i < count; i++)
            close(descriptors[i]);
    }
    if (got < 0)
        say_goodbye(parent, process);
}

size_t ebb__parent_descriptors(const struct ebb_parent *parent, struct pollfd *polled, size_t most)
{
    size_t count = 0;
    if (count < most)
        polled[count++] = (struct pollfd){.fd = parent->listening, .events = POLLIN};
    if (count < most)
        polled[count++] = (struct pollfd){.fd = parent->hello_pair[0], .events = POLLIN};
    for (size_t i = 0; i < parent->accepted.count && count < most; i++)
        polled[count++] = (struct pollfd){.fd = parent->accepted.items[i], .events = POLLIN};
    for (size_t i = 0; i < parent->processes.count && count < most; i++)
        if (parent->processes.items[i]->channel >= 0)
            polled[count++] =
                (struct pollfd){.fd = parent->processes.items[i]->channel, .events = POLLIN};
    return count;
}

/* A process that can free nothing itself waits for pages: whoever else holds most gives some. */
static void feed_starving(struct ebb_parent *parent)
{
    uint64_t bytes = atomic_exchange(&parent->ledger->starving_bytes, 0);
    if (bytes == 0)
        return;
    atomic_fetch_add(&parent->ledger->passed_on, 1);
    int starving = (int)atomic_load(&parent->ledger->starving_process);
    struct process *richest = NULL;
    uint64_t most = 0;
    for (size_t i = 0; i < parent->processes.count; i++) {
        struct process *process = parent->processes.items[i];
        uint64_t held = atomic_load(&process->ring->counters.held_bytes);
        if (process->channel >= 0 && process->process_id != starving && held > most) {
            richest = process;
            most = held;
        }
    }
    if (richest)
        ebb__parent_tell(richest, EBB_MESSAGE_SHRINK, bytes);
}

/* What is told by a socket that closed is done at once, the rest now and then: processes that never said
 * hello, and those that were killed in the midst of a change. */
static void reap(struct ebb_parent *parent)
{
    uint64_t now = ebb__now_ns();
    if (parent->departed == 0 && now < parent->reap_ns)
        return;
    unsigned reaped = ebb__ledger_reap(parent->ledger, parent->ledger_descriptor);
    parent->departed -= reaped < parent->departed ? reaped : parent->departed;
    parent->reap_ns = now + REAP_NS;
}

int ebb__parent_step(struct ebb_parent *parent)
{
    take_hellos(parent, parent->hello_pair[0], NULL);
    accept_connections(parent);
    ebb__gone_collect(parent);
    bool busy = false;
    uint64_t now_ns = ebb__now_ns();
    for (size_t i = 0; i < parent->processes.count; i++) {
        struct process *process = parent->processes.items[i];
        if (process->channel < 0)
            continue;
        drain(parent, process);
        if (process->watch && atomic_load(&process->ring->counters.managing)) {
            if (atomic_load(&process->ring->counters.live_bytes) >= PROBE_FROM_BYTES)
                ebb__parent_begin_probe(parent);
            ebb__parent_learn(parent, process);
            busy = true;
        }
        ebb__alarm_look(parent, process, now_ns);
        take_messages(parent, process);
    }
    ebb__copies_look(parent);
    reap(parent);
    feed_starving(parent);
    return busy ? DRAIN_MS : 100;
}

void ebb__parent_destroy(struct ebb_parent *parent)
{
    if (!parent)
        return;
    if (parent->probing)
        pthread_join(parent->prober, NULL);
    for (size_t i = 0; i < parent->processes.count; i++) {
        if (parent->processes.items[i]->channel >= 0)
            close(parent->processes.items[i]->channel);
        ebb__gone_release(parent->processes.items[i]);
    }
    ebb_vec_free(&parent->processes);
    for (size_t i = 0; i < parent->accepted.count; i++)
        close(parent->accepted.items[i]);
    ebb_vec_free(&parent->accepted);
    const int descriptors[] = {parent->listening, parent->hello_pair[0], parent->hello_pair[1]};
    for (size_t i = 0; i < 3; i++)
        if (descriptors[i] >= 0)
            close(descriptors[i]);
    if (parent->ledger && parent->ledger != MAP_FAILED) {
        munmap(parent->ledger, sizeof *parent->ledger);
        close(parent->ledger_descriptor);
    }
    if (parent->writer && ebb__trace_writer_close(parent->writer, NULL) != EBB_OK)
        parent->writer = NULL;
    free(parent);
}
