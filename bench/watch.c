/* Runs `ebb run` and records the reports of its processes, with times. They report counters, the
 * begin of a process, when accesses are observed, and when a plan is in force.
 *
 *   bench_watch OUT.jsonl [--every MS] -- ebb run ... -- CMD...
 *
 * `ebb run` maps the ring of each process (src/trace/ring.h). This program reads the rings from the
 * memory of `ebb run`, which costs Ebb and the command nothing. Marks have exact times. Counters
 * are sampled, by default every 20 ms. The output has a line of JSON for each mark, each begin of a
 * process, and each sample that differs from the one before. Times are CLOCK_MONOTONIC in ns. Rings
 * are numbered in the order of their appearance. The exit code is that of the command. */
#include "trace/event.h"
#include "trace/ring.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RINGS = 1024, LOOK_FOR_RINGS_MS = 60, BATCH = 4096, FIGURES = 9 };

struct watched {
    uint64_t inode;
    uintptr_t address; /* in `ebb run`; 0: unmapped there */
    uint64_t origin_ns, seen;
    uint64_t figures[FIGURES];
    bool mapped, begun;
};

static const struct {
    const char *name;
    size_t at;
} figures[FIGURES] = {
#define FIGURE(name)                                                                               \
    {                                                                                              \
#name, offsetof(struct ebb_counters, name)                                                 \
    }
    FIGURE(stall_ns),           FIGURE(demand_faults),   FIGURE(moved_out_bytes),
    FIGURE(moved_in_bytes),     FIGURE(mismatches),      FIGURE(resyncs),
    FIGURE(reactive_evictions), FIGURE(peak_live_bytes), FIGURE(page_moves),
#undef FIGURE
};

static const char *const marks[EBB_MARK_COUNT] = {
    [EBB_MARK_TRACE_ON] = "observe_on", [EBB_MARK_TRACE_OFF] = "observe_off",
    [EBB_MARK_PLAN_ON] = "plan_on",     [EBB_MARK_PLAN_OFF] = "plan_off",
    [EBB_MARK_LOST] = "lost",           [EBB_MARK_LAP] = "lap",
};

static struct watched rings[RINGS];
static size_t ring_count;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static bool copy_from(pid_t process, uintptr_t address, void *to, size_t bytes)
{
    struct iovec here = {to, bytes}, there = {NULL, bytes};
    memcpy(&there.iov_base, &address, sizeof address);
    return process_vm_readv(process, &here, 1, &there, 1, 0) == (ssize_t)bytes;
}

static void look_for_rings(pid_t process)
{
    char line[4352];
    snprintf(line, sizeof line, "/proc/%ld/maps", (long)process);
    FILE *maps = fopen(line, "re");
    if (!maps)
        return;
    for (size_t i = 0; i < ring_count; i++)
        rings[i].mapped = false;
    while (fgets(line, sizeof line, maps)) {
        uintptr_t first;
        uint64_t inode;
        if (!strstr(line, "/memfd:ebb-ring") ||
            sscanf(line, "%" SCNxPTR "-%*x %*s %*x %*s %" SCNu64, &first, &inode) != 2)
            continue;
        size_t i = 0;
        while (i < ring_count && rings[i].inode != inode)
            i++;
        if (i == RINGS)
            continue;
        if (i == ring_count)
            rings[ring_count++] = (struct watched){.inode = inode};
        rings[i].address = first;
        rings[i].mapped = true;
    }
    fclose(maps);
    for (size_t i = 0; i < ring_count; i++)
        if (!rings[i].mapped)
            rings[i].address = 0;
}

