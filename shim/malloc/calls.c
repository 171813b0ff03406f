/* Wrappers of libc calls that take buffers. If the device's system calls cannot wait for an absent
 * page (calls_need_pins), the buffers are made resident and pinned until the call returns. On other
 * devices the wrappers only make the call.
 *
 * Not covered on those devices: system calls that bypass these functions and names.c (ioctl, inline
 * system calls), and strings in managed blocks that printf() prints. For locks see locks.c. If such
 * a block is absent, these calls fail with EFAULT, as for a bad address. They never read a wrong
 * byte. */
#include "calls.h"

#include <mqueue.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/msg.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

#define BUFFER(type, name, parameters, arguments, buffer, bytes)                                   \
    EBB_HAND_ON(type, name, parameters, arguments, (&(struct iovec)EBB_BUFFER_OF(buffer, bytes)), 1)
#define VECTOR(name, parameters, arguments)                                                        \
    EBB_HAND_ON(ssize_t, name, parameters, arguments, keep_vector(vector, count),                  \
                count > 0 ? (size_t)count : 0)
#define MESSAGE(name, parameters, arguments)                                                       \
    EBB_HAND_ON(ssize_t, name, parameters, arguments, keep_message(message),                       \
                message ? message->msg_iovlen : 0)

#undef fread_unlocked
#undef fwrite_unlocked
#undef fputs_unlocked

/* What describes buffers is small, and seldom in a block. It is kept as long as the block. */
static const struct iovec *keep_vector(const struct iovec *vector, int count)
{
    ebb__shim_wait_in(vector, count > 0 ? (size_t)count * sizeof *vector : 0);
    return vector;
}

static const struct iovec *keep_message(const struct msghdr *message)
{
    if (!message)
        return NULL;
    ebb__shim_wait_in(message, sizeof *message);
    ebb__shim_wait_in(message->msg_iov, message->msg_iovlen * sizeof *message->msg_iov);
    ebb__shim_wait_in(message->msg_name, message->msg_namelen);
    ebb__shim_wait_in(message->msg_control, message->msg_controllen);
    return message->msg_iov;
}

static const void *keep_peer(const void *peer, const socklen_t *bytes)
{
    ebb__shim_wait_in(bytes, sizeof *bytes);
    ebb__shim_wait_in(peer, bytes ? *bytes : 0);
    return peer;
}

BUFFER(ssize_t, read, (int file, void *to, size_t bytes), (file, to, bytes), to, bytes)
BUFFER(ssize_t, write, (int file, const void *from, size_t bytes), (file, from, bytes), from, bytes)
BUFFER(ssize_t, pread, (int file, void *to, size_t bytes, off_t at), (file, to, bytes, at), to,
       bytes)
BUFFER(ssize_t, pread64, (int file, void *to, size_t bytes, off64_t at), (file, to, bytes, at), to,
       bytes)
BUFFER(ssize_t, pwrite, (int file, const void *from, size_t bytes, off_t at),
       (file, from, bytes, at), from, bytes)
BUFFER(ssize_t, pwrite64, (int file, const void *from, size_t bytes, off64_t at),
       (file, from, bytes, at), from, bytes)
BUFFER(ssize_t, recv, (int file, void *to, size_t bytes, int flags), (file, to, bytes, flags), to,
       bytes)
BUFFER(ssize_t, send, (int file, const void *from, size_t bytes, int flags),
       (file, from, bytes, flags), ebb__shim_lend_to_send(from, bytes, flags), bytes)
BUFFER(ssize_t, recvfrom,
       (int file, void *restrict to, size_t bytes, int flags, struct sockaddr *restrict peer,
        socklen_t *restrict peer_bytes),
       (file, to, bytes, flags, peer, peer_bytes), (keep_peer(peer, peer_bytes), to), bytes)
BUFFER(ssize_t, sendto,
       (int file, const void *from, size_t bytes, int flags, const struct sockaddr *peer,
        socklen_t peer_bytes),
       (file, from, bytes, flags, peer, peer_bytes),
       (keep_peer(peer, &peer_bytes), ebb__shim_lend_to_send(from, bytes, flags)), bytes)
BUFFER(ssize_t, getrandom, (void *to, size_t bytes, unsigned flags), (to, bytes, flags), to, bytes)
BUFFER(int, getentropy, (void *to, size_t bytes), (to, bytes), to, bytes)

/* Messages begin with their type. */
BUFFER(int, msgsnd, (int queue, const void *from, size_t bytes, int flags),
       (queue, from, bytes, flags), from, sizeof(long) + bytes)
BUFFER(ssize_t, msgrcv, (int queue, void *to, size_t bytes, long kind, int flags),
       (queue, to, bytes, kind, flags), to, sizeof(long) + bytes)
BUFFER(int, mq_send, (mqd_t queue, const char *from, size_t bytes, unsigned priority),
       (queue, from, bytes, priority), from, bytes)
BUFFER(int, mq_timedsend,
       (mqd_t queue, const char *from, size_t bytes, unsigned priority,
        const struct timespec *until),
       (queue, from, bytes, priority, until), from, bytes)
BUFFER(ssize_t, mq_receive, (mqd_t queue, char *to, size_t bytes, unsigned *priority),
       (queue, to, bytes, priority), to, bytes)
