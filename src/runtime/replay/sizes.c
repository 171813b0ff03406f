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
    PROVEN_ALLOCS = 16,    /* allocations that agree after the first other size: no doubt is left */
    PROVEN_SCALED = 4,     /* of these, so many with a scaled size */
    DOUBTFUL_STRAYS = 2,   /* frees at other places than in the script, while it is in doubt */
    STRAYS_DIVISOR = 64,   /* and for each so many allocations of the script without a doubt */
    ROUNDED_DIVISOR = 512, /* such a part of a scaled size is rounded, */
    ROUNDED_BYTES = 1024,  /* or so much */
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
    for (uint32_t i = 0; i < replay->script_count; i++) {
        const struct ebb_script *script = replay->scripts[i].script;
        uint32_t first = ebb__template_first_alloc(script, size_bytes);
        if (&replay->scripts[i] != replay->current && first < script->alloc_count &&
            ebb__script_events(script)[ebb__script_allocs(script)[first]].size_bytes == size_bytes)
            return true;
    }
    return false;
}

bool ebb__sizes_agree(struct replay *replay, const struct ebb_script_event *event,
                      uint64_t size_bytes)
{
    struct other_sizes *other = &replay->other_sizes;
    const struct ebb_script *script = replay->current->script;
    if (event->size_bytes == size_bytes || event->size_bytes == EBB_SCRIPT_ANY_SIZE)
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
    if (!begins || ratio < LEAST_RATIO || ratio > MOST_RATIO || is_of_another(replay, size_bytes))
        return false;
    *other = (struct other_sizes){
        .ratio = ratio, .since = replay->allocations, .position = replay->position, .scaled = 1};
    return true;
}

bool ebb__sizes_doubtful(const struct replay *replay)
{
    const struct other_sizes *other = &replay->other_sizes;
    return replay->current && other->ratio > 0 &&
           (other->scaled < PROVEN_SCALED || replay->allocations - other->since < PROVEN_ALLOCS);
}

void ebb__sizes_stray(struct replay *replay)
{
    replay->other_sizes.strays++;
}

bool ebb__sizes_are_regular(const struct replay *replay)
{
    const struct other_sizes *other = &replay->other_sizes;
    const struct ebb_script *script = replay->current->script;
    if (other->ratio <= 0 && !(script->flags & EBB_SCRIPT_BY_SHAPE))
        return true; /* sizes tell enough */
    uint32_t most = DOUBTFUL_STRAYS;
    if (!ebb__sizes_doubtful(replay))
        most += script->alloc_count / STRAYS_DIVISOR;
    return other->strays <= most;
}
