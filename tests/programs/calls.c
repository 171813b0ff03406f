/* calls: passes blocks that were not touched for long to every libc call that takes a buffer, as
 * source and as target. Meanwhile a second thread keeps memory scarce. If a call fails or is short
 * without being allowed to, or a byte is wrong, the exit code is 1. Otherwise it prints "good" and
 * the number of calls.
 *
 * usage: calls [BLOCKS [BYTES [skip]]]   (16 blocks of 2 MiB); skip: without the churning thread */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

static size_t bytes = (size_t)2 << 20;
static unsigned count = 16;
static unsigned char **blocks;
static int file, pair[2];
static FILE *stream;
static _Atomic int over;

static void die(const char *what)
{
    fprintf(stderr, "calls: %s: %s\n", what, strerror(errno));
    exit(1);
}

static unsigned char byte_at(unsigned block, size_t at)
{
    return (unsigned char)((at * 31 + block * 17) >> 3);
}

static void fill(unsigned block)
{
    for (size_t i = 0; i < bytes; i++)
        blocks[block][i] = byte_at(block, i);
}

/* Block `to` must have the bytes that `from` was filled with. */
static void expect(const char *call, unsigned to, unsigned from)
{
    for (size_t i = 0; i < bytes; i++)
        if (blocks[to][i] != byte_at(from, i)) {
            fprintf(stderr, "calls: %s: wrong byte %zu\n", call, i);
            exit(1);
        }
}

static void whole(const char *call, ssize_t done)
{
    if (done != (ssize_t)bytes)
        die(call);
}

static struct iovec *halves(unsigned block, struct iovec vector[2])
{
    vector[0] = (struct iovec){blocks[block], bytes / 2 + 5};
    vector[1] = (struct iovec){blocks[block] + bytes / 2 + 5, bytes - bytes / 2 - 5};
    return vector;
}

/* --- out of a block, into a block ------------------------------------------------------------- */

static void by_write(unsigned from)
{
    lseek(file, 0, SEEK_SET);
    whole("write", write(file, blocks[from], bytes));
}
static void by_pwrite(unsigned from)
{
    whole("pwrite", pwrite(file, blocks[from], bytes, 0));
}
static void by_pwrite64(unsigned from)
{
    whole("pwrite64", pwrite64(file, blocks[from], bytes, 0));
}
static void by_writev(unsigned from)
{
    struct iovec vector[2];
    lseek(file, 0, SEEK_SET);
    whole("writev", writev(file, halves(from, vector), 2));
}
static void by_pwritev(unsigned from)
{
    struct iovec vector[2];
    whole("pwritev", pwritev(file, halves(from, vector), 2, 0));
}
static void by_fwrite(unsigned from)
{
    rewind(stream);
    whole("fwrite", (ssize_t)fwrite(blocks[from], 1, bytes, stream));
    fflush(stream);
}
static void by_read(unsigned to)
{
    lseek(file, 0, SEEK_SET);
    whole("read", read(file, blocks[to], bytes));
}
static void by_pread(unsigned to)
{
    whole("pread", pread(file, blocks[to], bytes, 0));
}
static void by_pread64(unsigned to)
{
    whole("pread64", pread64(file, blocks[to], bytes, 0));
}
static void by_readv(unsigned to)
{
    struct iovec vector[2];
    lseek(file, 0, SEEK_SET);
    whole("readv", readv(file, halves(to, vector), 2));
}
static void by_preadv(unsigned to)
{
    struct iovec vector[2];
    whole("preadv", preadv(file, halves(to, vector), 2, 0));
}
static void by_fread(unsigned to)
{
    rewind(stream);
    whole("fread", (ssize_t)fread(blocks[to], 1, bytes, stream));
}

/* The size of one piece. A socket takes it at once. */
#define PIECE ((size_t)32 << 10)

