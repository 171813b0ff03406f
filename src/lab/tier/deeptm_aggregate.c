/* Page-level aggregation: small blocks of like heat share pages, and move together.
 *
 * Blocks are alike if they have the same lifetime and are used at nearly the same operations. They
 * become one block of the sum of their sizes. So less of their pages is wasted, they take one
 * transfer, and the plan has fewer decisions. */
#include "lab/tier/deeptm.h"

#include <stdlib.h>
#include <string.h>

#define SMALL_BYTES ((uint64_t)1 << 20)  /* larger blocks gain nothing from sharing */
#define MERGED_BYTES ((uint64_t)4 << 20) /* about the bytes that move at full bandwidth */
#define NEAR 16                          /* operations between uses that are alike */

/* A candidate, with what it is sorted by. */
struct candidate {
    const struct ebb_operation_block *of;
    uint32_t block, first_use;
};

static int by_number(uint32_t a, uint32_t b)
{
    return (a > b) - (a < b);
}

static int by_likeness(const void *left, const void *right)
{
    const struct candidate *a = left, *b = right;
    int order = by_number(b->of->persistent, a->of->persistent);
    if (!order)
        order = by_number(a->of->first, b->of->first);
    if (!order)
        order = by_number(a->of->span, b->of->span);
    if (!order)
        order = by_number(a->of->use_count, b->of->use_count);
    if (!order)
        order = by_number(a->first_use, b->first_use);
    return order ? order : by_number(a->block, b->block);
}

static bool is_alike(const struct ebb_operations *operations, const struct candidate *a,
                     const struct candidate *b)
{
    if (a->of->persistent != b->of->persistent || a->of->first != b->of->first ||
        a->of->span != b->of->span || a->of->use_count != b->of->use_count)
        return false;
    for (uint32_t i = 0; i < a->of->use_count; i++) {
        uint32_t x = ebb__block_use(operations, a->block, i)->operation;
        uint32_t y = ebb__block_use(operations, b->block, i)->operation;
        if ((x > y ? x - y : y - x) > NEAR)
            return false;
    }
    return true;
}

/* Gives each block the number of its merged block. Merged blocks are numbered by their first. */
static bool blocks_merge(const struct ebb_operations *operations, uint32_t *merged_of,
                         uint32_t *merged_count)
{
    uint32_t count = 0, blocks = operations->block_count;
    struct candidate *small = malloc((blocks + 1) * sizeof *small);
    if (!small)
        return false;
    for (uint32_t b = 0; b < blocks; b++) {
        const struct ebb_operation_block *block = &operations->blocks[b];
        merged_of[b] = b;
        if (block->size_bytes < SMALL_BYTES && block->use_count)
            small[count++] =
                (struct candidate){block, b, ebb__block_use(operations, b, 0)->operation};
    }
    qsort(small, count, sizeof *small, by_likeness);
    for (uint32_t i = 0, first = 0; i < count; i++) {
        uint64_t bytes = 0;
        for (uint32_t k = first; k <= i; k++)
            bytes += small[k].of->size_bytes;
        if (i == first || bytes > MERGED_BYTES || !is_alike(operations, &small[first], &small[i])) {
            first = i;
            continue;
        }
        uint32_t b = small[i].block, leader = merged_of[small[first].block];
        merged_of[b] = leader;
        if (b < leader) /* the leader is the first of them */
            for (uint32_t k = first; k <= i; k++)
                merged_of[small[k].block] = b;
    }
    free(small);
    uint32_t *number = calloc(blocks + 1, sizeof *number);
    for (uint32_t b = 0; number && b < blocks; b++)
        if (merged_of[b] == b)
            number[b] = (*merged_count)++;
    for (uint32_t b = 0; number && b < blocks; b++)
        merged_of[b] = number[merged_of[b]];
    bool ok = number != NULL;
    free(number);
    return ok;
}

