/* Measures the disk under a directory, with two 8 MiB requests in flight that bypass the page
 * cache.
 *
 *   bench_lanes DIR [--bytes N] [--rounds N]
 *   bench_lanes DIR [--bytes N] --rate N
 *
 * It is the reference for the runtime's store, and uses no code of the runtime. Each round writes
 * `bytes` to an unnamed file and reads them back. Then it does both at once, which is the runtime's
 * steady state, with one request in flight in each direction. Prints one JSON object with the
 * median of the rounds, in bytes per second; `rounds` has all of them. The content varies, so that
 * no layer below can compress it.
 *
 * With --rate it writes and reads 2 MiB in turn, so many bytes a second in all, until it is killed.
 * A program beside it tells what transfers of that rate cost on this machine. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define REQUEST_BYTES ((size_t)8 << 20)
#define TURN_BYTES ((size_t)2 << 20)

struct transfer {
    int fd;
    bool write;
    size_t request_count;
    _Atomic size_t next;
    _Atomic int error;
};

struct worker {
    struct transfer *transfer;
    char *buffer;
};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void *move(void *argument)
{
    struct worker *worker = argument;
    struct transfer *t = worker->transfer;
    size_t request;
    while ((request = atomic_fetch_add(&t->next, 1)) < t->request_count) {
        for (size_t done = 0; done < REQUEST_BYTES;) {
            off_t at = (off_t)(request * REQUEST_BYTES + done);
            ssize_t n = t->write ? pwrite(t->fd, worker->buffer + done, REQUEST_BYTES - done, at)
                                 : pread(t->fd, worker->buffer + done, REQUEST_BYTES - done, at);
            if (n <= 0) {
                atomic_store(&t->error, n == 0 ? EIO : errno);
                return NULL;
            }
            done += (size_t)n;
        }
    }
    return NULL;
}

/* Runs `count` workers to the end of their transfers. Returns the total time. */
static uint64_t run(struct worker *workers, int count)
{
    pthread_t threads[2];
    uint64_t start = now_ns();
    for (int i = 1; i < count; i++)
        if (pthread_create(&threads[i], NULL, move, &workers[i]) != 0) {
            perror("bench_lanes: pthread_create");
            exit(1);
        }
    move(&workers[0]);
    for (int i = 1; i < count; i++)
        pthread_join(threads[i], NULL);
    uint64_t elapsed = now_ns() - start;
    for (int i = 0; i < count; i++)
        if (workers[i].transfer->error) {
            fprintf(stderr, "bench_lanes: %s: %s\n", workers[i].transfer->write ? "write" : "read",
                    strerror(workers[i].transfer->error));
            exit(1);
        }
    return elapsed ? elapsed : 1;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *values, int count)
{
    double sorted[64];
    memcpy(sorted, values, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, compare);
    return (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
}

static int open_store(const char *directory, bool *direct)
{
    *direct = true;
    int fd = open(directory, O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
    if (fd < 0 && errno == EINVAL) { /* tmpfs has no O_DIRECT */
        *direct = false;
        fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    }
    if (fd < 0) {
        fprintf(stderr, "bench_lanes: %s: %s\n", directory, strerror(errno));
        exit(1);
    }
    return fd;
}

/* Returns only if a transfer fails. */
static void transfer_at(double bytes_per_s, int fd, char *buffer, size_t bytes)
{
    uint64_t began = now_ns(), turns = bytes / TURN_BYTES;
    for (uint64_t n = 0;; n++) {
        bool fills = n < turns, write = fills || n % 2;
        off_t at = (off_t)((fills ? n : n / 2 % turns) * TURN_BYTES);
        ssize_t done =
            write ? pwrite(fd, buffer, TURN_BYTES, at) : pread(fd, buffer, TURN_BYTES, at);
        if (done != (ssize_t)TURN_BYTES)
            return;
        uint64_t due = began + (uint64_t)((double)(n + 1) * (double)TURN_BYTES * 1e9 / bytes_per_s);
        uint64_t now = now_ns(), pause = due > now ? due - now : 0;
        struct timespec rest = {(time_t)(pause / 1000000000u), (long)(pause % 1000000000u)};
        nanosleep(&rest, NULL);
    }
}

static void print_list(const char *name, const double *values, int count, const char *end)
{
    printf("\"%s\": [", name);
    for (int i = 0; i < count; i++)
        printf("%s%.0f", i ? ", " : "", values[i]);
    printf("]%s", end);
}

int main(int argc, char **argv)
{
    const char *directory = NULL;
    size_t bytes = (size_t)1 << 30;
    int rounds = 5;
    double bytes_per_s = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--bytes") == 0 && i + 1 < argc)
            bytes = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc)
            rounds = atoi(argv[++i]);
        else if (strcmp(argv[i], "--rate") == 0 && i + 1 < argc)
            bytes_per_s = atof(argv[++i]);
        else if (argv[i][0] != '-' && !directory)
            directory = argv[i];
        else
            directory = NULL, i = argc;
    }
    size_t request_count = bytes / REQUEST_BYTES;
    if (!directory || rounds < 1 || rounds > 64 || request_count < 2) {
        fputs("usage: bench_lanes DIR [--bytes N] [--rounds N (1 to 64) | --rate N]\n", stderr);
        return 2;
    }

    bool direct = true;
    int first = open_store(directory, &direct), second = open_store(directory, &direct);
    size_t buffer_bytes = 2 * REQUEST_BYTES;
    char *buffers = mmap(NULL, buffer_bytes + REQUEST_BYTES, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buffers == MAP_FAILED) {
        perror("bench_lanes: mmap");
        return 1;
    }
    buffers += REQUEST_BYTES - (uintptr_t)buffers % REQUEST_BYTES;
    madvise(buffers, buffer_bytes, MADV_HUGEPAGE);
    uint64_t x = 88172645463325252u;
    for (size_t i = 0; i < buffer_bytes / 8; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        ((uint64_t *)(void *)buffers)[i] = x;
    }

    if (bytes_per_s > 0) {
        transfer_at(bytes_per_s, first, buffers, request_count * REQUEST_BYTES);
        perror("bench_lanes: transfer");
        return 1;
    }

    double out[64], in[64], both[64];
    double gib = (double)request_count * (double)REQUEST_BYTES;
    for (int round = 0; round < rounds; round++) {
        struct transfer write = {.fd = first, .write = true, .request_count = request_count};
        struct worker workers[2] = {{&write, buffers}, {&write, buffers + REQUEST_BYTES}};
        out[round] = gib * 1e9 / (double)run(workers, 2);

        struct transfer read = {.fd = first, .request_count = request_count};
        workers[0].transfer = workers[1].transfer = &read;
        in[round] = gib * 1e9 / (double)run(workers, 2);

        struct transfer out_half = {.fd = second, .write = true, .request_count = request_count};
        struct transfer in_half = {.fd = first, .request_count = request_count};
        workers[0].transfer = &out_half;
        workers[1].transfer = &in_half;
        both[round] = gib * 1e9 / (double)run(workers, 2);
    }

    printf("{\"schema\": \"ebb.bench-lanes/1\", \"directory\": \"%s\", \"direct\": %s, "
           "\"request_bytes\": %zu, \"bytes\": %zu, \"out_bytes_per_s\": %.0f, "
           "\"in_bytes_per_s\": %.0f, \"both_bytes_per_s\": %.0f, \"rounds\": {",
           directory, direct ? "true" : "false", REQUEST_BYTES, request_count * REQUEST_BYTES,
           median(out, rounds), median(in, rounds), median(both, rounds));
    print_list("out", out, rounds, ", ");
    print_list("in", in, rounds, ", ");
    print_list("both", both, rounds, "}}\n");
    return 0;
}
