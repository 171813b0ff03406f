/* Steps with other sizes than the script has.
 *
 * The last batch of an epoch is smaller, a sequence is longer. The blocks then come and go in the
 * same order, and most sizes are those of the script times a ratio, or times its square. The plan
 * is as good for such a step, so it is followed there, too. An evaluation also has other sizes, but
 * it frees its blocks at other places. Until enough allocations have agreed, the step is in doubt:
 * it is observed like a departure. If it is none, the script is left where the doubt began.
 *
 * Scripts of steps that always differ (EBB_SCRIPT_BY_SHAPE) have events of any size. */
#include "runtime/replay/matcher.h"

enum {
    PROVEN_ALLOCS = 16,    /* allocations since the first other size end the doubt, */
    PROVEN_DIVISOR = 2,    /* or so large a part of those of the script, */
    SCALED_DIVISOR = 4,    /* if such a part of them has a scaled size */
    DOUBTFUL_STRAYS = 2,   /* frees at other places than in the script, while it is in doubt */
    STRAYS_DIVISOR = 64,   /* and for each so many allocations of the script without a doubt */
    ROUNDED_DIVISOR = 512, /* such a part of a scaled size is rounded, */
    ROUNDED_BYTES = 1024,  /* or so much */
    START_DIVISOR = 8,     /* of what a step adds to the live bytes: it begins below that */
    OVER_DIVISOR = 2,      /* of the script's allocations: a step with one ratio may be over */
};

#define LEAST_RATIO 0.03125
#define MOST_RATIO 2.0 /* a plan is for a peak, so it helps little if all is much larger */

static bool is_times(uint64_t from_bytes, uint64_t to_bytes, double factor)
{
    double exact = (double)from_bytes * factor, off = (double)to_bytes - exact;
    double most = exact / ROUNDED_DIVISOR + ROUNDED_BYTES;
    return off <= most && -off <= most;
}

/* What attention makes of a sequence grows with the square of its length. */
static bool is_scaled(uint64_t from_bytes, uint64_t to_bytes, double ratio)
{
    return is_times(from_bytes, to_bytes, ratio) || is_times(from_bytes, to_bytes, ratio * ratio);
}

/* Does another script have such an allocation? Then it may be the one that is followed now. */
static bool is_of_another(const struct replay *replay, uint64_t size_bytes)
{
    for (uint32_t i = 0; i < replay->script_count; i++)
        if (&replay->scripts[i] != replay->current &&
            ebb__template_next_alloc(replay->scripts[i].script, 0, size_bytes) != UINT32_MAX)
            return true;
    return false;
}

/* Are about as few bytes live at `position` as ever? A step of another batch begins with the batch.
 * O(clock events), where a script would be left otherwise. */
static bool is_at_start(const struct ebb_script *script, uint32_t position)
{
    const struct ebb_script_event *events = ebb__script_events(script);
    const struct ebb_script_block *blocks = ebb__script_blocks(script);
    double load = 0, here = 0, least = 0, most = 0; /* scripts are not trusted: no overflow */
    for (uint32_t i = 0; i < script->clock_count; i++) {
        double bytes = (double)blocks[events[i].block].size_bytes;
        here = i == position ? load : here;
        load += events[i].kind == EBB_EVENT_ALLOC ? bytes : -bytes;
        least = load < least ? load : least;
        most = load > most ? load : most;
    }
    return (here - least) * START_DIVISOR <= most - least;
}

bool ebb__sizes_agree(struct replay *replay, const struct ebb_script_event *event,
                      uint64_t size_bytes)
{
    struct other_sizes *other = &replay->other_sizes;
    const struct ebb_script *script = replay->current->script;
    if (event->size_bytes == EBB_SCRIPT_ANY_SIZE)
        return true;
    if (script->flags & (EBB_SCRIPT_BY_SHAPE | EBB_SCRIPT_ANNOUNCED))
        return false;
    if (other->ratio > 0 && is_scaled(event->size_bytes, size_bytes, other->ratio)) {
        other->scaled++;
        return true;
    }
    double ratio = (double)size_bytes / (double)event->size_bytes;
    bool begins = other->ratio <= 0 ||
                  (replay->allocations - other->since) * OVER_DIVISOR > script->alloc_count;
    if (!begins || ratio < LEAST_RATIO || ratio > MOST_RATIO ||
        !is_at_start(script, replay->position) || is_of_another(replay, size_bytes))
        return false;
    *other = (struct other_sizes){
        .ratio = ratio, .since = replay->allocations, .position = replay->position, .scaled = 1};
    return true;
}

/* Have so many allocations come since the first other size that there should be no doubt? */
static bool is_due(const struct replay *replay)
{
    uint64_t seen = replay->allocations - replay->other_sizes.since;
    uint32_t allocs = replay->current->script->alloc_count;
    return seen >= PROVEN_ALLOCS || seen * PROVEN_DIVISOR >= allocs;
}

bool ebb__sizes_doubtful(const struct replay *replay)
{
    const struct other_sizes *other = &replay->other_sizes;
    if (!replay->current || other->ratio <= 0 || other->is_proven)
        return false;
    uint64_t seen = replay->allocations - other->since + 1;
    return !is_due(replay) || (uint64_t)other->scaled * SCALED_DIVISOR < seen;
}

void ebb__sizes_stray(struct replay *replay)
{
    replay->other_sizes.strays++;
}

bool ebb__sizes_are_regular(struct replay *replay)
{
    struct other_sizes *other = &replay->other_sizes;
    const struct ebb_script *script = replay->current->script;
    if (other->ratio <= 0 && !(script->flags & EBB_SCRIPT_BY_SHAPE))
        return true; /* sizes tell enough */
    bool is_doubtful = ebb__sizes_doubtful(replay);
    if (is_doubtful && is_due(replay))
        return false; /* a few blocks have other sizes, which is another step */
    other->is_proven |= !is_doubtful;
    uint32_t most = DOUBTFUL_STRAYS + (is_doubtful ? 0 : script->alloc_count / STRAYS_DIVISOR);
    return other->strays <= most;
}
