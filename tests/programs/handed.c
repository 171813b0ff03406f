/* handed: passes buffers in evicted blocks to calls other than read and write. These are requests
 * that libc's own threads execute, calls with many messages, message queues, streams' buffers, and
 * a process's memory. Prints "good" if every call has done all of its work and every byte is
 * right. */
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/msg.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define COUNT 16
#define BYTES ((size_t)1 << 20)
#define PART ((size_t)4000)

static unsigned char *blocks[COUNT];
static unsigned char copy[BYTES];
static int file;

static void die(const char *what)
{
    fprintf(stderr, "bad: %s: %s\n", what, strerror(errno));
    exit(1);
}

static unsigned char byte_at(int i, size_t at)
{
    return (unsigned char)(i * 31 + (int)(at / 4096) * 7 + (int)(at % 251) + 1);
}

static void fill(int i)
{
    for (size_t at = 0; at < BYTES; at++)
        blocks[i][at] = byte_at(i, at);
}

/* Uses all blocks but `but` and its successor, so that these two are evicted. */
static void press(int but)
{
    for (int turn = 0; turn < 2; turn++)
        for (int i = 0; i < COUNT; i++)
            for (size_t at = 0; at < BYTES && i != but && i != but + 1; at += 509)
                if (((volatile unsigned char *)blocks[i])[at] != byte_at(i, at))
                    die("byte");
}

static void await(struct aiocb *request, const char *what)
{
    const struct aiocb *list[] = {request};
    while (aio_error(request) == EINPROGRESS)
        aio_suspend(list, 1, NULL);
    errno = aio_error(request);
    if (aio_return(request) != (ssize_t)BYTES)
        die(what);
}

static void requests(int i)
{
    struct aiocb request = {.aio_fildes = file, .aio_buf = blocks[i], .aio_nbytes = BYTES};
    press(i);
    if (aio_write(&request) != 0)
        die("aio_write");
    press(i);
    await(&request, "aio_write");
    if (pread(file, copy, BYTES, 0) != (ssize_t)BYTES || memcmp(copy, blocks[i], BYTES) != 0)
        die("what aio_write has written");
    request.aio_buf = blocks[i + 1];
    press(i);
    if (aio_read(&request) != 0)
        die("aio_read");
    press(i);
    await(&request, "aio_read");
    if (memcmp(copy, blocks[i + 1], BYTES) != 0)
        die("what aio_read has read");
    fill(i + 1);
}

static void lists(int i)
{
    struct aiocb requests[2], *list[] = {&requests[0], &requests[1]};
    memset(requests, 0, sizeof requests);
    for (int k = 0; k < 2; k++) {
        requests[k].aio_fildes = file;
        requests[k].aio_buf = blocks[i + k];
        requests[k].aio_nbytes = BYTES;
        requests[k].aio_offset = (off_t)((size_t)k * BYTES);
        requests[k].aio_lio_opcode = LIO_WRITE;
    }
    press(i);
    if (lio_listio(LIO_WAIT, list, 2, NULL) != 0)
        die("lio_listio");
    for (int k = 0; k < 2; k++)
        if (pread(file, copy, BYTES, (off_t)((size_t)k * BYTES)) != (ssize_t)BYTES ||
            memcmp(copy, blocks[i + k], BYTES) != 0)
            die("what lio_listio has written");
}

static void messages(int i)
{
    int pair[2];
    struct iovec vectors[2];
    struct mmsghdr both[2];
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) != 0)
        die("socketpair");
    memset(both, 0, sizeof both);
    for (int k = 0; k < 2; k++) {
        vectors[k] = (struct iovec){blocks[i + k], PART};
        both[k].msg_hdr.msg_iov = &vectors[k];
        both[k].msg_hdr.msg_iovlen = 1;
    }
    press(i);
    if (sendmmsg(pair[0], both, 2, 0) != 2)
        die("sendmmsg");
    vectors[0].iov_base = blocks[i + 1] + BYTES / 2;
    vectors[1].iov_base = blocks[i] + BYTES / 2;
    press(i);
    if (recvmmsg(pair[1], both, 2, 0, NULL) != 2)
        die("recvmmsg");
    for (int k = 0; k < 2; k++)
        if (memcmp(blocks[i + k], blocks[i + 1 - k] + BYTES / 2, PART) != 0)
            die("what recvmmsg has received");
    fill(i);
    fill(i + 1);
    close(pair[0]);
    close(pair[1]);
}

