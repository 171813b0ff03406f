/* How the processes of a run find the parent, and how it knows that they belong to the run.
 *
 * A process uses the inherited end of a socket pair. If it has closed that, it uses an abstract
 * address, which EBB_RUN names. In both cases its hello must contain the run's secret and come from
 * the same user. */
#include "parent/internal.h"

#include "base/limits.h"
#include "base/tuning.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* Makes a secret from random bytes. Returns false if there are none. */
static bool make_secret(uint64_t *words, size_t count)
{
    return getrandom(words, count * sizeof *words, 0) == (ssize_t)(count * sizeof *words);
}

enum ebb_status ebb__doors_open(struct ebb_parent *parent, struct ebb_error *error)
{
    struct doors *doors = &parent->doors;
    uint64_t number;
    if (!make_secret(&number, 1) || !make_secret(doors->secret, 2))
        return ebb__fail(error, EBB_ERR_IO, "getrandom", "%s", strerror(errno));
    char name[64];
    snprintf(name, sizeof name, "ebb-%ld-%016llx", (long)getpid(), (unsigned long long)number);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path + 1, name, strlen(name));
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
    const int yes = 1;
    doors->listening = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (doors->listening < 0 || bind(doors->listening, (struct sockaddr *)&address, bytes) != 0 ||
        listen(doors->listening, 128) != 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, doors->hello_pair) != 0 ||
        setsockopt(doors->hello_pair[0], SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes) != 0)
        return ebb__fail(error, EBB_ERR_IO, "socket", "%s", strerror(errno));
    doors->hello_pair[1] = ebb__descriptor_high(doors->hello_pair[1]);
    fcntl(doors->hello_pair[0], F_SETFL, O_NONBLOCK);
    struct stat status;
    if (fstat(doors->hello_pair[1], &status) != 0)
        return ebb__fail(error, EBB_ERR_IO, "socket", "%s", strerror(errno));
    unsigned flags =
        (parent->options.record ? EBB_PROTOCOL_FLAG_RECORD : 0) |
        (parent->options.verify ? EBB_PROTOCOL_FLAG_VERIFY : 0) |
        (parent->options.compress != EBB_COMPRESS_OFF ? EBB_PROTOCOL_FLAG_COMPRESS : 0) |
        (unsigned)parent->options.gpu_backing << EBB_PROTOCOL_BACKING_SHIFT;
    int length = snprintf(doors->environment, sizeof doors->environment,
                          EBB_PROTOCOL_ENV "=2:%d:%llu:%ld:%lu:%016llx%016llx:%s:%llu:%u:%s",
                          doors->hello_pair[1], (unsigned long long)status.st_ino, (long)getpid(),
                          (unsigned long)geteuid(), (unsigned long long)doors->secret[0],
                          (unsigned long long)doors->secret[1], name,
                          (unsigned long long)parent->options.threshold_bytes, flags,
                          parent->options.store ? parent->options.store : "");
    if (length < 0 || (size_t)length >= sizeof doors->environment)
        return ebb__fail(error, EBB_ERR_ARGUMENT, "--store", "path too long");
    return EBB_OK;
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

