/* Method: units.c finds which units are parts. Then the model is rewritten: parts replace their
 * block, and uses of units become uses of parts. A part that is not its block's first gets an ALLOC
 * before its first use and a FREE with its block's. */
#include "parts.h"

#include "division.h"

#include "base/geometry.h"

#include <string.h>

/* The part of `block` that contains `unit`. O(log parts). */
static uint32_t part_of(const struct division *division, uint32_t block, uint32_t unit)
{
    uint32_t low = division->first_part[block], high = division->last_part[block];
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (division->parts.items[middle].first <= unit)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static int by_use_of_part(const void *left, const void *right)
{
    const struct use *a = left, *b = right; /* `unit` is here the part */
    if (a->unit != b->unit)
        return a->unit < b->unit ? -1 : 1;
    return a->position < b->position ? -1 : a->position > b->position;
}

/* Does `use` follow `before`, of the same part and operation, so closely that no plan tells them
 * apart? */
static bool follows(const struct division *division, const struct use *before,
                    const struct use *use)
{
    const struct ebb_model *model = division->old;
    uint32_t from = (uint32_t)(before->position % model->tick_count);
    uint32_t to = (uint32_t)(use->position % model->tick_count);
    if (before->unit != use->unit || before->operation != use->operation || model->events[to].clock)
        return false;
    uint32_t start = model->events[from].clock ? from : division->clock_before[from];
    return ebb__model_ns_between(model, from, to) < ebb__model_time_error_ns(model, start, from);
}

/* Converts uses of units to uses of parts. Those that follow closely are left out. */
static void merge_uses(struct division *division)
{
    uint32_t count = division->old->tick_count;
    struct use *uses = division->uses.items;
    size_t kept = 0;
    for (size_t i = 0; i < division->uses.count; i++) {
        uses[i].unit = part_of(division, uses[i].block, uses[i].unit);
        division->part_at[uses[i].position % count] = uses[i].unit;
    }
    if (division->uses.count)
        qsort(uses, division->uses.count, sizeof *uses, by_use_of_part);
    for (size_t i = 0; i < division->uses.count; i++) {
        if (!kept || !follows(division, &uses[kept - 1], &uses[i])) {
            uses[kept++] = uses[i];
            continue;
        }
        division->dropped[uses[i].position % count] = true;
        if (uses[i].access == EBB_ACCESS_WRITE)
            uses[kept - 1].access = EBB_ACCESS_WRITE;
    }
    division->uses.count = kept;
}

/* True for a part that is its whole block: it is not made. */
static bool is_whole(const struct division *division, uint32_t part)
{
    const struct part *p = &division->parts.items[part];
    uint64_t size = division->old->blocks[p->block].size_bytes;
    return p->first == 0 && p->count * EBB_HUGE_BYTES >= size;
}

static bool number_blocks(struct division *division)
{
    const struct ebb_model *model = division->old;
    uint32_t made = 0;
    for (uint32_t i = 0; i < model->block_count; i++) {
        division->made_block[i] = made;
        uint32_t part = division->first_part[i];
        if (part == EBB_TICK_NONE) {
            made++;
            continue;
        }
        for (; part < division->last_part[i]; part++)
            division->parts.items[part].made = made++;
    }
    division->made.block_count = made;
    division->made.blocks = calloc((size_t)made + 1, sizeof *division->made.blocks);
    return division->made.blocks != NULL;
}

/* An event that a part adds behind an old one. */
struct added {
    uint32_t tick; /* old tick */
    uint32_t part;
    bool begins;
};

static int by_place(const void *left, const void *right)
{
    const struct added *a = left, *b = right;
    if (a->tick != b->tick)
        return a->tick < b->tick ? -1 : 1;
    if (a->begins != b->begins)
        return a->begins ? 1 : -1;
    return a->part < b->part ? -1 : a->part > b->part;
}

/* The event before the operation at `position`, not before `from`: a clock event, or the last use
 * of another operation. */
static uint64_t operation_begin(const struct division *division, uint64_t position, uint64_t from)
{
    const struct ebb_model *model = division->old;
    uint32_t own = division->operations[position % model->tick_count];
    while (position > from && !model->events[position % model->tick_count].clock &&
           division->operations[position % model->tick_count] == own)
        position--;
    return position;
}

typedef EBB_VEC(struct added) added_vec;

static bool collect_added(struct division *division, added_vec *added)
{
    const struct ebb_model *model = division->old;
    for (uint32_t i = 0; i < division->parts.count; i++) {
        struct part *part = &division->parts.items[i];
        const struct ebb_model_block *block = &model->blocks[part->block];
        if (block->alloc_tick == EBB_TICK_NONE || i == division->first_part[part->block])
            continue;
        part->first_position = operation_begin(division, part->first_position, block->alloc_tick);
        uint32_t begin = (uint32_t)(part->first_position % model->tick_count);
        if (!ebb_vec_push(added, ((struct added){begin, i, true})) ||
            !ebb_vec_push(added, ((struct added){block->free_tick, i, false})))
            return false;
    }
    if (added->count)
        qsort(added->items, added->count, sizeof *added->items, by_place);
    return true;
}

static bool write_events(struct division *division)
{
    const struct ebb_model *old = division->old;
    struct ebb_model *made = &division->made;
    added_vec added = {0};
    size_t most = old->tick_count + 2 * division->parts.count;
    made->events = calloc(most + 1, sizeof *made->events);
    made->time_ns = calloc(most + 1, sizeof *made->time_ns);
    if (!made->events || !made->time_ns || !collect_added(division, &added)) {
        ebb_vec_free(&added);
        return false;
    }
    uint32_t count = 0;
    size_t next = 0;
    for (uint32_t tick = 0; tick < old->tick_count; tick++) {
        division->made_tick[tick] = count;
        if (!division->dropped[tick]) {
            made->events[count] = old->events[tick];
            made->time_ns[count] = old->time_ns[tick];
            uint32_t part = division->part_at[tick], block = old->events[tick].block;
            if (part != EBB_TICK_NONE)
                made->events[count].block = division->parts.items[part].made;
            else if (block != EBB_TICK_NONE)
                made->events[count].block = division->made_block[block];
            count++;
        }
        for (; next < added.count && added.items[next].tick == tick; next++) {
            uint32_t part = added.items[next].part;
            bool begins = added.items[next].begins;
            *(begins ? &division->alloc_tick[part] : &division->free_tick[part]) = count;
            made->events[count].block = division->parts.items[part].made;
            made->events[count].kind = begins ? EBB_EVENT_ALLOC : EBB_EVENT_FREE;
            made->time_ns[count++] = old->time_ns[tick];
        }
    }
    made->time_ns[count] = ebb__model_iteration_ns(old);
    made->tick_count = count;
    ebb_vec_free(&added);
    return true;
}

/* Sets the lifetime from old position `begin`, as new tick `alloc`, to the FREE of `old`. */
static bool set_lifetime(const struct division *division, const struct ebb_model_block *old,
                         uint64_t begin, uint32_t alloc, uint32_t end, struct ebb_model_block *made)
{
    uint64_t count = division->old->tick_count, made_count = division->made.tick_count;
    uint64_t turns = (old->alloc_tick + (uint64_t)old->span_ticks) / count - begin / count;
    uint64_t span = turns * made_count + end - alloc;
    made->alloc_tick = alloc;
    made->free_tick = end;
    made->span_ticks = (uint32_t)span;
    return span < EBB_TICK_NONE;
}

static bool write_blocks(struct division *division)
{
    const struct ebb_model *old = division->old;
    const struct ebb_model *made = &division->made;
    for (uint32_t i = 0; i < old->block_count; i++) {
        const struct ebb_model_block *block = &old->blocks[i];
        bool persistent = block->alloc_tick == EBB_TICK_NONE;
        uint32_t alloc = persistent ? 0 : division->made_tick[block->alloc_tick];
        uint32_t end = persistent ? 0 : division->made_tick[block->free_tick];
        uint32_t first = division->first_part[i];
        uint32_t last = division->last_part[i];
        struct ebb_model_block *out = &made->blocks[division->made_block[i]];
        *out = *block;
        out->span_ticks = made->tick_count;
        if (!persistent && !set_lifetime(division, block, block->alloc_tick, alloc, end, out))
            return false;
        if (first == EBB_TICK_NONE || (last == first + 1 && is_whole(division, first)))
            continue;
        for (uint32_t p = first; p < last; p++) {
            const struct part *part = &division->parts.items[p];
            uint64_t begin = part->first * EBB_HUGE_BYTES;
            uint64_t bytes = part->count * EBB_HUGE_BYTES;
            out = &made->blocks[part->made];
            *out = made->blocks[division->made_block[i]];
            out->allocated_bytes = block->size_bytes;
            out->size_bytes = bytes < block->size_bytes - begin ? bytes : block->size_bytes - begin;
            out->part_first = part->first;
            out->part_count = part->count;
            if (p > first && !persistent &&
                !set_lifetime(division, block, part->first_position, division->alloc_tick[p],
                              division->free_tick[p], out))
                return false;
        }
    }
    return true;
}

static bool write_accesses(struct division *division)
{
    const struct ebb_model *old = division->old;
    struct ebb_model *made = &division->made;
    made->accesses = calloc((size_t)old->access_count + 1, sizeof *made->accesses);
    if (!made->accesses)
        return false;
    uint32_t count = 0;
    size_t next = 0; /* uses are in the order of parts, and parts in that of blocks */
    for (uint32_t i = 0; i < old->block_count; i++) {
        const struct ebb_model_block *block = &old->blocks[i];
        uint32_t first = division->first_part[i];
        uint32_t last = division->last_part[i];
        if (first == EBB_TICK_NONE) {
            made->blocks[division->made_block[i]].first_access = count;
            for (uint32_t k = 0; k < block->access_count; k++, count++) {
                made->accesses[count] = old->accesses[block->first_access + k];
                made->accesses[count].tick = division->made_tick[made->accesses[count].tick];
            }
        }
        for (uint32_t p = first; p < last; p++) {
            struct ebb_model_block *out = &made->blocks[division->parts.items[p].made];
            out->first_access = count;
            for (; next < division->uses.count && division->uses.items[next].unit == p; next++) {
                const struct use *use = &division->uses.items[next];
                uint32_t tick = division->made_tick[use->position % old->tick_count];
                made->events[tick].access = use->access;
                made->accesses[count++] =
                    (struct ebb_model_access){.tick = tick, .access = use->access};
            }
            out->access_count = count - out->first_access;
        }
    }
    made->access_count = count;
    made->has_accesses = old->has_accesses;
    return true;
}

/* Marks are events that no part drops. They move to `made`. */
static void move_marks(struct division *division, struct ebb_model *old)
{
    for (uint32_t i = 0; i < old->mark_count; i++)
        old->marks[i].tick = division->made_tick[old->marks[i].tick];
    division->made.marks = old->marks;
    division->made.mark_count = old->mark_count;
    old->marks = NULL;
}

static uint32_t *table(size_t count, bool none)
{
    uint32_t *made = calloc(count + 1, sizeof *made);
    if (made && none)
        memset(made, 0xff, (count + 1) * sizeof *made);
    return made;
}

static enum ebb_status divide(struct division *division)
{
    uint32_t ticks = division->old->tick_count, blocks = division->old->block_count;
    division->first_part = table(blocks, true);
    division->last_part = table(blocks, false);
    division->made_block = table(blocks, false);
    division->operations = table(ticks, false);
    division->clock_before = ebb__model_clocks_before(division->old);
    division->part_at = table(ticks, true);
    division->dropped = calloc((size_t)ticks + 1, sizeof *division->dropped);
    division->made_tick = table(ticks, false);
    if (!division->first_part || !division->last_part || !division->made_block ||
        !division->operations || !division->clock_before || !division->part_at ||
        !division->dropped || !division->made_tick || !ebb__division_collect_uses(division) ||
        !ebb__division_find_parts(division))
        return EBB_ERR_MEMORY;
    merge_uses(division);
    division->alloc_tick = table(division->parts.count, false);
    division->free_tick = table(division->parts.count, false);
    if (!division->alloc_tick || !division->free_tick || !number_blocks(division) ||
        !write_events(division))
        return EBB_ERR_MEMORY;
    if (!write_blocks(division))
        return EBB_ERR_LIMIT;
    return write_accesses(division) ? EBB_OK : EBB_ERR_MEMORY;
}

enum ebb_status ebb__model_divide(struct ebb_model *model, const uint32_t *unit_at_tick)
{
    struct division division = {.old = model, .unit_at_tick = unit_at_tick};
    enum ebb_status status = divide(&division);
    if (!status)
        move_marks(&division, model);
    ebb_vec_free(&division.uses);
    ebb_vec_free(&division.parts);
    free(division.first_part);
    free(division.last_part);
    free(division.made_block);
    free(division.operations);
    free(division.clock_before);
    free(division.part_at);
    free(division.dropped);
    free(division.made_tick);
    free(division.alloc_tick);
    free(division.free_tick);
    ebb__model_fini(status ? &division.made : model);
    if (!status)
        *model = division.made;
    return status;
}
