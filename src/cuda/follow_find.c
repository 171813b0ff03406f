/* Problem: at which position of which script is the program, if nothing but its events tells?
 * Method: a rolling hash of the newest events leads to the positions at which the same events end.
 * Each of these is compared event by event, with the names of persistent blocks. So the layers of a
 * network, which are alike in sizes, are told apart by their weights. Only one position may
 * remain. O(1) per event that is not found; frees do not count. */
#include "cuda/follow_state.h"

#include "base/tuning.h"

#define FACTOR 0x9e3779b97f4a7c15u /* odd, of no other property that matters */
#define MOST_CANDIDATES 256u       /* a limit: with more, the next events tell */

static uint64_t symbol(uint32_t kind, uint64_t bytes)
{
    uint64_t mixed = (bytes << 1 | (kind == EBB_EVENT_ALLOC)) * FACTOR;
    return mixed ^ mixed >> 29;
}

void ebb__find_init(struct ebb_cuda_follow *follow)
{
    follow->window = (uint32_t)ebb__tuning()->sync_allocations;
    follow->window_factor = 1;
    for (uint32_t i = 0; i < follow->window; i++)
        follow->window_factor *= FACTOR;
}

static uint64_t slide(const struct ebb_cuda_follow *follow, uint64_t hash, uint64_t enters,
                      uint64_t leaves)
{
    return hash * FACTOR + enters - leaves * follow->window_factor;
}

/* The next position before `position` whose event is no FREE. */
static uint32_t told_before(const struct follow_script *known, uint32_t position)
{
    uint32_t clocks = known->script->clock_count;
    do
        position = (position + clocks - 1) % clocks;
    while (follow_event(known, position)->kind == EBB_EVENT_FREE);
    return position;
}

static uint32_t told_after(const struct follow_script *known, uint32_t position)
{
    uint32_t clocks = known->script->clock_count;
    do
        position = (position + 1) % clocks;
    while (follow_event(known, position)->kind == EBB_EVENT_FREE);
    return position;
}

static uint64_t symbol_at(const struct follow_script *known, uint32_t position)
{
    const struct ebb_script_event *event = follow_event(known, position);
    return symbol(event->kind, event->size_bytes);
}

void ebb__find_prepare(const struct ebb_cuda_follow *follow, struct follow_script *known)
{
    uint32_t leaving = 0;
    uint64_t hash = 0;
    for (uint32_t i = 0; i <= known->bucket_mask; i++)
        known->buckets[i] = EBB_SCRIPT_NONE;
    if (known->told_count == 0)
        return;
    while (follow_event(known, leaving)->kind == EBB_EVENT_FREE)
        leaving++;
    uint32_t first = leaving, entering = leaving;
    for (uint32_t i = 0; i < follow->window; i++)
        leaving = told_before(known, leaving);
    for (uint32_t at = leaving, i = 0; i < follow->window; i++, at = told_after(known, at))
        hash = hash * FACTOR + symbol_at(known, at);
    do {
        hash = slide(follow, hash, symbol_at(known, entering), symbol_at(known, leaving));
        known->hashes[entering] = hash;
        uint32_t *bucket = &known->buckets[hash >> 32 & known->bucket_mask];
        known->bucket_next[entering] = *bucket;
        *bucket = entering;
        entering = told_after(known, entering);
        leaving = told_after(known, leaving);
    } while (entering != first);
}

void ebb__find_note(struct ebb_cuda_follow *follow, const struct cuda_event *event)
{
    uint64_t leaves = 0;
    if (follow->past >= follow->window) {
        const struct follow_past *last =
            &follow->history[(follow->past - follow->window) % HISTORY];
        leaves = symbol(last->kind, last->bytes);
    }
    follow->hash = slide(follow, follow->hash, symbol(event->kind, event->bytes), leaves);
    follow->history[follow->past++ % HISTORY] = (struct follow_past){
        .bytes = event->bytes,
        .serial = event->serial,
        .block = event->block,
        .kind = event->kind,
    };
}

/* May the event be that of `position`? A persistent block must be the very one. */
static bool agrees(const struct follow_script *known, uint32_t position,
                   const struct follow_past *past)
{
    const struct ebb_script_event *event = follow_event(known, position);
    return event->kind == past->kind && event->size_bytes == past->bytes &&
           (event->block >= known->script->persistent_count ||
            known->names.serials[event->block] == past->serial);
}

uint32_t ebb__find_agreement(const struct ebb_cuda_follow *follow,
                             const struct follow_script *known, uint32_t position, uint32_t most)
{
    uint32_t agreed = 0;
    if (most > HISTORY)
        most = HISTORY;
    if (most > follow->past)
        most = (uint32_t)follow->past;
    for (; agreed < most; agreed++, position = told_before(known, position))
        if (!agrees(known, position, &follow->history[(follow->past - 1 - agreed) % HISTORY]))
            break;
    return agreed;
}

/* The only position at which the newest events end. EBB_SCRIPT_NONE: none, or several. */
static uint32_t find_position(const struct ebb_cuda_follow *follow,
                              const struct follow_script *known)
{
    uint32_t found = EBB_SCRIPT_NONE, candidates = 0;
    if (follow->newest_serial < known->script->first_serial)
        return EBB_SCRIPT_NONE;
    for (uint32_t at = known->buckets[follow->hash >> 32 & known->bucket_mask];
         at != EBB_SCRIPT_NONE; at = known->bucket_next[at]) {
        if (known->hashes[at] != follow->hash)
            continue;
        if (++candidates > MOST_CANDIDATES)
            return EBB_SCRIPT_NONE;
        if (ebb__find_agreement(follow, known, at, follow->window) < follow->window)
            continue;
        if (found != EBB_SCRIPT_NONE)
            return EBB_SCRIPT_NONE;
        found = at;
    }
    return found;
}

struct follow_script *ebb__find_script(const struct ebb_cuda_follow *follow, uint32_t *position)
{
    struct follow_script *best = NULL;
    uint32_t best_agreed = 0;
    if (follow->past < follow->window)
        return NULL;
    for (uint32_t i = follow->script_count; i-- > 0;) { /* newest first */
        struct follow_script *known = follow->scripts[i];
        uint32_t at = find_position(follow, known);
        if (at == EBB_SCRIPT_NONE)
            continue;
        uint32_t agreed = ebb__find_agreement(follow, known, at, known->told_count);
        /* If both agree with as much, it is the shorter one: a longer one contains it, and expects
         * something behind it. */
        if (best && (agreed < best_agreed ||
                     (agreed == best_agreed && known->told_count >= best->told_count)))
            continue;
        best = known;
        best_agreed = agreed;
        *position = at;
    }
    return best;
}
