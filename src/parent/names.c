/* Finds the persistent blocks of an earlier run in this one.
 *
 * A model names them by their serials. The same program gives the same serials, unless it has begun
 * in another way: it has loaded a checkpoint, say. What it keeps for good it still allocates in the
 * same order and sizes, with other blocks in between. So the blocks are a longest common
 * subsequence of two lists of sizes: those of the model, and those of all live blocks.
 *
 * What both lists begin and end with is matched first. The rest takes O(product of their lengths)
 * time and memory. If that is too much, it is not matched. The method errs if two copies of the
 * same sizes are live and only one is used. */
#include "parent/internal.h"

#include <stdlib.h>

enum { MOST_CELLS = 1 << 24 }; /* 64 MiB of table; 4000 blocks that differ on both sides */

struct named {
    uint64_t serial, size_bytes;
};

struct lists {
    struct named *of_model, *live;
    uint32_t *found; /* [of_model]: index into live, or UINT32_MAX */
    size_t model_count, live_count;
};

static int by_serial(const void *left, const void *right)
{
    const struct named *a = left, *b = right;
    return a->serial < b->serial ? -1 : a->serial > b->serial;
}

static bool is_named(const struct ebb_model_block *block)
{
    return block->alloc_tick == EBB_TICK_NONE && !block->part_first;
}

static bool list(const struct process *process, const struct ebb_model *model, struct lists *lists)
{
    *lists = (struct lists){0};
    size_t live = ebb__watch_live(process->stream.watch, NULL, 0);
    struct ebb_watch_block *blocks = calloc(live + 1, sizeof *blocks);
    lists->live = calloc(live + 1, sizeof *lists->live);
    lists->of_model = calloc(model->block_count + 1u, sizeof *lists->of_model);
    lists->found = calloc(model->block_count + 1u, sizeof *lists->found);
    if (!blocks || !lists->live || !lists->of_model || !lists->found) {
        free(blocks);
        return false;
    }
    lists->live_count = ebb__watch_live(process->stream.watch, blocks, live);
    for (size_t i = 0; i < lists->live_count; i++)
        lists->live[i] = (struct named){blocks[i].serial, blocks[i].size_bytes};
    for (uint32_t i = 0; i < model->block_count; i++)
        if (is_named(&model->blocks[i]))
            lists->of_model[lists->model_count++] =
                (struct named){model->blocks[i].serial, ebb__model_whole_bytes(&model->blocks[i])};
    qsort(lists->of_model, lists->model_count, sizeof *lists->of_model, by_serial);
    qsort(lists->live, lists->live_count, sizeof *lists->live, by_serial);
    free(blocks);
    return true;
}

static void free_lists(struct lists *lists)
{
    free(lists->of_model);
    free(lists->live);
    free(lists->found);
}

/* The longest common subsequence of the model's blocks [first, + rows) and the live ones
 * [live_first, + columns). */
static void match_rest(struct lists *lists, size_t first, size_t rows, size_t live_first,
                       size_t columns)
{
    if (!rows || !columns || columns + 1 > MOST_CELLS / (rows + 1))
        return;
    const struct named *a = lists->of_model + first, *b = lists->live + live_first;
    size_t width = columns + 1;
    uint32_t *longest = calloc((rows + 1) * width, sizeof *longest);
    if (!longest)
        return;
    for (size_t i = rows; i-- > 0;)
        for (size_t j = columns; j-- > 0;) {
            uint32_t down = longest[(i + 1) * width + j], right = longest[i * width + j + 1];
            longest[i * width + j] = a[i].size_bytes == b[j].size_bytes
                                         ? longest[(i + 1) * width + j + 1] + 1
                                     : down > right ? down
                                                    : right;
        }
    for (size_t i = 0, j = 0; i < rows && j < columns;) {
        if (a[i].size_bytes == b[j].size_bytes)
            lists->found[first + i++] = (uint32_t)(live_first + j++);
        else if (longest[(i + 1) * width + j] >= longest[i * width + j + 1])
            i++;
        else
            j++;
    }
    free(longest);
}