static void queues(int i)
{
    int queue = msgget(IPC_PRIVATE, 0600);
    if (queue < 0)
        return; /* not every system has message queues */
    long kind = 5;
    memcpy(blocks[i], &kind, sizeof kind);
    press(i);
    if (msgsnd(queue, blocks[i], PART, 0) != 0)
        die("msgsnd");
    press(i);
    if (msgrcv(queue, blocks[i + 1], PART, kind, 0) != (ssize_t)PART)
        die("msgrcv");
    if (memcmp(blocks[i], blocks[i + 1], sizeof kind + PART) != 0)
        die("what msgrcv has received");
    msgctl(queue, IPC_RMID, NULL);
    fill(i);
    fill(i + 1);
}

static void named_queues(int i)
{
    char name[64];
    snprintf(name, sizeof name, "/ebb-handed-%d", (int)getpid());
    struct mq_attr attributes = {.mq_maxmsg = 2, .mq_msgsize = (long)PART};
    mqd_t queue = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &attributes);
    if (queue == (mqd_t)-1)
        return;
    mq_unlink(name);
    press(i);
    if (mq_send(queue, (const char *)blocks[i], PART, 0) != 0)
        die("mq_send");
    press(i);
    if (mq_receive(queue, (char *)blocks[i + 1], PART, NULL) != (ssize_t)PART)
        die("mq_receive");
    if (memcmp(blocks[i], blocks[i + 1], PART) != 0)
        die("what mq_receive has received");
    mq_close(queue);
    fill(i + 1);
}

/* Memory of this very process, read and written like debuggers and message libraries do it. */
static void own_memory(int i)
{
    struct iovec to = {blocks[i], PART}, from = {blocks[i + 1], PART};
    press(i);
    ssize_t got = process_vm_readv(getpid(), &to, 1, &from, 1, 0);
    if (got < 0 && (errno == EPERM || errno == ENOSYS))
        return;
    if (got != (ssize_t)PART || memcmp(blocks[i], blocks[i + 1], PART) != 0)
        die("process_vm_readv");
    fill(i);
    press(i);
    if (process_vm_writev(getpid(), &from, 1, &to, 1, 0) != (ssize_t)PART ||
        memcmp(blocks[i], blocks[i + 1], PART) != 0)
        die("process_vm_writev");
    fill(i);
}

static void entropy(int i)
{
    press(i);
    if (getentropy(blocks[i], 256) != 0)
        die("getentropy");
    fill(i);
}

/* A stream whose buffer is a block, set by the two older functions. */
static void streams(int i)
{
    for (int turn = 0; turn < 2; turn++) {
        FILE *stream = tmpfile();
        if (!stream)
            die("tmpfile");
        if (turn == 0)
            setbuffer(stream, (char *)blocks[i], BYTES);
        else
            setbuf(stream, (char *)blocks[i]);
        for (int k = 0; k < 20000; k++)
            if (fprintf(stream, "line %d\n", k) < 0)
                die("fprintf");
        press(i);
        if (fflush(stream) != 0)
            die("fflush");
        rewind(stream);
        press(i);
        for (int k = 0; k < 20000; k++) {
            char line[32];
            if (!fgets(line, sizeof line, stream) || atoi(line + 5) != k)
                die("fgets");
        }
        fclose(stream);
        fill(i);
    }
}

static void line(int i)
{
    FILE *into = tmpfile();
    int out = dup(STDOUT_FILENO);
    if (!into || out < 0)
        die("tmpfile");
    memset(blocks[i], 'a', BYTES - 1);
    blocks[i][BYTES - 1] = 0;
    press(i);
    fflush(stdout);
    dup2(fileno(into), STDOUT_FILENO);
    int got = puts((const char *)blocks[i]);
    int flushed = fflush(stdout);
    dup2(out, STDOUT_FILENO);
    close(out);
    if (got < 0 || flushed != 0 || lseek(fileno(into), 0, SEEK_END) != (off_t)BYTES)
        die("puts");
    fclose(into);
    fill(i);
}

int main(void)
{
    static void (*const ways[])(int) = {requests,   lists,   messages, queues, named_queues,
                                        own_memory, entropy, streams,  line};
    char name[] = "/var/tmp/handed-XXXXXX";
    file = mkstemp(name);
    unlink(name);
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = malloc(BYTES);
        if (!blocks[i])
            die("malloc");
        fill(i);
    }
    int i = 0;
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++)
        for (int turn = 0; turn < 3; turn++, i = (i + 5) % (COUNT - 1))
            ways[way](i);
    for (i = 0; i < COUNT; i++)
        for (size_t at = 0; at < BYTES; at++)
            if (blocks[i][at] != byte_at(i, at))
                die("byte at the end");
    printf("good\n");
    return 0;
}
