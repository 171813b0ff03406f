/* Passes content to the kernel or from it by libc's ordinary calls. It must arrive on the other
 * side, and in the block. */
#include "legal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

static size_t some(struct actor *actor, size_t rest)
{
    size_t bytes = one_in(actor, 2) ? MOST_AT_ONCE : 1 + (size_t)chance(actor, MOST_AT_ONCE);
    return bytes < rest ? bytes : rest;
}

/* Divides a buffer into up to four pieces. */
static int pieces(struct actor *actor, struct iovec *vector, unsigned char *start, size_t bytes)
{
    int count = 0;
    while (bytes && count < 3) {
        size_t piece = 1 + (size_t)chance(actor, bytes);
        vector[count++] = (struct iovec){start, piece};
        start += piece;
        bytes -= piece;
    }
    if (bytes)
        vector[count++] = (struct iovec){start, bytes};
    return count;
}

static void all(struct actor *actor, bool out, int file, unsigned char *at, size_t bytes)
{
    while (bytes) {
        ssize_t now = out ? write(file, at, bytes) : read(file, at, bytes);
        if (now <= 0 && !(now < 0 && errno == EINTR))
            fail(actor, "%s of %zu bytes of scratch memory: %zd, %s", out ? "write" : "read", bytes,
                 now, strerror(errno));
        if (now > 0)
            at += now, bytes -= (size_t)now;
    }
}

static ssize_t send_some(struct actor *actor, int file, bool socket, unsigned char *at,
                         size_t bytes)
{
    struct iovec vector[4];
    struct msghdr message = {.msg_iov = vector};
    switch (chance(actor, socket ? 5 : 2)) {
    case 0:
        return write(file, at, bytes);
    case 1:
        return writev(file, vector, pieces(actor, vector, at, bytes));
    case 2:
        return send(file, at, bytes, 0);
    case 3:
        return sendto(file, at, bytes, 0, NULL, 0);
    default:
        message.msg_iovlen = (size_t)pieces(actor, vector, at, bytes);
        return sendmsg(file, &message, 0);
    }
}

static ssize_t receive_some(struct actor *actor, int file, bool socket, unsigned char *at,
                            size_t bytes)
{
    struct iovec vector[4];
    struct msghdr message = {.msg_iov = vector};
    switch (chance(actor, socket ? 5 : 2)) {
    case 0:
        return read(file, at, bytes);
    case 1:
        return readv(file, vector, pieces(actor, vector, at, bytes));
    case 2:
        return recv(file, at, bytes, 0);
    case 3:
        return recvfrom(file, at, bytes, 0, NULL, NULL);
    default:
        message.msg_iovlen = (size_t)pieces(actor, vector, at, bytes);
        return recvmsg(file, &message, 0);
    }
}

/* Copies a block into scratch memory, or a new version from there into the block. */
static void through(struct actor *actor, const int ends[2], bool socket)
{
    struct run run;
    if (one_in(actor, 2)) {
        if (!run_pick(actor, &run, UNREADABLE | LAZY, 256 * KIB))
            return;
        for (size_t done = 0, part; done < run_bytes(&run); done += part) {
            part = some(actor, run_bytes(&run) - done);
            for (size_t sent = 0; sent < part;) {
                ssize_t now =
                    send_some(actor, ends[1], socket, run_start(&run) + done + sent, part - sent);
                if (now < 0 && errno != EINTR)
                    fail(actor, "%zu bytes out of a block at %p: %s", part - sent,
                         (void *)(run_start(&run) + done + sent), strerror(errno));
                sent += now > 0 ? (size_t)now : 0;
            }
            all(actor, false, ends[0], actor->scratch, part);
            pattern_check(actor, run.block, run_offset(&run) + done, part, actor->scratch,
                          "what came out of a block");
        }
        return;
    }
    if (!run_pick(actor, &run, UNWRITABLE, 256 * KIB))
        return;
    uint32_t version = ++actor->version;
    for (size_t done = 0, part; done < run_bytes(&run); done += part) {
        part = some(actor, run_bytes(&run) - done);
        pattern_make(run.block, run_offset(&run) + done, part, version, actor->scratch);
        all(actor, true, ends[1], actor->scratch, part);
        for (size_t got = 0; got < part;) {
            ssize_t now =
                receive_some(actor, ends[0], socket, run_start(&run) + done + got, part - got);
            if (now < 0 && errno != EINTR)
                fail(actor, "%zu bytes into a block at %p: %s", part - got,
                     (void *)(run_start(&run) + done + got), strerror(errno));
            got += now > 0 ? (size_t)now : 0;
        }
    }
    run_set(&run, version);
    run_check(actor, &run, "what came into a block");
}

