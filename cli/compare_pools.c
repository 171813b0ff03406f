/* What a trace needs if other allocators serve it, or if it is packed: the steady iteration, and
 * what is resident under each plan. */
#include "check/packing.h"
#include "choices.h"
#include "compare.h"
#include "lab/check/residency.h"
#include "lab/lab.h"
#include "lab/pool/model.h"

#include "base/tuning.h"

#include <string.h>

static enum ebb_status no_memory(struct ebb_error *error)
{
    return ebb__fail(error, EBB_ERR_MEMORY, "results", "no memory for them");
}

/* Packs the source with a pool and checks the result. */
static enum ebb_status pack(const struct ebb_pool *pool, struct ebb_pool_source *source,
                            uint64_t time_limit_ns, uint64_t *height_bytes, struct ebb_error *error)
{
    struct ebb_pool_blocks blocks;
    source->unroll = pool->unrolls;
    enum ebb_status status = ebb__pool_from_model(source, &blocks, error);
    if (status)
        return status;
    struct ebb_pool_problem problem = {.buffers = blocks.buffers,
                                       .count = blocks.count,
                                       .period = blocks.period,
                                       .capacity_bytes = EBB_POOL_NO_CAPACITY,
                                       .time_limit_ns = time_limit_ns};
    if (!time_limit_ns)
        problem.effort_steps = ebb__tuning()->pack_steps / 5;
    struct ebb_pool_solution solution = {.offsets = NULL};
    status = ebb__check_residencies(source, &blocks, error);
    if (!status)
        status = ebb__pool_solve_by(pool, &problem, &solution, error);
    if (!status) {
        status = ebb__check_packing(&problem, &solution, error);
        *height_bytes = solution.height_bytes;
        ebb__pool_solution_fini(&solution);
    }
    ebb__pool_blocks_fini(&blocks);
    return status;
}

enum ebb_status ebb__compare_hold(struct ebb_comparison *comparison, uint32_t index,
                                  struct ebb_error *error)
{
    struct ebb_compare_trace *trace = &comparison->traces.items[index];
    struct ebb_event_span span = {trace->loaded.trace.events, trace->loaded.trace.count};
    enum ebb_status status = EBB_OK;
    for (size_t i = 0; !status && ebb__peer_name(i); i++) {
        struct ebb_compare_held held = {index, ebb__peer_name(i), "trace", {0}};
        status = ebb__peer_footprint(held.allocator, span, &held.footprint, error);
        if (!status && !ebb_vec_push(&comparison->held, held))
            status = no_memory(error);
        if (strcmp(held.allocator, "cnmem") == 0)
            trace->cnmem_bytes = held.footprint.peak_held_bytes;
    }
    const struct ebb_model *model = &trace->loaded.analysis.model;
    struct ebb_pool_source source = {.model = model};
    size_t published;
    const struct ebb_pool *pools = ebb__lab_pools(&published);
    for (size_t i = 0; !status && i <= published; i++) {
        const struct ebb_pool *pool = i ? &pools[i - 1] : ebb__pool_at(0);
        struct ebb_compare_held held = {index, pool->name, "iteration", {0}};
        held.footprint.peak_load_bytes = model->peak_bytes;
        status = pack(pool, &source, 0, &held.footprint.peak_held_bytes, error);
        if (!status && !ebb_vec_push(&comparison->held, held))
            status = no_memory(error);
    }
    return status;
}

enum ebb_status ebb__compare_pack(struct ebb_comparison *comparison,
                                  const struct ebb_compare_packed *packed, struct ebb_error *error)
{
    const struct ebb_compare_list *list = comparison->list;
    const struct ebb_plan *plan = packed->plan;
    enum ebb_status status = EBB_OK;
    if (plan->rules.share_count || plan->rules.keeps_all)
        return EBB_OK;
    struct ebb_pool_source source = {.model = packed->model,
                                     .absences = plan->absences,
                                     .absence_count = plan->absence_count,
                                     .page_bytes = packed->page_bytes};
    for (size_t i = 0; !status && i < list->pools.count; i++) {
        struct ebb_compare_height height = {.row = (uint32_t)comparison->rows.count - 1,
                                            .pool = list->pools.items[i]->name};
        status = pack(list->pools.items[i], &source, list->given.time_limit_ns,
                      &height.height_bytes, error);
        if (!status && !ebb_vec_push(&comparison->heights, height))
            status = no_memory(error);
    }
    return status;
}
