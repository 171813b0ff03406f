/* The integer program of AutoTM, as src/lab/tier/README.md states it.
 *
 * The chain of a block's gadgets has two columns a use: `fast` is for the use itself, `stays` for
 * the gap behind it. `stays` implies fast at both ends of the gap. So a synchronous copy is a
 * difference: out behind a use that is fast and does not stay, in before one. A copy out is paid
 * once for each time that the block was written (`dirty`), and not if it was written in the slow
 * tier. Hidden copies lengthen the operation that hides them instead.
 *
 * An operation's time is a column that is no less than its recorded time, than its bytes in each
 * tier, and than its hidden copies. Operations that can never be longer than recorded have none. */
#include "lab/tier/autotm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define US 1e-3 /* of a ns */

static double pages(const struct ebb_autotm *it, uint64_t bytes)
{
    return (double)(ebb__tier_bytes(it->request->machine, bytes) /
                    it->request->machine->page_bytes);
}

static double copy_us(const struct ebb_autotm *it, uint32_t block, bool out)
{
    const struct ebb_tier_machine *machine = it->request->machine;
    uint64_t bytes = ebb__tier_bytes(machine, it->request->operations->blocks[block].size_bytes);
    return (double)ebb__lane_ns(out ? &machine->out : &machine->in, bytes) * US;
}

static void gaps_find(struct ebb_autotm *it, uint32_t b)
{
    const struct ebb_operations *operations = it->request->operations;
    const struct ebb_operation_block *block = &operations->blocks[b];
    for (uint32_t i = 0; i < block->use_count; i++) {
        struct ebb_autotm_use *use = &it->uses[block->first_use + i];
        uint32_t last = i + 1 == block->use_count;
        use->use = operations->order[block->first_use + i];
        use->fast = use->stays = use->dirty = -1;
        for (int k = 0; k < EBB_AUTOTM_NEAR; k++)
            use->out[k] = use->in[k] = -1;
        uint32_t at = operations->uses[use->use].operation;
        use->gap_first = at + 1 == operations->count ? 0 : at + 1;
        if (last && !block->persistent) {
            use->gap_span = 0;
            continue;
        }
        uint32_t next = ebb__block_use(operations, b, last ? 0 : i + 1)->operation;
        use->gap_span = ebb__operations_between(operations, use->gap_first, next);
        if (block->use_count == 1)
            use->gap_span = operations->count - 1;
    }
}

static void hidden_columns(struct ebb_autotm *it, struct ebb_autotm_use *use, bool dirty)
{
    uint32_t near = use->gap_span / 2 < EBB_AUTOTM_NEAR ? use->gap_span / 2 : EBB_AUTOTM_NEAR;
    for (uint32_t k = 0; k < near; k++) {
        if (dirty)
            use->out[k] = ebb__mip_column(&it->mip, 0, 1, 0, true);
        use->in[k] = ebb__mip_column(&it->mip, 0, 1, 0, true);
    }
}

/* True if the use counts as a write: also the first use of a block that is new. */
static bool is_write(const struct ebb_autotm *it, const struct ebb_operation_block *block,
                     uint32_t i)
{
    const struct ebb_operations *operations = it->request->operations;
    return operations->uses[it->uses[block->first_use + i].use].write_bytes ||
           (i == 0 && !block->persistent);
}

/* The newest write at or before use `i`, or -1. */
static int64_t write_before(const struct ebb_autotm *it, const struct ebb_operation_block *block,
                            uint32_t i)
{
    for (uint32_t back = 0; back < block->use_count; back++) {
        if (back > i && !block->persistent)
            break;
        uint32_t at = (i + block->use_count - back) % block->use_count;
        if (is_write(it, block, at))
            return at;
    }
    return -1;
}

static void block_columns(struct ebb_autotm *it, uint32_t b)
{
    const struct ebb_operation_block *block = &it->request->operations->blocks[b];
    struct ebb_autotm_use *uses = &it->uses[block->first_use];
    int whole = -1;
    gaps_find(it, b);
    for (uint32_t i = 0; i < block->use_count; i++) {
        if (it->kind == EBB_AUTOTM_STATIC) {
            whole = i ? whole : ebb__mip_column(&it->mip, 0, 1, 0, true);
            uses[i].fast = uses[i].stays = whole;
            continue;
        }
        uses[i].fast = ebb__mip_column(&it->mip, 0, 1, 0, true);
        if (i + 1 < block->use_count || block->persistent)
            uses[i].stays = ebb__mip_column(&it->mip, 0, 1, 0, true);
    }
    if (it->kind == EBB_AUTOTM_STATIC)
        return;
    for (uint32_t i = 0; i < block->use_count; i++) {
        if (is_write(it, block, i))
            uses[i].dirty = ebb__mip_column(&it->mip, 0, 1, copy_us(it, b, true), false);
        if (it->kind == EBB_AUTOTM_ASYNC && uses[i].stays >= 0)
            hidden_columns(it, &uses[i], write_before(it, block, i) >= 0);
    }
}