static void write_marks(pid_t process, FILE *out, size_t number, uint64_t written)
{
    static struct ebb_event events[BATCH];
    struct watched *ring = &rings[number];
    if (written - ring->seen > EBB_RING_EVENTS) {
        fprintf(out, "{\"ring\": %zu, \"t_ns\": %" PRIu64 ", \"missed\": %" PRIu64 "}\n", number,
                now_ns(), written - ring->seen - EBB_RING_EVENTS);
        ring->seen = written - EBB_RING_EVENTS;
    }
    while (ring->seen < written) {
        uint64_t at = ring->seen % EBB_RING_EVENTS, count = written - ring->seen;
        if (count > BATCH)
            count = BATCH;
        if (count > EBB_RING_EVENTS - at)
            count = EBB_RING_EVENTS - at;
        uintptr_t from = ring->address + offsetof(struct ebb_ring, events) + at * sizeof *events;
        if (!copy_from(process, from, events, count * sizeof *events))
            return;
        for (uint64_t i = 0; i < count; i++)
            if (events[i].kind == EBB_EVENT_MARK && events[i].mark < EBB_MARK_COUNT &&
                marks[events[i].mark])
                fprintf(out,
                        "{\"ring\": %zu, \"t_ns\": %" PRIu64 ", \"mark\": \"%s\", \"value\": "
                        "%" PRIu64 "}\n",
                        number, ring->origin_ns + events[i].time_ns, marks[events[i].mark],
                        events[i].size_bytes);
        ring->seen += count;
    }
}

static void look_at(pid_t process, FILE *out, size_t number)
{
    struct watched *ring = &rings[number];
    struct ebb_ring head;
    if (!ring->address || !copy_from(process, ring->address, &head, sizeof head) ||
        head.magic != EBB_RING_MAGIC)
        return;
    ring->origin_ns = head.origin_ns;
    bool changed = !ring->begun;
    if (!ring->begun)
        fprintf(out, "{\"ring\": %zu, \"t_ns\": %" PRIu64 ", \"began\": true}\n", number, now_ns());
    ring->begun = true;
    write_marks(process, out, number, atomic_load(&head.written));
    for (size_t i = 0; i < FIGURES; i++) {
        uint64_t value;
        memcpy(&value, (const char *)&head.counters + figures[i].at, sizeof value);
        changed = changed || value != ring->figures[i];
        ring->figures[i] = value;
    }
    if (!changed)
        return;
    fprintf(out, "{\"ring\": %zu, \"t_ns\": %" PRIu64, number, now_ns());
    for (size_t i = 0; i < FIGURES; i++)
        fprintf(out, ", \"%s\": %" PRIu64, figures[i].name, ring->figures[i]);
    fputs("}\n", out);
}

static int usage(void)
{
    fputs("usage: bench_watch OUT.jsonl [--every MS] -- ebb run ... -- CMD...\n", stderr);
    return 2;
}

int main(int argc, char **argv)
{
    long every_ms = 20;
    int at = 2;
    if (argc > 4 && strcmp(argv[2], "--every") == 0) {
        every_ms = strtol(argv[3], NULL, 10);
        at = 4;
    }
    if (argc < at + 2 || strcmp(argv[at], "--") != 0 || every_ms < 1 || every_ms > 10000)
        return usage();
    FILE *out = fopen(argv[1], "we");
    if (!out) {
        fprintf(stderr, "bench_watch: %s: %s\n", argv[1], strerror(errno));
        return 2;
    }
    pid_t process = fork();
    if (process == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execvp(argv[at + 1], argv + at + 1);
        fprintf(stderr, "bench_watch: %s: %s\n", argv[at + 1], strerror(errno));
        _exit(127);
    }
    if (process < 0) {
        perror("bench_watch: fork");
        return 2;
    }
    signal(SIGINT, SIG_IGN); /* the command gets it from the terminal, too, and decides */
    long since_ms = LOOK_FOR_RINGS_MS;
    for (;;) {
        siginfo_t ended = {0};
        waitid(P_PID, (id_t)process, &ended, WEXITED | WNOHANG | WNOWAIT);
        if (ended.si_pid)
            break;
        if (since_ms >= LOOK_FOR_RINGS_MS) {
            look_for_rings(process);
            since_ms = 0;
        }
        for (size_t i = 0; i < ring_count; i++)
            look_at(process, out, i);
        struct timespec pause = {every_ms / 1000, every_ms % 1000 * 1000000};
        nanosleep(&pause, NULL);
        since_ms += every_ms;
    }
    int status;
    waitpid(process, &status, 0);
    if (fclose(out) != 0)
        perror("bench_watch: write");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
