/* The best path of one block: dynamic programming over its uses.
 *
 * A use finds the block in one of three states. It is slow, or in fast memory: clean if the slow
 * tier has a valid copy, dirty if not. In the gap behind it the block stays, or is copied out, or
 * in, or both. A copy is given the shortest window in which the lane has time for it and memory
 * holds it. The program waits for what the window does not hide. All other blocks are as they
 * are. The path of a persistent block is a circle: each state of its first use is tried.
 * O(operations + uses). */
#include "lab/tier/deeptm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum state { SLOW, CLEAN, DIRTY, STATES };
#define NEVER 1e300

/* What a gap offers. Costs are in ns, prices of memory included. */
struct gap {
    uint32_t first, span; /* operations */
    double stay_cost;     /* NEVER if memory does not hold the block */
    double out_cost, in_cost;
    struct ebb_deeptm_copy out, in;
    bool both; /* the windows do not overlap */
};

struct walk {
    struct ebb_deeptm *it;
    const struct ebb_operation_block *block;
    uint32_t index;
    uint64_t bytes;
    bool ignores_budget;
    double copy_ns[2]; /* out, in */
};

static bool has_room(const struct walk *walk, uint32_t at)
{
    return walk->ignores_budget ||
           walk->it->used_bytes[at] + walk->bytes <= walk->it->request->budget_bytes;
}

static bool has_rooms(const struct walk *walk, uint32_t first, uint32_t span)
{
    uint32_t count = walk->it->operations->count;
    if (walk->ignores_budget)
        return true;
    for (uint32_t i = 0, at = first; i < span; i++, at = at + 1 == count ? 0 : at + 1)
        if (!has_room(walk, at))
            return false;
    return true;
}

/* The price of the block's bytes in some operations. */
static double price(const struct walk *walk, uint32_t first, uint32_t span)
{
    const double *sum = walk->it->price_sum;
    uint32_t count = walk->it->operations->count, end = first + span;
    double ns = end <= count ? sum[end] - sum[first] : sum[count] - sum[first] + sum[end - count];
    return ns * walk->it->price_factor * (double)walk->bytes;
}

/* Time that a lane still has in an operation. */
static double lane_free(const struct walk *walk, bool in, uint32_t at)
{
    const struct ebb_deeptm *it = walk->it;
    double used = it->lane_ns[in && it->request->machine->duplex][at];
    double free_ns = (double)it->operations->items[at].ns - used;
    return free_ns > 0 ? free_ns : 0;
}

static void out_find(const struct walk *walk, struct gap *gap)
{
    uint32_t count = walk->it->operations->count, at = gap->first, span = 0;
    double slack_ns = walk->copy_ns[0] * (walk->it->slack - 1);
    double need_ns = walk->copy_ns[0] + slack_ns;
    while (walk->it->options.asynchronous && span < gap->span && need_ns > 0 &&
           has_room(walk, at)) {
        need_ns -= lane_free(walk, false, at);
        at = at + 1 == count ? 0 : at + 1;
        span++;
    }
    gap->out = (struct ebb_deeptm_copy){
        .made = true, .start = gap->first, .first = at, .wait_ns = fmax(0, need_ns - slack_ns)};
    gap->out_cost = gap->out.wait_ns + price(walk, gap->first, span);
}

static void in_find(const struct walk *walk, struct gap *gap)
{
    uint32_t count = walk->it->operations->count, span = 0;
    uint32_t end = (gap->first + gap->span) % count, at = end;
    double slack_ns = walk->copy_ns[1] * (walk->it->slack - 1);
    double need_ns = walk->copy_ns[1] + slack_ns;
    while (walk->it->options.asynchronous && span < gap->span && need_ns > 0) {
        uint32_t before = at ? at - 1 : count - 1;
        if (!has_room(walk, before))
            break;
        need_ns -= lane_free(walk, true, before);
        at = before;
        span++;
    }
    gap->in = (struct ebb_deeptm_copy){
        .made = true, .start = at, .first = end, .wait_ns = fmax(0, need_ns - slack_ns)};
    gap->in_cost = gap->in.wait_ns + price(walk, at, span);
}

