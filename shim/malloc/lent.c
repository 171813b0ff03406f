/* Pages that the program lends to the kernel for longer than a call.
 *
 * vmsplice() puts a program's pages into a pipe, and a send with MSG_ZEROCOPY into a socket's queue: what is
 * read there later is what the page holds then. The kernel takes a plain reference for that, which no
 * device can see (UFFDIO_MOVE refuses pinned pages only), so the page would be moved away and come to hold
 * other bytes. Such blocks are kept where they are until they are freed; then their pages go back to the
 * system, which waits for the last reference (src/runtime/keep.c).
 *
 * io_uring and Linux's aio write while no call of the program is under way. The device that moves pages by
 * UFFDIO_MOVE sees their buffers, since they are pinned, and whoever finds a page absent waits for it.
 * All other devices cannot offer them: setting one up fails with ENOSYS, as it does in containers, whose
 * users have learnt to live without.
 *
 * What is not seen here: system calls that are made without libc, by an instruction of the program's own;
 * IORING_OP_SEND_ZC with buffers that are not registered, which takes plain references; and memory that is
 * registered by ioctl() or setsockopt() (RDMA, XDP) on devices other than the first. */
#include "guard.h"
#include "shim.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define EXPORT __attribute__((visibility("default")))

#ifndef MSG_ZEROCOPY
#define MSG_ZEROCOPY 0x4000000
#endif

struct io_uring;
struct io_uring_params;

EXPORT ssize_t vmsplice(int pipe, const struct iovec *vector, size_t count, unsigned flags);
EXPORT int sendmmsg(int file, struct mmsghdr *messages, unsigned count, int flags);
EXPORT int io_setup(int events, void **context);
EXPORT int io_queue_init(int events, void **context);
EXPORT int io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags);
EXPORT int io_uring_queue_init_params(unsigned entries, struct io_uring *ring,
                                      struct io_uring_params *parameters);
EXPORT int io_uring_queue_init_mem(unsigned entries, struct io_uring *ring,
                                   struct io_uring_params *parameters, void *memory, size_t bytes);

static _Atomic bool refusing;
static atomic_flag told = ATOMIC_FLAG_INIT;

void ebb__shim_lend(const struct iovec *vector, size_t count)
{
    struct ebb_runtime *runtime = ebb__shim_runtime_now();
    if (!runtime || !vector)
        return;
    int saved = errno;
    for (size_t i = 0; i < count; i++) {
        struct ebb_guard guard;
        ebb__guard_enter(&guard);
        ebb__runtime_keep(runtime, vector[i].iov_base, vector[i].iov_len);
        ebb__guard_leave(&guard);
    }
    errno = saved;
}

const void *ebb__shim_lend_to_send(const void *from, size_t bytes, int flags)
{
    if (flags & MSG_ZEROCOPY)
        ebb__shim_lend(&(struct iovec){(void *)(uintptr_t)from, bytes}, 1);
    return from;
}

const struct msghdr *ebb__shim_lend_message(const struct msghdr *message, int flags)
{
    if (message && (flags & MSG_ZEROCOPY))
        ebb__shim_lend(message->msg_iov, message->msg_iovlen);
    return message;
}

ssize_t vmsplice(int pipe, const struct iovec *vector, size_t count, unsigned flags)
{
    ssize_t (*next)(int, const struct iovec *, size_t, unsigned);
    EBB_BEHIND(next, vmsplice);
    ebb__shim_lend(vector, count);
    return next(pipe, vector, count, flags);
}

int sendmmsg(int file, struct mmsghdr *messages, unsigned count, int flags)
{
    int (*next)(int, struct mmsghdr *, unsigned, int);
    EBB_BEHIND(next, sendmmsg);
    for (unsigned i = 0; messages && i < count; i++)
        ebb__shim_lend_message(&messages[i].msg_hdr, flags);
    return next(file, messages, count, flags);
}

void ebb__shim_refuse_async(void)
{
    atomic_store(&refusing, true);
}

bool ebb__shim_refuses_async(void)
{
    if (!atomic_load_explicit(&refusing, memory_order_relaxed))
        return false;
    if (!atomic_flag_test_and_set(&told))
        ebb__shim_warn("io_uring and aio are refused (ENOSYS): on this system Ebb cannot see which "
                       "blocks they use (see ebb doctor)");
    return true;
}

/* libaio and liburing return errno's value, negative. */
#define SET_UP(name, parameters, arguments)                                                        \
    int name parameters                                                                            \
    {                                                                                              \
        int(*next) parameters;                                                                     \
        EBB_BEHIND(next, name);                                                                    \
        return !next || ebb__shim_refuses_async() ? -ENOSYS : next arguments;                      \
    }

SET_UP(io_setup, (int events, void **context), (events, context))
SET_UP(io_queue_init, (int events, void **context), (events, context))
SET_UP(io_uring_queue_init, (unsigned entries, struct io_uring *ring, unsigned flags),
       (entries, ring, flags))
SET_UP(io_uring_queue_init_params,
       (unsigned entries, struct io_uring *ring, struct io_uring_params *parameters),
       (entries, ring, parameters))
SET_UP(io_uring_queue_init_mem,
       (unsigned entries, struct io_uring *ring, struct io_uring_params *parameters, void *memory,
        size_t bytes),
       (entries, ring, parameters, memory, bytes))
