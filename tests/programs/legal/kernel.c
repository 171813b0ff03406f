/* System calls that access blocks otherwise than by read and write: splicing, other processes'
 * memory, zero-copy sends, and small structures in blocks. */
#include "legal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/errqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

static void read_all(struct actor *actor, int file, unsigned char *to, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t now = read(file, to + done, bytes - done);
        if (now == 0 || (now < 0 && errno != EINTR))
            fail(actor, "read of %zu of %zu bytes: %zd, %s", bytes - done, bytes, now,
                 strerror(errno));
        done += now > 0 ? (size_t)now : 0;
    }
}

/* The pipe holds the pages themselves, so nobody writes to them until they are read. The reader
 * gets the bytes of the time of the call, even if the block has moved since. */
static void do_vmsplice(struct actor *actor)
{
    struct run run;
    int ends[2], through[2];
    if (!run_pick(actor, &run, UNREADABLE | LAZY, 12 * PAGE) || pipe(ends) != 0)
        return;
    size_t bytes = run_bytes(&run);
    struct iovec vector = {run_start(&run), bytes};
    ssize_t sent;
    while ((sent = vmsplice(ends[1], &vector, 1, SPLICE_F_NONBLOCK)) < 0 && errno == EINTR)
        ;
    if (sent <= 0)
        fail(actor, "vmsplice of %zu bytes at %p: %s", bytes, vector.iov_base, strerror(errno));
    bytes = (size_t)sent;
    if (one_in(actor, 2))
        actor_check(actor);
    pressure(actor);
    if (one_in(actor, 2)) {
        block_make(actor, 2 * MIB);
        pressure(actor);
    }
    if (one_in(actor, 3) && pipe(through) == 0) {
        ssize_t moved;
        while ((moved = splice(ends[0], NULL, through[1], NULL, bytes, SPLICE_F_MOVE)) < 0 &&
               errno == EINTR)
            ;
        if (moved > 0) {
            read_all(actor, through[0], actor->scratch, (size_t)moved);
            pattern_check(actor, run.block, run_offset(&run), (size_t)moved, actor->scratch,
                          "vmspliced and spliced");
        }
        close(through[0]);
        close(through[1]);
    } else {
        read_all(actor, ends[0], actor->scratch, bytes);
        pattern_check(actor, run.block, run_offset(&run), bytes, actor->scratch, "vmspliced");
    }
    close(ends[0]);
    close(ends[1]);
}

/* Splices into a block. vmsplice from a pipe copies. */
static void do_vmsplice_in(struct actor *actor)
{
    struct run run;
    int ends[2];
    if (!run_pick(actor, &run, UNWRITABLE, 8 * PAGE) || pipe(ends) != 0)
        return;
    size_t bytes = run_bytes(&run), done = 0;
    uint32_t version = ++actor->version;
    pattern_make(run.block, run_offset(&run), bytes, version, actor->scratch);
    if (write(ends[1], actor->scratch, bytes) != (ssize_t)bytes)
        fail(actor, "write to a pipe: %s", strerror(errno));
    while (done < bytes) {
        struct iovec vector = {run_start(&run) + done, bytes - done};
        ssize_t now = vmsplice(ends[0], &vector, 1, 0);
        if (now == 0 || (now < 0 && errno != EINTR))
            fail(actor, "vmsplice into %p: %s", vector.iov_base, strerror(errno));
        done += now > 0 ? (size_t)now : 0;
    }
    run_set(&run, version);
    run_check(actor, &run, "vmspliced into a block");
    close(ends[0]);
    close(ends[1]);
}

static void do_process_vm(struct actor *actor)
{
    struct run run;
    bool out = one_in(actor, 2);
    if (!run_pick(actor, &run, (out ? UNREADABLE : UNWRITABLE) | LAZY, SCRATCH_BYTES))
        return;
    size_t bytes = run_bytes(&run);
    struct iovec block = {run_start(&run), bytes}, scratch = {actor->scratch, bytes};
    uint32_t version = ++actor->version;
    if (!out)
        pattern_make(run.block, run_offset(&run), bytes, version, actor->scratch);
    ssize_t got;
    switch (chance(actor, 2) * 2 + out) {
    case 0:
        got = process_vm_writev(getpid(), &scratch, 1, &block, 1, 0);
        break;
    case 1:
        got = process_vm_readv(getpid(), &scratch, 1, &block, 1, 0);
        break;
    case 2:
        got = process_vm_readv(getpid(), &block, 1, &scratch, 1, 0);
        break;
    default:
        got = process_vm_writev(getpid(), &block, 1, &scratch, 1, 0);
    }
    if (got < 0 && (errno == EPERM || errno == ENOSYS))
        return;
    if (got != (ssize_t)bytes)
        fail(actor, "process_vm of %zu bytes at %p gave %zd: %s", bytes, block.iov_base, got,
             strerror(errno));
    if (!out)
        run_set(&run, version);
    pattern_check(actor, run.block, run_offset(&run), bytes, actor->scratch, "process_vm");
    run_check(actor, &run, "process_vm");
}

