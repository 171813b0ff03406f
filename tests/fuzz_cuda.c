/* Random programs on the CUDA engine with the fake driver: one child for each seed.
 *
 *     fuzz_cuda [--seeds N] [--first S] [--jobs J] [--backing NAME] [--show]
 *
 * A seed gives the program, its threads and streams, the budget, and the schedule of the fake. The
 * child fails if a byte differs from a serial run, or if the driver would have refused a call. It
 * also fails if the device ever has more bytes than the budget, and if it hangs. */
#include "base/tuning.h"
#include "cuda_program.h"

#include <sys/prctl.h>

enum { MOST_JOBS = 64 };

struct run {
    uint64_t seed;
    struct shape shape;
    uint64_t budget_bytes;
    enum ebb_cuda_backing_kind backing;
    bool show;
    char report[64], marker[64]; /* files: of the fake, and one that goes if a work is too large */
};

struct options {
    uint64_t seeds, first, jobs;
    enum ebb_cuda_backing_kind backing;
    bool show;
    struct {
        _Atomic uint64_t taken, failed;
    } * shared; /* by all jobs */
};

static const char *const backings[EBB_CUDA_BACKING_COUNT] = {
    [EBB_CUDA_MANAGED] = "managed",
    [EBB_CUDA_VMM_HOST] = "vmm-host",
    [EBB_CUDA_VMM_TRUSTING] = "vmm-trusting",
};

static struct run run_of(uint64_t seed, enum ebb_cuda_backing_kind backing)
{
    struct actor dice = {.random = seed * 77};
    struct run run = {.seed = seed, .backing = backing};
    run.shape.threads = draw(&dice, 3) ? 1 : 1 + draw(&dice, 4);
    run.shape.streams = 1 + draw(&dice, MOST_STREAMS);
    run.shape.steps = 60 + draw(&dice, 200);
    run.shape.most_bytes = (uint64_t)(1 + draw(&dice, 7)) << 20;
    run.budget_bytes = ((uint64_t)(12 + draw(&dice, 20)) << 20) * run.shape.threads;
    if (seed % 4 == 0) { /* blocks with pages of all sizes */
        run.shape.most_bytes *= 12;
        run.budget_bytes *= 10;
    }
    run.shape.live_bytes = run.budget_bytes / run.shape.threads / 2 * (1 + draw(&dice, 4));
    run.shape.hidden = draw(&dice, 2);
    run.shape.async = draw(&dice, 2);
    run.shape.graphs = draw(&dice, 3) == 0;
    run.shape.dies = draw(&dice, 2);
    run.shape.legacy = draw(&dice, 3) == 0;
    run.shape.is_seen = backing == EBB_CUDA_VMM_TRUSTING;
    return run;
}

static void body(void *context)
{
    struct run *run = context;
    struct rig rig;
    static char text[5][128]; /* the environment, until the process ends */
    snprintf(text[0], sizeof text[0], "FAKECUDA_SEED=%llu", (unsigned long long)run->seed);
    snprintf(text[1], sizeof text[1], "FAKECUDA_BUDGET=%llu",
             (unsigned long long)run->budget_bytes);
    snprintf(text[2], sizeof text[2], "FAKECUDA_LAZY_US=%d", run->seed % 3 ? 200 : 3000);
    /* For the order of copies on the lanes, the host looks at a counter. The fake does not know. */
    snprintf(text[3], sizeof text[3], "FAKECUDA_RACES=%d",
             run->backing == EBB_CUDA_MANAGED && run->seed % 2);
    snprintf(text[4], sizeof text[4], "FAKECUDA_REPORT=%s", run->report);
    for (unsigned i = 0; i < 5; i++)
        putenv(text[i]);
    struct ebb_error error = {0};
    if (run->backing == EBB_CUDA_VMM_HOST) /* its transfers often wait for so long */
        RIG_MUST(ebb__tuning_set("cuda_patience_ns=100ms", &error) == EBB_OK);
    rig_init(&rig, run->budget_bytes);
    rig.config.backing = run->backing;
    rig.config.chaos_seed = run->seed % 4 ? run->seed : 0;
    rig_start_at(&rig, run->seed % 5 ? 2 : UINT32_MAX - 21);
    unsigned ooms = program_run(&rig, &run->shape, run->seed);
    struct ebb_counters *counters = &rig.ring->counters;
    if (run->show)
        fprintf(
            stderr,
            "seed %llu: threads %u, streams %u, steps %u, budget %llu MiB, live %llu MiB: out "
            "%llu MiB, in %llu MiB, evictions %llu, peak %llu MiB, stall %llu us, begun in host "
            "memory %llu, no memory %u times\n",
            (unsigned long long)run->seed, run->shape.threads, run->shape.streams, run->shape.steps,
            (unsigned long long)run->budget_bytes >> 20,
            (unsigned long long)run->shape.live_bytes >> 20,
            (unsigned long long)atomic_load(&counters->moved_out_bytes) >> 20,
            (unsigned long long)atomic_load(&counters->moved_in_bytes) >> 20,
            (unsigned long long)atomic_load(&counters->reactive_evictions),
            (unsigned long long)atomic_load(&rig.ledger->peak_bytes) >> 20,
            (unsigned long long)atomic_load(&counters->stall_ns) / 1000,
            (unsigned long long)atomic_load(&counters->away_allocations), ooms);
    RIG_MUST(atomic_load(&rig.ledger->peak_bytes) <= run->budget_bytes);
    RIG_MUST(atomic_load(&rig.ledger->over_bytes) == 0);
    RIG_MUST(ebb__mover_stuck_bytes(rig.engine->mover) == 0); /* the driver refuses nothing */
    uint64_t give_ups = ebb__mover_give_ups(rig.engine->mover);
    if (give_ups)
        fprintf(stderr, "fuzz_cuda: seed %llu: patience ended %llu times\n",
                (unsigned long long)run->seed, (unsigned long long)give_ups);
    if (atomic_load(&rig.unfit) || give_ups)
        unlink(run->marker); /* more than fits at a time: some of it is used over the bus */
    rig_stop(&rig);
}

