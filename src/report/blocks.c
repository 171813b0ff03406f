#include "report/blocks.h"

#include <stdlib.h>
#include <string.h>

#define NO_ROW UINT32_MAX

struct key {
    uint64_t size_bytes;
    uint32_t block;
};

static int by_size(const void *left, const void *right)
{
    const struct key *a = left, *b = right;
    if (a->size_bytes != b->size_bytes)
        return a->size_bytes > b->size_bytes ? -1 : 1;
    return (a->block > b->block) - (a->block < b->block);
}

static uint32_t cell_of(const struct ebb_model *model, uint64_t ns)
{
    uint64_t end_ns = ebb__model_iteration_ns(model);
    uint64_t cell = end_ns ? (uint64_t)((double)ns / (double)end_ns * EBB_BLOCK_HISTORY) : 0;
    return cell < EBB_BLOCK_HISTORY ? (uint32_t)cell : EBB_BLOCK_HISTORY - 1;
}

/* Marks the cells of [from_ns, to_ns), cyclic. Equal times: all, if `is_whole`. */
static void mark(struct ebb_block_row *row, uint32_t from, uint32_t to, bool wraps, char sign)
{
    if (!wraps) {
        for (uint32_t c = from; c <= to; c++)
            row->history[c] = sign;
        return;
    }
    for (uint32_t c = from; c < EBB_BLOCK_HISTORY; c++)
        row->history[c] = sign;
    for (uint32_t c = 0; c <= to; c++)
        row->history[c] = sign;
}

static void mark_life(const struct ebb_model *model, const struct ebb_model_block *block,
                      struct ebb_block_row *row)
{
    if (block->alloc_tick == EBB_TICK_NONE || block->span_ticks >= model->tick_count) {
        memset(row->history, '-', EBB_BLOCK_HISTORY);
        return;
    }
    memset(row->history, ' ', EBB_BLOCK_HISTORY);
    mark(row, cell_of(model, model->time_ns[block->alloc_tick]),
         cell_of(model, model->time_ns[block->free_tick]), block->free_tick <= block->alloc_tick,
         '-');
}

static void fill_row(const struct ebb_model *model, uint32_t index, struct ebb_block_row *row)
{
    const struct ebb_model_block *block = &model->blocks[index];
    *row = (struct ebb_block_row){
        .block = index,
        .serial = block->serial,
        .size_bytes = block->size_bytes,
        .alloc_ns = block->alloc_tick == EBB_TICK_NONE ? 0 : model->time_ns[block->alloc_tick],
        .life_ns = ebb__report_life_ns(model, block),
        .accesses = block->access_count,
        .kind = ebb__report_kind(model, block)};
    mark_life(model, block, row);
}

static void add_gaps(const struct ebb_model *model, const uint32_t *row_of,
                     struct ebb_block_table *table)
{
    for (uint32_t i = 0; i < model->gap_count; i++) {
        const struct ebb_gap *gap = &model->gaps[i];
        if (row_of[gap->block] == NO_ROW)
            continue;
        struct ebb_block_row *row = &table->rows[row_of[gap->block]];
        row->gaps++;
        if (gap->length_ns > row->longest_gap_ns)
            row->longest_gap_ns = gap->length_ns;
    }
}

static void add_absences(const struct ebb_model *model, const struct ebb_plan *plan,
                         const uint32_t *row_of, struct ebb_block_table *table)
{
    for (uint32_t i = 0; i < plan->absence_count; i++) {
        const struct ebb_absence *absence = &plan->absences[i];
        if (row_of[absence->block] == NO_ROW)
            continue;
        struct ebb_block_row *row = &table->rows[row_of[absence->block]];
        uint64_t back_ns = absence->drops ? model->time_ns[absence->to_tick] : absence->in_start_ns;
        row->absences++;
        mark(row, cell_of(model, absence->out_end_ns), cell_of(model, back_ns),
             back_ns < absence->out_end_ns, '~');
    }
}

/* Uses are marked last: a cell may have several signs, and a use tells most. */
static void add_uses(const struct ebb_model *model, struct ebb_block_row *row)
{
    const struct ebb_model_block *block = &model->blocks[row->block];
    for (uint32_t i = 0; i < block->access_count; i++) {
        uint32_t tick = model->accesses[block->first_access + i].tick;
        row->history[cell_of(model, model->time_ns[tick])] = '#';
    }
}

static bool fill(const struct ebb_model *model, const struct ebb_planned *planned,
                 const struct key *keys, struct ebb_block_table *table)
{
    uint32_t *row_of = malloc((model->block_count + 1) * sizeof *row_of);
    if (!row_of)
        return false;
    memset(row_of, 0xff, (model->block_count + 1) * sizeof *row_of);
    for (uint32_t i = 0; i < table->count; i++) {
        row_of[keys[i].block] = i;
        fill_row(model, keys[i].block, &table->rows[i]);
    }
    add_gaps(model, row_of, table);
    if (planned)
        add_absences(model, &planned->plan, row_of, table);
    for (uint32_t i = 0; i < table->count; i++)
        add_uses(model, &table->rows[i]);
    free(row_of);
    return true;
}

enum ebb_status ebb__block_table_init(const struct ebb_model *model,
                                      const struct ebb_planned *planned,
                                      struct ebb_block_table *table, struct ebb_error *error)
{
    struct key *keys = calloc(model->block_count + 1, sizeof *keys);
    *table = (struct ebb_block_table){.total = model->block_count};
    table->count = model->block_count < EBB_BLOCK_ROWS ? model->block_count : EBB_BLOCK_ROWS;
    table->rows = calloc(table->count + 1, sizeof *table->rows);
    bool ok = keys && table->rows;
    if (ok) {
        for (uint32_t b = 0; b < model->block_count; b++)
            keys[b] = (struct key){model->blocks[b].size_bytes, b};
        qsort(keys, model->block_count, sizeof *keys, by_size);
        ok = fill(model, planned, keys, table);
    }
    free(keys);
    if (!ok)
        ebb__block_table_fini(table);
    return ok ? EBB_OK : ebb__fail(error, EBB_ERR_MEMORY, "the table of blocks", "out of memory");
}

void ebb__block_table_fini(struct ebb_block_table *table)
{
    free(table->rows);
    memset(table, 0, sizeof *table);
}