static void do_pipe(struct actor *actor)
{
    int ends[2];
    if (pipe(ends) != 0)
        fail(actor, "pipe: %s", strerror(errno));
    through(actor, ends, false);
    close(ends[0]);
    close(ends[1]);
}

static void do_socket(struct actor *actor)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
        fail(actor, "socketpair: %s", strerror(errno));
    through(actor, ends, true);
    close(ends[0]);
    close(ends[1]);
}

static ssize_t pwrite_some(struct actor *actor, int file, unsigned char *at, size_t bytes,
                           off_t where)
{
    struct iovec vector[4];
    switch (chance(actor, 3)) {
    case 0:
        return pwrite(file, at, bytes, where);
    case 1:
        return pwritev(file, vector, pieces(actor, vector, at, bytes), where);
    default:
        return pwritev2(file, vector, pieces(actor, vector, at, bytes), where, 0);
    }
}

static ssize_t pread_some(struct actor *actor, int file, unsigned char *at, size_t bytes,
                          off_t where)
{
    struct iovec vector[4];
    switch (chance(actor, 3)) {
    case 0:
        return pread(file, at, bytes, where);
    case 1:
        return preadv(file, vector, pieces(actor, vector, at, bytes), where);
    default:
        return preadv2(file, vector, pieces(actor, vector, at, bytes), where, 0);
    }
}

static void do_file(struct actor *actor)
{
    struct run run;
    int file = actor_file(actor, false);
    off_t where = (off_t)chance(actor, 100000);
    if (one_in(actor, 2)) {
        if (!run_pick(actor, &run, UNREADABLE | LAZY, SCRATCH_BYTES))
            return;
        size_t bytes = run_bytes(&run);
        for (size_t done = 0; done < bytes;) {
            ssize_t now =
                pwrite_some(actor, file, run_start(&run) + done, bytes - done, where + (off_t)done);
            if (now < 0 && errno != EINTR)
                fail(actor, "%zu bytes from %p into a file: %s", bytes - done,
                     (void *)(run_start(&run) + done), strerror(errno));
            done += now > 0 ? (size_t)now : 0;
        }
        if (pread(file, actor->scratch, bytes, where) != (ssize_t)bytes)
            fail(actor, "pread into scratch memory: %s", strerror(errno));
        pattern_check(actor, run.block, run_offset(&run), bytes, actor->scratch,
                      "what a file got of a block");
        return;
    }
    if (!run_pick(actor, &run, UNWRITABLE, SCRATCH_BYTES))
        return;
    size_t bytes = run_bytes(&run);
    uint32_t version = ++actor->version;
    pattern_make(run.block, run_offset(&run), bytes, version, actor->scratch);
    if (pwrite(file, actor->scratch, bytes, where) != (ssize_t)bytes)
        fail(actor, "pwrite from scratch memory: %s", strerror(errno));
    for (size_t done = 0; done < bytes;) {
        ssize_t now =
            pread_some(actor, file, run_start(&run) + done, bytes - done, where + (off_t)done);
        if (now == 0 || (now < 0 && errno != EINTR))
            fail(actor, "%zu bytes from a file to %p: %s", bytes - done,
                 (void *)(run_start(&run) + done), strerror(errno));
        done += now > 0 ? (size_t)now : 0;
    }
    run_set(&run, version);
    run_check(actor, &run, "what a block got of a file");
}

/* Direct I/O: the device accesses the block's own pages. */
static void do_direct(struct actor *actor)
{
    struct run run;
    int file = actor_file(actor, true);
    if (file < 0)
        return;
    bool out = one_in(actor, 2);
    if (!run_pick_inner(actor, &run, (out ? UNREADABLE : UNWRITABLE) | LAZY, SCRATCH_BYTES))
        return;
    size_t bytes = run_bytes(&run);
    off_t where = (off_t)(chance(actor, 16) * PAGE);
    if (out) {
        if (pwrite(file, run_start(&run), bytes, where) != (ssize_t)bytes)
            fail(actor, "direct write of %zu bytes from %p: %s", bytes, (void *)run_start(&run),
                 strerror(errno));
        if (pread(actor->file, actor->scratch, bytes, where) != (ssize_t)bytes)
            fail(actor, "pread into scratch memory: %s", strerror(errno));
        pattern_check(actor, run.block, run_offset(&run), bytes, actor->scratch,
                      "written by direct I/O");
        return;
    }
    uint32_t version = ++actor->version;
    pattern_make(run.block, run_offset(&run), bytes, version, actor->scratch);
    if (pwrite(file, actor->scratch, bytes, where) != (ssize_t)bytes)
        fail(actor, "direct write from scratch memory: %s", strerror(errno));
    ssize_t got = pread(file, run_start(&run), bytes, where);
    if (got != (ssize_t)bytes)
        fail(actor, "direct read of %zu bytes to %p gave %zd: %s", bytes, (void *)run_start(&run),
             got, strerror(errno));
    run_set(&run, version);
    run_check(actor, &run, "read by direct I/O");
}