static void cost_add(struct ebb_autotm *it, int column, double us)
{
    it->mip.cost.items[column] += us;
}

/* What a gap costs: copies out are paid by `dirty`, copies in by differences. */
static void gap_rows(struct ebb_autotm *it, uint32_t b, uint32_t i)
{
    const struct ebb_operation_block *block = &it->request->operations->blocks[b];
    struct ebb_autotm_use *uses = &it->uses[block->first_use];
    const struct ebb_autotm_use *use = &uses[i], *next = &uses[(i + 1) % block->use_count];
    int64_t write = write_before(it, block, i);
    double in_us = copy_us(it, b, false);
    /* out = fast - stays - hidden >= 0, in = next fast - stays - hidden >= 0 */
    int out = ebb__mip_row(&it->mip, 0, EBB_MIP_FREE), in = ebb__mip_row(&it->mip, 0, EBB_MIP_FREE);
    ebb__mip_entry(&it->mip, out, use->fast, 1);
    ebb__mip_entry(&it->mip, out, use->stays, -1);
    ebb__mip_entry(&it->mip, in, next->fast, 1);
    ebb__mip_entry(&it->mip, in, use->stays, -1);
    cost_add(it, next->fast, in_us);
    cost_add(it, use->stays, -in_us);
    for (int k = 0; k < EBB_AUTOTM_NEAR; k++) {
        if (use->out[k] >= 0)
            ebb__mip_entry(&it->mip, out, use->out[k], -1);
        if (use->in[k] >= 0) {
            ebb__mip_entry(&it->mip, in, use->in[k], -1);
            cost_add(it, use->in[k], -in_us);
        }
    }
    if (write < 0)
        return;
    /* dirty >= out - (1 - fast at the write) - hidden copies since the write */
    int paid = ebb__mip_row(&it->mip, -1, EBB_MIP_FREE);
    ebb__mip_entry(&it->mip, paid, uses[write].dirty, 1);
    ebb__mip_entry(&it->mip, paid, uses[write].fast, -1);
    ebb__mip_entry(&it->mip, paid, use->fast, -1);
    ebb__mip_entry(&it->mip, paid, use->stays, 1);
    for (uint32_t at = (uint32_t)write;; at = (at + 1) % block->use_count) {
        for (int k = 0; k < EBB_AUTOTM_NEAR; k++)
            if (uses[at].out[k] >= 0)
                ebb__mip_entry(&it->mip, paid, uses[at].out[k], 1);
        if (at == i)
            break;
    }
}

/* The capacity of each operation: a row, made when a block can be in it. */
struct rows {
    int *capacity; /* by operation */
    int *time;     /* by operation: the column of its time */
};

static void occupy(struct ebb_autotm *it, const struct rows *rows, uint32_t first, uint32_t span,
                   int column, double amount)
{
    uint32_t count = it->request->operations->count;
    for (uint32_t i = 0; i < span; i++)
        ebb__mip_entry(&it->mip, rows->capacity[(first + i) % count], column, amount);
}

static void hidden_rows(struct ebb_autotm *it, const struct rows *rows, uint32_t b,
                        const struct ebb_autotm_use *use, double amount)
{
    uint32_t count = it->request->operations->count;
    for (uint32_t k = 0; k < EBB_AUTOTM_NEAR; k++) {
        if (use->out[k] >= 0)
            occupy(it, rows, use->gap_first, k + 1, use->out[k], amount);
        if (use->in[k] < 0)
            continue;
        occupy(it, rows, (use->gap_first + use->gap_span - 1 - k) % count, k + 1, use->in[k],
               amount);
    }
    (void)b;
}

