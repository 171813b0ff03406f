#include "plan/request/compile.h"

#include "base/tuning.h"
#include "base/vec.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(EBB_PLACE_NONE == EBB_SCRIPT_NO_PLACE, "no place is no place");

/* A block is not evicted between uses this close to each other. */
#define CLOSE_US (ebb__tuning()->within_ns / 1000)

struct order_key {
    uint64_t key;
    uint32_t item;
};

static int by_key(const void *left, const void *right)
{
    const struct order_key *a = left, *b = right;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return a->item < b->item ? -1 : a->item > b->item;
}

/* Tables from the model's ticks and blocks to the script's. */
struct compiler {
    const struct ebb_model *model;
    uint32_t *clock_before; /* tick -> position of the last clock event at or before it */
    uint32_t *clock_after;  /* tick -> position of the first clock event after it */
    uint64_t *clock_ns;     /* position -> time */
    uint32_t clock_count;
    uint32_t *block_place; /* model block -> script block */
    uint32_t persistent_count;
};

static bool map_ticks(struct compiler *compiler)
{
    const struct ebb_model *model = compiler->model;
    compiler->clock_before = calloc(model->tick_count, sizeof *compiler->clock_before);
    compiler->clock_after = calloc(model->tick_count, sizeof *compiler->clock_after);
    compiler->clock_ns = calloc(model->tick_count + 1, sizeof *compiler->clock_ns);
    if (!compiler->clock_before || !compiler->clock_after || !compiler->clock_ns)
        return false;
    uint32_t count = 0;
    for (uint32_t tick = 0; tick < model->tick_count; tick++)
        if (model->events[tick].clock)
            compiler->clock_ns[count++] = model->time_ns[tick];
    compiler->clock_count = count;
    uint32_t next = 0;
    for (uint32_t tick = 0; tick < model->tick_count; tick++) {
        bool here = model->events[tick].clock;
        compiler->clock_before[tick] = count ? (next + (here ? 0 : count - 1)) % count : 0;
        next += here;
        compiler->clock_after[tick] = count ? next % count : 0;
    }
    return true;
}

static bool is_persistent(const struct ebb_model_block *block)
{
    return block->alloc_tick == EBB_TICK_NONE;
}

static bool is_later_part(const struct ebb_model *model, uint32_t block)
{
    const struct ebb_model_block *blocks = model->blocks;
    return block < model->block_count && blocks[block].part_count && blocks[block].part_first;
}

/* The number of parts of the block that begins with `block`; 0 if that is a later part. */
static uint32_t parts_from(const struct ebb_model *model, uint32_t block)
{
    uint32_t count = 1;
    if (is_later_part(model, block))
        return 0;
    while (is_later_part(model, block + count))
        count++;
    return count;
}

/* Puts persistent blocks first, by serial, so that the runtime finds them by bisection. */
static bool order_blocks(struct compiler *compiler)
{
    const struct ebb_model *model = compiler->model;
    struct order_key *keys = calloc(model->block_count + 1, sizeof *keys);
    compiler->block_place = calloc(model->block_count + 1, sizeof *compiler->block_place);
    if (!keys || !compiler->block_place) {
        free(keys);
        return false;
    }
    uint32_t count = 0;
    for (uint32_t i = 0; i < model->block_count; i++)
        if (is_persistent(&model->blocks[i]))
            keys[count++] = (struct order_key){model->blocks[i].serial, i};
    qsort(keys, count, sizeof *keys, by_key);
    compiler->persistent_count = count;
    for (uint32_t i = 0; i < count; i++)
        compiler->block_place[keys[i].item] = i;
    for (uint32_t i = 0; i < model->block_count; i++)
        if (!is_persistent(&model->blocks[i]))
            compiler->block_place[i] = count++;
    free(keys);
    return true;
}

/* The last position whose time is at or before `ns` of the iteration; the last of all if `ns`
 * precedes the first. Sets *delay_ns to the remainder. */
