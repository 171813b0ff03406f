/* Hello: how the library in a process finds the parent of its run, and what the parent sends.
 *
 * EBB_RUN tells where the parent is (settings.c). It may be stale: its run has ended, or a program
 * outlives its run. Then no process listens, or a stranger has the parent's name, which must
 * neither get the ring nor send messages. The parent may also be slow, or stopped. The process
 * waits as long as the parent lives: without it, the process would hold memory that no budget
 * counts. The parent's death ends the wait, since its sockets hang up. */
#include "join.h"

#include "base/clock.h"
#include "base/limits.h"
#include "base/tuning.h"
#include "device/os.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* True if the other end belongs to the parent. From another pid namespace its number is unknown and
 * reads as 0. */
static bool leads_to_parent(int descriptor, struct ucred *peer)
{
    socklen_t bytes = sizeof *peer;
    return getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, peer, &bytes) == 0 &&
           (peer->pid == 0 || peer->pid == ebb__join_settings.parent_id);
}

static bool is_inherited_socket(int descriptor)
{
    struct stat status;
    struct ucred peer;
    return ebb__os_status(descriptor, &status) == 0 && S_ISSOCK(status.st_mode) &&
           (unsigned long long)status.st_ino == ebb__join_settings.inode &&
           leads_to_parent(descriptor, &peer);
}

/* Returns a socket on which the parent receives a hello, or -1. The caller closes it if *ours is
 * set. */
static int reach_parent(bool *ours)
{
    *ours = false;
    if (is_inherited_socket(ebb__join_settings.inherited))
        return ebb__join_settings.inherited;
    int descriptor = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (descriptor < 0)
        return -1;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(ebb__join_settings.parent_name);
    memcpy(address.sun_path + 1, ebb__join_settings.parent_name, length);
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
    struct ucred peer;
    int failed;
    do /* retry an interrupted call: it has had no effect */
        failed = connect(descriptor, (struct sockaddr *)&address, bytes);
    while (failed && errno == EINTR);
    if (failed || !leads_to_parent(descriptor, &peer) || peer.uid != ebb__join_settings.user_id) {
        close(descriptor);
        return -1;
    }
    *ours = true;
    return descriptor;
}

/* The file is sealed against changes of size, so that nobody can truncate it while another process
 * has it mapped. */