static void uses_merge(const struct ebb_operations *operations, const uint32_t *merged_of,
                       struct ebb_operations *made)
{
    for (uint32_t i = 0; i < operations->count; i++) {
        made->items[i] = operations->items[i];
        struct ebb_operation *operation = &made->items[i];
        operation->first_use = made->use_count;
        for (uint32_t u = 0; u < operations->items[i].use_count; u++) {
            const struct ebb_use *use = &operations->uses[operations->items[i].first_use + u];
            uint32_t block = merged_of[use->block], at = operation->first_use;
            while (at < made->use_count && made->uses[at].block != block)
                at++;
            if (at == made->use_count)
                made->uses[made->use_count++] = (struct ebb_use){.operation = i, .block = block};
            made->uses[at].read_bytes += use->read_bytes;
            made->uses[at].write_bytes += use->write_bytes;
        }
        operation->use_count = made->use_count - operation->first_use;
    }
}

enum ebb_status ebb__deeptm_merge(const struct ebb_operations *operations,
                                  struct ebb_deeptm_merged *merged, struct ebb_error *error)
{
    struct ebb_operations *made = &merged->operations;
    *merged = (struct ebb_deeptm_merged){
        .operations = {.count = operations->count, .ns = operations->ns}};
    size_t uses = (size_t)operations->use_count + 1;
    merged->merged_of = calloc((size_t)operations->block_count + 1, sizeof *merged->merged_of);
    made->items = calloc((size_t)operations->count + 1, sizeof *made->items);
    made->uses = calloc(uses, sizeof *made->uses);
    made->order = calloc(uses, sizeof *made->order);
    made->blocks = calloc((size_t)operations->block_count + 1, sizeof *made->blocks);
    if (!merged->merged_of || !made->items || !made->uses || !made->order || !made->blocks ||
        !blocks_merge(operations, merged->merged_of, &made->block_count)) {
        ebb__deeptm_merged_fini(merged);
        return ebb__fail(error, EBB_ERR_MEMORY, "deeptm", "no memory to merge blocks");
    }
    for (uint32_t b = 0; b < operations->block_count; b++) {
        struct ebb_operation_block *block = &made->blocks[merged->merged_of[b]];
        uint64_t bytes = block->size_bytes + operations->blocks[b].size_bytes;
        *block = operations->blocks[b];
        block->size_bytes = bytes;
        block->first_use = block->use_count = 0;
    }
    uses_merge(operations, merged->merged_of, made);
    ebb__operations_order(made);
    return EBB_OK;
}

/* The first block of each merged one, and how many it has. */
static void pages_set(const struct ebb_deeptm_merged *merged, uint32_t block_count,
                      struct ebb_tier_plan *expanded, uint32_t *first_of, uint32_t *count_of)
{
    for (uint32_t b = 0; b < block_count; b++)
        if (count_of[merged->merged_of[b]]++ == 0)
            first_of[merged->merged_of[b]] = b;
    for (uint32_t b = 0; b < block_count; b++) {
        uint32_t m = merged->merged_of[b];
        expanded->pages[b] = count_of[m] > 1 ? first_of[m] : EBB_NO_GROUP;
    }
}

enum ebb_status ebb__deeptm_expand(const struct ebb_operations *operations,
                                   const struct ebb_deeptm_merged *merged,
                                   const struct ebb_tier_plan *plan, struct ebb_tier_plan *expanded,
                                   struct ebb_error *error)
{
    uint32_t blocks = operations->block_count;
    uint32_t *first_of = calloc(plan->block_count + 1, sizeof *first_of);
    uint32_t *count_of = calloc(plan->block_count + 1, sizeof *count_of);
    bool ok = first_of && count_of;
    expanded->stays.count = 0;
    if (ok)
        pages_set(merged, blocks, expanded, first_of, count_of);
    for (uint32_t b = 0; ok && b < blocks; b++) {
        uint32_t m = merged->merged_of[b];
        expanded->first_stay[b] = (uint32_t)expanded->stays.count;
        for (uint32_t s = plan->first_stay[m]; ok && s < plan->first_stay[m + 1]; s++) {
            struct ebb_stay stay = plan->stays.items[s];
            stay.block = b;
            ok = ebb__tier_plan_add(expanded, stay);
        }
    }
    expanded->first_stay[blocks] = (uint32_t)expanded->stays.count;
    free(first_of);
    free(count_of);
    return ok ? EBB_OK : ebb__fail(error, EBB_ERR_MEMORY, "deeptm", "no memory for the plan");
}

void ebb__deeptm_merged_fini(struct ebb_deeptm_merged *merged)
{
    ebb__operations_fini(&merged->operations);
    free(merged->merged_of);
    merged->merged_of = NULL;
}