/* A connection to itself. Sends on it may keep the pages until they report that they are done. */
static bool connect_self(int ends[2])
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t bytes = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ends[0] = ends[1] = -1;
    bool good = listener >= 0 && bind(listener, (struct sockaddr *)&address, bytes) == 0 &&
                listen(listener, 1) == 0 &&
                getsockname(listener, (struct sockaddr *)&address, &bytes) == 0 &&
                (ends[1] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) >= 0 &&
                setsockopt(ends[1], SOL_SOCKET, SO_ZEROCOPY, &one, sizeof one) == 0 &&
                connect(ends[1], (struct sockaddr *)&address, bytes) == 0 &&
                (ends[0] = accept(listener, NULL, NULL)) >= 0;
    if (listener >= 0)
        close(listener);
    if (!good && ends[1] >= 0)
        close(ends[1]);
    return good;
}

static void do_zero_copy(struct actor *actor)
{
    struct run run;
    int ends[2];
    if (!run_pick(actor, &run, UNREADABLE | LAZY, 12 * PAGE) || !connect_self(ends))
        return;
    ssize_t sent = send(ends[1], run_start(&run), run_bytes(&run), MSG_ZEROCOPY);
    if (sent < 0 && errno != ENOBUFS && errno != EINTR)
        fail(actor, "send with MSG_ZEROCOPY from %p: %s", (void *)run_start(&run), strerror(errno));
    if (sent > 0) {
        pressure(actor);
        read_all(actor, ends[0], actor->scratch, (size_t)sent);
        pattern_check(actor, run.block, run_offset(&run), (size_t)sent, actor->scratch,
                      "sent without a copy");
    }
    close(ends[0]);
    close(ends[1]);
}

/* Small structures that the kernel reads and fills, at random places of a block that may be absent.
 * The same call is made with a structure on the stack for comparison. */
