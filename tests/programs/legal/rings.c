/* Asynchronous I/O by bare system calls: io_uring, also with fixed buffers, and libaio's calls.
 * During a transfer, the program uses other blocks. */
#include "legal.h"

#include <errno.h>
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

struct ring {
    int file;
    struct io_uring_params parameters;
    unsigned char *rings;
    size_t rings_bytes;
    struct io_uring_sqe *entries;
};

static bool ring_open(struct ring *ring)
{
    memset(ring, 0, sizeof *ring);
    ring->file = (int)syscall(SYS_io_uring_setup, 4, &ring->parameters);
    if (ring->file < 0)
        return false;
    size_t submit = ring->parameters.sq_off.array + ring->parameters.sq_entries * sizeof(unsigned);
    size_t complete =
        ring->parameters.cq_off.cqes + ring->parameters.cq_entries * sizeof(struct io_uring_cqe);
    ring->rings_bytes = submit > complete ? submit : complete;
    ring->rings = mmap(NULL, ring->rings_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ring->file,
                       IORING_OFF_SQ_RING);
    ring->entries = mmap(NULL, ring->parameters.sq_entries * sizeof(struct io_uring_sqe),
                         PROT_READ | PROT_WRITE, MAP_SHARED, ring->file, IORING_OFF_SQES);
    if (ring->rings == MAP_FAILED || ring->entries == MAP_FAILED ||
        !(ring->parameters.features & IORING_FEAT_SINGLE_MMAP)) {
        close(ring->file);
        return false;
    }
    return true;
}

static void ring_close(struct ring *ring)
{
    munmap(ring->rings, ring->rings_bytes);
    munmap(ring->entries, ring->parameters.sq_entries * sizeof(struct io_uring_sqe));
    close(ring->file);
}

static unsigned *at(struct ring *ring, unsigned offset)
{
    return (unsigned *)(ring->rings + offset);
}

static void submit(struct actor *actor, struct ring *ring, const struct io_uring_sqe *entry)
{
    unsigned tail = *at(ring, ring->parameters.sq_off.tail);
    unsigned index = tail & *at(ring, ring->parameters.sq_off.ring_mask);
    ring->entries[index] = *entry;
    at(ring, ring->parameters.sq_off.array)[index] = index;
    atomic_store_explicit((_Atomic unsigned *)at(ring, ring->parameters.sq_off.tail), tail + 1,
                          memory_order_release);
    long got;
    while ((got = syscall(SYS_io_uring_enter, ring->file, 1, 0, 0, NULL, 0)) < 0 && errno == EINTR)
        ;
    if (got != 1)
        fail(actor, "io_uring_enter gave %ld: %s", got, strerror(errno));
}