/* What is announced is on the device when it is used. */
static bool is_local(const struct run *run)
{
    if (run->backing != EBB_CUDA_MANAGED)
        return true; /* the fake does not tell */
    bool fits = access(run->marker, F_OK) == 0;
    return run->shape.hidden || run->shape.graphs || !fits ||
           (rig_reported(run->report, "remote_accesses") == 0 &&
            rig_reported(run->report, "faults") == 0);
}

static bool find_backing(const char *name, enum ebb_cuda_backing_kind *backing)
{
    for (unsigned i = 0; i < EBB_CUDA_BACKING_COUNT; i++) {
        if (backings[i] && !strcmp(name, backings[i])) {
            *backing = (enum ebb_cuda_backing_kind)i;
            return true;
        }
    }
    return false;
}

static int run_seed(uint64_t seed, const struct options *options)
{
    struct run run = run_of(seed, options->backing);
    run.show = options->show;
    snprintf(run.report, sizeof run.report, "/tmp/fuzz_cuda.%d.json", getpid());
    snprintf(run.marker, sizeof run.marker, "/tmp/fuzz_cuda.%d.fits", getpid());
    FILE *marker = fopen(run.marker, "w");
    RIG_MUST(marker && fclose(marker) == 0);
    int status = rig_child(NULL, body, &run, 60);
    if (status == 0 && !is_local(&run)) {
        fprintf(stderr, "fuzz_cuda: announced bytes were not on the device\n");
        status = 1;
    }
    unlink(run.report);
    unlink(run.marker);
    return status;
}

/* Takes seeds until there are no more. */
static void work(void *context)
{
    struct options *options = context;
    uint64_t taken;
    while ((taken = atomic_fetch_add(&options->shared->taken, 1)) < options->seeds) {
        uint64_t seed = options->first + taken;
        int status = run_seed(seed, options);
        if (status) {
            fprintf(stderr, "fuzz_cuda: seed %llu failed: status %d\n", (unsigned long long)seed,
                    status);
            atomic_fetch_add(&options->shared->failed, 1);
        }
    }
}

static void run_all(struct options *options)
{
    pid_t workers[MOST_JOBS];
    for (uint64_t i = 0; i < options->jobs; i++) {
        workers[i] = fork();
        RIG_MUST(workers[i] >= 0);
        if (workers[i] == 0) {
            work(options);
            _exit(0);
        }
    }
    for (uint64_t i = 0; i < options->jobs; i++) {
        int status;
        RIG_MUST(waitpid(workers[i], &status, 0) == workers[i]);
        RIG_MUST(status == 0);
    }
}

static bool read_options(int argc, char **argv, struct options *options)
{
    for (int i = 1; i < argc; i++) {
        bool has_value = i + 1 < argc;
        if (!strcmp(argv[i], "--show"))
            options->show = true;
        else if (has_value && !strcmp(argv[i], "--seeds"))
            options->seeds = strtoull(argv[++i], NULL, 10);
        else if (has_value && !strcmp(argv[i], "--first"))
            options->first = strtoull(argv[++i], NULL, 10);
        else if (has_value && !strcmp(argv[i], "--jobs"))
            options->jobs = strtoull(argv[++i], NULL, 10);
        else if (has_value && !strcmp(argv[i], "--backing") &&
                 find_backing(argv[i + 1], &options->backing))
            i++;
        else
            return false;
    }
    return options->jobs >= 1 && options->jobs <= MOST_JOBS;
}

int main(int argc, char **argv)
{
    struct options options = {.seeds = 20, .first = 1, .jobs = 1, .backing = EBB_CUDA_MANAGED};
    if (!read_options(argc, argv, &options)) {
        fprintf(stderr, "usage: fuzz_cuda [--seeds N] [--first S] [--jobs J] [--backing NAME] "
                        "[--show]\n");
        return 2;
    }
    options.shared = mmap(NULL, sizeof *options.shared, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    RIG_MUST(options.shared != MAP_FAILED);
    /* Threads sleep for 20 us at a time. The usual slack of 50 us would be most of that. */
    prctl(PR_SET_TIMERSLACK, 1000ul, 0ul, 0ul, 0ul);
    run_all(&options);
    uint64_t failed = atomic_load(&options.shared->failed);
    printf("%llu seeds, %llu failed\n", (unsigned long long)options.seeds,
           (unsigned long long)failed);
    return failed != 0;
}