BUFFER(ssize_t, mq_timedreceive,
       (mqd_t queue, char *restrict to, size_t bytes, unsigned *restrict priority,
        const struct timespec *restrict until),
       (queue, to, bytes, priority, until), to, bytes)

VECTOR(readv, (int file, const struct iovec *vector, int count), (file, vector, count))
VECTOR(writev, (int file, const struct iovec *vector, int count), (file, vector, count))
VECTOR(preadv, (int file, const struct iovec *vector, int count, off_t at),
       (file, vector, count, at))
VECTOR(preadv64, (int file, const struct iovec *vector, int count, off64_t at),
       (file, vector, count, at))
VECTOR(pwritev, (int file, const struct iovec *vector, int count, off_t at),
       (file, vector, count, at))
VECTOR(pwritev64, (int file, const struct iovec *vector, int count, off64_t at),
       (file, vector, count, at))
VECTOR(preadv2, (int file, const struct iovec *vector, int count, off_t at, int flags),
       (file, vector, count, at, flags))
VECTOR(pwritev2, (int file, const struct iovec *vector, int count, off_t at, int flags),
       (file, vector, count, at, flags))
VECTOR(preadv64v2, (int file, const struct iovec *vector, int count, off64_t at, int flags),
       (file, vector, count, at, flags))
VECTOR(pwritev64v2, (int file, const struct iovec *vector, int count, off64_t at, int flags),
       (file, vector, count, at, flags))

MESSAGE(recvmsg, (int file, struct msghdr *message, int flags), (file, message, flags))
EBB_HAND_ON(ssize_t, sendmsg, (int file, const struct msghdr *message, int flags),
            (file, message, flags),
            ebb__shim_lend_message(message, flags) ? keep_message(message) : NULL,
            message ? message->msg_iovlen : 0)

/* Of a text in a block. A thread may wait for its pages, and the kernel need not. */
static size_t text_bytes(const char *text)
{
    return text && ebb__shim_may_wait_in(text) ? strlen(text) + 1 : 0;
}

/* stdio passes large buffers directly to the kernel. */
BUFFER(size_t, fread, (void *restrict to, size_t size, size_t count, FILE *restrict file),
       (to, size, count, file), to, size *count)
BUFFER(size_t, fwrite, (const void *restrict from, size_t size, size_t count, FILE *restrict file),
       (from, size, count, file), from, size *count)
BUFFER(size_t, fread_unlocked, (void *restrict to, size_t size, size_t count, FILE *restrict file),
       (to, size, count, file), to, size *count)
BUFFER(size_t, fwrite_unlocked,
       (const void *restrict from, size_t size, size_t count, FILE *restrict file),
       (from, size, count, file), from, size *count)
BUFFER(int, fputs, (const char *restrict from, FILE *restrict file), (from, file), from,
       text_bytes(from))
BUFFER(int, fputs_unlocked, (const char *restrict from, FILE *restrict file), (from, file), from,
       text_bytes(from))
BUFFER(int, puts, (const char *from), (from), from, text_bytes(from))

/* The kernel may use a file's buffer as long as the file is open. */
EXPORT int setvbuf(FILE *restrict file, char *restrict buffer, int mode, size_t bytes);

EXPORT void setbuffer(FILE *restrict file, char *restrict buffer, size_t bytes);

EXPORT void setbuf(FILE *restrict file, char *restrict buffer);

int setvbuf(FILE *restrict file, char *restrict buffer, int mode, size_t bytes)
{
    int (*next)(FILE *, char *, int, size_t);
    EBB_BEHIND(next, setvbuf);
    if (buffer)
        ebb__shim_wait_in(buffer, bytes);
    return next(file, buffer, mode, bytes);
}

void setbuffer(FILE *restrict file, char *restrict buffer, size_t bytes)
{
    (void)setvbuf(file, buffer, buffer ? _IOFBF : _IONBF, bytes);
}

void setbuf(FILE *restrict file, char *restrict buffer)
{
    setbuffer(file, buffer, BUFSIZ);
}

/* Programs compiled with _FORTIFY_SOURCE call these. */
BUFFER(ssize_t, __read_chk, (int file, void *to, size_t bytes, size_t room),
       (file, to, bytes, room), to, bytes)
BUFFER(ssize_t, __pread_chk, (int file, void *to, size_t bytes, off_t at, size_t room),
       (file, to, bytes, at, room), to, bytes)
BUFFER(ssize_t, __pread64_chk, (int file, void *to, size_t bytes, off64_t at, size_t room),
       (file, to, bytes, at, room), to, bytes)
BUFFER(ssize_t, __recv_chk, (int file, void *to, size_t bytes, size_t room, int flags),
       (file, to, bytes, room, flags), to, bytes)
BUFFER(ssize_t, __recvfrom_chk,
       (int file, void *restrict to, size_t bytes, size_t room, int flags,
        struct sockaddr *restrict peer, socklen_t *restrict peer_bytes),
       (file, to, bytes, room, flags, peer, peer_bytes), to, bytes)
BUFFER(size_t, __fread_chk,
       (void *restrict to, size_t room, size_t size, size_t count, FILE *restrict file),
       (to, room, size, count, file), to, size *count)
BUFFER(size_t, __fread_unlocked_chk,
       (void *restrict to, size_t room, size_t size, size_t count, FILE *restrict file),
       (to, room, size, count, file), to, size *count)
