/* Pages that the kernel uses after a call of the program has returned.
 *
 * vmsplice() puts a program's pages into a pipe, and a send with MSG_ZEROCOPY into a socket's
 * queue. A later read returns the page's contents at that time. The kernel takes a plain reference,
 * which no device can see: UFFDIO_MOVE refuses only pinned pages. The page would be moved and then
 * hold other bytes. So such blocks stay resident until they are freed. Then their pages are
 * released to the system, which waits for the last reference (src/runtime/keep.c).
 *
 * io_uring and Linux's aio write while no call of the program is running. On the device with
 * UFFDIO_MOVE their buffers are pinned, which the device sees, and an access to an absent page
 * waits. Other devices cannot support them. The calls that set them up fail with ENOSYS there.
 * Programs can handle that, as it is common in containers.
 *
 * Three things are not covered. One is a system call that the program makes by its own instruction.
 * The second is IORING_OP_SEND_ZC with unregistered buffers, which takes plain references. The
 * third is memory registered by ioctl() or setsockopt() (RDMA, XDP) on other devices. */
#include "guard.h"
#include "shim.h"

#include <aio.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

#ifndef MSG_ZEROCOPY
#define MSG_ZEROCOPY 0x4000000
#endif

struct io_uring;
struct io_uring_params;

EXPORT ssize_t vmsplice(int pipe, const struct iovec *vector, size_t count, unsigned flags);
EXPORT int sendmmsg(int file, struct mmsghdr *messages, unsigned count, int flags);
EXPORT int recvmmsg(int file, struct mmsghdr *messages, unsigned count, int flags,
                    struct timespec *until);
EXPORT ssize_t process_vm_readv(pid_t process, const struct iovec *to, unsigned long count,
                                const struct iovec *from, unsigned long from_count,
                                unsigned long flags);
EXPORT ssize_t process_vm_writev(pid_t process, const struct iovec *from, unsigned long count,
                                 const struct iovec *to, unsigned long to_count,
                                 unsigned long flags);
EXPORT int aio_read(struct aiocb *request);
EXPORT int aio_write(struct aiocb *request);
EXPORT int aio_read64(struct aiocb64 *request);
EXPORT int aio_write64(struct aiocb64 *request);
EXPORT int lio_listio(int mode, struct aiocb *const *restrict list, int count,
                      struct sigevent *restrict event);
EXPORT int lio_listio64(int mode, struct aiocb64 *const *restrict list, int count,
                        struct sigevent *restrict event);
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

/* The same during a call with many buffers, if it could not wait for them. */
static void wait_in_all(const struct iovec *vector, size_t count)
{
    for (size_t i = 0; vector && i < count; i++)
        ebb__shim_wait_in(vector[i].iov_base, vector[i].iov_len);
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
    for (unsigned i = 0; messages && i < count; i++) {
        ebb__shim_lend_message(&messages[i].msg_hdr, flags);
        wait_in_all(messages[i].msg_hdr.msg_iov, messages[i].msg_hdr.msg_iovlen);
    }
    return next(file, messages, count, flags);
}

int recvmmsg(int file, struct mmsghdr *messages, unsigned count, int flags, struct timespec *until)
{
    int (*next)(int, struct mmsghdr *, unsigned, int, struct timespec *);
    EBB_BEHIND(next, recvmmsg);
    for (unsigned i = 0; messages && i < count; i++)
        wait_in_all(messages[i].msg_hdr.msg_iov, messages[i].msg_hdr.msg_iovlen);
    return next(file, messages, count, flags, until);
}

ssize_t process_vm_readv(pid_t process, const struct iovec *to, unsigned long count,
                         const struct iovec *from, unsigned long from_count, unsigned long flags)
{
    ssize_t (*next)(pid_t, const struct iovec *, unsigned long, const struct iovec *, unsigned long,
                    unsigned long);
    EBB_BEHIND(next, process_vm_readv);
    wait_in_all(to, count);
    if (process == getpid())
        wait_in_all(from, from_count);
    return next(process, to, count, from, from_count, flags);
}

ssize_t process_vm_writev(pid_t process, const struct iovec *from, unsigned long count,
                          const struct iovec *to, unsigned long to_count, unsigned long flags)
{
    ssize_t (*next)(pid_t, const struct iovec *, unsigned long, const struct iovec *, unsigned long,
                    unsigned long);
    EBB_BEHIND(next, process_vm_writev);
    wait_in_all(from, count);
    if (process == getpid())
        wait_in_all(to, to_count);
    return next(process, from, count, to, to_count, flags);
}

/* libc performs POSIX's asynchronous requests in its own threads, by calls that the shim cannot
 * see. */
#define REQUEST(name, kind)                                                                        \
    int name(struct kind *request)                                                                 \
    {                                                                                              \
        int (*next)(struct kind *);                                                                \
        EBB_BEHIND(next, name);                                                                    \
        ebb__shim_wait_in((const void *)(uintptr_t)request->aio_buf, request->aio_nbytes);         \
        return next(request);                                                                      \
    }
#define REQUESTS(name, kind)                                                                       \
    int name(int mode, struct kind *const *restrict list, int count,                               \
             struct sigevent *restrict event)                                                      \
    {                                                                                              \
        int (*next)(int, struct kind *const *, int, struct sigevent *);                            \
        EBB_BEHIND(next, name);                                                                    \
        for (int i = 0; i < count; i++)                                                            \
            if (list[i] && list[i]->aio_lio_opcode != LIO_NOP)                                     \
                ebb__shim_wait_in((const void *)(uintptr_t)list[i]->aio_buf, list[i]->aio_nbytes); \
        return next(mode, list, count, event);                                                     \
    }

REQUEST(aio_read, aiocb)
REQUEST(aio_write, aiocb)
REQUEST(aio_read64, aiocb64)
REQUEST(aio_write64, aiocb64)
REQUESTS(lio_listio, aiocb)
REQUESTS(lio_listio64, aiocb64)

void ebb__shim_refuse_async(void)
{
    atomic_store(&refusing, true);
}

void ebb__shim_allow_async(void)
{
    atomic_store(&refusing, false);
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

/* libaio and liburing return the negative errno. */
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
