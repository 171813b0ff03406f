/* The known scripts: they come, replace each other, are put in force, and go. */
#include "cuda/follow_state.h"

#include "cuda/memory.h"

#include <string.h>

/* Attaches the absences to their positions. An absence within one stretch between two events is
 * left out: nothing happens in between. */
static void chain_absences(struct follow_script *known)
{
    const struct ebb_script *script = known->script;
    const struct ebb_script_absence *all = ebb__script_absences(script);
    for (uint32_t i = 0; i < script->clock_count; i++)
        known->out_first[i] = known->in_first[i] = EBB_SCRIPT_NONE;
    for (uint32_t i = script->absence_count; i-- > 0;) { /* backwards: chains keep the order */
        if (all[i].in_clock == all[i].out_clock)
            continue;
        known->out_next[i] = known->out_first[all[i].out_clock];
        known->out_first[all[i].out_clock] = i;
        if (all[i].in_clock == EBB_SCRIPT_NONE || all[i].due_clock == EBB_SCRIPT_NONE)
            continue;
        known->in_next[i] = known->in_first[all[i].in_clock];
        known->in_first[all[i].in_clock] = i;
    }
}

static void note_events(struct follow_script *known)
{
    const struct ebb_script *script = known->script;
    for (uint32_t i = 0; i < script->block_count; i++)
        known->free_at[i] = EBB_SCRIPT_NONE;
    for (uint32_t i = 0; i < script->clock_count; i++) {
        const struct ebb_script_event *event = follow_event(known, i);
        if (event->kind == EBB_EVENT_FREE)
            known->free_at[event->block] = i;
        else
            known->told_count++;
    }
}

static uint32_t bucket_count(const struct ebb_script *script)
{
    uint32_t buckets = 64;
    while (buckets < script->clock_count && buckets < (1u << 30))
        buckets *= 2;
    return buckets;
}

/* NULL: memory is exhausted. */
static struct follow_script *prepare(const struct ebb_cuda_follow *follow,
                                     const struct ebb_script *script)
{
    size_t clocks = script->clock_count, absences = script->absence_count;
    size_t blocks = script->block_count, persistent = script->persistent_count;
    size_t buckets = bucket_count(script);
    size_t words = 2 * blocks + 5 * clocks + 2 * absences + persistent + buckets;
    size_t bytes = sizeof(struct follow_script) + (clocks + persistent) * sizeof(uint64_t) +
                   words * sizeof(uint32_t) + blocks;
    struct follow_script *known = ebb__cuda_reserve(bytes);
    if (!known)
        return NULL;
    known->script = script;
    known->bytes = bytes;
    known->hashes = (uint64_t *)(known + 1);
    known->names.serials = known->hashes + clocks;
    uint32_t *next = (uint32_t *)(known->names.serials + persistent);
    const struct {
        uint32_t **array;
        size_t count;
    } arrays[] = {
        {&known->live, blocks},
        {&known->free_at, blocks},
        {&known->out_first, clocks},
        {&known->in_first, clocks},
        {&known->out_next, absences},
        {&known->in_next, absences},
        {&known->bucket_next, clocks},
        {&known->buckets, buckets},
        {&known->names.by_serial, persistent},
        {&known->turns, clocks},
        {&known->turn_at, clocks},
    };
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        *arrays[i].array = next;
        next += arrays[i].count;
    }
    known->settled = (uint8_t *)next;
    known->bucket_mask = (uint32_t)buckets - 1;
    ebb__names_prepare(&known->names, script);
    chain_absences(known);
    note_events(known);
    ebb__ahead_prepare(known);
    ebb__find_prepare(follow, known);
    return known;
}

static void release(struct follow_script *known)
{
    if (known)
        ebb__cuda_unreserve(known, known->bytes);
}

/* Every action of a step, of a begin and of an event that passes all others. */
static bool make_space(struct ebb_cuda_follow *follow, const struct ebb_script *script)
{
    size_t most = 4 * (size_t)script->absence_count + script->block_count + 1;
    if (most <= follow->action_space)
        return true;
    struct cuda_action *actions = ebb__cuda_reserve(most * sizeof *actions);
    if (!actions)
        return false;
    ebb__cuda_unreserve(follow->actions, follow->action_space * sizeof *actions);
    follow->actions = actions;
    follow->action_space = most;
    return true;
}

void ebb__follow_bind(struct ebb_cuda_follow *follow, uint32_t block, uint32_t script_block)
{
    follow->blocks[block].script_block = script_block;
    follow->current->live[script_block] = block;
}

static void bind_persistent(struct ebb_cuda_follow *follow)
{
    struct follow_script *current = follow->current;
    for (uint32_t i = 0; i < follow->top; i++) {
        const struct follow_block *block = &follow->blocks[i];
        if (block->serial == 0 || block->script_block != EBB_SCRIPT_NONE)
            continue;
        uint32_t known =
            ebb__names_persistent(&current->names, current->script, block->serial, block->bytes);
        if (known != EBB_SCRIPT_NONE && current->live[known] == NO_BLOCK)
            ebb__follow_bind(follow, i, known);
    }
}

/* Binds the blocks of the last iteration's allocations, newest first. The newest event is at
 * `position`. */
static void bind_past(struct ebb_cuda_follow *follow, uint32_t position)
{
    const struct follow_script *current = follow->current;
    uint32_t agreed = ebb__find_agreement(follow, current, position, current->told_count);
    uint32_t clocks = current->script->clock_count;
    for (uint32_t i = 0; i < agreed; position = (position + clocks - 1) % clocks) {
        const struct ebb_script_event *event = follow_event(current, position);
        if (event->kind == EBB_EVENT_FREE)
            continue;
        const struct follow_past *past = &follow->history[(follow->past - 1 - i++) % HISTORY];
        const struct follow_block *block = &follow->blocks[past->block];
        if (block->serial == past->serial && block->script_block == EBB_SCRIPT_NONE &&
            current->live[event->block] == NO_BLOCK)
            ebb__follow_bind(follow, past->block, event->block);
    }
}

