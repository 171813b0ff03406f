/* An event is matched, and what is attached to its position is due.
 *
 * Sizes of allocations and the blocks of uses identify the position. Frees are hints: they may come
 * early or late, or not at all. A few events may come before their turn, since threads of a program
 * exchange neighbours. Uses are guesses: what looks like an address in the parameters of a kernel
 * is one. So uses that do not fit are ignored, and those that do not come are passed, but not too
 * many in a row. An allocation that does not fit ends the following at once. */
#include "cuda/follow_state.h"

#include "cuda/memory.h"

#include <string.h>

struct ebb_cuda_follow *ebb__follow_create(uint32_t most_blocks)
{
    struct ebb_cuda_follow *follow = ebb__cuda_reserve(sizeof *follow);
    if (!follow)
        return NULL;
    follow->most_blocks = most_blocks;
    follow->blocks = ebb__cuda_reserve(most_blocks * sizeof *follow->blocks);
    follow->history = ebb__cuda_reserve(HISTORY * sizeof *follow->history);
    if (!follow->blocks || !follow->history) {
        ebb__follow_destroy(follow);
        return NULL;
    }
    ebb__find_init(follow);
    return follow;
}

void ebb__follow_destroy(struct ebb_cuda_follow *follow)
{
    if (!follow)
        return;
    ebb__follow_forget(follow);
    ebb__cuda_unreserve(follow->actions, follow->action_space * sizeof *follow->actions);
    ebb__cuda_unreserve(follow->history, HISTORY * sizeof *follow->history);
    ebb__cuda_unreserve(follow->blocks, follow->most_blocks * sizeof *follow->blocks);
    ebb__cuda_unreserve(follow, sizeof *follow);
}

static void push(struct ebb_cuda_follow *follow, enum cuda_action_kind kind, uint32_t block)
{
    if (block == NO_BLOCK || follow->action_count == follow->action_space)
        return;
    follow->actions[follow->action_count++] = (struct cuda_action){.kind = kind, .block = block};
}

/* The actions attached to `position`: first what makes room. */
static void act(struct ebb_cuda_follow *follow, uint32_t position)
{
    struct follow_script *current = follow->current;
    const struct ebb_script_absence *all = ebb__script_absences(current->script);
    for (uint32_t i = current->out_first[position]; i != EBB_SCRIPT_NONE; i = current->out_next[i])
        push(follow, CUDA_ACTION_EVICT, current->live[all[i].block]);
    for (uint32_t i = current->in_first[position]; i != EBB_SCRIPT_NONE; i = current->in_next[i])
        push(follow, CUDA_ACTION_PREFETCH, current->live[all[i].block]);
}

static void pass(struct ebb_cuda_follow *follow)
{
    act(follow, follow->position);
    if (++follow->position == follow->current->script->clock_count) {
        follow->position = 0;
        follow->counts.laps++;
    }
}

/* The place of `position` among those that were seen before their turn; ahead_count: none. */
static uint32_t ahead_at(const struct ebb_cuda_follow *follow, uint32_t position)
{
    uint32_t i = 0;
    while (i < follow->ahead_count && follow->ahead[i] != position)
        i++;
    return i;
}

/* Passes what has been seen before its turn, and the FREE events before it. */
static void catch_up(struct ebb_cuda_follow *follow)
{
    uint32_t clocks = follow->current->script->clock_count;
    while (follow->ahead_count) {
        uint32_t next = follow->position;
        while (follow_event(follow->current, next)->kind == EBB_EVENT_FREE)
            next = (next + 1) % clocks;
        uint32_t place = ahead_at(follow, next);
        if (place == follow->ahead_count)
            return;
        follow->ahead[place] = follow->ahead[--follow->ahead_count];
        while (follow->position != next)
            pass(follow);
        pass(follow);
    }
}