static void match(struct lists *lists)
{
    size_t count = lists->model_count, live = lists->live_count, head = 0, tail = 0;
    for (size_t i = 0; i < count; i++)
        lists->found[i] = UINT32_MAX;
    for (; head < count && head < live &&
           lists->of_model[head].size_bytes == lists->live[head].size_bytes;
         head++)
        lists->found[head] = (uint32_t)head;
    for (; tail < count - head && tail < live - head &&
           lists->of_model[count - 1 - tail].size_bytes == lists->live[live - 1 - tail].size_bytes;
         tail++)
        lists->found[count - 1 - tail] = (uint32_t)(live - 1 - tail);
    match_rest(lists, head, count - head - tail, head, live - head - tail);
}

/* The place of a serial among the model's named blocks. */
static size_t place_of(const struct lists *lists, uint64_t serial)
{
    const struct named key = {serial, 0};
    const struct named *found =
        bsearch(&key, lists->of_model, lists->model_count, sizeof key, by_serial);
    return found ? (size_t)(found - lists->of_model) : lists->model_count;
}

/* Bytes of the persistent blocks that are not in this process under the model's names. *named: of
 * all of them. */
static uint64_t wrong_bytes(const struct process *process, const struct ebb_model *model,
                            uint64_t *named)
{
    uint64_t wrong = 0;
    *named = 0;
    for (uint32_t i = 0; i < model->block_count; i++) {
        const struct ebb_model_block *block = &model->blocks[i];
        uint64_t size_bytes = 0;
        if (block->alloc_tick != EBB_TICK_NONE)
            continue;
        *named += block->size_bytes;
        if (!ebb__watch_is_live(process->stream.watch, block->serial, &size_bytes) ||
            size_bytes != ebb__model_whole_bytes(block))
            wrong += block->size_bytes;
    }
    return wrong;
}

bool ebb__names_hold(const struct process *process, const struct ebb_model *model)
{
    uint64_t named, wrong = wrong_bytes(process, model, &named);
    return wrong * 20 <= named;
}

bool ebb__names_lack(const struct process *process, const struct ebb_model *model)
{
    uint64_t named;
    return wrong_bytes(process, model, &named) > 0;
}

/* The serial of the model's block at `place` in this process. If it was not found it is one that no
 * live block has. */
static uint64_t name_at(const struct lists *lists, size_t place)
{
    return lists->found[place] == UINT32_MAX ? UINT64_MAX / 2 + place
                                             : lists->live[lists->found[place]].serial;
}

/* Renames the model's blocks. Returns the number of `renamings`, if that is not NULL. */
static size_t rename_blocks(const struct lists *lists, struct ebb_model *model,
                            struct ebb_renaming *renamings)
{
    for (uint32_t i = 0; i < model->block_count; i++) {
        struct ebb_model_block *block = &model->blocks[i];
        if (block->alloc_tick != EBB_TICK_NONE)
            continue;
        size_t place = place_of(lists, block->serial);
        if (place < lists->model_count)
            block->serial = name_at(lists, place);
    }
    size_t count = 0;
    for (size_t i = 0; renamings && i < lists->model_count; i++) {
        uint64_t from = lists->of_model[i].serial, to = name_at(lists, i);
        if (to != from && (count == 0 || renamings[count - 1].from < from))
            renamings[count++] = (struct ebb_renaming){from, to};
    }
    return count;
}

void ebb__names_changed(struct process *process, const struct ebb_model *model)
{
    process->learning.names_allocs =
        process->stream.allocs + 2 * (uint64_t)ebb__model_count_allocs(model);
}

bool ebb__names_find(const struct process *process, struct ebb_model *model,
                     struct ebb_renaming **renamings, size_t *count)
{
    struct lists lists;
    bool good = list(process, model, &lists);
    uint64_t named = 0, found = 0, right = 0, size_bytes;
    if (good) {
        match(&lists);
        for (size_t i = 0; i < lists.model_count; i++) {
            named += lists.of_model[i].size_bytes;
            found += lists.found[i] != UINT32_MAX ? lists.of_model[i].size_bytes : 0;
            if (ebb__watch_is_live(process->stream.watch, lists.of_model[i].serial, &size_bytes) &&
                size_bytes == lists.of_model[i].size_bytes)
                right += size_bytes;
        }
        good = (named - found) * 20 <= named && found >= right;
    }
    struct ebb_renaming *made = NULL;
    if (good && renamings) {
        made = calloc(lists.model_count + 1, sizeof *made);
        good = made != NULL;
    }
    if (good) {
        size_t changed = rename_blocks(&lists, model, made);
        if (renamings) {
            *renamings = made;
            *count = changed;
        }
    }
    free_lists(&lists);
    return good;
}
