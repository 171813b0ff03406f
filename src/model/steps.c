/* Method: live bytes become a list of turns, troughs and peaks, with a hysteresis of a 64th of
 * the peak. The turns at a coarser hysteresis are among them, so the list can be looked at again
 * once it is known what is large. The coarser the hysteresis, the fewer the swings. Of a grid of
 * sizes the one is taken whose swings score most. */
#include "steps.h"

#include "base/order.h"

#include <string.h>

enum {
    KEPT = 1 << 14,    /* turns: a limit, of 1.2 MB; 8192 steps */
    FINE_DIVISOR = 64, /* weights and their states may be most of the peak */
    NEIGHBOURS = 4,    /* so many begins of swings beside one tell that it is the base */
    BASE_DIVISOR = 32,
    GRID_DIVISOR = 20, /* sizes that are tried are so close to each other: a twentieth */
};

/* Adds a point to turns with a hysteresis of `least_bytes`. The last turn moves while live bytes go
 * on in its direction. */
static bool add_point(ebb_turns *turns, const struct ebb_turn *point, uint64_t least_bytes)
{
    if (turns->count == 0)
        return ebb_vec_push(turns, *point);
    struct ebb_turn *last = &turns->items[turns->count - 1];
    bool is_peak = turns->count % 2 == 0;
    if (is_peak ? point->bytes > last->bytes : point->bytes <= last->bytes) {
        *last = *point;
        return true;
    }
    uint64_t turned = is_peak ? last->bytes - point->bytes : point->bytes - last->bytes;
    return turned < least_bytes || turned == 0 || ebb_vec_push(turns, *point);
}

/* The turns of `steps` with another hysteresis. */
static bool coarsen(const struct ebb_steps *steps, uint64_t least_bytes, ebb_turns *coarse)
{
    coarse->count = 0;
    for (size_t i = 0; i < steps->turns.count; i++)
        if (!add_point(coarse, &steps->turns.items[i], least_bytes))
            return false;
    return true;
}

/* Swings that have come down again. */
static size_t swings(const ebb_turns *turns)
{
    return turns->count ? (turns->count - 1) / 2 : 0;
}

/* The swing that tells a step: see the rule. *bytes is 0 if there is none. */
static bool find_telling(const struct ebb_steps *steps, ebb_turns *scratch, uint64_t *bytes)
{
    double best = 0;
    bool recurs = false;
    *bytes = 0;
    for (uint64_t least = steps->peak_bytes; least > steps->peak_bytes / FINE_DIVISOR;
         least -= least / GRID_DIVISOR + 1) {
        if (!coarsen(steps, least, scratch))
            return false;
        double count = (double)swings(scratch), size = (double)least;
        double score = count * size * size;
        if (recurs ? count < EBB_STEPS_RECUR || score <= best
                   : count < EBB_STEPS_RECUR && score <= best)
            continue;
        recurs = count >= EBB_STEPS_RECUR;
        best = score;
        *bytes = least;
    }
    return true;
}

enum level {
    LEVEL_BASE,
    LEVEL_ABOVE, /* fewer bytes are live at the begins of swings before and after it */
    LEVEL_OPEN,  /* of those before it; after it, none is known yet */
};

/* The start of the swing with trough number `at`. The trough before all is from before the
 * model. The last one may be of the program's end. They are no neighbours. */
static enum level level_of(const ebb_turns *turns, size_t at, uint64_t swing_bytes)
{
    size_t end = turns->count / 2, before = at, after = at;
    uint64_t least = turns->items[2 * at].bytes, spare = swing_bytes / BASE_DIVISOR;
    least = least > spare ? least - spare : 0; /* the neighbours have so much at least */
    if (at == 0)
        return LEVEL_BASE;
    while (before > 1 && at - before < NEIGHBOURS && turns->items[2 * before - 2].bytes >= least)
        before--;
    while (after + 1 < end && after - at < NEIGHBOURS && turns->items[2 * after + 2].bytes >= least)
        after++;
    if (after - before >= NEIGHBOURS)
        return LEVEL_BASE;
    return after + 1 == end ? LEVEL_OPEN : LEVEL_ABOVE;
}

/* The steps among coarse turns. */
struct walk {
    const ebb_turns *turns;
    uint64_t swing_bytes;
    unsigned batches;   /* so many that begin at the base are one step */
    bool has_above;     /* some swings are parts of steps: so are those whose level is open */
    size_t first, last; /* turns of the step: [first, last), first a trough */
};

static struct walk begin_walk(const ebb_turns *turns, uint64_t swing_bytes, unsigned batches)
{
    struct walk walk = {
        .turns = turns, .swing_bytes = swing_bytes, .batches = batches ? batches : 1};
    for (size_t at = 0; swing_bytes && at < turns->count / 2 && !walk.has_above; at++)
        walk.has_above = level_of(turns, at, swing_bytes) == LEVEL_ABOVE;
    return walk;
}