/* May `event` be that of `position`? is_next: that is the one expected now. */
static bool fits(const struct ebb_cuda_follow *follow, const struct cuda_event *event,
                 uint32_t position, bool is_next)
{
    const struct ebb_script_event *planned = follow_event(follow->current, position);
    if (planned->kind != event->kind || planned->size_bytes != event->bytes)
        return false;
    if (event->kind == EBB_EVENT_ALLOC)
        return true;
    uint32_t known = follow->blocks[event->block].script_block;
    return known == planned->block || (is_next && known == EBB_SCRIPT_NONE &&
                                       follow->current->live[planned->block] == NO_BLOCK);
}

/* The position that `event` has if it comes next, or MOST_AHEAD events before its turn at most.
 * EBB_SCRIPT_NONE: none. *first: that of the event that is expected now. */
static uint32_t look(const struct ebb_cuda_follow *follow, const struct cuda_event *event,
                     uint32_t *first)
{
    uint32_t clocks = follow->current->script->clock_count, seen = 0, at = follow->position;
    *first = EBB_SCRIPT_NONE;
    for (uint32_t steps = 0; steps < clocks && seen <= MOST_AHEAD;
         steps++, at = at + 1 == clocks ? 0 : at + 1) {
        if (follow_event(follow->current, at)->kind == EBB_EVENT_FREE)
            continue;
        seen++;
        if (*first == EBB_SCRIPT_NONE)
            *first = at;
        else if (ahead_at(follow, at) < follow->ahead_count)
            continue;
        if (fits(follow, event, at, at == *first))
            return at;
    }
    return EBB_SCRIPT_NONE;
}

/* Passes what stands before `position`, and that. */
static void pass_up_to(struct ebb_cuda_follow *follow, uint32_t position)
{
    bool is_last = false;
    while (!is_last) {
        is_last = follow->position == position;
        uint32_t place = ahead_at(follow, follow->position);
        if (place < follow->ahead_count)
            follow->ahead[place] = follow->ahead[--follow->ahead_count];
        pass(follow);
    }
    catch_up(follow);
}

/* The event expected now. */
static uint32_t expected(const struct ebb_cuda_follow *follow)
{
    uint32_t at = follow->position, clocks = follow->current->script->clock_count;
    while (follow_event(follow->current, at)->kind == EBB_EVENT_FREE)
        at = at + 1 == clocks ? 0 : at + 1;
    return at;
}

/* There is no place for one more event that comes before its turn. So what is expected does not
 * come: uses are passed, until `at` is expected or there is place. Returns what is expected then.
 * EBB_SCRIPT_NONE: an allocation does not come. */
static uint32_t pass_missing(struct ebb_cuda_follow *follow, uint32_t at)
{
    uint32_t first = expected(follow);
    while (first != at && follow->ahead_count == MOST_AHEAD) {
        if (follow_event(follow->current, first)->kind != EBB_EVENT_ACCESS)
            return EBB_SCRIPT_NONE;
        pass_up_to(follow, first);
        first = expected(follow);
    }
    return first;
}

/* The next position that `event` may have if only uses are missing before it. For a use, several in
 * a row have not fitted. */
static uint32_t look_further(const struct ebb_cuda_follow *follow, const struct cuda_event *event)
{
    uint32_t at = follow->position, clocks = follow->current->script->clock_count;
    if (event->kind == EBB_EVENT_ACCESS && follow->strays < MOST_AHEAD)
        return EBB_SCRIPT_NONE;
    for (uint32_t missing = 0, steps = 0; missing <= MOST_STRAYS && steps < clocks; steps++) {
        uint32_t kind = follow_event(follow->current, at)->kind;
        bool is_seen = ahead_at(follow, at) < follow->ahead_count;
        bool may_be = kind == event->kind && fits(follow, event, at, false);
        if (!is_seen && (may_be || kind == EBB_EVENT_ALLOC))
            return may_be ? at : EBB_SCRIPT_NONE;
        missing += kind == EBB_EVENT_ACCESS && !is_seen;
        at = at + 1 == clocks ? 0 : at + 1;
    }
    return EBB_SCRIPT_NONE;
}

