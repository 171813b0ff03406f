/* Problem: a program that keeps many tensors in one block uses runs of neighbouring units together.
 * Method: the history of a unit is the list of operations that use it; neighbours with the same
 * history form one part. Two tensors with the same history may share a part. A tensor that does not
 * begin at a unit's border makes the shared unit a part of its own. Units that are never used have
 * no pages and are in no part. Those before the first used unit belong to its part, so that a
 * block's first part is at its start.
 *
 * An operation that uses much of the memory would need all of it at once. If it uses units in
 * order, it counts as several: a concatenation needs its first inputs no longer when it comes to
 * the last. One that uses them at random, as a permutation does, comes back to any of them.
 * O(ticks + accesses log accesses). */
#include "division.h"

#include "base/geometry.h"
#include "base/tuning.h"

static int by_unit(const void *left, const void *right)
{
    const struct use *a = left, *b = right;
    if (a->block != b->block)
        return a->block < b->block ? -1 : 1;
    if (a->unit != b->unit)
        return a->unit < b->unit ? -1 : 1;
    return a->position < b->position ? -1 : a->position > b->position;
}

/* The uses of `block` one by one, in ticks since tick 0 of the iteration of its allocation. */
static uint64_t next_position(const struct ebb_model *model, const struct ebb_model_block *block,
                              uint32_t access, uint64_t position)
{
    uint32_t count = model->tick_count, tick = model->accesses[block->first_access + access].tick;
    return position + (tick + count - position % count) % count;
}

static uint64_t origin(const struct ebb_model_block *block)
{
    return block->alloc_tick == EBB_TICK_NONE ? 0 : block->alloc_tick;
}

static bool is_divided(const struct division *division, const struct ebb_model_block *block)
{
    const struct ebb_model *model = division->old;
    for (uint32_t i = 0; i < block->access_count; i++)
        if (division->unit_at_tick[model->accesses[block->first_access + i].tick] != EBB_TICK_NONE)
            return true;
    return false;
}

/* Bytes that the event uses. */
static uint64_t used_bytes(const struct division *division, uint32_t tick)
{
    const struct ebb_model_event *event = &division->old->events[tick];
    if (event->kind != EBB_EVENT_ACCESS)
        return 0;
    uint64_t bytes = division->old->blocks[event->block].size_bytes;
    bool is_unit = division->unit_at_tick[tick] != EBB_TICK_NONE;
    return is_unit && bytes > EBB_HUGE_BYTES ? EBB_HUGE_BYTES : bytes;
}

enum { LATEST = 8 }; /* a limit: of so many units in turn, one may be the neighbour of the next */

/* What the uses from a tick until the next clock event are. */
struct operation {
    uint64_t bytes;
    uint32_t units, in_order; /* uses of units; of them, those of a neighbour of one used lately */
};

static struct operation look(const struct division *division, uint32_t tick)
{
    const struct ebb_model *model = division->old;
    struct operation operation = {0};
    struct {
        uint32_t block, unit;
    } latest[LATEST];
    for (; tick < model->tick_count && !model->events[tick].clock; tick++) {
        operation.bytes += used_bytes(division, tick);
        uint32_t block = model->events[tick].block, unit = division->unit_at_tick[tick];
        if (unit == EBB_TICK_NONE)
            continue;
        uint32_t known = operation.units < LATEST ? operation.units : LATEST;
        bool is_near = false;
        for (uint32_t i = 0; i < known; i++)
            is_near |= latest[i].block == block && latest[i].unit + 1 >= unit &&
                       latest[i].unit <= unit + 1;
        latest[operation.units % LATEST].block = block;
        latest[operation.units % LATEST].unit = unit;
        operation.units++;
        operation.in_order += is_near;
    }
    return operation;
}

/* Is the operation from `tick` on large, and does it walk over its units in order? */
static bool is_divisible(const struct division *division, uint32_t tick)
{
    struct operation found = look(division, tick);
    return found.bytes * (uint64_t)ebb__tuning()->large_operation_divisor >
               division->old->peak_bytes &&
           found.in_order * 4 >= found.units * 3;
}

/* Numbers the operations. A divisible one ends each time it has used some bytes, if that took long
 * enough for a plan to act in between. */