static int result_of(struct actor *actor, struct ring *ring)
{
    _Atomic unsigned *tail = (_Atomic unsigned *)at(ring, ring->parameters.cq_off.tail);
    unsigned head = *at(ring, ring->parameters.cq_off.head);
    while (atomic_load_explicit(tail, memory_order_acquire) == head)
        if (syscall(SYS_io_uring_enter, ring->file, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0 &&
            errno != EINTR)
            fail(actor, "io_uring_enter: %s", strerror(errno));
    struct io_uring_cqe *completions =
        (struct io_uring_cqe *)(ring->rings + ring->parameters.cq_off.cqes);
    int result = completions[head & *at(ring, ring->parameters.cq_off.ring_mask)].res;
    atomic_store_explicit((_Atomic unsigned *)at(ring, ring->parameters.cq_off.head), head + 1,
                          memory_order_release);
    return result;
}

/* Transfers a run to the file, or from it. */
static void ring_transfer(struct actor *actor, struct ring *ring, const struct run *run, bool out,
                          bool fixed, int file)
{
    size_t bytes = run_bytes(run), done = 0;
    uint32_t version = ++actor->version;
    if (!out) {
        pattern_make(run->block, run_offset(run), bytes, version, actor->scratch);
        if (pwrite(actor->file, actor->scratch, bytes, 0) != (ssize_t)bytes)
            fail(actor, "pwrite from scratch memory: %s", strerror(errno));
    }
    while (done < bytes) {
        struct io_uring_sqe entry = {
            .opcode = out ? (fixed ? IORING_OP_WRITE_FIXED : IORING_OP_WRITE)
                          : (fixed ? IORING_OP_READ_FIXED : IORING_OP_READ),
            .flags = one_in(actor, 2) ? IOSQE_ASYNC : 0,
            .fd = file,
            .off = done,
            .addr = (uintptr_t)run_start(run) + done,
            .len = (unsigned)(bytes - done),
        };
        submit(actor, ring, &entry);
        if (one_in(actor, 2)) {
            for (size_t i = 0; i < actor->block_count; i++)
                if (actor->blocks[i] != run->block)
                    block_check(actor, actor->blocks[i]);
        }
        int got = result_of(actor, ring);
        /* It was cancelled because a signal came while the kernel made a worker. */
        if (got == -EINTR || got == -EAGAIN || got == -ECANCELED)
            continue;
        if (got <= 0)
            fail(actor, "io_uring %s%s of %zu bytes at %p: %s", fixed ? "fixed " : "",
                 out ? "write" : "read", bytes - done, (void *)(run_start(run) + done),
                 strerror(-got));
        done += (size_t)got;
    }
    if (out) {
        if (pread(actor->file, actor->scratch, bytes, 0) != (ssize_t)bytes)
            fail(actor, "pread into scratch memory: %s", strerror(errno));
        pattern_check(actor, run->block, run_offset(run), bytes, actor->scratch,
                      fixed ? "written by io_uring from a fixed buffer" : "written by io_uring");
    } else {
        run_set(run, version);
        run_check(actor, run, fixed ? "read by io_uring into a fixed buffer" : "read by io_uring");
    }
}

static void do_uring(struct actor *actor)
{
    struct run run;
    struct ring ring;
    bool out = one_in(actor, 2), direct = one_in(actor, 2);
    int file = actor_file(actor, direct);
    if (file < 0)
        return;
    unsigned without = (out ? UNREADABLE : UNWRITABLE) | LAZY;
    if (!(direct ? run_pick_inner(actor, &run, without, SCRATCH_BYTES)
                 : run_pick(actor, &run, without, SCRATCH_BYTES)) ||
        !ring_open(&ring))
        return;
    ring_transfer(actor, &ring, &run, out, false, file);
    ring_close(&ring);
}

/* The kernel pins the pages of a registered buffer until it is unregistered. */
static void do_uring_fixed(struct actor *actor)
{
    struct run run;
    struct ring ring;
    int file = actor_file(actor, false);
    if (!run_pick(actor, &run, UNWRITABLE | LAZY | NOT_ANONYMOUS, SCRATCH_BYTES / 2) ||
        !ring_open(&ring))
        return;
    struct iovec vector = {run_start(&run), run_bytes(&run)};
    if (syscall(SYS_io_uring_register, ring.file, IORING_REGISTER_BUFFERS, &vector, 1) != 0) {
        if (errno != ENOMEM && errno != EPERM) /* the limit of locked memory */
            fail(actor, "registering %zu bytes at %p with io_uring: %s", vector.iov_len,
                 vector.iov_base, strerror(errno));
        ring_close(&ring);
        return;
    }
    for (uint64_t i = 1 + chance(actor, 3); i-- > 0;) {
        pressure(actor);
        if (one_in(actor, 2))
            run_fill(actor, &run);
        if (one_in(actor, 2))
            actor_check(actor);
        ring_transfer(actor, &ring, &run, one_in(actor, 2), true, file);
    }
    ring_close(&ring);
}

static void do_aio(struct actor *actor)
{
    struct run run;
    bool out = one_in(actor, 2);
    aio_context_t context = 0;
    int file = actor_file(actor, true);
    if (file < 0 ||
        !run_pick_inner(actor, &run, (out ? UNREADABLE : UNWRITABLE) | LAZY, SCRATCH_BYTES) ||
        syscall(SYS_io_setup, 4, &context) != 0)
        return;
    size_t bytes = run_bytes(&run);
    uint32_t version = ++actor->version;
    if (!out) {
        pattern_make(run.block, run_offset(&run), bytes, version, actor->scratch);
        if (pwrite(file, actor->scratch, bytes, 0) != (ssize_t)bytes)
            fail(actor, "direct write from scratch memory: %s", strerror(errno));
    }
    struct iocb request = {.aio_fildes = (unsigned)file,
                           .aio_lio_opcode = out ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD,
                           .aio_buf = (uintptr_t)run_start(&run),
                           .aio_nbytes = bytes},
                *requests = &request;
    struct io_event event = {0};
    if (syscall(SYS_io_submit, context, 1, &requests) != 1)
        fail(actor, "io_submit of %zu bytes at %p: %s", bytes, (void *)run_start(&run),
             strerror(errno));
    for (size_t i = 0; i < actor->block_count; i++)
        if (actor->blocks[i] != run.block)
            block_check(actor, actor->blocks[i]);
    long got;
    while ((got = syscall(SYS_io_getevents, context, 1, 1, &event, NULL)) < 0 && errno == EINTR)
        ;
    if (got != 1 || event.res != (int64_t)bytes)
        fail(actor, "%s by io_submit of %zu bytes at %p: %lld (%s)", out ? "write" : "read", bytes,
             (void *)run_start(&run), (long long)event.res, strerror((int)-event.res));
    syscall(SYS_io_destroy, context);
    if (out) {
        if (pread(actor->file, actor->scratch, bytes, 0) != (ssize_t)bytes)
            fail(actor, "pread into scratch memory: %s", strerror(errno));
        pattern_check(actor, run.block, run_offset(&run), bytes, actor->scratch,
                      "written by io_submit");
    } else {
        run_set(&run, version);
        run_check(actor, &run, "read by io_submit");
    }
}

const struct operation ring_operations[] = {
    {"uring", "ring", do_uring, 3, KERNEL},
    {"uringfixed", "ring", do_uring_fixed, 2, KERNEL},
    {"aio", "ring", do_aio, 2, KERNEL},
    {0},
};
