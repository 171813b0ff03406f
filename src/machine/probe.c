/* Measures the lanes of a store. An unnamed file in each of its places is written and read. As in
 * the lanes, requests are large, direct and from huge pages, two in flight.
 *
 * The rate is taken from the large requests, the fixed cost from single requests of one page. Then
 * both directions run at once. Lanes that share their bandwidth have together about the rate of one
 * alone. Each phase ends after probe_bytes or PHASE_LIMIT_NS, whichever is first, so that a slow
 * disk does not delay the start of a program. One request is made in any case. 256 MiB each way
 * take at most about 0.4 s in all, and are written twice. The probe cannot see later effects: full
 * write caches, thermal limits, other users of the disk. Rates measured during a run replace these
 * figures. */
#include "base/clock.h"
#include "base/geometry.h"
#include "base/lines.h"
#include "base/order.h"
#include "base/tuning.h"
#include "machine/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define REQUEST_BYTES ((size_t)8 << 20)
#define WORKERS 2 /* for each place */
#define MOST_PLACES 8
#define SMALL_REQUESTS 9
#define PHASE_LIMIT_NS 120000000ull /* short compared with any program's start */
/* Sum of the two directions' rates when both run, each as a share of its rate alone. It is 2 if
 * they share no bandwidth and 1 if they share all. The model has only these two cases. */
#define DUPLEX_SHARES 1.5

/* A huge page that is moved there and back takes 26 us, 384 small ones 40 (bench_page_moves, AMD
 * EPYC, 2026-11-22). A transfer moves the pages of its block once there and once back. */
#define HUGE_PAGE_NS 26000
#define SMALL_PAGE_NS (40000.0 / 384)

/* The files of the store, one a place; requests alternate between them. */
struct files {
    int descriptor[MOST_PLACES];
    size_t count;
    bool direct;
};

/* One direction of one phase. */
struct probe {
    const struct files *files;
    bool writing;
    uint64_t first_offset, probe_bytes; /* the range to transfer */
    uint64_t started_ns;
    atomic_bool *over; /* the phase is over: set by the first that finishes */
    atomic_ullong next_bytes;
    atomic_ullong moved_bytes;
    atomic_ullong processor_ns;
    atomic_int failed_errno;
    struct worker {
        struct probe *probe;
        unsigned char *buffer;
        pthread_t thread;
        uint64_t ended_ns;
    } workers[WORKERS * MOST_PLACES];
    size_t started;
};

/* Transfers all of [offset, offset + bytes). Returns 0 or an errno. */
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

static void worker_move(struct worker *worker)
{
    struct probe *probe = worker->probe;
    for (;;) {
        uint64_t bytes = atomic_fetch_add(&probe->next_bytes, REQUEST_BYTES);
        /* Workers may get a processor late. One request of each direction still tells its rate. */
        bool is_first = bytes == 0 && probe->probe_bytes > 0;
        if (bytes >= probe->probe_bytes || ebb__now_ns() - probe->started_ns > PHASE_LIMIT_NS)
            atomic_store(probe->over, true);
        if (atomic_load(probe->over) && !is_first)
            return;
        uint64_t request = (probe->first_offset + bytes) / REQUEST_BYTES;
        size_t count = probe->files->count;
        int failed = transfer(probe->files->descriptor[request % count], probe->writing,
                              worker->buffer, REQUEST_BYTES, request / count * REQUEST_BYTES);
        if (failed) {
            atomic_store(&probe->failed_errno, failed);
            atomic_store(probe->over, true);
            return;
        }
        atomic_fetch_add(&probe->moved_bytes, REQUEST_BYTES);
    }
}

static void *worker_run(void *argument)
{
    struct worker *worker = argument;
    struct timespec spent = {0};
    worker_move(worker);
    worker->ended_ns = ebb__now_ns();
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent) == 0)
        atomic_fetch_add(&worker->probe->processor_ns,
                         (uint64_t)spent.tv_sec * 1000000000 + (uint64_t)spent.tv_nsec);
    return NULL;
}