/* process_id: in this process's own pid namespace. */
static void welcome(struct ebb_parent *parent, const struct ebb_message *hello, int process_id,
                    int channel, int ring_descriptor)
{
    size_t bytes;
    struct ebb_ring *ring = map_ring(ring_descriptor, &bytes);
    close(ring_descriptor);
    struct fast_memory *memory =
        hello->value == EBB_HELLO_DEVICE ? ebb__memory_of_device(parent, hello) : &parent->host;
    struct process *process = ring && memory ? calloc(1, sizeof *process) : NULL;
    if (process) {
        process->stream.ring = ring;
        process->stream.ring_bytes = bytes;
    }
    enum ebb_watch_shapes shapes = /* the engine of a device follows sizes only */
        memory && memory->is_device ? EBB_WATCH_SIZES : EBB_WATCH_SHAPES;
    if (!process || ebb__watch_create(shapes, &process->stream.watch) != EBB_OK ||
        ebb__recurrence_create(&process->stream.recurrence) != EBB_OK ||
        !ebb_vec_push(&parent->processes, process)) {
        ebb__parent_warn(parent, "process %d is not managed: %s", process_id,
                         !ring     ? "its ring is none"
                         : !memory ? "too many devices, or out of memory"
                                   : "out of memory");
        if (process)
            ebb__gone_release(process);
        else if (ring)
            munmap(ring, bytes);
        close(channel);
        return;
    }
    process->number = ++parent->hello_count;
    process->since_ns = ebb__now_ns();
    process->process_id = process_id;
    process->memory = memory;
    process->over_before = atomic_load(&memory->ledger->over_bytes);
    process->channel = channel;
    process->learning.reactive_from = -1;
    process->budget_from = process->memory->budget.state == BUDGET_OPEN ? -1 : 0;
    parent->main_said_hello |= process->process_id == parent->main_process_id;
    if (hello->value != EBB_HELLO_CUDA) /* its devices have the blocks */
        ebb__recall_find(parent, process, (int)hello->parent_process_id);
    ebb__rest_begin(parent, process);
    struct ebb_message message = {.kind = EBB_MESSAGE_WELCOME,
                                  .value = process->phase == PHASE_OBSERVING,
                                  .limit_bytes = memory->is_device
                                                     ? parent->options.device_store_limit_bytes
                                                     : parent->options.store_limit_bytes};
    if (!ebb__tuning_write(message.text, sizeof message.text))
        message.text[0] = 0; /* `ebb run` rejects so many changes */
    struct store_limit *limit = memory->is_device ? &parent->device_store : &parent->host_store;
    int store = memory->is_device || message.limit_bytes != UINT64_MAX
                    ? ebb__store_limit_open(limit, message.limit_bytes)
                    : -1;
    ebb__message_send(process->channel, &message, (int[]){memory->ledger_descriptor, store},
                      store < 0 ? 1 : 2, MSG_DONTWAIT);
    if (!memory->is_device &&
        (parent->options.compress == EBB_COMPRESS_ON || memory->lanes.compressed))
        ebb__parent_tell(process, EBB_MESSAGE_COMPRESS, 0);
    ebb__recall_plan(parent, process);
}

static bool is_known(const struct ebb_parent *parent, const struct ebb_message *hello,
                     const struct ucred *sender)
{
    bool knows =
        hello->secret[0] == parent->doors.secret[0] && hello->secret[1] == parent->doors.secret[1];
    /* Programs of root may change their user; others may not. */
    return knows && (sender->uid == geteuid() || geteuid() == 0);
}

/* `peer`: the process at the other end; NULL: each message names its sender. */
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
    struct doors *doors = &parent->doors;
    int connection;
    struct ucred peer;
    while ((connection = accept4(doors->listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >=
           0) {
        bool ours = peer_of(connection, &peer) && (peer.uid == geteuid() || geteuid() == 0);
        if (!ours || !ebb_vec_push(&doors->accepted, connection))
            close(connection);
    }
    for (size_t i = 0; i < doors->accepted.count;) {
        char byte;
        int waiting = doors->accepted.items[i];
        if (peer_of(waiting, &peer))
            take_hellos(parent, waiting, &peer);
        ssize_t got = recv(waiting, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
            close(waiting);
            doors->accepted.items[i] = doors->accepted.items[--doors->accepted.count];
        } else {
            i++;
        }
    }
}

void ebb__doors_answer(struct ebb_parent *parent)
{
    take_hellos(parent, parent->doors.hello_pair[0], NULL);
    accept_connections(parent);
}

size_t ebb__parent_descriptors(const struct ebb_parent *parent, struct pollfd *polled, size_t most)
{
    size_t count = 0;
    if (count < most)
        polled[count++] = (struct pollfd){.fd = parent->doors.listening, .events = POLLIN};
    if (count < most)
        polled[count++] = (struct pollfd){.fd = parent->doors.hello_pair[0], .events = POLLIN};
    if (count < most && parent->showing >= 0)
        polled[count++] = (struct pollfd){.fd = parent->showing, .events = POLLIN};
    for (size_t i = 0; i < parent->doors.accepted.count && count < most; i++)
        polled[count++] = (struct pollfd){.fd = parent->doors.accepted.items[i], .events = POLLIN};
    for (size_t i = 0; i < parent->processes.count && count < most; i++)
        if (parent->processes.items[i]->channel >= 0)
            polled[count++] =
                (struct pollfd){.fd = parent->processes.items[i]->channel, .events = POLLIN};
    return count;
}

void ebb__doors_close(struct ebb_parent *parent)
{
    struct doors *doors = &parent->doors;
    for (size_t i = 0; i < doors->accepted.count; i++)
        close(doors->accepted.items[i]);
    ebb_vec_free(&doors->accepted);
    const int descriptors[] = {doors->listening, doors->hello_pair[0], doors->hello_pair[1]};
    for (size_t i = 0; i < 3; i++)
        if (descriptors[i] >= 0)
            close(descriptors[i]);
}
