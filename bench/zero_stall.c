/* Measures how much the smallest stall-free budget depends on the seed of the search.
 *
 *     build/release/bench/bench_zero_stall TRACE [SEEDS [SECONDS ...]]
 *
 * For each time limit (by default 0.1 and 1.7 s), prints the least, median and greatest peak found,
 * in MiB. Also prints how many of the seeds (by default 24) stayed within 255 MiB and 264 MiB. The
 * machine is autoswap-paper. */
#include "lab/import/import.h"
#include "model/analyse.h"
#include "plan/request/request.h"
#include "plan/swap/anneal.h"

#include <stdio.h>
#include <stdlib.h>

#define SEEDS 24
#define MIB (1024.0 * 1024.0)

static int compare(const void *left, const void *right)
{
    const uint64_t *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

/* Runs the search of the policy `ebb` with the request's seed. The simulator computes its peak. */
static enum ebb_status search(const struct ebb_plan_request *request,
                              struct ebb_swap_outcome *outcome, uint64_t *took_ns,
                              struct ebb_error *error)
{
    struct ebb_swap swap;
    struct ebb_anneal anneal;
    enum ebb_status status = ebb__swap_init(&swap, request, error);
    if (status)
        return status;
    uint64_t floor_bytes = swap.smallest_feasible_bytes, limit_steps = swap.limit_steps;
    status = ebb__anneal_init(&anneal, &swap, request->model->time_ns, error);
    if (!status) {
        ebb__anneal_start(&anneal);
        ebb__anneal_greedy(&anneal, floor_bytes, limit_steps);
        ebb__anneal_run(&anneal, floor_bytes, limit_steps);
        ebb__anneal_take(&anneal, &swap);
        ebb__anneal_fini(&anneal);
        status = ebb__swap_evaluate(&swap, outcome, error);
    }
    *took_ns = ebb__now_ns() - swap.started_ns;
    if (!status && outcome->iteration_ns != swap.lap_ns)
        status = ebb__fail(error, EBB_ERR_FORMAT, "plan", "it stalls");
    ebb__swap_fini(&swap);
    return status;
}

static int run(const struct ebb_plan_request *request, uint32_t seeds, double seconds)
{
    uint64_t *peaks = calloc(seeds, sizeof *peaks), longest_ns = 0;
    uint32_t within_255 = 0, within_264 = 0;
    for (uint32_t i = 0; peaks && i < seeds; i++) {
        struct ebb_plan_request timed = *request;
        struct ebb_swap_outcome outcome;
        struct ebb_error error;
        uint64_t took_ns;
        timed.time_limit_ns = (uint64_t)(seconds * 1e9);
        timed.seed = i;
        if (search(&timed, &outcome, &took_ns, &error)) {
            fprintf(stderr, "%s: %s\n", error.what, error.why);
            free(peaks);
            return 1;
        }
        peaks[i] = outcome.peak_bytes;
        longest_ns = took_ns > longest_ns ? took_ns : longest_ns;
        within_255 += outcome.peak_bytes <= 255 * (uint64_t)MIB;
        within_264 += outcome.peak_bytes <= 264 * (uint64_t)MIB;
    }
    if (!peaks)
        return 1;
    qsort(peaks, seeds, sizeof *peaks, compare);
    printf(
        "%6.2f s  least %.1f  median %.1f  most %.1f MiB  within 255: %u  264: %u  of %u  longest "
        "%.2f s\n",
        seconds, (double)peaks[0] / MIB, (double)peaks[seeds / 2] / MIB,
        (double)peaks[seeds - 1] / MIB, within_255, within_264, seeds, (double)longest_ns / 1e9);
    free(peaks);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: %s TRACE [SEEDS [SECONDS ...]]\n", argv[0]);
        return 2;
    }
    struct ebb_trace trace;
    struct ebb_analysis analysis;
    struct ebb_machine machine;
    struct ebb_error error;
    if (ebb__trace_open(argv[1], &trace, &error) ||
        ebb__analyse((struct ebb_event_span){trace.events, trace.count}, &analysis, &error) ||
        ebb__machine_named("autoswap-paper", &machine, &error)) {
        fprintf(stderr, "%s: %s\n", error.what, error.why);
        return 1;
    }
    if (!analysis.has_model) {
        fprintf(stderr, "%s: no iteration\n", argv[1]);
        return 1;
    }
    struct ebb_plan_terms terms =
        ebb__plan_terms(ebb__plan_policy("ebb"), &analysis.model, &machine, UINT64_MAX / 4);
    terms.page_bytes = trace.info.page_bytes;
    struct ebb_plan_request request = ebb__plan_request(&terms);
    uint32_t seeds = argc > 2 ? (uint32_t)atoi(argv[2]) : 0;
    seeds = seeds ? seeds : SEEDS;
    int status = 0;
    if (argc <= 3) {
        status = run(&request, seeds, 0.1);
        if (!status)
            status = run(&request, seeds, 1.7);
    }
    for (int i = 3; i < argc && !status; i++)
        status = run(&request, seeds, atof(argv[i]));
    ebb__analysis_fini(&analysis);
    ebb__trace_fini(&trace);
    return status;
}