void ebb__follow_start(struct ebb_cuda_follow *follow, struct follow_script *known,
                       uint32_t position)
{
    follow->current = known;
    for (uint32_t i = 0; i < known->script->block_count; i++)
        known->live[i] = NO_BLOCK;
    for (uint32_t i = 0; i < follow->top; i++)
        follow->blocks[i].script_block = EBB_SCRIPT_NONE;
    follow->position = (position + 1) % known->script->clock_count;
    follow->ahead_count = follow->strays = 0;
    bind_persistent(follow);
    bind_past(follow, position);
    known->used = ++follow->uses;
    follow->counts.resyncs++;
    follow->border_due = true;
}

/* Takes scripts[index] out of the known ones. */
static void drop(struct ebb_cuda_follow *follow, uint32_t index)
{
    if (follow->current == follow->scripts[index])
        follow->current = NULL;
    release(follow->scripts[index]);
    memmove(&follow->scripts[index], &follow->scripts[index + 1],
            (--follow->script_count - index) * sizeof follow->scripts[0]);
}

/* Makes room for `known`: scripts of the same iteration go. If there are too many, the one goes
 * that was in force least recently. */
static void make_room(struct ebb_cuda_follow *follow, const struct ebb_script *script)
{
    for (uint32_t i = follow->script_count; i-- > 0;)
        if (ebb__template_same(follow->scripts[i]->script, script))
            drop(follow, i);
    if (follow->script_count < MAX_SCRIPTS)
        return;
    uint32_t oldest = MAX_SCRIPTS;
    for (uint32_t i = 0; i < MAX_SCRIPTS; i++)
        if (follow->scripts[i] != follow->current &&
            (oldest == MAX_SCRIPTS || follow->scripts[i]->used < follow->scripts[oldest]->used))
            oldest = i;
    drop(follow, oldest);
}

/* The same events, perhaps from another one on: the newer plan is the better one. */
static bool are_alike(const struct ebb_script *a, const struct ebb_script *b)
{
    return a->clock_count == b->clock_count && a->alloc_count == b->alloc_count;
}

/* Adds it to the known scripts. The script in force stays in force if it is of another iteration.
 * The new one is then followed where the program leaves that. */
static void install(struct ebb_cuda_follow *follow, struct follow_script *known)
{
    if (follow->current && are_alike(follow->current->script, known->script))
        follow->current = NULL;
    make_room(follow, known->script);
    known->used = ++follow->uses;
    follow->scripts[follow->script_count++] = known;
}

void ebb__follow_take_over(struct ebb_cuda_follow *follow)
{
    struct follow_script *awaited = follow->awaited;
    bool is_followed = follow->current != NULL;
    uint32_t clocks = awaited->script->clock_count, position = follow->position;
    follow->awaited = NULL;
    install(follow, awaited);
    if (is_followed)
        ebb__follow_start(follow, awaited, (position + clocks - 1) % clocks);
}

/* Does the program announce uses in it, in a fixed order? */
static bool can_follow(const struct follow_script *known)
{
    if (known->script->flags & EBB_SCRIPT_UNORDERED)
        return false;
    for (uint32_t i = 0; i < known->script->clock_count; i++)
        if (follow_event(known, i)->kind == EBB_EVENT_ACCESS)
            return true;
    return false;
}

enum ebb_status ebb__follow_set_script(struct ebb_cuda_follow *follow,
                                       const struct ebb_script *script, uint64_t bytes)
{
    if (!ebb__script_valid(script, bytes))
        return EBB_ERR_FORMAT;
    struct follow_script *known = prepare(follow, script);
    if (!known || !make_space(follow, script)) {
        release(known);
        return EBB_ERR_MEMORY;
    }
    if (!can_follow(known)) {
        release(known);
        return EBB_ERR_UNSUPPORTED;
    }
    bool is_awaited = follow->awaited && ebb__template_same(follow->awaited->script, script);
    if (is_awaited) {
        release(follow->awaited);
        follow->awaited = NULL;
    } else if (follow->awaited) {
        ebb__follow_take_over(follow);
    }
    const struct follow_script *current = follow->current;
    if (!current || !ebb__template_same(current->script, script)) {
        install(follow, known);
        return EBB_OK;
    }
    /* Blocks at planned addresses stay there. The new plan takes over when the fewest bytes are at
     * such addresses. */
    follow->awaited = known;
    follow->awaited_at = ebb__template_least_placed(current->script);
    if (current->script->placement_bytes == 0)
        ebb__follow_take_over(follow);
    return EBB_OK;
}

void ebb__follow_forget(struct ebb_cuda_follow *follow)
{
    release(follow->awaited);
    follow->awaited = NULL;
    while (follow->script_count)
        drop(follow, follow->script_count - 1);
    follow->border_due = false;
}

void ebb__follow_rename(struct ebb_cuda_follow *follow, const struct ebb_renaming *renamings,
                        size_t count)
{
    for (uint32_t i = 0; i < follow->script_count; i++)
        ebb__names_rename(&follow->scripts[i]->names, follow->scripts[i]->script, renamings, count);
    if (follow->awaited)
        ebb__names_rename(&follow->awaited->names, follow->awaited->script, renamings, count);
    if (!follow->current)
        return;
    bind_persistent(follow);
    follow->border_due = true;
}