static uint32_t position_at(const struct compiler *compiler, uint64_t ns, uint64_t *delay_ns)
{
    uint32_t low = 0, high = compiler->clock_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (compiler->clock_ns[middle] <= ns)
            low = middle + 1;
        else
            high = middle;
    }
    uint32_t position = low ? low - 1 : compiler->clock_count - 1;
    uint64_t whole = ebb__model_iteration_ns(compiler->model);
    *delay_ns = low ? ns - compiler->clock_ns[position] : ns + whole - compiler->clock_ns[position];
    return position;
}

/* Time of `tick` since the clock position before it. */
static uint64_t since_clock(const struct compiler *compiler, uint32_t tick, uint32_t position)
{
    uint64_t turn_ns = ebb__model_iteration_ns(compiler->model);
    if (turn_ns == 0)
        return 0;
    uint64_t tick_ns = compiler->model->time_ns[tick];
    return (tick_ns + turn_ns - compiler->clock_ns[position]) % turn_ns;
}

/* Events may have the time at which a prefetch starts, on both sides of the end of its absence.
 * Where a stall is planned, that is the time of its end, too. Then it starts when it is due. */
static bool is_late(const struct compiler *compiler, const struct ebb_absence *absence,
                    bool is_outside)
{
    const struct ebb_model *model = compiler->model;
    uint64_t turn_ns = ebb__model_iteration_ns(model);
    if (turn_ns == 0)
        return false;
    uint64_t in_ns = absence->in_start_ns % turn_ns;
    uint64_t late_ns = (in_ns + turn_ns - model->time_ns[absence->to_tick]) % turn_ns;
    uint64_t early_ns = (model->time_ns[absence->from_tick] + turn_ns - in_ns) % turn_ns;
    return late_ns == 0 || (is_outside && late_ns < early_ns);
}

static struct ebb_script_absence compile_absence(const struct compiler *compiler,
                                                 const struct ebb_absence *absence)
{
    uint32_t after_margin =
        (absence->from_tick + absence->margin_ticks) % compiler->model->tick_count;
    struct ebb_script_absence compiled = {
        .block = compiler->block_place[absence->block],
        .out_clock = compiler->clock_after[after_margin],
        .in_clock = EBB_SCRIPT_NONE,
        .due_clock = EBB_SCRIPT_NONE,
        .keep_copy = absence->keep_copy,
    };
    if (absence->out_within) {
        compiled.out_clock = compiler->clock_before[after_margin];
        compiled.out_delay_ns = since_clock(compiler, after_margin, compiled.out_clock);
    }
    if (absence->drops)
        return compiled;
    compiled.stall_ns = absence->stall_ns;
    compiled.in_within = absence->in_within;
    compiled.due_clock = compiler->clock_before[absence->to_tick];
    compiled.due_delay_ns = since_clock(compiler, absence->to_tick, compiled.due_clock);
    compiled.in_clock = position_at(compiler, absence->in_start_ns, &compiled.in_delay_ns);
    /* Not before its eviction has begun, and not after it is due. */
    bool is_outside =
        !ebb__script_is_during(compiled.in_clock, compiled.out_clock, compiled.out_delay_ns,
                               compiled.due_clock, compiled.due_delay_ns);
    if (is_late(compiler, absence, is_outside)) {
        compiled.in_clock = compiled.due_clock;
        compiled.in_delay_ns = compiled.due_delay_ns;
    } else if (is_outside) {
        compiled.in_clock = compiled.out_clock;
        compiled.in_delay_ns = compiled.out_delay_ns;
    }
    return compiled;
}

typedef EBB_VEC(struct ebb_script_use) use_vec;

static struct ebb_script_use use_at(const struct compiler *compiler, uint32_t tick)
{
    struct ebb_script_use use = {.clock = compiler->clock_before[tick]};
    if (compiler->model->unordered)
        return use;
    uint64_t within_us = since_clock(compiler, tick, use.clock) / 1000;
    use.within_us = within_us < UINT32_MAX ? (uint32_t)within_us : UINT32_MAX;
    return use;
}