static void gap_find(const struct walk *walk, uint32_t i, struct gap *gap)
{
    const struct ebb_operations *operations = walk->it->operations;
    uint32_t count = operations->count;
    uint32_t at = ebb__block_use(operations, walk->index, i)->operation;
    uint32_t next =
        ebb__block_use(operations, walk->index, (i + 1) % walk->block->use_count)->operation;
    gap->first = at + 1 == count ? 0 : at + 1;
    gap->span = ebb__operations_between(operations, gap->first, next);
    gap->stay_cost =
        has_rooms(walk, gap->first, gap->span) ? price(walk, gap->first, gap->span) : NEVER;
    out_find(walk, gap);
    in_find(walk, gap);
    uint32_t out_end = ebb__operations_between(operations, gap->first, gap->out.first);
    uint32_t in_begin = ebb__operations_between(operations, gap->first, gap->in.start);
    gap->both = gap->span > 0 && out_end <= in_begin && out_end < gap->span;
}

/* The cost of a use in a tier. */
static double use_cost(const struct walk *walk, uint32_t i, bool fast)
{
    const struct ebb_deeptm *it = walk->it;
    uint32_t at = ebb__block_use(it->operations, walk->index, i)->operation;
    uint32_t order = walk->block->first_use + i;
    double without = it->operand_ns[at];
    double with = without + (fast ? it->fast_ns : it->slow_ns)[order];
    double more =
        ebb__deeptm_operation_ns(it, at, with) - ebb__deeptm_operation_ns(it, at, without);
    if (fast)
        return has_room(walk, at) ? more + price(walk, at, 1) : NEVER;
    return more + ebb__use_latency_ns(it->request->machine, 1);
}

/* How a state is reached: the state before, and what happened in the gap. */
struct step {
    double cost;
    uint8_t from;
    bool stays, out, in, drops;
};

static void offer(struct step *to, const struct step *from, uint8_t state, double cost,
                  struct step how)
{
    if (from->cost + cost >= to->cost)
        return;
    how.cost = from->cost + cost;
    how.from = state;
    *to = how;
}

/* From the states of one use to those of the next. */
static void gap_pass(const struct gap *gap, const struct step *before, bool writes,
                     double slow_cost, double fast_cost, struct step *after)
{
    for (int s = 0; s < STATES; s++)
        after[s].cost = NEVER;
    int clean = writes ? DIRTY : CLEAN;
    offer(&after[SLOW], &before[SLOW], SLOW, slow_cost, (struct step){0});
    offer(&after[clean], &before[SLOW], SLOW, gap->in_cost + fast_cost, (struct step){.in = true});
    if (gap->stay_cost < NEVER) {
        offer(&after[clean], &before[CLEAN], CLEAN, gap->stay_cost + fast_cost,
              (struct step){.stays = true});
        offer(&after[DIRTY], &before[DIRTY], DIRTY, gap->stay_cost + fast_cost,
              (struct step){.stays = true});
    }
    offer(&after[SLOW], &before[CLEAN], CLEAN, slow_cost, (struct step){.drops = true});
    offer(&after[SLOW], &before[DIRTY], DIRTY, gap->out_cost + slow_cost,
          (struct step){.out = true});
    if (gap->span > 0)
        offer(&after[clean], &before[CLEAN], CLEAN, gap->in_cost + fast_cost,
              (struct step){.drops = true, .in = true});
    if (gap->both)
        offer(&after[clean], &before[DIRTY], DIRTY, gap->out_cost + gap->in_cost + fast_cost,
              (struct step){.out = true, .in = true});
    if (fast_cost >= NEVER)
        after[CLEAN].cost = after[DIRTY].cost = NEVER;
}

#define USES_MOST 4096 /* blocks with more uses stay in the slow tier; arbitrary */

/* The steps and gaps of one block. */
struct ebb_deeptm_table {
    struct step steps[USES_MOST + 1][STATES];
    struct gap gaps[USES_MOST];
};

static bool is_written(const struct walk *walk, uint32_t i)
{
    return ebb__block_use(walk->it->operations, walk->index, i)->write_bytes > 0;
}

/* The first use of a block that is born: its tier is free to choose. */
static void birth_steps(const struct walk *walk, struct step *first)
{
    const struct ebb_operations *operations = walk->it->operations;
    uint32_t birth = ebb__tier_birth(operations, walk->index);
    uint32_t at = ebb__block_use(operations, walk->index, 0)->operation;
    uint32_t span = ebb__operations_between(operations, birth, at);
    first[SLOW] = (struct step){.cost = use_cost(walk, 0, false)};
    first[CLEAN].cost = NEVER;
    first[DIRTY] = (struct step){.cost = NEVER};
    double fast = use_cost(walk, 0, true);
    if (fast < NEVER && has_rooms(walk, birth, span))
        first[DIRTY].cost = fast + price(walk, birth, span);
}

