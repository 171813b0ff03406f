/* AutoSwap's selection against its public scripts (junzhezhang/memInfoSwap): the same input gives
 * the same choice. The figures were computed with the scripts on the iteration that Ebb finds in
 * SINGA's public trace, three times in a row. Two slips of the scripts were corrected first. WDOA
 * uses the load at each tick, not that at the candidate's place in its list. For SWDOA a pair is
 * taken off the load of each of the three iterations, not of one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "lab/import/import.h"
#include "lab/swap/scores.h"
#include "model/analyse.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define LEAST_BYTES ((uint64_t)1 << 20)

/* What the script selects at a limit. */
struct chosen {
    enum ebb_swap_score score;
    uint32_t percent; /* the limit, of the peak load */
    uint64_t count, bytes;
    uint64_t before; /* events from the begins of the pairs to the peak, summed up */
    uint64_t behind; /* events from the peak to their ends */
};

static const struct chosen vgg[] = {
    {EBB_SCORE_DOA, 90, 14, 69468160, 22564, 19850},
    {EBB_SCORE_DOA, 75, 25, 195477516, 35009, 34562},
    {EBB_SCORE_DOA, 60, 30, 317112336, 40247, 40045},
    {EBB_SCORE_DOA, 50, 34, 376094736, 45265, 42828},
    {EBB_SCORE_AOA, 90, 3, 78643200, 3989, 2571},
    {EBB_SCORE_AOA, 75, 7, 174063620, 8170, 7261},
    {EBB_SCORE_AOA, 60, 20, 318767120, 23807, 27255},
    {EBB_SCORE_AOA, 50, 25, 384303120, 29879, 30317},
    {EBB_SCORE_WDOA, 90, 14, 69468160, 22564, 19850},
    {EBB_SCORE_WDOA, 75, 24, 188137476, 35996, 30774},
    {EBB_SCORE_WDOA, 60, 27, 266780676, 39885, 33141},
    {EBB_SCORE_WDOA, 50, 32, 342540296, 45128, 38275},
    {EBB_SCORE_SWDOA, 90, 14, 69468160, 22564, 19850},
    {EBB_SCORE_SWDOA, 75, 23, 171360256, 35669, 28373},
    {EBB_SCORE_SWDOA, 60, 27, 266780676, 39885, 33141},
    {EBB_SCORE_SWDOA, 50, 33, 359317516, 45251, 40576},
};
static const struct chosen alexnet[] = {
    {EBB_SCORE_DOA, 90, 1, 111476740, 245, 219},
    {EBB_SCORE_AOA, 90, 1, 111476740, 245, 219},
    {EBB_SCORE_WDOA, 90, 1, 111476740, 245, 219},
    {EBB_SCORE_SWDOA, 75, 11, 182341640, 2190, 1467},
};

static bool straddles(const struct ebb_swap *swap, const struct ebb_swap_gap *gap,
                      const void *peak_tick, uint32_t *margin_ticks)
{
    (void)margin_ticks;
    return ebb__swap_straddles_peak(swap, gap, *(const uint32_t *)peak_tick, LEAST_BYTES);
}

static uint64_t peak_of(const struct ebb_swap *swap)
{
    uint64_t peak = 0;
    for (uint32_t t = 0; t < swap->cell_count; t++)
        peak = swap->curve[t] > peak ? swap->curve[t] : peak;
    return peak;
}

/* The fewest gaps, in order, without which the load is within the limit. As in the script, a gap
 * counts from its access on. */