static void do_structures(struct actor *actor)
{
    struct run run;
    if (!run_pick(actor, &run, UNWRITABLE, 64 * PAGE) || run_bytes(&run) < 4 * PAGE)
        return;
    unsigned char *place =
        run_start(&run) + (chance(actor, run_bytes(&run) - 2 * PAGE) & ~(uint64_t)15);
    run_check(actor, &run, "where a structure is to be");
    memset(place, 0, 2 * PAGE);
    pressure_beside(actor, run.block);
    errno = 0;
    bool good = true;
    const char *what = "";
    switch (chance(actor, 9)) {
    case 0: {
        struct stat here;
        what = "stat";
        good = stat("/", (struct stat *)place) == 0 && stat("/", &here) == 0 &&
               ((struct stat *)place)->st_ino == here.st_ino;
        break;
    }
    case 1: {
        char here[PAGE];
        what = "getcwd";
        good = getcwd((char *)place, PAGE) && getcwd(here, sizeof here) &&
               strcmp(here, (char *)place) == 0;
        break;
    }
    case 2: {
        struct pollfd *poll_at = (struct pollfd *)place;
        int ends[2];
        what = "poll";
        if (pipe(ends) != 0)
            break;
        poll_at[0] = (struct pollfd){.fd = ends[1], .events = POLLOUT};
        poll_at[1] = (struct pollfd){.fd = ends[0], .events = POLLIN};
        pressure_beside(actor, run.block);
        int got;
        while ((got = poll(poll_at, 2, 1000)) < 0 && errno == EINTR)
            ;
        good = got == 1 && poll_at[0].revents == POLLOUT && poll_at[1].revents == 0;
        close(ends[0]);
        close(ends[1]);
        break;
    }
    case 3:
        what = "pipe";
        if ((good = pipe((int *)place) == 0)) {
            good = close(((int *)place)[0]) == 0 && close(((int *)place)[1]) == 0;
        }
        break;
    case 4: {
        struct utsname here;
        what = "uname";
        good = uname((struct utsname *)place) == 0 && uname(&here) == 0 &&
               strcmp(here.release, ((struct utsname *)place)->release) == 0;
        break;
    }
    case 5:
        what = "clock_gettime by the system";
        good = syscall(SYS_clock_gettime, CLOCK_MONOTONIC, place) == 0 &&
               ((struct timespec *)place)->tv_sec + ((struct timespec *)place)->tv_nsec != 0;
        break;
    case 6:
        what = "an absolute path";
        memcpy(place, "/dev/null", 10);
        pressure_beside(actor, run.block);
        int null = open((char *)place, O_RDONLY | O_CLOEXEC);
        good = null >= 0 && close(null) == 0;
        break;
    case 7: {
        struct epoll_event *event = (struct epoll_event *)place;
        int ends[2], watch = epoll_create1(EPOLL_CLOEXEC);
        what = "epoll";
        if (watch < 0 || pipe(ends) != 0)
            break;
        *event = (struct epoll_event){.events = EPOLLOUT, .data.u64 = 4711};
        pressure_beside(actor, run.block);
        good = epoll_ctl(watch, EPOLL_CTL_ADD, ends[1], event) == 0;
        memset(event, 0, sizeof *event);
        pressure_beside(actor, run.block);
        int got = 0;
        while (good && (got = epoll_wait(watch, event, 2, 1000)) < 0 && errno == EINTR)
            ;
        good = good && got == 1 && event->data.u64 == 4711;
        close(ends[0]);
        close(ends[1]);
        close(watch);
        break;
    }
    default: {
        struct mmsghdr *messages = (struct mmsghdr *)place;
        struct iovec *vectors = (struct iovec *)(place + 512);
        int ends[2];
        what = "sendmmsg";
        if (socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) != 0)
            break;
        memcpy(place + 1024, "message", 8);
        for (int i = 0; i < 2; i++) {
            vectors[i] = (struct iovec){place + 1024, 8};
            messages[i].msg_hdr = (struct msghdr){.msg_iov = &vectors[i], .msg_iovlen = 1};
        }
        pressure_beside(actor, run.block);
        good = sendmmsg(ends[1], messages, 2, 0) == 2;
        memset(place + 1024, 0, 8);
        pressure_beside(actor, run.block);
        good = good && recvmmsg(ends[0], messages, 2, 0, NULL) == 2 &&
               memcmp(place + 1024, "message", 8) == 0 && messages[1].msg_len == 8;
        close(ends[0]);
        close(ends[1]);
    }
    }
    if (!good)
        fail(actor, "%s with its memory at %p failed: %s", what, (void *)place, strerror(errno));
    run_fill(actor, &run);
}

/* Bare system calls without libc's functions. */
static void do_bare(struct actor *actor)
{
    struct run run;
    int ends[2];
    bool out = one_in(actor, 2);
    if (!run_pick(actor, &run, (out ? UNREADABLE : UNWRITABLE) | LAZY, 8 * PAGE) || pipe(ends) != 0)
        return;
    size_t bytes = run_bytes(&run), done = 0;
    uint32_t version = ++actor->version;
    if (!out) {
        pattern_make(run.block, run_offset(&run), bytes, version, actor->scratch);
        if (write(ends[1], actor->scratch, bytes) != (ssize_t)bytes)
            fail(actor, "write to a pipe: %s", strerror(errno));
    }
    while (done < bytes) {
        long now = out ? syscall(SYS_write, ends[1], run_start(&run) + done, bytes - done)
                       : syscall(SYS_read, ends[0], run_start(&run) + done, bytes - done);
        if (now == 0 || (now < 0 && errno != EINTR))
            fail(actor, "bare %s of %zu bytes at %p gave %ld: %s", out ? "write" : "read",
                 bytes - done, (void *)(run_start(&run) + done), now, strerror(errno));
        done += now > 0 ? (size_t)now : 0;
    }
    if (out) {
        read_all(actor, ends[0], actor->scratch, bytes);
        pattern_check(actor, run.block, run_offset(&run), bytes, actor->scratch, "bare write");
    } else {
        run_set(&run, version);
        run_check(actor, &run, "bare read");
    }
    close(ends[0]);
    close(ends[1]);
}

const struct operation kernel_operations[] = {
    {"vmsplice", "splice", do_vmsplice, 3, KERNEL},
    {"vmsplicein", "splice", do_vmsplice_in, 1, KERNEL},
    {"processvm", "syscalls", do_process_vm, 2, KERNEL},
    {"zerocopy", "syscalls", do_zero_copy, 1, KERNEL},
    {"structures", "syscalls", do_structures, 3, KERNEL},
    {"bare", "syscalls", do_bare, 2, KERNEL},
    {0},
};
