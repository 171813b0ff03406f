#include "cuda/slabs.h"

#include "base/check.h"
#include "cuda/memory.h"

#include <string.h>

#define STEP CUDA_SLOT_STEP
#define STEPPED 8u /* classes that are multiples of STEP */
#define MOST_LOOKS 8u

static uint32_t class_of(uint64_t bytes)
{
    uint64_t steps = (bytes + STEP - 1) / STEP;
    if (steps <= STEPPED)
        return (uint32_t)(steps ? steps - 1 : 0);
    uint32_t power = 63 - (uint32_t)__builtin_clzll(steps - 1); /* 2^power < steps <= 2^(power+1) */
    return STEPPED + (power - 3) * 4 + (uint32_t)((steps - 1) >> (power - 2) & 3);
}

static uint64_t bytes_of(uint32_t class)
{
    if (class < STEPPED)
        return (class + 1) * (uint64_t)STEP;
    uint32_t power = 3 + (class - STEPPED) / 4;
    return STEP *
           (((uint64_t)1 << power) + (((class - STEPPED) % 4 + 1) * ((uint64_t)1 << (power - 2))));
}

uint64_t ebb__slabs_slot_bytes(uint64_t bytes)
{
    return bytes_of(class_of(bytes));
}

bool ebb__slabs_init(struct cuda_slabs *slabs, struct cuda_table *table,
                     struct cuda_streams *streams)
{
    memset(slabs, 0, sizeof *slabs);
    slabs->table = table;
    slabs->streams = streams;
    slabs->slabs = ebb__cuda_reserve(CUDA_MOST_SLABS * sizeof *slabs->slabs);
    slabs->slots =
        ebb__cuda_reserve((size_t)CUDA_MOST_SLABS * CUDA_SLOTS_MOST * sizeof *slabs->slots);
    slabs->unused_slab = CUDA_NO_SLAB;
    for (uint32_t i = 0; i < CUDA_SLAB_CLASSES; i++)
        slabs->open[i] = CUDA_NO_SLAB;
    return slabs->slabs && slabs->slots;
}

void ebb__slabs_fini(struct cuda_slabs *slabs)
{
    ebb__cuda_unreserve(slabs->slabs, CUDA_MOST_SLABS * sizeof *slabs->slabs);
    ebb__cuda_unreserve(slabs->slots,
                        (size_t)CUDA_MOST_SLABS * CUDA_SLOTS_MOST * sizeof *slabs->slots);
}

static void list(struct cuda_slabs *slabs, uint32_t number)
{
    struct cuda_slab *slab = &slabs->slabs[number];
    slab->is_listed = true;
    slab->previous = CUDA_NO_SLAB;
    slab->next = slabs->open[slab->class];
    if (slab->next != CUDA_NO_SLAB)
        slabs->slabs[slab->next].previous = number;
    slabs->open[slab->class] = number;
}

static void unlist(struct cuda_slabs *slabs, uint32_t number)
{
    struct cuda_slab *slab = &slabs->slabs[number];
    slab->is_listed = false;
    if (slab->next != CUDA_NO_SLAB)
        slabs->slabs[slab->next].previous = slab->previous;
    if (slab->previous != CUDA_NO_SLAB)
        slabs->slabs[slab->previous].next = slab->next;
    else
        slabs->open[slab->class] = slab->next;
}

bool ebb__slabs_add(struct cuda_slabs *slabs, uint64_t bytes, uint32_t unit, uint32_t arrival,
                    const struct cuda_passages *before)
{
    uint32_t number = slabs->unused_slab;
    if (number != CUDA_NO_SLAB)
        slabs->unused_slab = slabs->slabs[number].next;
    else if (slabs->slab_count < CUDA_MOST_SLABS)
        number = slabs->slab_count++;
    else
        return false;
    slabs->slabs[number] = (struct cuda_slab){
        .unit = unit, .class = class_of(bytes), .arrival = arrival, .before = *before};
    uint64_t slot_bytes = bytes_of(slabs->slabs[number].class);
    slabs->slabs[number].address = ebb__table_address(slabs->table, unit);
    slabs->slabs[number].inverse = (((uint64_t)1 << 42) + slot_bytes - 1) / slot_bytes;
    ebb__table_own(slabs->table, unit, 1, CUDA_SLAB_OWNER | number);
    list(slabs, number);
    return true;
}