static void block_rows(struct ebb_autotm *it, const struct rows *rows, uint32_t b)
{
    const struct ebb_operations *operations = it->request->operations;
    const struct ebb_operation_block *block = &operations->blocks[b];
    struct ebb_autotm_use *uses = &it->uses[block->first_use];
    double amount = pages(it, block->size_bytes);
    uint32_t birth = ebb__tier_birth(operations, b);
    if (it->kind == EBB_AUTOTM_STATIC) {
        if (block->use_count)
            occupy(it, rows, birth, block->span, uses[0].fast, amount);
        return;
    }
    for (uint32_t i = 0; i < block->use_count; i++) {
        uint32_t at = operations->uses[uses[i].use].operation;
        bool last = i + 1 == block->use_count;
        occupy(it, rows, at, 1, uses[i].fast, amount);
        if (uses[i].stays >= 0) {
            occupy(it, rows, uses[i].gap_first, uses[i].gap_span, uses[i].stays, amount);
            hidden_rows(it, rows, b, &uses[i], amount);
            gap_rows(it, b, i);
        }
        if (!block->persistent && i == 0)
            occupy(it, rows, birth, ebb__operations_between(operations, birth, at), uses[i].fast,
                   amount);
        if (!block->persistent && last)
            occupy(it, rows, uses[i].gap_first,
                   block->span - 1 - ebb__operations_between(operations, birth, at), uses[i].fast,
                   amount);
    }
}

/* The column of an operation's time, and the row of its bytes. */
static void operation_rows(struct ebb_autotm *it, const struct rows *rows, uint32_t index,
                           const int *fast_of)
{
    const struct ebb_operations *operations = it->request->operations;
    const struct ebb_tier_machine *machine = it->request->machine;
    const struct ebb_operation *operation = &operations->items[index];
    double slow_ns = 0, latency_ns = 0;
    for (uint32_t u = 0; u < operation->use_count; u++) {
        const struct ebb_use *use = &operations->uses[operation->first_use + u];
        slow_ns += fmax(ebb__use_ns(machine, use, 0), ebb__use_ns(machine, use, 1));
        latency_ns += ebb__use_latency_ns(machine, 1);
        cost_add(it, fast_of[operation->first_use + u], -ebb__use_latency_ns(machine, 1) * US);
    }
    it->constant_ns += latency_ns;
    if (rows->time[index] < 0) {
        it->constant_ns += (double)operation->ns;
        return;
    }
    if (slow_ns <= (double)operation->ns)
        return;
    int row = ebb__mip_row(&it->mip, 0, EBB_MIP_FREE);
    ebb__mip_entry(&it->mip, row, rows->time[index], 1);
    double all_us = 0;
    for (uint32_t u = 0; u < operation->use_count; u++) {
        const struct ebb_use *use = &operations->uses[operation->first_use + u];
        double less_us = (ebb__use_ns(machine, use, 1) - ebb__use_ns(machine, use, 0)) * US;
        all_us += ebb__use_ns(machine, use, 1) * US;
        ebb__mip_entry(&it->mip, row, fast_of[operation->first_use + u], less_us);
    }
    it->mip.row_lower.items[row] = all_us;
}

/* The rows of copies that operations hide: each lane's, or both together. */
static void hiding_rows(struct ebb_autotm *it, const struct rows *rows)
{
    const struct ebb_operations *operations = it->request->operations;
    uint32_t count = operations->count;
    int *lane = malloc((2 * (size_t)count + 1) * sizeof *lane);
    it->mip.no_memory = it->mip.no_memory || !lane;
    for (uint32_t i = 0; lane && i < 2 * count; i++)
        lane[i] = -1;
    for (uint32_t b = 0; lane && b < operations->block_count; b++) {
        const struct ebb_operation_block *block = &operations->blocks[b];
        for (uint32_t i = 0; i < 2 * EBB_AUTOTM_NEAR * block->use_count; i++) {
            const struct ebb_autotm_use *use =
                &it->uses[block->first_use + i / (2 * EBB_AUTOTM_NEAR)];
            uint32_t k = i / 2 % EBB_AUTOTM_NEAR;
            bool out = i % 2;
            int column = out ? use->out[k] : use->in[k];
            if (column < 0)
                continue;
            uint32_t at = (use->gap_first + (out ? k : use->gap_span - 1 - k)) % count;
            int *row = &lane[2 * at + (it->request->machine->duplex && out)];
            if (*row < 0) {
                *row = ebb__mip_row(&it->mip, 0, EBB_MIP_FREE);
                ebb__mip_entry(&it->mip, *row, rows->time[at], 1);
            }
            ebb__mip_entry(&it->mip, *row, column, -copy_us(it, b, out));
        }
    }
    free(lane);
}

static bool is_sensitive(const struct ebb_autotm *it, uint32_t index)
{
    const struct ebb_operation *operation = &it->request->operations->items[index];
    double slow_ns = 0;
    for (uint32_t u = 0; u < operation->use_count; u++) {
        const struct ebb_use *use = &it->request->operations->uses[operation->first_use + u];
        slow_ns += fmax(ebb__use_ns(it->request->machine, use, 0),
                        ebb__use_ns(it->request->machine, use, 1));
    }
    return it->kind == EBB_AUTOTM_ASYNC || slow_ns > (double)operation->ns;
}

