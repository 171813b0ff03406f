/* Foresight: connects prediction and its rival with the table of blocks.
 *
 * Observation may end and begin again. What the predictor has learnt stays; the rival, and what is
 * known of each block, begin anew. The tables are mapped when the first access is observed. They
 * take memory only for blocks that are used then. */
#include "runtime/reclaim/foresee.h"

#include "base/tuning.h"

/* Prediction may move such a part of what fits beyond its share: it must be able to begin. */
#define ALLOWANCE_DIVISOR 8u
#define BLOCKS_BYTES (MOST_BLOCKS * sizeof(struct foreseen))

void ebb__foresee_fini(struct foresee *foresee)
{
    ebb__core_unmap(foresee->predictor, sizeof *foresee->predictor);
    ebb__core_unmap(foresee->blocks, BLOCKS_BYTES);
    *foresee = (struct foresee){0};
}

/* Time as the predictor has it. */
static uint64_t now(const struct table *table)
{
    return table->uses.touches + table->uses.event_number;
}

static bool is_absent(const struct block *block)
{
    return block->state == BLOCK_EVICTED || block->state == BLOCK_FETCHING;
}

static bool is_noted(const struct block *block)
{
    return block->kind == BLOCK_HEAP;
}

/* What is known of `block`, of its present allocation and in this observation. */
static struct foreseen *known(struct foresee *foresee, const struct table *table,
                              const struct block *block)
{
    struct foreseen *known = &foresee->blocks[ebb__block_index(table, block)];
    uint64_t serial = table->blocks[block->run.head].serial;
    if (known->since != foresee->observations || known->serial != serial) {
        uint32_t birth = known->serial == serial ? known->outlook.birth : 0;
        if (known->since == foresee->observations)
            ebb__rival_freed(&foresee->rival, ebb__block_index(table, block));
        *known = (struct foreseen){.serial = serial, .since = foresee->observations};
        known->outlook.birth = birth;
        known->outlook.used_at = now(table);
    }
    return known;
}

static bool have_tables(struct foresee *foresee)
{
    if (foresee->blocks || foresee->is_lacking)
        return foresee->blocks;
    foresee->predictor = ebb__core_memory(sizeof *foresee->predictor);
    foresee->blocks = ebb__core_memory(BLOCKS_BYTES);
    if (!foresee->predictor || !foresee->blocks) {
        ebb__foresee_fini(foresee);
        foresee->is_lacking = true;
    }
    return foresee->blocks;
}

/* The rival begins with what is in memory. The order is that of the table, for lack of a better. */
static void begin(struct foresee *foresee, struct table *table)
{
    foresee->observations++;
    ebb__predict_break(foresee->predictor);
    ebb__rival_init(&foresee->rival, (char *)foresee->blocks + offsetof(struct foreseen, rival),
                    sizeof *foresee->blocks);
    for (uint32_t i = 1; i <= table->count; i++) {
        const struct block *block = &table->blocks[i];
        if (!is_noted(block) || !ebb__block_is_live(block) || block->state == BLOCK_BARE ||
            block->run.units == 0)
            continue;
        struct foreseen *entry = known(foresee, table, block);
        if (is_absent(block))
            entry->rival.place = RIVAL_ABSENT;
        else
            ebb__rival_used(&foresee->rival, i, block->page_bytes, false);
    }
}

static bool is_on(struct foresee *foresee, struct table *table)
{
    bool on = table->uses.trace && ebb__tuning()->predict && have_tables(foresee);
    if (on && !foresee->is_on)
        begin(foresee, table);
    return foresee->is_on = on;
}

/* The entries of all units of an allocation. */
static uint32_t entries(const struct table *table, const struct block *head)
{
    return ebb__part_has_units(table, head) ? head->run.total_units : 1;
}

void ebb__foresee_alloc(struct foresee *foresee, struct table *table, const struct block *block)
{
    if (!is_on(foresee, table) || !is_noted(block))
        return;
    ebb__predict_alloc(foresee->predictor, block->size_bytes);
    for (uint32_t i = 0, first = ebb__block_index(table, block); i < entries(table, block); i++) {
        struct foreseen *entry = &foresee->blocks[first + i];
        if (entry->since == foresee->observations)
            ebb__rival_freed(&foresee->rival, first + i);
        *entry = (struct foreseen){.serial = block->serial, .since = foresee->observations};
        ebb__predict_born(foresee->predictor, &entry->outlook, now(table));
    }
}