static bool next_step(struct walk *walk)
{
    size_t at = walk->last / 2, count = walk->turns->count / 2; /* peaks */
    if (at >= count || !walk->swing_bytes)
        return false;
    walk->first = 2 * at;
    unsigned left = walk->batches;
    for (at++; at < count; at++) {
        enum level level = level_of(walk->turns, at, walk->swing_bytes);
        bool is_base = level == LEVEL_BASE || (level == LEVEL_OPEN && !walk->has_above);
        if (is_base && --left == 0)
            break;
    }
    walk->last = 2 * at;
    return true;
}

static bool is_planned(const struct walk *walk)
{
    for (size_t i = walk->first + 1; i < walk->last; i += 2)
        if (walk->turns->items[i].planned)
            return true;
    return false;
}

/* The steps among the turns that are kept. */
static bool find_kept(const struct ebb_steps *steps, uint64_t told_bytes, ebb_turns *turns,
                      uint64_t *swing_bytes)
{
    *swing_bytes = told_bytes;
    return (told_bytes || find_telling(steps, turns, swing_bytes)) &&
           coarsen(steps, *swing_bytes - *swing_bytes / 3, turns);
}

/* What was counted before counts if it swung as much. */
static bool before_counts(const struct ebb_steps *steps, uint64_t swing_bytes)
{
    return steps->before.count && steps->before_bytes >= swing_bytes - swing_bytes / 3;
}

/* What was counted before, when nothing was known of micro-batches. */
static struct ebb_steps_found counted_before(const struct ebb_steps *steps, unsigned batches)
{
    struct ebb_steps_found found = steps->before;
    if (batches > 1) {
        found.count /= batches;
        found.planned /= batches;
        if (found.planned_from != UINT64_MAX)
            found.planned_from /= batches;
    }
    return found;
}

uint64_t ebb__steps_swing(const struct ebb_steps *steps, uint64_t first_ns, uint64_t last_ns)
{
    uint64_t least = UINT64_MAX, most = 0;
    for (size_t i = 0; i < steps->turns.count; i++) {
        const struct ebb_turn *turn = &steps->turns.items[i];
        if (turn->time_ns < first_ns || turn->time_ns > last_ns)
            continue;
        least = turn->bytes < least ? turn->bytes : least;
        most = turn->bytes > most ? turn->bytes : most;
    }
    return least < most ? most - least : 0;
}

uint64_t ebb__steps_swings(const struct ebb_steps *steps, uint64_t least_bytes, uint64_t from_ns)
{
    ebb_turns turns = {0};
    uint64_t count = 0;
    if (coarsen(steps, least_bytes, &turns))
        for (size_t i = 1; i + 1 < turns.count; i += 2)
            count += turns.items[i].time_ns >= from_ns;
    ebb_vec_free(&turns);
    return count;
}

/* Adds the lost time of the step to that of the first ones. */
static void add_lost(const struct walk *walk, struct ebb_lost *lost)
{
    if (walk->last >= walk->turns->count || lost->count == EBB_LOST_ITERATIONS)
        return;
    const struct ebb_turn *first = &walk->turns->items[walk->first];
    const struct ebb_turn *last = &walk->turns->items[walk->last];
    struct ebb_lost_iteration *made = &lost->iterations[lost->count++];
    made->ns = last->time_ns - first->time_ns;
    for (int c = 0; c < EBB_LOST_CAUSES; c++) {
        made->cause_ns[c] = last->lost_ns[c] - first->lost_ns[c];
        lost->has_waits |= made->cause_ns[c] > 0;
    }
}

enum ebb_status ebb__steps_find(const struct ebb_steps *steps, struct ebb_steps_rule rule,
                                struct ebb_steps_found *found)
{
    ebb_turns turns = {0};
    EBB_VEC(uint64_t) durations = {0};
    uint64_t swing_bytes;
    *found = (struct ebb_steps_found){.planned_from = UINT64_MAX};
    bool good = find_kept(steps, rule.telling_bytes, &turns, &swing_bytes);
    if (good && before_counts(steps, swing_bytes))
        *found = counted_before(steps, rule.batches);
    struct walk walk = begin_walk(&turns, good ? swing_bytes : 0, rule.batches);
    while (good && next_step(&walk)) {
        add_lost(&walk, &found->lost);
        if (is_planned(&walk)) {
            if (found->planned++ == 0)
                found->planned_from = found->count;
            if (walk.last < turns.count)
                good = ebb_vec_push(&durations, turns.items[walk.last].time_ns -
                                                    turns.items[walk.first].time_ns);
        }
        found->count++;
    }
    if (steps->before.count && !before_counts(steps, swing_bytes))
        found->lost = (struct ebb_lost){0}; /* the first ones are forgotten */
    if (good)
        found->median_ns = ebb__median_u64(durations.items, durations.count); /* and sorts them */
    if (good && durations.count) {
        found->min_ns = durations.items[0];
        found->max_ns = durations.items[durations.count - 1];
    }
    ebb_vec_free(&durations);
    ebb_vec_free(&turns);
    return good ? EBB_OK : EBB_ERR_MEMORY;
}