static struct chosen select_as_published(const struct ebb_swap_ranking *ranking, uint32_t peak,
                                         uint64_t limit_bytes)
{
    struct ebb_swap *swap = ranking->swap;
    struct chosen chosen = {0};
    for (uint32_t t = 0; t < swap->cell_count; t++)
        swap->curve[t] = swap->load[t];
    for (uint32_t i = 0; i < swap->gap_count && peak_of(swap) > limit_bytes; i++) {
        const struct ebb_swap_gap *gap = &swap->gaps[ranking->order[i]];
        ebb__swap_range_add(swap->curve, swap->cell_count, gap->from_tick,
                            ebb__swap_ticks_between(swap, gap->from_tick, gap->to_tick),
                            0 - gap->bytes);
        chosen.count++;
        chosen.bytes += gap->bytes;
        chosen.before += ebb__swap_ticks_between(swap, gap->from_tick, peak);
        chosen.behind += ebb__swap_ticks_between(swap, peak, gap->to_tick);
    }
    return chosen;
}

static void check(const struct ebb_model *model, const struct chosen *wanted, size_t count,
                  uint32_t candidates)
{
    struct ebb_machine machine;
    struct ebb_swap swap;
    struct ebb_swap_ranking ranking;
    assert_int_equal(ebb__machine_named("autoswap-paper", &machine, NULL), EBB_OK);
    struct ebb_plan_request request = {.model = model, .machine = &machine, .page_bytes = 1};
    assert_int_equal(ebb__swap_init(&swap, &request, NULL), EBB_OK);
    uint32_t peak = ebb__swap_peak_tick(&swap);
    assert_int_equal(ebb__swap_narrow(&swap, straddles, &peak, NULL), EBB_OK);
    assert_int_equal(swap.gap_count, candidates);
    assert_int_equal(ebb__ranking_init(&ranking, &swap, NULL), EBB_OK);
    ranking.scripts = true;
    for (size_t i = 0; i < count; i++) {
        uint64_t limit = (uint64_t)((double)model->peak_bytes * wanted[i].percent / 100);
        ebb__ranking_score(&ranking, wanted[i].score, limit);
        ebb__ranking_by_score(&ranking, wanted[i].score);
        struct chosen got = select_as_published(&ranking, peak, limit);
        if (got.count != wanted[i].count || got.bytes != wanted[i].bytes ||
            got.before != wanted[i].before || got.behind != wanted[i].behind)
            fail_msg("score %d at %u %%: %" PRIu64 " pairs of %" PRIu64 " bytes, %" PRIu64
                     " before and %" PRIu64 " behind",
                     (int)wanted[i].score, wanted[i].percent, got.count, got.bytes, got.before,
                     got.behind);
    }
    ebb__ranking_fini(&ranking);
    ebb__swap_fini(&swap);
}

static void check_public(const char *name, const struct chosen *wanted, size_t count,
                         uint32_t candidates)
{
    const char *folder = getenv("EBB_DATA"), *source = getenv("EBB_SOURCE_DIR");
    char path[1024];
    if (folder)
        snprintf(path, sizeof path, "%s/singa/%s", folder, name);
    else
        snprintf(path, sizeof path, "%s/../shared/data/singa/%s", source ? source : ".", name);
    FILE *there = fopen(path, "r");
    if (!there) {
        print_message("skipped: needs EBB_DATA\n");
        skip();
    }
    fclose(there);
    struct ebb_trace trace;
    struct ebb_analysis analysis;
    assert_int_equal(ebb__trace_open(path, &trace, NULL), EBB_OK);
    struct ebb_event_span span = {trace.events, trace.count};
    assert_int_equal(ebb__analyse(span, &analysis, NULL), EBB_OK);
    check(&analysis.model, wanted, count, candidates);
    ebb__analysis_fini(&analysis);
    ebb__trace_fini(&trace);
}

static void selects_as_the_scripts_on_vgg(void **state)
{
    (void)state;
    check_public("vec_block_fresh_vgg.csv", vgg, sizeof vgg / sizeof vgg[0], 77);
}

static void selects_as_the_scripts_on_alexnet(void **state)
{
    (void)state;
    check_public("vec_run_5_alex.csv", alexnet, sizeof alexnet / sizeof alexnet[0], 11);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(selects_as_the_scripts_on_vgg),
        cmocka_unit_test(selects_as_the_scripts_on_alexnet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
