/* Plans for two tiers carried out here, beside what the simulator says.
 *
 *     build/release/bench/bench_tier_run TRACE FOLDER [SHARE%...]
 *
 * The operations of a trace are replayed on blocks in anonymous memory and in a file in FOLDER
 * that is used in place. Their times are measured first, with everything in fast memory. From
 * then on they take PACE times as long, so that a busy machine is no matter. If FOLDER is tmpfs,
 * both tiers are the same DRAM. What is slower about the second one is then a throttle of
 * operations, and of copies: 0.4 GB/s out, 0.5 GB/s in.
 *
 * For each share and policy one line: predicted and measured iteration, predicted and measured
 * time of copies, residency. The median comes last. */
#include "base/order.h"
#include "base/size.h"
#include "lab/import/import.h"
#include "lab/tier/execute.h"
#include "lab/tier/tier.h"
#include "model/analyse.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define PACE 4.0

static const struct ebb_tier_machine machine = {
    .name = "throttled",
    .tiers = {{"dram", 0, 0.05, 0.05, 0, 64, 0}, {"file", 0, 2.0, 4.0, 0, 64, 0}},
    .out = {1 / 0.4, 20000},
    .in = {1 / 0.5, 20000},
    .duplex = true,
    .page_bytes = 4096};

static int fail(const struct ebb_error *error)
{
    fprintf(stderr, "tier_run: %s: %s\n", error->what, error->why);
    return 1;
}

/* Measures the operations with everything in fast memory. */
static enum ebb_status times_measure(struct ebb_operations *operations, const char *folder,
                                     uint64_t *checksum, struct ebb_error *error)
{
    struct ebb_tier_request request = {operations, &machine, UINT64_MAX / 2, 0, NULL};
    struct ebb_tier_row row;
    struct ebb_tier_execution run = {.folder = folder, .laps = 3};
    enum ebb_status status = ebb__tier_run(ebb__tier_policy("first-touch"), &request, &row, error);
    if (status)
        return status;
    run.operation_ns = calloc(operations->count + 1, sizeof *run.operation_ns);
    if (run.operation_ns)
        status = ebb__tier_execute(&request, &row.plan, &run, error);
    *checksum = run.checksum;
    for (uint32_t i = 0; run.operation_ns && i < operations->count; i++)
        operations->items[i].ns = (uint64_t)(run.operation_ns[i] * PACE) + 1000;
    free(run.operation_ns);
    ebb__tier_plan_fini(&row.plan);
    return status;
}

int main(int argc, char **argv)
{
    static const char *const policies[] = {"deeptm", "deeptm:-asynchronous", "sentinel",
                                           "first-touch"};
    struct ebb_trace trace;
    struct ebb_analysis analysis;
    struct ebb_operations operations;
    struct ebb_error error = {0};
    uint64_t peak, reference, off[256];
    size_t count = 0;
    int wrong = 0;
    if (argc < 3) {
        fprintf(stderr, "usage: bench_tier_run TRACE FOLDER [SHARE%%...]\n");
        return 2;
    }
    if (ebb__trace_open(argv[1], &trace, &error) ||
        ebb__analyse((struct ebb_event_span){trace.events, trace.count}, &analysis, &error) ||
        ebb__operations_make(&analysis.model, &operations, &error) ||
        ebb__tiers_peak(&operations, &machine, &peak, &error) ||
        times_measure(&operations, argv[2], &reference, &error))
        return fail(&error);
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("%-6s %-22s %10s %10s %7s %10s %10s %6s %6s\n", "share", "policy", "predicted",
           "measured", "off", "copies", "measured", "bytes", "same");
    for (int s = 3; s < (argc > 3 ? argc : 4); s++) {
        double share = s < argc ? strtod(argv[s], NULL) / 100 : 0.3;
        for (size_t p = 0; p < sizeof policies / sizeof policies[0] && count < 256; p++) {
            struct ebb_tier_request request = {&operations, &machine,
                                               (uint64_t)(share * (double)peak), 0, NULL};
            struct ebb_tier_row row;
            struct ebb_tier_execution timed = {.folder = argv[2], .laps = 3, .paces = true};
            struct ebb_tier_execution sampled = {.folder = argv[2], .laps = 3, .samples = true};
            if (ebb__tier_run(ebb__tier_policy(policies[p]), &request, &row, &error) ||
                ebb__tier_execute(&request, &row.plan, &timed, &error) ||
                ebb__tier_execute(&request, &row.plan, &sampled, &error))
                return fail(&error);
            double ratio = timed.iteration_ns / row.result.iteration_ns;
            off[count++] = (uint64_t)(fabs(ratio - 1) * 1e6);
            bool over = sampled.samples_taken.fast_over || timed.checksum != sampled.checksum;
            wrong += over || timed.checksum != reference;
            printf("%5.0f%% %-22s %8.1fms %8.1fms %+6.1f%% %8.1fms %8.1fms %6s %5.0f%%\n",
                   100 * share, policies[p], row.result.iteration_ns / 1e6,
                   timed.iteration_ns / 1e6, 100 * (ratio - 1), timed.predicted_copy_ns / 1e6,
                   timed.copy_ns / 1e6, timed.checksum == reference ? "same" : "OTHER",
                   100 * (double)sampled.samples_taken.same /
                       (double)(sampled.samples_taken.operations + 1));
            ebb__tier_plan_fini(&row.plan);
        }
    }
    printf("median of |measured / predicted - 1|: %.1f %%; plans with other bytes or more memory "
           "than planned: %d\n",
           (double)ebb__median_u64(off, count) / 1e4, wrong);
    ebb__operations_fini(&operations);
    ebb__analysis_fini(&analysis);
    ebb__trace_fini(&trace);
    return wrong ? 1 : 0;
}