/* The entry of a free slot that costs least for the stream; it leaves the list of free ones. */
static uint32_t take_free(struct cuda_slabs *slabs, struct cuda_slab *slab, uint32_t stream)
{
    struct cuda_block *blocks = slabs->table->blocks;
    uint32_t *link = &slab->free_head, *best = link;
    unsigned best_cost = 3;
    for (uint32_t looks = 0; *link && looks < MOST_LOOKS && best_cost; looks++) {
        unsigned cost = ebb__passages_cost(slabs->streams, stream, &blocks[*link].uses);
        if (cost < best_cost) {
            best = link;
            best_cost = cost;
        }
        link = &blocks[*link].older;
    }
    uint32_t block = best_cost < 2 ? *best : CUDA_NO_BLOCK;
    if (block)
        *best = blocks[block].older;
    return block;
}

static uint32_t take_new(struct cuda_slabs *slabs, uint32_t number)
{
    struct cuda_slab *slab = &slabs->slabs[number];
    uint64_t slot_bytes = bytes_of(slab->class);
    if ((slab->used_slots + 1) * slot_bytes > EBB_CUDA_UNIT_BYTES)
        return CUDA_NO_BLOCK;
    uint32_t block = ebb__table_take(slabs->table);
    if (!block)
        return CUDA_NO_BLOCK;
    struct cuda_block *entry = &slabs->table->blocks[block];
    entry->is_small = 1;
    entry->first_unit = number;
    entry->unit_count = slab->used_slots;
    entry->address = ebb__table_address(slabs->table, slab->unit) + slab->used_slots * slot_bytes;
    slabs->slots[(size_t)number * CUDA_SLOTS_MOST + slab->used_slots++] = block;
    return block;
}

static bool is_full(const struct cuda_slab *slab)
{
    return !slab->free_head && (slab->used_slots + 1) * bytes_of(slab->class) > EBB_CUDA_UNIT_BYTES;
}

uint32_t ebb__slabs_take(struct cuda_slabs *slabs, uint64_t bytes, uint32_t stream)
{
    uint32_t number = slabs->open[class_of(bytes)];
    for (uint32_t looks = 0; number != CUDA_NO_SLAB && looks < MOST_LOOKS; looks++) {
        struct cuda_slab *slab = &slabs->slabs[number];
        uint32_t next = slab->next;
        uint32_t block = take_free(slabs, slab, stream);
        if (!block)
            block = take_new(slabs, number);
        if (block) {
            struct cuda_block *entry = &slabs->table->blocks[block];
            entry->before = entry->uses;
            ebb__passages_join(&entry->before, slabs->streams, &slab->before);
            entry->uses.count = 0;
            entry->arrival = slab->arrival;
            entry->older = CUDA_NO_BLOCK;
            entry->state = CUDA_BLOCK_RESIDENT;
            slab->live_count++;
            slabs->live_bytes += bytes_of(slab->class);
            if (is_full(slab))
                unlist(slabs, number);
            return block;
        }
        number = next;
    }
    return CUDA_NO_BLOCK;
}

/* All slots are free: the unit is a slab no more. */
static void dissolve(struct cuda_slabs *slabs, uint32_t number, struct cuda_passages *before)
{
    struct cuda_slab *slab = &slabs->slabs[number];
    for (uint32_t i = 0; i < slab->used_slots; i++) {
        uint32_t block = slabs->slots[(size_t)number * CUDA_SLOTS_MOST + i];
        EBB_CHECK_THAT(slabs->table->blocks[block].state == CUDA_BLOCK_FREE);
        ebb__passages_join(before, slabs->streams, &slabs->table->blocks[block].uses);
        slabs->table->blocks[block].is_small = 0;
        ebb__table_give(slabs->table, block);
    }
    ebb__passages_join(before, slabs->streams, &slab->before);
    unlist(slabs, number);
    ebb__table_own(slabs->table, slab->unit, 1, 0);
    slab->next = slabs->unused_slab;
    slabs->unused_slab = number;
}

void ebb__slabs_give(struct cuda_slabs *slabs, uint32_t block, uint32_t *unit,
                     struct cuda_passages *before)
{
    struct cuda_block *entry = &slabs->table->blocks[block];
    uint32_t number = entry->first_unit;
    struct cuda_slab *slab = &slabs->slabs[number];
    *unit = CUDA_NO_UNIT;
    before->count = 0;
    entry->state = CUDA_BLOCK_FREE;
    entry->is_kept = entry->is_fixed = 0;
    entry->arrival = 0;
    entry->before.count = 0;
    entry->older = slab->free_head;
    slab->free_head = block;
    slab->live_count--;
    slabs->live_bytes -= bytes_of(slab->class);
    if (!slab->is_listed)
        list(slabs, number);
    /* One empty slab of a class stays: programs free and allocate in turns. */
    if (slab->live_count || (slabs->open[slab->class] == number && slab->next == CUDA_NO_SLAB))
        return;
    *unit = slab->unit;
    dissolve(slabs, number, before);
}
