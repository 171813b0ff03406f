/* Which blocks are placed: those allocated in the iteration that do not outlive it, have no absence
 * and are no parts. An evicted block needs pages of its own, and so do the parts of a large block.
 * A block that outlives an iteration exists twice. If threads interleave, lifetimes in one order
 * say little about another.
 *
 * What it costs: a unit is held as long as one block covers it. With the packings of
 * ebb__pool_solve() the waste is small (ResNet-50 in 60 %: 5 MiB of 75 on average, 12 at most). But
 * the plan counts blocks, and may have filled the budget to the last page. So resident bytes are
 * counted again, in units. While they exceed the budget, the blocks in the emptiest units get pages
 * of their own again. */
#include "plan/place/place.h"

#include "base/geometry.h"
#include "base/tuning.h"

#include "plan/place/resident.h"
#include "plan/pool/pool.h"

#include <stdlib.h>
#include <string.h>

#define PACK_ROUNDS 4 /* afterwards unplaced blocks remain so; half and twice give the same plan */
#define FIT_ROUNDS 40 /* a limit; most need less than 10 */

struct waste {
    uint64_t bytes;
    uint32_t unit;
};

static int by_waste(const void *left, const void *right)
{
    const struct waste *a = left, *b = right;
    if (a->bytes != b->bytes)
        return a->bytes > b->bytes ? -1 : 1;
    return a->unit < b->unit ? -1 : a->unit > b->unit;
}

struct placing {
    const struct ebb_plan_request *request;
    const struct ebb_plan *plan;
    struct ebb_places *places;
    bool *wanted; /* by block: it should be placed */
    uint64_t affordable_bytes;
    struct ebb__resident resident;
    struct waste *wastes; /* by unit */
};

static uint64_t end_of(const struct placing *placing, uint32_t block)
{
    return placing->places->offsets[block] +
           ebb__plan_block_bytes(placing->request, &placing->request->model->blocks[block]);
}

static void take_out(struct placing *placing, uint32_t block)
{
    placing->wanted[block] = false;
    placing->places->offsets[block] = EBB_PLACE_NONE;
    placing->places->count--;
}

/* Finds the empty bytes of each unit in use at this moment, the largest first. */
static void find_wastes(struct placing *placing)
{
    const struct ebb__resident *now = &placing->resident;
    uint64_t unit_bytes = ebb__plan_place_unit(placing->request);
    for (uint32_t unit = 0; unit < now->unit_count; unit++)
        placing->wastes[unit] = (struct waste){now->users[unit] ? unit_bytes : 0, unit};
    for (uint32_t b = 0; b < placing->request->model->block_count; b++) {
        if (!now->live[b])
            continue;
        uint64_t at = placing->places->offsets[b], end = end_of(placing, b);
        while (at < end) {
            uint64_t behind = (at / unit_bytes + 1) * unit_bytes;
            uint64_t bytes = (end < behind ? end : behind) - at;
            placing->wastes[at / unit_bytes].bytes -= bytes;
            at += bytes;
        }
    }
    qsort(placing->wastes, now->unit_count, sizeof *placing->wastes, by_waste);
}

/* Removes the blocks from the emptiest units, until `over` bytes less are needed at this moment or
 * no unit has empty bytes. */
static void empty_units(struct placing *placing, uint64_t over)
{
    find_wastes(placing);
    for (uint32_t i = 0; i < placing->resident.unit_count && placing->wastes[i].bytes && over;
         i++) {
        uint64_t unit_bytes = ebb__plan_place_unit(placing->request);
        uint64_t low = placing->wastes[i].unit * unit_bytes, high = low + unit_bytes;
        for (uint32_t b = 0; b < placing->request->model->block_count; b++) {
            uint64_t at = placing->places->offsets[b];
            if (placing->resident.live[b] && at != EBB_PLACE_NONE && at < high &&
                end_of(placing, b) > low)
                take_out(placing, b);
        }
        over -= over < placing->wastes[i].bytes ? over : placing->wastes[i].bytes;
    }
}

/* Removes blocks from the static placement until all fits. The others keep their addresses. */
static void fit(struct placing *placing)
{
    struct ebb_places *places = placing->places;
    uint32_t when;
    for (int round = 0; round < FIT_ROUNDS; round++) {
        places->peak_bytes = ebb__resident_peak(&placing->resident, &when);
        if (places->peak_bytes <= placing->affordable_bytes)
            return;
        if (places->lacking_bytes == 0)
            places->lacking_bytes = places->peak_bytes - placing->affordable_bytes;
        ebb__resident_go_to(&placing->resident, when);
        empty_units(placing, places->peak_bytes - placing->affordable_bytes);
    }
    for (uint32_t b = 0; b < placing->request->model->block_count; b++)
        if (places->offsets[b] != EBB_PLACE_NONE)
            take_out(placing, b);
    places->peak_bytes = ebb__resident_peak(&placing->resident, NULL);
}

/* If no plan keeps the budget, the runtime keeps it by evicting blocks that are not in use at the
 * moment. Then only blocks that are in use during their whole lifetime may have fixed addresses. */