static struct ebb_ring *make_ring(int *memory)
{
    size_t bytes = ebb__ring_bytes(EBB_RING_EVENTS);
    *memory = memfd_create("ebb-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (*memory < 0)
        return NULL;
    void *ring = MAP_FAILED;
    if (ebb__memory_file_size(*memory, bytes) &&
        fcntl(*memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        ring = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *memory, 0);
    if (ring == MAP_FAILED) {
        close(*memory);
        return NULL;
    }
    ebb__ring_init(ring, EBB_RING_EVENTS, ebb__now_ns());
    return ring;
}

/* Sends the hello. Retries if too many descriptors are in flight. */
static bool send_hello(const struct ebb_join_introduction *introduction, int parent,
                       const int descriptors[2])
{
    const struct timespec nap = {.tv_nsec = 1000000};
    struct ebb_message hello = {
        .kind = EBB_MESSAGE_HELLO,
        .value = introduction->kind,
        .limit_bytes = introduction->device_bytes,
        .process_id = (uint32_t)getpid(),
        .parent_process_id = (uint32_t)getppid(),
        .secret = {ebb__join_settings.secret[0], ebb__join_settings.secret[1]}};
    if (introduction->text)
        snprintf(hello.text, sizeof hello.text, "%s", introduction->text);
    else
        prctl(PR_GET_NAME, hello.text);
    while (!ebb__message_send(parent, &hello, descriptors, 2, 0)) {
        if (errno != ETOOMANYREFS)
            return false;
        nanosleep(&nap, NULL);
    }
    return true;
}

static struct ebb_ledger *map_ledger(int descriptor)
{
    struct stat status;
    int seals = fcntl(descriptor, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || ebb__os_status(descriptor, &status) != 0 ||
        (uint64_t)status.st_size < EBB_LEDGER_LEAST_BYTES)
        return NULL;
    void *shared =
        mmap(NULL, sizeof(struct ebb_ledger), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (shared == MAP_FAILED)
        return NULL;
    if (((struct ebb_ledger *)shared)->magic == EBB_LEDGER_MAGIC)
        return shared;
    munmap(shared, sizeof(struct ebb_ledger));
    return NULL;
}

/* Takes the parent's tuning; a fork has inherited it. If a row is unknown, the parent is another
 * version of Ebb, and the library's own table holds. */
static void take_tuning(int channel, struct ebb_message *welcome)
{
    static bool taken;
    if (taken)
        return;
    taken = true;
    welcome->text[sizeof welcome->text - 1] = 0;
    if (ebb__tuning_read(welcome->text, NULL) == EBB_OK)
        return;
    const struct ebb_message refused = {
        .kind = EBB_MESSAGE_WARN,
        .process_id = (uint32_t)getpid(),
        .text = "the library in the process does not know this --tune: its own table holds there"};
    ebb__message_send(channel, &refused, NULL, 0, 0);
}

/* Waits for the answer without a limit. Returns false if the parent is gone. */
static bool be_welcomed(struct ebb_join_parent *parent)
{
    struct ebb_message welcome;
    int came[EBB_MESSAGE_DESCRIPTORS] = {-1, -1}, got = 0;
    size_t count = 0;
    struct pollfd answer = {.fd = parent->channel, .events = POLLIN};
    while (got == 0) {
        if (poll(&answer, 1, -1) < 0 && errno != EINTR)
            return false;
        got = ebb__message_receive(parent->channel, &welcome, came, &count);
    }
    if (got < 0)
        return false;
    if (welcome.kind == EBB_MESSAGE_WELCOME && count >= 1)
        parent->ledger = map_ledger(came[0]);
    if (parent->ledger && count == 2)
        parent->store_ledger = map_ledger(came[1]);
    parent->ledger_descriptor = came[0];
    parent->store_descriptor = came[1];
    if (!parent->ledger)
        ebb__message_close(came, count);
    else if (!parent->store_ledger)
        ebb__message_close(came + 1, count - 1);
    if (!parent->store_ledger)
        parent->store_descriptor = -1;
    parent->store_limit_bytes = welcome.limit_bytes;
    parent->trace = welcome.value != 0;
    if (parent->ledger)
        take_tuning(parent->channel, &welcome);
    return parent->ledger != NULL;
}

static bool say_hello(const struct ebb_join_introduction *introduction,
                      struct ebb_join_parent *parent)
{
    int memory, pair[2];
    bool ours, good = false;
    *parent = (struct ebb_join_parent){.channel = -1};
    int door = reach_parent(&ours);
    if (door < 0)
        return false;
    parent->ring = make_ring(&memory);
    if (parent->ring) {
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0) {
            good = send_hello(introduction, door, (int[]){pair[1], memory});
            close(pair[1]);
            parent->channel = ebb__descriptor_high(pair[0]);
        }
        close(memory);
    }
    if (ours)
        close(door);
    if (good && be_welcomed(parent))
        return true;
    if (parent->channel >= 0)
        close(parent->channel);
    if (parent->ring)
        munmap(parent->ring, ebb__ring_bytes(EBB_RING_EVENTS));
    *parent = (struct ebb_join_parent){.channel = -1};
    return false;
}

bool ebb__join_hello(const struct ebb_join_introduction *introduction,
                     struct ebb_join_parent *parent)
{
    int before, saved = errno;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    bool good = say_hello(introduction, parent);
    pthread_setcancelstate(before, NULL);
    errno = saved;
    return good;
}