uint64_t ebb__steps_within(const struct ebb_steps *steps, struct ebb_steps_rule rule,
                           uint64_t first_ns, uint64_t last_ns)
{
    ebb_turns turns = {0};
    uint64_t swing_bytes, count = 0;
    bool good = find_kept(steps, rule.telling_bytes, &turns, &swing_bytes);
    struct walk walk = begin_walk(&turns, good ? swing_bytes : 0, rule.batches);
    while (next_step(&walk)) {
        uint64_t begin_ns = turns.items[walk.first].time_ns;
        count += begin_ns >= first_ns && begin_ns < last_ns;
    }
    ebb_vec_free(&turns);
    return count;
}

enum ebb_status ebb__steps_at(const struct ebb_steps *steps, struct ebb_steps_rule rule,
                              uint64_t event, uint64_t *number)
{
    ebb_turns turns = {0};
    uint64_t swing_bytes, count = 0;
    bool good = find_kept(steps, rule.telling_bytes, &turns, &swing_bytes);
    *number = 0;
    if (good && before_counts(steps, swing_bytes))
        count = counted_before(steps, rule.batches).count;
    struct walk walk = begin_walk(&turns, good ? swing_bytes : 0, rule.batches);
    while (next_step(&walk)) {
        if (turns.items[walk.first].event > event)
            break;
        *number = count++;
    }
    ebb_vec_free(&turns);
    return good ? EBB_OK : EBB_ERR_MEMORY;
}

/* The trough at which the last step begins, which is not over. If it has most of the turns, or is
 * the only step, the newest trough. */
static bool find_last_step(const struct ebb_steps *steps, uint64_t *swing_bytes, size_t *trough)
{
    const ebb_turns *turns = &steps->turns;
    ebb_turns coarse = {0};
    bool good = find_kept(steps, 0, &coarse, swing_bytes);
    struct walk walk = begin_walk(&coarse, good ? *swing_bytes : 0, 1);
    uint64_t event = 0;
    while (next_step(&walk))
        event = coarse.items[walk.first].event;
    ebb_vec_free(&coarse);
    *trough = (turns->count - 1) / 2 * 2;
    for (size_t i = turns->count / 2; i < turns->count; i++)
        if (turns->items[i].event == event && i % 2 == 0)
            *trough = i;
    return good;
}

/* Forgets turns that are too small by now. If that is not enough, counts the steps that are over
 * and forgets their turns. */
static bool forget(struct ebb_steps *steps)
{
    ebb_turns coarse = {0};
    if (!coarsen(steps, steps->peak_bytes / FINE_DIVISOR, &coarse)) {
        ebb_vec_free(&coarse);
        return false;
    }
    ebb_vec_free(&steps->turns);
    memcpy(&steps->turns, &coarse, sizeof coarse);
    if (coarse.count < KEPT / 2)
        return true;
    struct ebb_steps_found found;
    uint64_t swing_bytes;
    size_t trough, count = steps->turns.count;
    if (!find_last_step(steps, &swing_bytes, &trough))
        return false;
    steps->turns.count = trough + 1;
    if (ebb__steps_find(steps, (struct ebb_steps_rule){0}, &found) != EBB_OK)
        return false;
    steps->before = found;
    steps->before_bytes = swing_bytes;
    steps->turns.count = count - trough;
    memmove(steps->turns.items, steps->turns.items + trough,
            steps->turns.count * sizeof *steps->turns.items);
    return true;
}

enum ebb_status ebb__steps_push(struct ebb_steps *steps, const struct ebb_event *event,
                                bool planned)
{
    uint64_t bytes = event->size_bytes;
    struct ebb_turn point = {.time_ns = event->time_ns, .event = steps->events++};
    if (event->kind == EBB_EVENT_ALLOC)
        steps->live_bytes += bytes;
    else if (event->kind == EBB_EVENT_FREE)
        steps->live_bytes -= bytes < steps->live_bytes ? bytes : steps->live_bytes;
    else {
        ebb__lost_take(&steps->lost, event);
        return EBB_OK;
    }
    point.bytes = steps->live_bytes;
    memcpy(point.lost_ns, steps->lost.cause_ns, sizeof point.lost_ns);
    point.planned = planned;
    if (steps->live_bytes > steps->peak_bytes)
        steps->peak_bytes = steps->live_bytes;
    if (steps->turns.count == 0 &&
        !ebb_vec_push(&steps->turns, ((struct ebb_turn){.time_ns = point.time_ns})))
        return EBB_ERR_MEMORY; /* nothing is live at the begin */
    if (steps->turns.count >= KEPT && !forget(steps))
        return EBB_ERR_MEMORY;
    return add_point(&steps->turns, &point, steps->peak_bytes / FINE_DIVISOR) ? EBB_OK
                                                                              : EBB_ERR_MEMORY;
}

void ebb__steps_fini(struct ebb_steps *steps)
{
    ebb_vec_free(&steps->turns);
    *steps = (struct ebb_steps){0};
}
