/* first-touch: what a system without tiering does. A block lies in fast memory if it fits when it
 * is first touched, otherwise in the slow tier, and never moves. Persistent blocks come first, in
 * the order of their first use; then the others, in the order of their allocation. */
#include "lab/tier/occupancy.h"
#include "lab/tier/policies.h"

#include <stdlib.h>

struct touch {
    uint32_t block, when;
    bool late;
};

static int by_touch(const void *left, const void *right)
{
    const struct touch *a = left, *b = right;
    if (a->late != b->late)
        return a->late - b->late;
    if (a->when != b->when)
        return a->when < b->when ? -1 : 1;
    return (a->block > b->block) - (a->block < b->block);
}

enum ebb_status ebb__tier_first_touch(const struct ebb_tier_request *request, const char *variant,
                                      struct ebb_tier_plan *plan, struct ebb_error *error)
{
    const struct ebb_operations *operations = request->operations;
    uint64_t *used = calloc(operations->count + 1, sizeof *used);
    struct touch *touches = calloc(operations->block_count + 1, sizeof *touches);
    bool ok = used && touches;
    (void)variant;
    for (uint32_t b = 0; ok && b < operations->block_count; b++) {
        const struct ebb_operation_block *block = &operations->blocks[b];
        uint32_t birth = ebb__tier_birth(operations, b);
        if (block->persistent)
            birth = block->use_count ? ebb__block_use(operations, b, 0)->operation : UINT32_MAX;
        touches[b] = (struct touch){b, birth, !block->persistent};
    }
    if (ok)
        qsort(touches, operations->block_count, sizeof *touches, by_touch);
    for (uint32_t i = 0; ok && i < operations->block_count; i++) {
        uint32_t b = touches[i].block, birth = ebb__tier_birth(operations, b);
        const struct ebb_operation_block *block = &operations->blocks[b];
        uint64_t bytes = ebb__tier_bytes(request->machine, block->size_bytes);
        bool fits = ebb__occupancy_fits(used, operations->count, birth, block->span, bytes,
                                        request->budget_bytes);
        if (fits)
            ebb__occupancy_add(used, operations->count, birth, block->span, (int64_t)bytes);
        ok = ebb__tier_plan_add(
            plan, (struct ebb_stay){.block = b, .first = birth, .start = birth, .tier = !fits});
    }
    free(used);
    free(touches);
    return ok ? ebb__tier_plan_close(plan, operations, error)
              : ebb__fail(error, EBB_ERR_MEMORY, "first-touch", "no memory to plan");
}