static void through_socket(unsigned from, unsigned to, int manner)
{
    for (size_t at = 0; at < bytes; at += PIECE) {
        ssize_t sent, got;
        struct iovec out = {blocks[from] + at, PIECE}, in = {blocks[to] + at, PIECE};
        struct msghdr out_message = {.msg_iov = &out, .msg_iovlen = 1};
        struct msghdr in_message = {.msg_iov = &in, .msg_iovlen = 1};
        if (manner == 0)
            sent = send(pair[0], out.iov_base, PIECE, 0),
            got = recv(pair[1], in.iov_base, PIECE, 0);
        else if (manner == 1)
            sent = sendto(pair[0], out.iov_base, PIECE, 0, NULL, 0),
            got = recvfrom(pair[1], in.iov_base, PIECE, 0, NULL, NULL);
        else
            sent = sendmsg(pair[0], &out_message, 0), got = recvmsg(pair[1], &in_message, 0);
        if (sent != (ssize_t)PIECE || got != (ssize_t)PIECE)
            die("socket");
    }
    expect("socket", to, from);
}

/* Direct I/O writes to the pages themselves, without the page tables. */
static void by_direct_read(unsigned to, int direct)
{
    if (pread(direct, blocks[to], bytes, 0) != (ssize_t)bytes)
        die("direct read");
}

static void *churn(void *unused)
{
    (void)unused;
    while (!atomic_load(&over)) {
        size_t size = bytes / 4 + (size_t)(rand() % 8) * 4096;
        char *scratch = malloc(size);
        if (!scratch)
            die("malloc");
        memset(scratch, 1, size);
        usleep(200);
        free(scratch);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        count = (unsigned)atoi(argv[1]);
    if (argc > 2)
        bytes = (size_t)atol(argv[2]);
    char name[] = "/var/tmp/calls-XXXXXX";
    file = mkstemp(name);
    if (file < 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
        die("descriptors");
    stream = fopen(name, "r+");
    int direct = open(name, O_RDONLY | O_DIRECT);
    unlink(name);
    blocks = calloc(count, sizeof *blocks);
    for (unsigned i = 0; i < count; i++) {
        if (posix_memalign((void **)&blocks[i], 4096, bytes) != 0)
            die("posix_memalign");
        fill(i);
    }
    char *room = malloc((size_t)256 << 10); /* a stream's buffer in a block */
    setvbuf(stream, room, _IOFBF, (size_t)256 << 10);
    pthread_t thread;
    if (argc <= 3)
        pthread_create(&thread, NULL, churn, NULL);

    void (*const outs[])(unsigned) = {by_write,  by_pwrite,  by_pwrite64,
                                      by_writev, by_pwritev, by_fwrite};
    void (*const ins[])(unsigned) = {by_read, by_pread, by_pread64, by_readv, by_preadv, by_fread};
    unsigned calls = 0, from = 0, to = count / 2;
    for (unsigned i = 0; i < 6; i++) {
        for (unsigned k = 0; k < 6; k++) {
            outs[i](from);
            memset(blocks[to], 0x5a, bytes / 2); /* one half is resident, the other may be absent */
            ins[k](to);
            expect("file", to, from);
            if (direct >= 0) {
                to = (to + 1) % count;
                by_direct_read(to, direct);
                expect("direct", to, from);
            }
            fill(to);
            from = (from + 3) % count;
            to = (to + 5) % count;
            if (to == from)
                to = (to + 1) % count;
            fill(from);
            calls += 2;
        }
    }
    for (int manner = 0; manner < 3; manner++) {
        through_socket(from, to, manner);
        fill(to);
        from = (from + 1) % count;
        to = (to + 1) % count;
        fill(from);
        calls += 2;
    }
    if (getrandom(blocks[to], 256, 0) != 256)
        die("getrandom");
    atomic_store(&over, 1);
    if (argc <= 3)
        pthread_join(thread, NULL);
    printf("good %u\n", calls);
    return 0;
}