/* False: the program has left the script. */
static bool match(struct ebb_cuda_follow *follow, const struct cuda_event *event)
{
    uint32_t first, at = look(follow, event, &first);
    if (at == EBB_SCRIPT_NONE)
        first = at = look_further(follow, event);
    if (at == EBB_SCRIPT_NONE)
        return event->kind == EBB_EVENT_ACCESS && ++follow->strays <= MOST_STRAYS;
    if (at != first && follow->ahead_count == MOST_AHEAD)
        first = pass_missing(follow, at);
    if (first == EBB_SCRIPT_NONE)
        return false;
    uint32_t known = follow_event(follow->current, at)->block;
    if (follow->blocks[event->block].script_block != known)
        ebb__follow_bind(follow, event->block, known);
    follow->strays = 0;
    if (at != first) {
        follow->ahead[follow->ahead_count++] = at;
        return true;
    }
    pass_up_to(follow, at); /* also FREE events that have not happened, or have already */
    return true;
}

static void match_free(struct ebb_cuda_follow *follow, const struct cuda_event *event)
{
    uint32_t known = follow->blocks[event->block].script_block;
    struct follow_script *current = follow->current;
    if (known == EBB_SCRIPT_NONE)
        return;
    const struct ebb_script_event *expected = follow_event(current, follow->position);
    bool is_expected = expected->kind == EBB_EVENT_FREE && expected->block == known;
    if (current->live[known] == event->block)
        current->live[known] = NO_BLOCK;
    if (is_expected) {
        pass(follow);
        catch_up(follow);
    }
}

/* Notes what the engine's table has. */
static void take(struct ebb_cuda_follow *follow, const struct cuda_event *event)
{
    struct follow_block *block = &follow->blocks[event->block];
    if (event->block >= follow->top)
        follow->top = event->block + 1;
    if (event->serial > follow->newest_serial)
        follow->newest_serial = event->serial;
    if (block->serial == event->serial && event->kind != EBB_EVENT_ALLOC)
        return;
    if (follow->current && block->serial && block->script_block != EBB_SCRIPT_NONE &&
        follow->current->live[block->script_block] == event->block)
        follow->current->live[block->script_block] = NO_BLOCK;
    *block = (struct follow_block){event->serial, event->bytes, EBB_SCRIPT_NONE};
}

/* Does the plan have the block of the absence evicted where `now` has just been passed? */
static bool is_evicted_at(const struct ebb_script_absence *absence, uint32_t now)
{
    return absence->in_clock != EBB_SCRIPT_NONE && absence->in_clock != absence->out_clock &&
           absence->in_clock != now &&
           ebb__script_is_between(now, absence->out_clock, absence->in_clock);
}

/* The script has just begun here, or knows more blocks now. What it has evicted here leaves. What
 * it has resident returns, the next to be used first. */
static void cross_border(struct ebb_cuda_follow *follow)
{
    struct follow_script *current = follow->current;
    const struct ebb_script *script = current->script;
    const struct ebb_script_absence *all = ebb__script_absences(script);
    uint32_t now = follow_now(follow), at = follow->position;
    follow->border_due = false;
    memset(current->settled, 0, script->block_count);
    for (uint32_t i = 0; i < script->absence_count; i++)
        if (is_evicted_at(&all[i], now) && !current->settled[all[i].block]) {
            current->settled[all[i].block] = 1;
            push(follow, CUDA_ACTION_EVICT, current->live[all[i].block]);
        }
    for (uint32_t i = 0; i < script->clock_count; i++) {
        const struct ebb_script_event *event = follow_event(current, at);
        if (!current->settled[event->block] && event->kind == EBB_EVENT_ACCESS)
            push(follow, CUDA_ACTION_PREFETCH, current->live[event->block]);
        current->settled[event->block] = 1;
        at = at + 1 == script->clock_count ? 0 : at + 1;
    }
}

