/* Problem: the smallest repeating unit of a symbol stream, announced as soon as it has been seen
 * twice, in about constant time a symbol.
 * Method: keep a handful of candidate periods, each with its run (how many of the newest symbols
 * equal the one a period earlier). Periods up to 8 are always candidates; longer ones come from
 * tables that know where the last 8, 64, 512 ... symbols stood before (longer grams see through
 * inner repetitions that are shorter than they are). A new candidate's run is extended backwards
 * by bisection over prefix hashes, so that it does not matter when it was noticed. A candidate is
 * announced when its run is a period and the live bytes are back; of several the one that reaches
 * back furthest wins, then the smaller: an inner repetition never hides the iteration around it.
 * Where sizes say nothing (all equal), multiples of the period at which the load repeats are tried.
 * Cost: O(1) expected a symbol, O(log n) for a new candidate; about 60 bytes a symbol.
 * Fails: on streams whose order varies (several threads), and on words all of whose grams recur
 * within a period at every scale. */
#include "detect.h"

#include "base/map.h"
#include "rolling.h"

#include <string.h>

enum {
    SMALL_PERIODS = 8,    /* always tracked */
    CANDIDATE_LIMIT = 32, /* in all; arbitrary: more than eight at a time was never seen */
    LEVEL_COUNT = 7,      /* grams of 8, 64 ... 2^21 symbols */
    LONG_GRAM_SHARE = 8,  /* grams of 64 and more are met at one in so many symbols */
    SAMPLE_LIMIT = 32,    /* phases at which the load is compared */
};

struct candidate {
    size_t period;
    size_t run;
};

struct ebb_detector {
    struct ebb_rolling rolling;
    EBB_VEC(uint64_t) symbols;
    EBB_VEC(uint64_t) live;
    uint64_t peak;
    struct candidate candidates[CANDIDATE_LIMIT]; /* the first SMALL_PERIODS are permanent */
    size_t candidate_count;
    struct ebb_map grams[LEVEL_COUNT]; /* hash of a gram -> index of its last symbol */
    struct ebb_map loads;              /* load_key() -> newest symbol with it */
    struct ebb_detection current;
    size_t current_run;
};

static size_t gram_symbols(size_t level)
{
    return (size_t)8 << (3 * level);
}

enum ebb_status ebb__detector_create(struct ebb_detector **detector)
{
    struct ebb_detector *made = calloc(1, sizeof *made);
    if (!made)
        return EBB_ERR_MEMORY;
    for (size_t i = 0; i < SMALL_PERIODS; i++)
        made->candidates[i].period = i + 1;
    made->candidate_count = SMALL_PERIODS;
    *detector = made;
    return EBB_OK;
}

void ebb__detector_destroy(struct ebb_detector *detector)
{
    if (!detector)
        return;
    ebb__rolling_fini(&detector->rolling);
    ebb_vec_free(&detector->symbols);
    ebb_vec_free(&detector->live);
    for (size_t i = 0; i < LEVEL_COUNT; i++)
        ebb__map_fini(&detector->grams[i]);
    ebb__map_fini(&detector->loads);
    free(detector);
}

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

/* Is the load of the newest period that of the one before? The newest symbol must be back within
 * 1 % of the peak, and so must three quarters of up to 32 phases, for a single one may agree by
 * chance. An inner repetition of a deep network adds less than 1 % of the peak but much of what
 * its own load varies by: so a sixteenth of that swing is the limit too, noise of 1/4096 of the
 * peak apart (both arbitrary). */