/* Measures the median time of a small request. Returns 0 or an errno. */
static int small_requests(int file, bool writing, unsigned char *buffer, uint64_t *median_ns)
{
    uint64_t times[SMALL_REQUESTS];
    for (size_t i = 0; i < SMALL_REQUESTS; i++) {
        uint64_t before = ebb__now_ns();
        int failed = transfer(file, writing, buffer, EBB_PAGE_BYTES, i * EBB_PAGE_BYTES);
        if (failed)
            return failed;
        times[i] = ebb__now_ns() - before;
    }
    *median_ns = ebb__median_u64(times, SMALL_REQUESTS);
    return 0;
}

/* Returns 0 or an errno; call probe_join() in any case. */
static int probe_start(struct probe *probe, unsigned char *buffers)
{
    probe->started_ns = ebb__now_ns();
    for (; probe->started < WORKERS * probe->files->count; probe->started++) {
        struct worker *worker = &probe->workers[probe->started];
        worker->probe = probe;
        worker->buffer = buffers + probe->started * REQUEST_BYTES;
        if (pthread_create(&worker->thread, NULL, worker_run, worker))
            break;
    }
    return probe->started ? 0 : EAGAIN;
}

/* Waits for the end of the direction. Returns 0 or an errno; *ns_per_byte is the result. */
static int probe_join(struct probe *probe, double *ns_per_byte)
{
    uint64_t ended_ns = probe->started_ns;
    for (size_t i = 0; i < probe->started; i++) {
        pthread_join(probe->workers[i].thread, NULL);
        if (probe->workers[i].ended_ns > ended_ns)
            ended_ns = probe->workers[i].ended_ns;
    }
    uint64_t elapsed_ns = ended_ns - probe->started_ns;
    uint64_t moved = probe->moved_bytes ? probe->moved_bytes : 1;
    *ns_per_byte = (double)(elapsed_ns ? elapsed_ns : 1) / (double)moved;
    return probe->failed_errno;
}

/* Measures one direction alone. `limit_bytes` in: the most to transfer; out: bytes transferred.
 * Adds half of the processor's time for each byte to *cost, which is of both directions. Returns 0
 * or an errno. */
static int measure_alone(const struct files *files, bool writing, unsigned char *buffers,
                         uint64_t *limit_bytes, struct ebb_lane *lane, double *cost)
{
    atomic_bool over = false;
    struct probe probe = {
        .files = files, .writing = writing, .probe_bytes = *limit_bytes, .over = &over};
    int failed = probe_start(&probe, buffers);
    int ended = probe_join(&probe, &lane->ns_per_byte);
    if (failed || ended)
        return failed ? failed : ended;
    *limit_bytes = probe.moved_bytes;
    if (*limit_bytes)
        *cost += (double)probe.processor_ns / (double)*limit_bytes / 2;
    return small_requests(files->descriptor[0], writing, buffers, &lane->fixed_ns);
}

/* Runs both directions until the first is done: reads `bytes` at the file's start, and writes as
 * many behind them. Sets *shares to the sum of their rates as shares of those alone. Returns 0 or
 * an errno. */
static int measure_together(const struct files *files, unsigned char *buffers, uint64_t bytes,
                            const struct ebb_machine *alone, double *shares)
{
    atomic_bool over = false;
    struct probe out = {.files = files,
                        .writing = true,
                        .first_offset = bytes,
                        .probe_bytes = bytes,
                        .over = &over};
    struct probe in = {.files = files, .probe_bytes = bytes, .over = &over};
    double out_ns = 1, in_ns = 1;
    int failed = probe_start(&out, buffers);
    if (!failed)
        failed = probe_start(&in, buffers + WORKERS * files->count * REQUEST_BYTES);
    if (failed)
        atomic_store(&over, true);
    int out_failed = probe_join(&out, &out_ns);
    int in_failed = probe_join(&in, &in_ns);
    *shares = alone->out.ns_per_byte / out_ns + alone->in.ns_per_byte / in_ns;
    return failed ? failed : out_failed ? out_failed : in_failed;
}