static void choose(struct placing *placing)
{
    const struct ebb_model *model = placing->request->model;
    uint32_t most_ticks =
        placing->plan->feasible ? model->tick_count : (uint32_t)ebb__tuning()->place_brief_ticks;
    for (uint32_t b = 0; b < model->block_count; b++) {
        const struct ebb_model_block *block = &model->blocks[b];
        placing->wanted[b] = !placing->plan->reactive && !model->unordered && !model->varies &&
                             block->alloc_tick != EBB_TICK_NONE && block->span_ticks > 0 &&
                             block->span_ticks <= model->tick_count &&
                             block->span_ticks <= most_ticks && block->size_bytes > 0 &&
                             block->part_count == 0;
    }
    for (uint32_t i = 0; i < placing->plan->absence_count; i++)
        placing->wanted[placing->plan->absences[i].block] = false;
}

/* Packs the wanted blocks, as buffers on the circle of ticks. */
static enum ebb_status pack(struct placing *placing, struct ebb_error *error)
{
    const struct ebb_model *model = placing->request->model;
    struct ebb_places *places = placing->places;
    struct ebb_pool_buffer *buffers = calloc(model->block_count + (size_t)1, sizeof *buffers);
    struct ebb_pool_problem problem = {.buffers = buffers,
                                       .period = model->tick_count,
                                       .capacity_bytes = EBB_POOL_NO_CAPACITY,
                                       .effort_steps = ebb__tuning()->place_pack_steps};
    struct ebb_pool_solution solution;
    if (!buffers)
        return EBB_ERR_MEMORY;
    for (uint32_t b = 0; b < model->block_count; b++)
        if (placing->wanted[b])
            buffers[problem.count++] = (struct ebb_pool_buffer){
                model->blocks[b].alloc_tick,
                (uint64_t)model->blocks[b].alloc_tick + model->blocks[b].span_ticks,
                ebb__plan_block_bytes(placing->request, &model->blocks[b])};
    enum ebb_status status = ebb__pool_solve("ebb", &problem, &solution, error);
    places->count = problem.count;
    places->placement_bytes = solution.height_bytes;
    for (uint32_t b = 0, i = 0; status == EBB_OK && b < model->block_count; b++)
        if (placing->wanted[b])
            places->offsets[b] = solution.offsets[i++];
    for (uint32_t b = 0; status == EBB_OK && b < model->block_count; b++)
        if (placing->wanted[b] && places->offsets[b] % placing->request->page_bytes)
            take_out(placing, b);
    ebb__pool_solution_fini(&solution);
    free(buffers);
    return status;
}

/* Packs and fits. Packs the remaining blocks again, because removed ones leave holes. */
static enum ebb_status pack_and_fit(struct placing *placing, struct ebb_error *error)
{
    for (uint64_t round = 1;; round++) {
        enum ebb_status status = pack(placing, error);
        if (status != EBB_OK)
            return status;
        uint32_t packed = placing->places->count;
        uint32_t units =
            (uint32_t)(placing->places->placement_bytes / ebb__plan_place_unit(placing->request)) +
            1;
        placing->wastes = calloc(units, sizeof *placing->wastes);
        status = placing->wastes
                     ? ebb__resident_init(&placing->resident, placing->request, placing->plan,
                                          placing->places->offsets, units)
                     : EBB_ERR_MEMORY;
        if (status == EBB_OK)
            fit(placing);
        ebb__resident_fini(&placing->resident);
        free(placing->wastes);
        if (status != EBB_OK || placing->places->count == packed || round == PACK_ROUNDS)
            return status;
    }
}

static enum ebb_status place(struct placing *placing, struct ebb_error *error)
{
    size_t most = placing->request->model->block_count + (size_t)1;
    placing->places->offsets = malloc(most * sizeof *placing->places->offsets);
    placing->wanted = calloc(most, sizeof *placing->wanted);
    if (!placing->places->offsets || !placing->wanted)
        return EBB_ERR_MEMORY;
    memset(placing->places->offsets, 0xff,
           most * sizeof *placing->places->offsets); /* EBB_PLACE_NONE */
    /* The budget, or the memory of the plan without a static placement if that is more. */
    enum ebb_status status = ebb__resident_init(&placing->resident, placing->request, placing->plan,
                                                placing->places->offsets, 0);
    if (status != EBB_OK)
        return status;
    placing->affordable_bytes = ebb__resident_peak(&placing->resident, NULL);
    ebb__resident_fini(&placing->resident);
    if (placing->affordable_bytes < placing->request->budget_bytes)
        placing->affordable_bytes = placing->request->budget_bytes;
    choose(placing);
    return pack_and_fit(placing, error);
}

enum ebb_status ebb__place_blocks(const struct ebb_plan_request *request,
                                  const struct ebb_plan *plan, struct ebb_places *places,
                                  struct ebb_error *error)
{
    *places = (struct ebb_places){0};
    struct placing placing = {.request = request, .plan = plan, .places = places};
    enum ebb_status status = place(&placing, error);
    free(placing.wanted);
    if (places->count == 0)
        places->placement_bytes = 0;
    if (status == EBB_OK)
        return EBB_OK;
    ebb__places_fini(places);
    return ebb__fail(error, status, "addresses", "%s", ebb_status_text(status));
}

void ebb__places_fini(struct ebb_places *places)
{
    free(places->offsets);
    *places = (struct ebb_places){0};
}
