/* Random programs on the CUDA engine with the fake driver: one child for each seed.
 *
 *     fuzz_cuda [--seeds N] [--first S] [--jobs J] [--show]
 *
 * A seed gives the program, its threads and streams, the budget, and the schedule of the fake. The
 * child fails if a byte differs from a serial run, or if the driver would have refused a call. It
 * also fails if the device ever has more bytes than the budget, and if it hangs. */
#include "base/tuning.h"
#include "cuda_program.h"

struct run {
    uint64_t seed;
    struct shape shape;
    uint64_t budget_bytes;
    enum ebb_cuda_backing_kind backing;
    bool show;
    char report[64], marker[64]; /* files: of the fake, and one that goes if a work is too large */
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
    rig_start_at(&rig, run->seed % 5 ? 1 : UINT32_MAX - 20);
    unsigned ooms = program_run(&rig, &run->shape, run->seed);
    struct ebb_counters *counters = &rig.ring->counters;
    if (run->show)
        fprintf(stderr,
                "seed %llu: threads %u, streams %u, steps %u, budget %llu MiB, live %llu MiB: out "
                "%llu MiB, in %llu MiB, evictions %llu, peak %llu MiB, stall %llu us, no memory %u "
                "times\n",
                (unsigned long long)run->seed, run->shape.threads, run->shape.streams,
                run->shape.steps, (unsigned long long)run->budget_bytes >> 20,
                (unsigned long long)run->shape.live_bytes >> 20,
                (unsigned long long)atomic_load(&counters->moved_out_bytes) >> 20,
                (unsigned long long)atomic_load(&counters->moved_in_bytes) >> 20,
                (unsigned long long)atomic_load(&counters->reactive_evictions),
                (unsigned long long)atomic_load(&rig.ledger->peak_bytes) >> 20,
                (unsigned long long)atomic_load(&counters->stall_ns) / 1000, ooms);
    RIG_MUST(atomic_load(&rig.ledger->peak_bytes) <= run->budget_bytes);
    RIG_MUST(atomic_load(&rig.ledger->over_bytes) == 0);
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

int main(int argc, char **argv)
{
    uint64_t seeds = 20, first = 1;
    bool show = false;
    enum ebb_cuda_backing_kind backing = EBB_CUDA_MANAGED;
    unsigned failed = 0;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--show"))
            show = true;
        else if (i + 1 < argc && !strcmp(argv[i], "--seeds"))
            seeds = strtoull(argv[++i], NULL, 10);
        else if (i + 1 < argc && !strcmp(argv[i], "--first"))
            first = strtoull(argv[++i], NULL, 10);
        else if (i + 1 < argc && !strcmp(argv[i], "--backing") &&
                 find_backing(argv[i + 1], &backing))
            i++;
        else
            return fprintf(stderr,
                           "usage: fuzz_cuda [--seeds N] [--first S] [--backing NAME] [--show]\n"),
                   2;
    }
    for (uint64_t seed = first; seed < first + seeds; seed++) {
        struct run run = run_of(seed, backing);
        run.show = show;
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
        if (status) {
            fprintf(stderr, "fuzz_cuda: seed %llu failed: status %d\n", (unsigned long long)seed,
                    status);
            failed++;
        }
    }
    printf("%llu seeds, %u failed\n", (unsigned long long)seeds, failed);
    return failed != 0;
}