/* Drops the files from the page cache, so that reads access the store. Returns 0 or an errno. */
static int cache_drop(const struct files *files)
{
    for (size_t i = 0; i < files->count && !files->direct; i++) {
        if (fdatasync(files->descriptor[i]))
            return errno;
        /* May fail on a store without a cache. */
        posix_fadvise(files->descriptor[i], 0, 0, POSIX_FADV_DONTNEED);
    }
    return 0;
}

static void close_files(struct files *files)
{
    for (size_t i = 0; i < files->count; i++)
        close(files->descriptor[i]);
}

static enum ebb_status open_files(const char *places, struct files *files, struct ebb_error *error)
{
    char place[PATH_MAX];
    *files = (struct files){.direct = true};
    while (files->count < MOST_PLACES && ebb__line_next(&places, place, sizeof place)) {
        bool disk = place[0] == '/';
        int file = disk ? open(place, O_TMPFILE | O_RDWR | O_CLOEXEC | O_DIRECT, 0600)
                        : memfd_create("ebb-probe", MFD_CLOEXEC);
        if (file < 0 && errno == EINVAL && disk) {
            files->direct = false;
            file = open(place, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        }
        if (file < 0) {
            close_files(files);
            return ebb__fail(error, EBB_ERR_IO, place, "%s", strerror(errno));
        }
        files->descriptor[files->count++] = file;
    }
    return files->count ? EBB_OK : ebb__fail(error, EBB_ERR_IO, places, "no place of a store");
}

uint64_t ebb__machine_probe_bytes(uint64_t budget_bytes)
{
    uint64_t most = ebb__tuning()->probe_bytes;
    return budget_bytes < most ? budget_bytes : most;
}

enum ebb_status ebb__machine_probe(const char *places, uint64_t probe_bytes,
                                   struct ebb_machine *machine, struct ebb_error *error)
{
    struct files files;
    enum ebb_status status = open_files(places, &files, error);
    if (status != EBB_OK)
        return status;

    size_t buffer_bytes = 2 * WORKERS * files.count * REQUEST_BYTES; /* separate buffers for each
                                                                        direction */
    size_t mapped_bytes = buffer_bytes + EBB_HUGE_BYTES;
    unsigned char *mapped =
        mmap(NULL, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) {
        close_files(&files);
        return ebb__fail(error, EBB_ERR_MEMORY, places, "no memory for the probe's buffers");
    }
    unsigned char *buffers =
        mapped + (EBB_HUGE_BYTES - (uintptr_t)mapped % EBB_HUGE_BYTES) % EBB_HUGE_BYTES;
    madvise(buffers, buffer_bytes, MADV_HUGEPAGE);
    /* Random bytes, which a store cannot compress. */
    uint64_t random = 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < buffer_bytes; i += sizeof random) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        memcpy(buffers + i, &random, sizeof random);
    }

    struct ebb_machine measured = {
        .name = "host",
        .costs = {.huge_page_ns = HUGE_PAGE_NS,
                  .small_page_ns = SMALL_PAGE_NS,
                  .fixed_ns = ebb__tuning()->observed_fault_ns}}; /* changes of threads, too */
    double *cost = &measured.costs.ns_per_byte;
    double shares = 0;
    uint64_t bytes =
        probe_bytes < REQUEST_BYTES ? REQUEST_BYTES : probe_bytes / REQUEST_BYTES * REQUEST_BYTES;
    int failed = measure_alone(&files, true, buffers, &bytes, &measured.out, cost);
    uint64_t written_bytes = bytes;
    if (!failed)
        failed = cache_drop(&files);
    if (!failed)
        failed = measure_alone(&files, false, buffers, &bytes, &measured.in, cost);
    if (!failed)
        failed = cache_drop(&files);
    if (!failed)
        failed = measure_together(&files, buffers, written_bytes, &measured, &shares);
    measured.duplex = shares >= DUPLEX_SHARES;
    munmap(mapped, mapped_bytes);
    close_files(&files);
    if (failed)
        return ebb__fail(error, EBB_ERR_IO, places, "%s", strerror(failed));
    *machine = measured;
    return EBB_OK;
}
