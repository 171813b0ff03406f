/* Which blocks of the process are the persistent ones of a script.
 *
 * A script names them by their serials. A program may make its model anew, as each fold of a
 * validation does. Its blocks then have other serials, and all scripts follow. A script may also be
 * of an earlier run with other allocations, so sizes are compared, too. */
#include "runtime/replay/matcher.h"

/* Sorts by name. Stable: the parts of a block have one name. Names change together, so few are out
 * of order. */
static void sort(struct prepared_script *prepared)
{
    uint32_t *order = prepared->names.by_serial;
    for (uint32_t i = 0; i < prepared->script->persistent_count; i++)
        order[i] = i;
    for (uint32_t i = 1; i < prepared->script->persistent_count; i++) {
        uint32_t index = order[i], place = i;
        for (; place > 0 &&
               prepared->names.serials[order[place - 1]] > prepared->names.serials[index];
             place--)
            order[place] = order[place - 1];
        order[place] = index;
    }
}

void ebb__names_prepare(struct prepared_script *prepared)
{
    const struct ebb_script_block *blocks = ebb__script_blocks(prepared->script);
    for (uint32_t i = 0; i < prepared->script->persistent_count; i++)
        prepared->names.serials[i] = blocks[i].serial;
    sort(prepared);
}

uint32_t ebb__names_persistent(const struct prepared_script *prepared, uint64_t serial,
                               uint64_t size_bytes)
{
    const struct ebb_script_block *blocks = ebb__script_blocks(prepared->script);
    uint32_t low = 0, high = prepared->script->persistent_count, found;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (prepared->names.serials[prepared->names.by_serial[middle]] < serial)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == prepared->script->persistent_count)
        return EBB_SCRIPT_NONE;
    found = prepared->names.by_serial[low]; /* of parts, the first */
    return prepared->names.serials[found] == serial && blocks[found].size_bytes == size_bytes
               ? found
               : EBB_SCRIPT_NONE;
}

static void rename_in(struct prepared_script *prepared, const struct ebb_renaming *renamings,
                      size_t count)
{
    for (uint32_t i = 0; i < prepared->script->persistent_count; i++)
        prepared->names.serials[i] = ebb__renamed(renamings, count, prepared->names.serials[i]);
    sort(prepared);
}

void ebb__names_bind(struct replay *replay, struct prepared_script *current)
{
    for (uint32_t i = 1; i <= replay->table->count; i++) {
        struct block *block = &replay->table->blocks[i];
        if (!ebb__block_is_live(block) || block->run.head != i ||
            block->script_block != EBB_SCRIPT_NONE)
            continue;
        uint32_t known = ebb__names_persistent(current, block->serial, block->size_bytes);
        if (known != EBB_SCRIPT_NONE && current->live[known] == NO_BLOCK)
            ebb__clock_bind(replay, current, block, known);
    }
}

void ebb__replay_rename(struct replay *replay, const struct ebb_renaming *renamings, size_t count)
{
    pthread_mutex_lock(&replay->core->lock);
    for (uint32_t i = 0; i < replay->script_count; i++)
        rename_in(&replay->scripts[i], renamings, count);
    if (replay->awaited.script)
        rename_in(&replay->awaited, renamings, count);
    if (replay->current) {
        ebb__names_bind(replay, replay->current);
        ebb__replay_cross_border(replay);
        ebb__replay_watch(replay);
    }
    pthread_mutex_unlock(&replay->core->lock);
}
