#include "report/map.h"

#include "base/vec.h"
#include "plan/pool/pool.h"

#include <string.h>

#define PACK_STEPS 2000000 /* of effort: some milliseconds */

typedef EBB_VEC(struct ebb_map_rectangle) rectangle_list;

struct builder {
    const struct ebb_model *model;
    const struct ebb_planned *planned;
    const struct ebb_timeline *timeline;
    uint32_t *first, *next; /* by block: its first absence; by absence: the next one of its block */
    rectangle_list list;
};

static bool add(struct builder *builder, uint32_t index, uint64_t start_ns, uint64_t end_ns)
{
    const struct ebb_model_block *block = &builder->model->blocks[index];
    uint64_t iteration_ns = builder->timeline->iteration_ns;
    uint64_t bytes = builder->planned ? ebb__plan_block_bytes(&builder->planned->request, block)
                                      : block->size_bytes;
    start_ns %= iteration_ns;
    if (end_ns > iteration_ns)
        end_ns -= iteration_ns;
    if (end_ns <= start_ns)
        end_ns += iteration_ns;
    struct ebb_map_rectangle rectangle = {.start_ns = start_ns,
                                          .end_ns = end_ns,
                                          .size_bytes = bytes,
                                          .serial = block->serial,
                                          .kind = ebb__report_kind(builder->model, block)};
    return !bytes || ebb_vec_push(&builder->list, rectangle);
}

/* A block's residencies: from its allocation or a copy in, to the next copy out or its free. */
static bool add_residencies(struct builder *builder, uint32_t index)
{
    const struct ebb_model *model = builder->model;
    const struct ebb_model_block *block = &model->blocks[index];
    const struct ebb_timeline *timeline = builder->timeline;
    bool is_persistent =
        block->alloc_tick == EBB_TICK_NONE || block->span_ticks >= model->tick_count;
    uint32_t absence = builder->first ? builder->first[index] : UINT32_MAX;
    uint64_t alloc_ns =
        is_persistent ? 0 : ebb__timeline_after(timeline, model->time_ns[block->alloc_tick]);
    uint64_t free_ns = is_persistent
                           ? timeline->iteration_ns
                           : ebb__timeline_after(timeline, model->time_ns[block->free_tick]);
    if (absence == UINT32_MAX)
        return add(builder, index, alloc_ns, is_persistent ? timeline->iteration_ns : free_ns);
    /* In the order of from_tick since the allocation. */
    uint64_t start_ns = alloc_ns, wrapped_ns = UINT64_MAX;
    bool is_dropped = false, ok = true;
    for (; ok && absence != UINT32_MAX; absence = builder->next[absence]) {
        const struct ebb_timeline_copy *copy = &timeline->copies[absence];
        is_dropped = builder->planned->plan.absences[absence].drops;
        if (is_persistent && wrapped_ns == UINT64_MAX)
            wrapped_ns = copy->out_end_ns; /* the last residency ends here, an iteration later */
        else
            ok = add(builder, index, start_ns, copy->out_end_ns);
        start_ns = copy->in_start_ns;
    }
    if (is_persistent)
        return ok && add(builder, index, start_ns, wrapped_ns);
    return ok && (is_dropped || add(builder, index, start_ns, free_ns));
}

/* Ticks since the block's birth, so that an absence across the iteration's end is in its place. */
static uint32_t age(const struct ebb_model *model, const struct ebb_absence *absence)
{
    uint32_t born = model->blocks[absence->block].alloc_tick;
    if (born == EBB_TICK_NONE)
        return absence->from_tick;
    return absence->from_tick >= born ? absence->from_tick - born
                                      : absence->from_tick + model->tick_count - born;
}

/* Lists the absences of each block by age. A block has few. */
static bool index_absences(struct builder *builder)
{
    const struct ebb_plan *plan = &builder->planned->plan;
    builder->first = malloc((builder->model->block_count + 1) * sizeof *builder->first);
    builder->next = malloc((plan->absence_count + 1) * sizeof *builder->next);
    if (!builder->first || !builder->next)
        return false;
    memset(builder->first, 0xff, (builder->model->block_count + 1) * sizeof *builder->first);
    for (uint32_t i = 0; i < plan->absence_count; i++) {
        uint32_t *at = &builder->first[plan->absences[i].block];
        while (*at != UINT32_MAX &&
               age(builder->model, &plan->absences[*at]) < age(builder->model, &plan->absences[i]))
            at = &builder->next[*at];
        builder->next[i] = *at;
        *at = i;
    }
    return true;
}

static double area(const struct ebb_map_rectangle *rectangle)
{
    return (double)(rectangle->end_ns - rectangle->start_ns) * (double)rectangle->size_bytes;
}

static int by_area(const void *left, const void *right)
{
    double a = area(left), b = area(right);
    return (a < b) - (a > b);
}

static enum ebb_status pack(struct ebb_address_map *map, uint64_t iteration_ns,
                            struct ebb_error *error)
{
    struct ebb_pool_buffer *buffers = calloc(map->count + 1, sizeof *buffers);
    if (!buffers)
        return ebb__fail(error, EBB_ERR_MEMORY, "the address map", "out of memory");
    for (uint32_t i = 0; i < map->count; i++)
        buffers[i] = (struct ebb_pool_buffer){
            map->rectangles[i].start_ns, map->rectangles[i].end_ns, map->rectangles[i].size_bytes};
    struct ebb_pool_problem problem = {.buffers = buffers,
                                       .count = map->count,
                                       .period = iteration_ns,
                                       .capacity_bytes = EBB_POOL_NO_CAPACITY,
                                       .effort_steps = PACK_STEPS};
    struct ebb_pool_solution solution;
    enum ebb_status status = ebb__pool_solve("ebb", &problem, &solution, error);
    if (!status) {
        for (uint32_t i = 0; i < map->count; i++)
            map->rectangles[i].offset_bytes = solution.offsets[i];
        map->height_bytes = solution.height_bytes;
        ebb__pool_solution_fini(&solution);
    }
    free(buffers);
    return status;
}

enum ebb_status ebb__address_map_init(const struct ebb_model *model,
                                      const struct ebb_planned *planned,
                                      const struct ebb_timeline *timeline,
                                      struct ebb_address_map *map, struct ebb_error *error)
{
    struct builder builder = {.model = planned ? planned->request.model : model,
                              .planned = planned,
                              .timeline = timeline};
    memset(map, 0, sizeof *map);
    bool ok = !planned || index_absences(&builder);
    for (uint32_t b = 0; ok && b < model->block_count; b++)
        ok = add_residencies(&builder, b);
    free(builder.first);
    free(builder.next);
    if (!ok) {
        ebb_vec_free(&builder.list);
        return ebb__fail(error, EBB_ERR_MEMORY, "the address map", "out of memory");
    }
    *map = (struct ebb_address_map){.rectangles = builder.list.items,
                                    .total = (uint32_t)builder.list.count};
    if (map->total)
        qsort(map->rectangles, map->total, sizeof *map->rectangles, by_area);
    map->count = map->total < EBB_MAP_RECTANGLES ? map->total : EBB_MAP_RECTANGLES;
    enum ebb_status status = pack(map, timeline->iteration_ns, error);
    if (status)
        ebb__address_map_fini(map);
    return status;
}

void ebb__address_map_fini(struct ebb_address_map *map)
{
    free(map->rectangles);
    memset(map, 0, sizeof *map);
}