/* A stream whose buffer is a block. */
static void do_stream(struct actor *actor)
{
    struct run run;
    if (!run_pick(actor, &run, UNREADABLE | LAZY, SCRATCH_BYTES))
        return;
    int file = dup(actor_file(actor, false));
    FILE *stream = file < 0 ? NULL : fdopen(file, "r+");
    if (!stream)
        fail(actor, "fdopen: %s", strerror(errno));
    size_t buffer_bytes = 1 + (size_t)chance(actor, 600 * KIB);
    char *buffer = malloc(buffer_bytes);
    setvbuf(stream, buffer, _IOFBF, buffer_bytes);
    rewind(stream);
    size_t bytes = run_bytes(&run);
    if (fwrite(run_start(&run), 1, bytes, stream) != bytes)
        fail(actor, "fwrite of %zu bytes: %s", bytes, strerror(errno));
    if (one_in(actor, 2))
        pressure(actor);
    rewind(stream);
    if (fread(actor->scratch, 1, bytes, stream) != bytes)
        fail(actor, "fread of %zu bytes: %s", bytes, strerror(errno));
    pattern_check(actor, run.block, run_offset(&run), bytes, actor->scratch, "through a stream");
    rewind(stream);
    if (run_pick(actor, &run, UNWRITABLE, SCRATCH_BYTES)) {
        bytes = run_bytes(&run);
        uint32_t version = ++actor->version;
        pattern_make(run.block, run_offset(&run), bytes, version, actor->scratch);
        if (pwrite(actor->file, actor->scratch, bytes, 0) != (ssize_t)bytes)
            fail(actor, "pwrite from scratch memory: %s", strerror(errno));
        fflush(stream);
        rewind(stream);
        setvbuf(stream, NULL, _IOFBF, 0);
        fseek(stream, 0, SEEK_END);
        rewind(stream);
        if (fread(run_start(&run), 1, bytes, stream) != bytes)
            fail(actor, "fread of %zu bytes into a block: %s", bytes, strerror(errno));
        run_set(&run, version);
        run_check(actor, &run, "read by a stream");
    }
    fclose(stream);
    free(buffer);
}

static void do_random(struct actor *actor)
{
    struct run run;
    if (!run_pick(actor, &run, UNWRITABLE, 16 * PAGE))
        return;
    size_t bytes = run_bytes(&run), same = 0;
    memset(run_start(&run), 0xA5, bytes);
    if (one_in(actor, 2)) {
        for (size_t done = 0; done < bytes;) {
            ssize_t now = getrandom(run_start(&run) + done, bytes - done, 0);
            if (now < 0 && errno != EINTR)
                fail(actor, "getrandom of %zu bytes: %s", bytes, strerror(errno));
            done += now > 0 ? (size_t)now : 0;
        }
    } else {
        for (size_t done = 0; done < bytes; done += 256)
            if (getentropy(run_start(&run) + done, bytes - done < 256 ? bytes - done : 256) != 0)
                fail(actor, "getentropy: %s", strerror(errno));
    }
    for (size_t i = 0; i < bytes; i++)
        same += run_start(&run)[i] == 0xA5;
    if (bytes >= 64 && same > bytes / 8)
        fail(actor, "%zu of %zu random bytes are as before", same, bytes);
    run_fill(actor, &run);
}

const struct operation transfer_operations[] = {
    {"pipe", "transfer", do_pipe, 3, 0},
    {"socket", "transfer", do_socket, 3, 0},
    {"file", "transfer", do_file, 4, 0},
    {"direct", "transfer", do_direct, 4, 0},
    {"stream", "transfer", do_stream, 2, 0},
    {"random", "transfer", do_random, 1, KERNEL},
    {0},
};