/* The newest event is not where the script in force has one. Another script takes over, or none. */
static void depart(struct ebb_cuda_follow *follow)
{
    uint32_t position;
    follow->current = NULL;
    if (follow->awaited)
        ebb__follow_take_over(follow);
    struct follow_script *other = ebb__find_script(follow, &position);
    if (other)
        ebb__follow_start(follow, other, position);
    else
        follow->counts.mismatches++;
}

size_t ebb__follow_step(struct ebb_cuda_follow *follow, const struct cuda_event *event,
                        const struct cuda_action **actions)
{
    uint32_t position, before = follow->position;
    follow->action_count = 0;
    take(follow, event);
    if (event->kind == EBB_EVENT_FREE) {
        if (follow->current)
            match_free(follow, event);
        follow->blocks[event->block].serial = 0;
    } else {
        ebb__find_note(follow, event);
        if (follow->current) {
            if (!match(follow, event))
                depart(follow);
        } else if (follow->script_count) {
            struct follow_script *found = ebb__find_script(follow, &position);
            if (found)
                ebb__follow_start(follow, found, position);
        }
    }
    if (follow->awaited && follow->current && before != follow->position &&
        before != follow->awaited_at &&
        ebb__script_is_between(follow->awaited_at, before, follow->position))
        ebb__follow_take_over(follow);
    if (follow->border_due && follow->current)
        cross_border(follow);
    *actions = follow->actions;
    return follow->action_count;
}

bool ebb__follow_is_planned(const struct ebb_cuda_follow *follow)
{
    return follow->current != NULL;
}

uint64_t ebb__follow_next_use(const struct ebb_cuda_follow *follow, uint32_t block)
{
    const struct follow_script *current = follow->current;
    if (!current || block >= follow->top || follow->blocks[block].serial == 0 ||
        follow->blocks[block].script_block == EBB_SCRIPT_NONE)
        return CUDA_UNKNOWN_USE;
    uint32_t known = follow->blocks[block].script_block, clocks = current->script->clock_count;
    const struct ebb_script_block *planned = &ebb__script_blocks(current->script)[known];
    const struct ebb_script_use *uses = ebb__script_uses(current->script) + planned->first_use;
    uint32_t free_at = current->free_at[known];
    uint64_t freed = free_at == EBB_SCRIPT_NONE ? CUDA_UNKNOWN_USE
                                                : (free_at + clocks - follow->position) % clocks;
    if (planned->use_count == 0)
        return free_at == EBB_SCRIPT_NONE ? CUDA_UNKNOWN_USE : CUDA_FREED_BEFORE;
    /* Uses ascend from the first one on, cyclically. */
    uint32_t base = uses[0].clock, low = 0, high = planned->use_count;
    uint32_t here = (follow->position + clocks - base) % clocks;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if ((uses[middle].clock + clocks - base) % clocks < here)
            low = middle + 1;
        else
            high = middle;
    }
    uint32_t next = low < planned->use_count ? uses[low].clock : base;
    uint64_t distance = (next + clocks - follow->position) % clocks;
    return distance <= freed ? distance : CUDA_FREED_BEFORE;
}

uint64_t ebb__follow_place(const struct ebb_cuda_follow *follow, uint64_t bytes,
                           uint64_t *placement_bytes)
{
    const struct cuda_event event = {.kind = EBB_EVENT_ALLOC, .bytes = bytes};
    *placement_bytes = follow_may_place(follow) ? follow->current->script->placement_bytes : 0;
    uint32_t first, at = *placement_bytes ? look(follow, &event, &first) : EBB_SCRIPT_NONE;
    if (at == EBB_SCRIPT_NONE)
        return EBB_SCRIPT_NO_PLACE;
    return ebb__script_blocks(follow->current->script)[follow_event(follow->current, at)->block]
        .place;
}

struct cuda_follow_counts ebb__follow_counts(const struct ebb_cuda_follow *follow)
{
    return follow->counts;
}