/* Collects the times of a block's uses, ascending. Of several close uses, only the first. */
static bool collect_uses(const struct compiler *compiler, const struct ebb_model_block *block,
                         use_vec *uses, struct ebb_script_block *compiled)
{
    compiled->first_use = (uint32_t)uses->count;
    for (uint32_t i = 0; i < block->access_count; i++) {
        struct ebb_script_use use =
            use_at(compiler, compiler->model->accesses[block->first_access + i].tick);
        const struct ebb_script_use *last =
            uses->count > compiled->first_use ? &uses->items[uses->count - 1] : NULL;
        if (last && last->clock == use.clock && use.within_us < last->within_us + CLOSE_US &&
            use.within_us >= last->within_us)
            continue;
        if (!ebb_vec_push(uses, use))
            return false;
    }
    compiled->use_count = (uint32_t)uses->count - compiled->first_use;
    return true;
}

static uint64_t round_up(uint64_t offset)
{
    return (offset + 7) & ~(uint64_t)7;
}

/* Passive absences are predictions: nobody carries them out by a script. */
static uint32_t count_planned(const struct ebb_plan *plan)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < plan->absence_count; i++)
        count += !plan->absences[i].passive;
    return count;
}

/* Computes sizes and offsets of the script's tables. The uses are last, since their number is not
 * known yet. */
static struct ebb_script layout(const struct compiler *compiler, const struct ebb_plan *plan,
                                const struct ebb_places *places)
{
    const struct ebb_model *model = compiler->model;
    uint64_t peak_bytes = places ? places->peak_bytes : plan->peak_bytes;
    struct ebb_script head = {
        .magic = EBB_SCRIPT_MAGIC,
        .iteration_ns = ebb__model_iteration_ns(model) ? ebb__model_iteration_ns(model) : 1,
        .placement_bytes = places ? places->placement_bytes : 0,
        .peak_bytes = plan->feasible ? peak_bytes : 0,
        .clock_count = compiler->clock_count,
        .block_count = model->block_count,
        .absence_count = count_planned(plan),
        .persistent_count = compiler->persistent_count,
        .alloc_count = ebb__model_count_allocs(model),
        .flags = ebb__model_announced(model) && ebb__model_has_clock_allocs(model)
                     ? EBB_SCRIPT_ANNOUNCED
                     : 0,
    };
    head.flags |= model->varies ? EBB_SCRIPT_BY_SHAPE : 0;
    head.events_offset = round_up(sizeof head);
    head.blocks_offset =
        round_up(head.events_offset + head.clock_count * sizeof(struct ebb_script_event));
    head.absences_offset =
        round_up(head.blocks_offset + head.block_count * sizeof(struct ebb_script_block));
    head.allocs_offset =
        round_up(head.absences_offset + head.absence_count * sizeof(struct ebb_script_absence));
    head.uses_offset = round_up(head.allocs_offset + head.alloc_count * sizeof(uint32_t));
    return head;
}

/* Writes the clock events, and lists the allocations among them by size. */
static void write_events(const struct compiler *compiler, struct ebb_script_event *events,
                         uint32_t *by_size, struct order_key *order)
{
    const struct ebb_model *model = compiler->model;
    uint32_t position = 0, alloc = 0;
    for (uint32_t tick = 0; tick < model->tick_count; tick++) {
        const struct ebb_model_event *event = &model->events[tick];
        if (!event->clock)
            continue;
        const struct ebb_model_block *block = &model->blocks[event->block];
        events[position] = (struct ebb_script_event){
            .size_bytes = block->varies ? EBB_SCRIPT_ANY_SIZE : ebb__model_whole_bytes(block),
            .time_ns = model->time_ns[tick],
            .block = compiler->block_place[event->block],
            .kind = event->kind,
        };
        if (event->kind == EBB_EVENT_ALLOC)
            order[alloc++] = (struct order_key){events[position].size_bytes, position};
        position++;
    }
    qsort(order, alloc, sizeof *order, by_key);
    for (uint32_t i = 0; i < alloc; i++)
        by_size[i] = order[i].item;
}

