/* Measuring the lanes of a store: an unnamed file in its directory is written and read the way the
 * mover does it, large direct requests from huge pages, two in flight.
 *
 * The rate comes from the large requests; the fixed cost from single requests of one page. Each
 * direction ends after probe_bytes or PHASE_LIMIT_NS, whichever is first, so that a slow disk does
 * not delay the start of a program: 256 MiB each way take at most about 0.3 s in all. Fails to see
 * what happens later: write caches that fill up, thermal limits, other users of the disk; what a
 * run measures replaces these figures. */
#include "machine/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define REQUEST_BYTES ((size_t)8 << 20)
#define SMALL_BYTES ((size_t)4096)
#define ALIGN_BYTES ((size_t)2 << 20)
#define WORKERS 2
#define SMALL_REQUESTS 9
#define PHASE_LIMIT_NS 120000000ull /* arbitrary: short beside any program's start */

struct probe {
    int file;
    bool writing;
    uint64_t probe_bytes;
    uint64_t started_ns;
    atomic_ullong next_offset;
    atomic_ullong moved_bytes;
    atomic_int failed_errno;
};

struct worker {
    struct probe *probe;
    unsigned char *buffer;
    pthread_t thread;
};

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Move all of [offset, offset + bytes); 0 or an errno. */
static int transfer(int file, bool writing, unsigned char *buffer, size_t bytes, uint64_t offset)
{
    while (bytes > 0) {
        ssize_t moved = writing ? pwrite(file, buffer, bytes, (off_t)offset)
                                : pread(file, buffer, bytes, (off_t)offset);
        if (moved < 0 && errno == EINTR)
            continue;
        if (moved <= 0)
            return moved < 0 ? errno : EIO;
        buffer += moved;
        bytes -= (size_t)moved;
        offset += (uint64_t)moved;
    }
    return 0;
}

static void *worker_run(void *argument)
{
    struct worker *worker = argument;
    struct probe *probe = worker->probe;
    for (;;) {
        uint64_t offset = atomic_fetch_add(&probe->next_offset, REQUEST_BYTES);
        if (offset >= probe->probe_bytes || now_ns() - probe->started_ns > PHASE_LIMIT_NS)
            return NULL;
        int failed = transfer(probe->file, probe->writing, worker->buffer, REQUEST_BYTES, offset);
        if (failed) {
            atomic_store(&probe->failed_errno, failed);
            return NULL;
        }
        atomic_fetch_add(&probe->moved_bytes, REQUEST_BYTES);
    }
}

static int compare_ns(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* The median time of one small request; 0 or an errno. */
static int small_requests(int file, bool writing, unsigned char *buffer, uint64_t *median_ns)
{
    uint64_t times[SMALL_REQUESTS];
    for (size_t i = 0; i < SMALL_REQUESTS; i++) {
        uint64_t before = now_ns();
        int failed = transfer(file, writing, buffer, SMALL_BYTES, i * SMALL_BYTES);
        if (failed)
            return failed;
        times[i] = now_ns() - before;
    }
    qsort(times, SMALL_REQUESTS, sizeof times[0], compare_ns);
    *median_ns = times[SMALL_REQUESTS / 2];
    return 0;
}

/* One direction. `limit_bytes` in: how much; out: how much was moved. 0 or an errno. */
static int phase(int file, bool writing, unsigned char *buffers, uint64_t *limit_bytes,
                 struct ebb_lane *lane)
{
    struct probe probe = {.file = file, .writing = writing, .probe_bytes = *limit_bytes};
    struct worker workers[WORKERS];
    size_t started = 0;
    probe.started_ns = now_ns();
    for (; started < WORKERS; started++) {
        workers[started].probe = &probe;
        workers[started].buffer = buffers + started * REQUEST_BYTES;
        if (pthread_create(&workers[started].thread, NULL, worker_run, &workers[started]))
            break;
    }
    if (started == 0)
        return EAGAIN;
    for (size_t i = 0; i < started; i++)
        pthread_join(workers[i].thread, NULL);
    uint64_t elapsed_ns = now_ns() - probe.started_ns;
    if (probe.failed_errno)
        return probe.failed_errno;
    *limit_bytes = probe.moved_bytes;
    lane->ns_per_byte = (double)(elapsed_ns ? elapsed_ns : 1) / (double)probe.moved_bytes;
    return small_requests(file, writing, buffers, &lane->fixed_ns);
}

enum ebb_status ebb__machine_probe(const char *path, uint64_t probe_bytes,
                                   struct ebb_machine *machine, struct ebb_error *error)
{
    bool direct = true;
    int file = open(path, O_TMPFILE | O_RDWR | O_CLOEXEC | O_DIRECT, 0600);
    if (file < 0 && errno == EINVAL) {
        direct = false;
        file = open(path, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    }
    if (file < 0)
        return ebb__fail(error, EBB_ERR_IO, path, "%s", strerror(errno));

    size_t mapped_bytes = WORKERS * REQUEST_BYTES + ALIGN_BYTES;
    unsigned char *mapped =
        mmap(NULL, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) {
        close(file);
        return ebb__fail(error, EBB_ERR_MEMORY, path, "no memory for the probe's buffers");
    }
    unsigned char *buffers = mapped + (ALIGN_BYTES - (uintptr_t)mapped % ALIGN_BYTES) % ALIGN_BYTES;
    madvise(buffers, WORKERS * REQUEST_BYTES, MADV_HUGEPAGE);
    /* Neither zeros nor a pattern that a store could compress away. */
    uint64_t random = 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < WORKERS * REQUEST_BYTES; i += sizeof random) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        memcpy(buffers + i, &random, sizeof random);
    }

    struct ebb_machine measured = {.name = "host", .duplex = true};
    uint64_t bytes =
        probe_bytes < REQUEST_BYTES ? REQUEST_BYTES : probe_bytes / REQUEST_BYTES * REQUEST_BYTES;
    int failed = phase(file, true, buffers, &bytes, &measured.out);
    if (!failed && !direct) {
        fdatasync(file);
        posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    }
    if (!failed)
        failed = phase(file, false, buffers, &bytes, &measured.in);
    munmap(mapped, mapped_bytes);
    close(file);
    if (failed)
        return ebb__fail(error, EBB_ERR_IO, path, "%s", strerror(failed));
    *machine = measured;
    return EBB_OK;
}