static bool load_is_back(const struct ebb_detector *d, size_t period)
{
    const uint64_t *live = d->live.items;
    size_t newest = d->live.count - 1;
    uint64_t tolerance = d->peak / 100;
    if (distance(live[newest], live[newest - period]) > tolerance)
        return false;
    size_t samples = period < SAMPLE_LIMIT ? period : SAMPLE_LIMIT;
    uint64_t low = UINT64_MAX, high = 0;
    for (size_t i = 0; i < samples; i++) {
        size_t at = newest - i * period / samples;
        uint64_t now = live[at], before = live[at - period];
        low = now < low ? now : low;
        low = before < low ? before : low;
        high = now > high ? now : high;
        high = before > high ? before : high;
    }
    uint64_t swing = (high - low) / 16;
    swing = swing < d->peak / 4096 ? d->peak / 4096 : swing;
    tolerance = tolerance < swing ? tolerance : swing;
    if (distance(live[newest], live[newest - period]) > tolerance)
        return false;
    size_t agree = 0;
    for (size_t i = 0; i < samples; i++) {
        size_t at = newest - i * period / samples;
        agree += distance(live[at], live[at - period]) <= tolerance;
    }
    return agree * 4 >= samples * 3;
}

/* How many of the newest symbols equal the one `period` earlier; at least `known` do. */
static size_t backward_run(const struct ebb_detector *d, size_t period, size_t known)
{
    size_t count = d->symbols.count;
    size_t low = known, high = count - period;
    while (low < high) {
        size_t middle = low + (high - low + 1) / 2;
        if (ebb__rolling_range(&d->rolling, count - middle, count) ==
            ebb__rolling_range(&d->rolling, count - middle - period, count - period))
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* A multiple of a tracked period, whose run is only what follows from that period's. */
static bool is_mere_multiple(const struct ebb_detector *d, size_t period)
{
    size_t newest = d->symbols.count - 1;
    for (size_t i = 0; i < d->candidate_count; i++) {
        const struct candidate *c = &d->candidates[i];
        if (c->run == 0 || period <= c->period || c->run + c->period <= period ||
            period % c->period != 0)
            continue;
        size_t implied = c->run + c->period - period;
        if (newest < implied + period ||
            d->symbols.items[newest - implied] != d->symbols.items[newest - implied - period])
            return true;
    }
    return false;
}

static void add_candidate(struct ebb_detector *d, size_t period, size_t known)
{
    for (size_t i = 0; i < d->candidate_count; i++)
        if (d->candidates[i].period == period)
            return;
    if (period <= SMALL_PERIODS || is_mere_multiple(d, period))
        return;
    struct candidate made = {period, backward_run(d, period, known)};
    if (d->candidate_count < CANDIDATE_LIMIT) {
        d->candidates[d->candidate_count++] = made;
        return;
    }
    size_t weakest = SMALL_PERIODS;
    for (size_t i = SMALL_PERIODS; i < d->candidate_count; i++)
        if (d->candidates[i].run < d->candidates[weakest].run)
            weakest = i;
    if (d->candidates[weakest].run < made.run && d->candidates[weakest].period != d->current.period_symbols)
        d->candidates[weakest] = made;
}

/* Lengthen or end every candidate's run by the newest symbol. */
static void advance_candidates(struct ebb_detector *d)
{
    size_t newest = d->symbols.count - 1;
    const uint64_t *symbols = d->symbols.items;
    for (size_t i = 0; i < d->candidate_count;) {
        struct candidate *c = &d->candidates[i];
        bool same = newest >= c->period && symbols[newest] == symbols[newest - c->period];
        if (same) {
            c->run++;
        } else if (i < SMALL_PERIODS) {
            c->run = 0;
        } else {
            *c = d->candidates[--d->candidate_count];
            continue;
        }
        i++;
    }
}

/* Look the newest grams up and remember them: the short ones at every symbol, the long ones where
 * the short one's hash says so, which is at the same places in every iteration. */
static bool meet_grams(struct ebb_detector *d)
{
    size_t count = d->symbols.count;
    for (size_t level = 0; level < LEVEL_COUNT; level++) {
        size_t symbols = gram_symbols(level);
        if (count < symbols)
            break;
        uint64_t hash = ebb__rolling_range(&d->rolling, count - symbols, count);
        uint64_t before;
        if (ebb__map_get(&d->grams[level], hash, &before))
            add_candidate(d, count - 1 - (size_t)before, symbols);
        if (!ebb__map_put(&d->grams[level], hash, count - 1))
            return false;
        if (level == 0 && hash % LONG_GRAM_SHARE != 0)
            break;
    }
    return true;
}

/* Does the repetition in force end here? By its symbol, or by a load that has drifted by a quarter
 * of the peak from where it stood when it was announced (where sizes are all equal, symbols alone
 * never end anything). */
static void check_current(struct ebb_detector *d)
{
    if (!d->current.found)
        return;
    size_t newest = d->symbols.count - 1, period = d->current.period_symbols;
    d->current_run++;
    size_t since = newest - d->current.found_at_symbol; /* >= 1 */
    size_t same_phase = d->current.found_at_symbol - (period - 1 - (since - 1) % period);
    if (d->symbols.items[newest] != d->symbols.items[newest - period] ||
        distance(d->live.items[newest], d->live.items[same_phase]) > d->peak / 4) {
        memset(&d->current, 0, sizeof d->current);
        d->current_run = 0;
    }
}

/* The load at the newest symbol and before it: up and down look different. */
static uint64_t load_key(const struct ebb_detector *d)
{
    size_t newest = d->live.count - 1;
    uint64_t before = newest ? d->live.items[newest - 1] : 0;
    return (ebb__hash_mix(before) ^ d->live.items[newest]) >> 1; /* never EBB_MAP_NO_KEY */
}

static void consider(const struct ebb_detector *d, size_t period, size_t run,
                     struct candidate *best)
{
    size_t reach = run + period, best_reach = best->run + best->period;
    if (run < period || reach < best_reach || (reach == best_reach && period >= best->period))
        return;
    /* What is in force is outdone by a longer reach only. */
    if (d->current.found && reach <= d->current_run + d->current.period_symbols)
        return;
    if (load_is_back(d, period))
        *best = (struct candidate){period, run};
}

static bool announce(struct ebb_detector *d)
{
    size_t newest = d->symbols.count - 1;
    struct candidate best = {0, 0}, shortest = {0, 0};
    for (size_t i = 0; i < d->candidate_count; i++) {
        const struct candidate *c = &d->candidates[i];
        if (c->run < c->period)
            continue;
        consider(d, c->period, c->run, &best);
        if (shortest.period == 0 || c->period < shortest.period)
            shortest = *c;
    }
    if (best.period == 0 && shortest.period != 0 && !d->current.found) {
        uint64_t same_load, key = load_key(d);
        if (ebb__map_get(&d->loads, key, &same_load)) {
            size_t period = newest - (size_t)same_load;
            if (period % shortest.period == 0 && shortest.run + shortest.period >= 2 * period)
                consider(d, period, shortest.run + shortest.period - period, &best);
        }
        if (!ebb__map_put(&d->loads, key, newest))
            return false;
    }
    if (best.period == 0)
        return true;
    d->current = (struct ebb_detection){
        .found = true,
        .first_symbol = newest + 1 - 2 * best.period,
        .period_symbols = best.period,
        .found_at_symbol = newest,
    };
    d->current_run = best.run;
    return true;
}

enum ebb_status ebb__detector_push(struct ebb_detector *detector, uint64_t symbol,
                                   uint64_t live_bytes)
{
    if (!ebb__rolling_push(&detector->rolling, symbol) ||
        !ebb_vec_push(&detector->symbols, symbol) || !ebb_vec_push(&detector->live, live_bytes))
        return EBB_ERR_MEMORY;
    if (live_bytes > detector->peak)
        detector->peak = live_bytes;
    advance_candidates(detector);
    check_current(detector);
    if (!meet_grams(detector))
        return EBB_ERR_MEMORY;
    return announce(detector) ? EBB_OK : EBB_ERR_MEMORY;
}

struct ebb_detection ebb__detector_current(const struct ebb_detector *detector)
{
    return detector->current;
}

size_t ebb__detector_run(const struct ebb_detector *detector)
{
    return detector->current.found ? detector->current_run : 0;
}