/* Behind the last use a block keeps its tier until it is freed. */
static double tail_cost(const struct walk *walk, bool fast)
{
    const struct ebb_operations *operations = walk->it->operations;
    uint32_t birth = ebb__tier_birth(operations, walk->index);
    uint32_t at = ebb__block_use(operations, walk->index, walk->block->use_count - 1)->operation;
    uint32_t span = walk->block->span - 1 - ebb__operations_between(operations, birth, at);
    uint32_t first = at + 1 == operations->count ? 0 : at + 1;
    if (!fast)
        return 0;
    return has_rooms(walk, first, span) ? price(walk, first, span) : NEVER;
}

/* Writes the path that ends in `state` behind use `last`. */
static void path_write(const struct walk *walk, const struct ebb_deeptm_table *table, uint32_t last,
                       uint8_t state)
{
    struct ebb_deeptm_use *uses = &walk->it->uses[walk->block->first_use];
    uint32_t count = walk->block->use_count;
    for (uint32_t i = last;; i--) {
        uses[i % count].fast = state != SLOW;
        if (i == 0)
            break;
        const struct step *step = &table->steps[i][state];
        const struct gap *gap = &table->gaps[i - 1];
        struct ebb_deeptm_use *use = &uses[i - 1];
        use->stays = step->stays;
        use->drops = step->drops;
        use->out = step->out ? gap->out : (struct ebb_deeptm_copy){0};
        if (step->drops)
            use->out = (struct ebb_deeptm_copy){.start = gap->first, .first = gap->first};
        use->in = step->in ? gap->in : (struct ebb_deeptm_copy){0};
        state = step->from;
    }
}

static void pass(const struct walk *walk, struct ebb_deeptm_table *table, uint32_t to)
{
    for (uint32_t i = 1; i <= to; i++) {
        uint32_t use = i % walk->block->use_count;
        gap_pass(&table->gaps[i - 1], table->steps[i - 1], is_written(walk, use),
                 use_cost(walk, use, false), use_cost(walk, use, true), table->steps[i]);
    }
}

static void path_line(const struct walk *walk, struct ebb_deeptm_table *table)
{
    uint32_t count = walk->block->use_count;
    struct ebb_deeptm_use *last = &walk->it->uses[walk->block->first_use + count - 1];
    double best = NEVER;
    uint8_t state = SLOW;
    for (uint32_t i = 0; i + 1 < count; i++)
        gap_find(walk, i, &table->gaps[i]);
    birth_steps(walk, table->steps[0]);
    pass(walk, table, count - 1);
    for (uint8_t s = 0; s < STATES; s++) {
        double cost = table->steps[count - 1][s].cost;
        if (cost < NEVER)
            cost += tail_cost(walk, s != SLOW);
        if (cost < best)
            best = cost, state = s;
    }
    path_write(walk, table, count - 1, state);
    *last = (struct ebb_deeptm_use){.fast = state != SLOW, .stays = state != SLOW};
}

static void path_circle(const struct walk *walk, struct ebb_deeptm_table *table)
{
    uint32_t count = walk->block->use_count;
    double best = NEVER;
    uint8_t start = SLOW;
    for (uint32_t i = 0; i < count; i++)
        gap_find(walk, i, &table->gaps[i]);
    for (int round = 0; round <= STATES; round++) {
        uint8_t s = round < STATES ? (uint8_t)round : start;
        if (s == CLEAN && is_written(walk, 0))
            continue;
        for (int other = 0; other < STATES; other++)
            table->steps[0][other] = (struct step){.cost = other == s ? 0 : NEVER};
        pass(walk, table, count);
        if (round < STATES && table->steps[count][s].cost < best)
            best = table->steps[count][s].cost, start = s;
    }
    path_write(walk, table, count, start);
}

void ebb__deeptm_path(struct ebb_deeptm *it, uint32_t block, bool ignores_budget)
{
    const struct ebb_tier_machine *machine = it->request->machine;
    struct walk walk = {.it = it,
                        .block = &it->operations->blocks[block],
                        .index = block,
                        .bytes = ebb__deeptm_bytes(it, block),
                        .ignores_budget = ignores_budget};
    walk.copy_ns[0] = (double)ebb__lane_ns(&machine->out, walk.bytes);
    walk.copy_ns[1] = (double)ebb__lane_ns(&machine->in, walk.bytes);
    struct ebb_deeptm_use *uses = &it->uses[walk.block->first_use];
    memset(uses, 0, walk.block->use_count * sizeof *uses);
    if (!it->table)
        it->table = malloc(sizeof *it->table);
    if (!it->table || walk.block->use_count == 0 || walk.block->use_count > USES_MOST)
        return; /* it stays in the slow tier */
    if (walk.block->persistent)
        path_circle(&walk, it->table);
    else
        path_line(&walk, it->table);
}