static void rows_write(struct ebb_autotm *it, const struct rows *rows)
{
    const struct ebb_operations *operations = it->request->operations;
    double limit = (double)(it->budget_bytes / it->request->machine->page_bytes);
    int *fast_of = malloc((operations->use_count + 1) * sizeof *fast_of);
    it->mip.no_memory = it->mip.no_memory || !fast_of;
    for (uint32_t u = 0; fast_of && u < operations->use_count; u++)
        fast_of[operations->order[u]] = it->uses[u].fast;
    for (uint32_t i = 0; fast_of && i < operations->count; i++) {
        rows->capacity[i] = ebb__mip_row(&it->mip, -EBB_MIP_FREE, limit);
        rows->time[i] = -1;
        if (is_sensitive(it, i))
            rows->time[i] = ebb__mip_column(&it->mip, (double)operations->items[i].ns * US,
                                            EBB_MIP_FREE, 1, false);
    }
    for (uint32_t i = 0; fast_of && !it->mip.no_memory && i < operations->count; i++)
        operation_rows(it, rows, i, fast_of);
    for (uint32_t b = 0; fast_of && !it->mip.no_memory && b < operations->block_count; b++)
        block_rows(it, rows, b);
    if (it->kind == EBB_AUTOTM_ASYNC)
        hiding_rows(it, rows);
    free(fast_of);
}

/* The copies out that the solution to begin from pays: as the rows say. */
static void start_dirty(struct ebb_autotm *it, uint32_t b)
{
    const struct ebb_operation_block *block = &it->request->operations->blocks[b];
    const struct ebb_autotm_use *uses = &it->uses[block->first_use];
    for (uint32_t i = 0; i < block->use_count; i++) {
        int64_t write = uses[i].stays >= 0 ? write_before(it, block, i) : -1;
        if (write >= 0 && it->start[uses[write].fast] > 0.5 && it->start[uses[i].fast] > 0.5 &&
            it->start[uses[i].stays] < 0.5)
            it->start[uses[write].dirty] = 1;
    }
}

/* The solution to begin from. */
static bool start_write(struct ebb_autotm *it, const struct rows *rows)
{
    const struct ebb_operations *operations = it->request->operations;
    const struct ebb_tier_machine *machine = it->request->machine;
    double *bytes_ns = calloc(operations->count + 1, sizeof *bytes_ns);
    it->start = calloc(it->mip.lower.count + 1, sizeof *it->start);
    bool ok = bytes_ns && it->start;
    for (uint32_t u = 0; ok && u < operations->use_count; u++) {
        const struct ebb_autotm_use *use = &it->uses[u];
        const struct ebb_use *of = &operations->uses[use->use];
        bool fast = it->fast && it->fast[u];
        bytes_ns[of->operation] += ebb__use_ns(machine, of, !fast);
        it->start[use->fast] = fast;
        if (use->stays >= 0)
            it->start[use->stays] = it->fast && it->stays[u];
    }
    for (uint32_t b = 0; ok && it->kind != EBB_AUTOTM_STATIC && b < operations->block_count; b++)
        start_dirty(it, b);
    for (uint32_t i = 0; ok && i < operations->count; i++)
        if (rows->time[i] >= 0)
            it->start[rows->time[i]] = fmax(bytes_ns[i], (double)operations->items[i].ns) * US;
    free(bytes_ns);
    return ok;
}

bool ebb__autotm_write(struct ebb_autotm *it)
{
    const struct ebb_operations *operations = it->request->operations;
    struct rows rows = {malloc((operations->count + 1) * sizeof(int)),
                        malloc((operations->count + 1) * sizeof(int))};
    it->uses = calloc(operations->use_count + 1, sizeof *it->uses);
    bool ok = rows.capacity && rows.time && it->uses;
    for (uint32_t b = 0; ok && b < operations->block_count; b++)
        block_columns(it, b);
    if (ok)
        rows_write(it, &rows);
    ok = ok && start_write(it, &rows) && !it->mip.no_memory;
    free(rows.capacity);
    free(rows.time);
    return ok;
}

void ebb__autotm_fini(struct ebb_autotm *it)
{
    ebb__mip_fini(&it->mip);
    free(it->uses);
    free(it->start);
    it->uses = NULL;
    it->start = NULL;
    it->mip = (struct ebb_mip){0};
    it->constant_ns = 0;
}