void ebb__foresee_used(struct foresee *foresee, struct table *table, const struct block *block)
{
    if (!is_on(foresee, table) || !is_noted(block))
        return;
    uint32_t index = ebb__block_index(table, block);
    if (block->transfer.queue == QUEUE_OUT)
        ebb__rival_recalled(&foresee->rival, block->page_bytes);
    struct foreseen *entry = known(foresee, table, block);
    ebb__predict_used(foresee->predictor, &entry->outlook, index - block->run.head, now(table));
    /* What was fetched ahead has been counted. */
    bool fetched = is_absent(block) && !entry->fetched;
    entry->fetched = false;
    ebb__rival_used(&foresee->rival, index, block->page_bytes, fetched);
}

void ebb__foresee_freed(struct foresee *foresee, struct table *table, const struct block *block)
{
    if (!is_on(foresee, table) || !is_noted(block))
        return;
    for (uint32_t i = 0, first = ebb__block_index(table, block); i < entries(table, block); i++) {
        struct foreseen *entry = &foresee->blocks[first + i];
        if (entry->since != foresee->observations || entry->serial != block->serial)
            continue;
        ebb__predict_freed(foresee->predictor, &entry->outlook, now(table));
        ebb__rival_freed(&foresee->rival, first + i);
    }
}

bool ebb__foresee_leads(struct foresee *foresee, struct table *table)
{
    return is_on(foresee, table) &&
           ebb__rival_is_beaten(&foresee->rival, ebb__tuning()->predict_excess, ALLOWANCE_DIVISOR);
}

uint64_t ebb__foresee_distance(const struct foresee *foresee, const struct table *table,
                               const struct block *block)
{
    const struct foreseen *entry = &foresee->blocks[ebb__block_index(table, block)];
    bool is_known = entry->since == foresee->observations &&
                    entry->serial == table->blocks[block->run.head].serial;
    if (block->use.open || block->use.last >= table->uses.event_number)
        return 0;
    if (is_known)
        return ebb__predict_distance(&entry->outlook, now(table));
    /* Never used in this observation: by its age, which counts operations only. */
    return table->uses.event_number - block->use.last;
}

uint64_t ebb__foresee_ahead(const struct foresee *foresee, const struct table *table,
                            const struct block *block)
{
    const struct foreseen *entry = &foresee->blocks[ebb__block_index(table, block)];
    const struct outlook *outlook = &entry->outlook;
    bool is_known = is_noted(block) && entry->since == foresee->observations &&
                    entry->serial == table->blocks[block->run.head].serial;
    return is_known && !outlook->is_last && outlook->next_at > now(table)
               ? outlook->next_at - now(table)
               : UINT64_MAX;
}

void ebb__foresee_fetched(struct foresee *foresee, struct table *table, const struct block *block)
{
    known(foresee, table, block)->fetched = true;
    ebb__rival_fetched(&foresee->rival, block->page_bytes);
}

void ebb__foresee_evicted(struct foresee *foresee, struct table *table, const struct block *block,
                          uint64_t capacity_bytes)
{
    if (is_on(foresee, table) && is_noted(block))
        ebb__rival_evicted(&foresee->rival, block->page_bytes, capacity_bytes);
}

bool ebb__foresee_keeps_copy(struct foresee *foresee, struct table *table,
                             const struct block *block)
{
    const struct ebb_extents *extents = &table->copies.extents;
    if (!is_on(foresee, table) || !ebb__tuning()->predict_copies || !is_noted(block) ||
        extents->used_bytes > extents->limit_bytes / 2)
        return false;
    struct outlook *outlook = &known(foresee, table, block)->outlook;
    return ebb__predict_is_unchanged(outlook);
}

bool ebb__foresee_changed(struct foresee *foresee, struct table *table, const struct block *block)
{
    /* It may have been kept before a plan came into force. */
    if (!foresee->blocks || !is_noted(block))
        return false;
    struct foreseen *entry = &foresee->blocks[ebb__block_index(table, block)];
    if (entry->serial != table->blocks[block->run.head].serial || !entry->outlook.kept_key)
        return false;
    ebb__predict_changed(foresee->predictor, &entry->outlook);
    return true;
}
