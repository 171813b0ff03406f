/* Which blocks of the process are the persistent ones of a script.
 *
 * A script names them by their serials. A program may make its model anew, as each fold of a
 * validation does. Its blocks then have other serials, and all scripts follow. A script may also be
 * of an earlier run with other allocations, so sizes are compared, too. */
#include "runtime/replay/matcher.h"

static void rename_in(struct prepared_script *prepared, const struct ebb_renaming *renamings,
                      size_t count)
{
    ebb__names_rename(&prepared->names, prepared->script, renamings, count);
}

/* A name counts more than a position. The first iteration makes a gradient where later ones have a
 * block of that size, which is added to the gradient and freed. */
void ebb__names_bind(struct replay *replay, struct prepared_script *current)
{
    for (uint32_t i = 1; i <= replay->table->count; i++) {
        struct block *block = &replay->table->blocks[i];
        if (!ebb__block_is_live(block) || block->run.head != i)
            continue;
        uint32_t known = ebb__names_persistent(&current->names, current->script, block->serial,
                                               block->size_bytes);
        if (known == EBB_SCRIPT_NONE || current->live[known] != NO_BLOCK)
            continue;
        if (block->script_block != EBB_SCRIPT_NONE)
            ebb__clock_unbind(replay, current, block);
        ebb__clock_bind(replay, current, block, known);
    }
}

/* A program that announces its uses has in the first iteration, too, the uses of the block that
 * later iterations free. So its place decides. */
uint32_t ebb__names_or_place(const struct prepared_script *current, const struct block *block,
                             uint32_t place)
{
    if (current->script->flags & EBB_SCRIPT_ANNOUNCED)
        return place;
    uint32_t known =
        ebb__names_persistent(&current->names, current->script, block->serial, block->size_bytes);
    return known != EBB_SCRIPT_NONE && current->live[known] == NO_BLOCK ? known : place;
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