static void number_operations(struct division *division)
{
    const struct ebb_model *model = division->old;
    uint64_t most = model->peak_bytes / (uint64_t)ebb__tuning()->operation_divisor;
    uint64_t least_ns = (uint64_t)ebb__tuning()->within_ns, bytes = 0, began_ns = 0;
    bool divisible = is_divisible(division, 0);
    for (uint32_t tick = 0; tick < model->tick_count; tick++) {
        bool clock = model->events[tick].clock;
        bytes += used_bytes(division, tick);
        bool ends =
            clock || (divisible && bytes > most && model->time_ns[tick] - began_ns > least_ns);
        division->operations[tick + 1] = division->operations[tick] + ends;
        if (ends) {
            bytes = 0;
            began_ns = model->time_ns[tick];
        }
        if (clock)
            divisible = is_divisible(division, tick + 1);
    }
}

bool ebb__division_collect_uses(struct division *division)
{
    const struct ebb_model *model = division->old;
    uint32_t count = model->tick_count;
    number_operations(division);
    for (uint32_t i = 0; i < model->block_count; i++) {
        const struct ebb_model_block *block = &model->blocks[i];
        if (!is_divided(division, block))
            continue;
        uint64_t position = origin(block);
        for (uint32_t k = 0; k < block->access_count; k++) {
            const struct ebb_model_access *access = &model->accesses[block->first_access + k];
            position = next_position(model, block, k, position);
            uint32_t unit = division->unit_at_tick[access->tick];
            struct use use = {
                .block = i,
                .unit = unit == EBB_TICK_NONE ? 0 : unit,
                .operation = position / count * division->operations[count] +
                             division->operations[access->tick],
                .position = position,
                .access = access->access,
            };
            if (!ebb_vec_push(&division->uses, use))
                return false;
        }
    }
    if (division->uses.count)
        qsort(division->uses.items, division->uses.count, sizeof(struct use), by_unit);
    return true;
}

/* Advances *at to the next operation that uses the same unit. Returns false if there is none. */
static bool next_operation(const struct use *uses, size_t end, size_t *at)
{
    uint64_t operation = uses[*at].operation;
    while (*at < end && uses[*at].operation == operation)
        ++*at;
    return *at < end;
}

/* True if the unit with uses [a, a_end) has the same history as that with [b, b_end). */
static bool is_same(const struct use *uses, size_t a, size_t a_end, size_t b, size_t b_end)
{
    for (;;) {
        if (uses[a].operation != uses[b].operation)
            return false;
        bool more = next_operation(uses, a_end, &a);
        if (more != next_operation(uses, b_end, &b))
            return false;
        if (!more)
            return true;
    }
}

static size_t unit_end(const struct division *division, size_t begin)
{
    const struct use *uses = division->uses.items;
    size_t end = begin;
    while (end < division->uses.count && uses[end].block == uses[begin].block &&
           uses[end].unit == uses[begin].unit)
        end++;
    return end;
}

bool ebb__division_find_parts(struct division *division)
{
    const struct use *uses = division->uses.items;
    size_t last = 0, last_end = 0; /* range of uses of the last unit of the newest part */
    for (size_t begin = 0, end; begin < division->uses.count; begin = end) {
        end = unit_end(division, begin);
        uint32_t block = uses[begin].block, unit = uses[begin].unit;
        struct part *newest =
            division->parts.count ? &division->parts.items[division->parts.count - 1] : NULL;
        bool first = !newest || newest->block != block;
        if (!first && newest->first + newest->count == unit &&
            is_same(uses, last, last_end, begin, end)) {
            newest->count++;
            if (uses[begin].position < newest->first_position)
                newest->first_position = uses[begin].position;
        } else {
            uint32_t from = first ? 0 : unit;
            struct part part = {.block = block,
                                .first = from,
                                .count = unit - from + 1,
                                .first_position = uses[begin].position};
            if (first)
                division->first_part[block] = (uint32_t)division->parts.count;
            if (!ebb_vec_push(&division->parts, part))
                return false;
            division->last_part[block] = (uint32_t)division->parts.count;
        }
        last = begin;
        last_end = end;
    }
    return true;
}