static bool write_blocks(const struct compiler *compiler, const struct ebb_places *places,
                         struct ebb_script_block *blocks, use_vec *uses)
{
    const struct ebb_model *model = compiler->model;
    for (uint32_t i = 0; i < model->block_count; i++) {
        const struct ebb_model_block *block = &model->blocks[i];
        struct ebb_script_block *compiled = &blocks[compiler->block_place[i]];
        compiled->serial = is_persistent(block) ? block->serial : 0;
        compiled->size_bytes = ebb__model_whole_bytes(block);
        compiled->place = places ? places->offsets[i] : EBB_PLACE_NONE;
        compiled->huge_rounded = places && places->huge_rounded && places->huge_rounded[i];
        compiled->part_first = block->part_first;
        compiled->part_count = block->part_count;
        compiled->parts = parts_from(model, i);
        if (!collect_uses(compiler, block, uses, compiled))
            return false;
    }
    return true;
}

static enum ebb_status assemble(struct compiler *compiler, const struct ebb_plan *plan,
                                const struct ebb_places *places, use_vec *uses,
                                struct ebb_script **result)
{
    const struct ebb_model *model = compiler->model;
    if (compiler->clock_count == 0 || (model->unordered && ebb__model_announced(model)))
        return EBB_ERR_ARGUMENT;
    struct ebb_script head = layout(compiler, plan, places);
    uint64_t most = head.uses_offset + (model->access_count + 1) * sizeof *uses->items;
    char *memory = calloc(1, most);
    struct order_key *order = calloc(head.alloc_count + 1, sizeof *order);
    if (!memory || !order) {
        free(memory);
        free(order);
        return EBB_ERR_MEMORY;
    }
    struct ebb_script_event *events = (struct ebb_script_event *)(memory + head.events_offset);
    write_events(compiler, events, (uint32_t *)(memory + head.allocs_offset), order);
    free(order);
    if (model->unordered && events[0].kind == EBB_EVENT_ALLOC)
        head.flags = EBB_SCRIPT_UNORDERED;
    if (!write_blocks(compiler, places, (struct ebb_script_block *)(memory + head.blocks_offset),
                      uses)) {
        free(memory);
        return EBB_ERR_MEMORY;
    }
    head.use_count = (uint32_t)uses->count;
    if (uses->count)
        memcpy(memory + head.uses_offset, uses->items, uses->count * sizeof *uses->items);
    struct ebb_script_absence *absences =
        (struct ebb_script_absence *)(memory + head.absences_offset);
    for (uint32_t i = 0, place = 0; i < plan->absence_count; i++)
        if (!plan->absences[i].passive)
            absences[place++] = compile_absence(compiler, &plan->absences[i]);
    head.bytes = round_up(head.uses_offset + head.use_count * sizeof *uses->items);
    memcpy(memory, &head, sizeof head);
    *result = (struct ebb_script *)memory;
    return EBB_OK;
}

enum ebb_status ebb__compile_script(const struct ebb_model *model, const struct ebb_plan *plan,
                                    const struct ebb_places *places, struct ebb_script **script)
{
    struct compiler compiler = {.model = model};
    use_vec uses = {0};
    enum ebb_status status = EBB_ERR_MEMORY;
    if (map_ticks(&compiler) && order_blocks(&compiler))
        status = assemble(&compiler, plan, places, &uses, script);
    ebb_vec_free(&uses);
    free(compiler.clock_before);
    free(compiler.clock_after);
    free(compiler.clock_ns);
    free(compiler.block_place);
    return status;
}
