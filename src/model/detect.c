/* Problem: find the smallest repeating unit of a symbol stream as soon as it has been seen twice,
 * in about constant time per symbol.
 *
 * Method: keep a few candidate periods, each with the first position from which on the symbols
 * equal those a period earlier. Periods up to 8 are always candidates. Longer ones come from tables
 * with the last position of each gram of 8, 64, 512 ... symbols; longer grams ignore shorter inner
 * repetitions. A new candidate's run is extended backwards by prefix hashes, so it does not matter
 * when it was noticed. A candidate is announced when its run is a whole period and the live bytes
 * are back at their old value. It is announced earlier if they are exactly back and it had come
 * before. Of several, the one with the longest run wins, then the smaller: an inner repetition
 * never hides the iteration around it. If all sizes are equal, multiples of the period at which the
 * load repeats are tried. Grams of the repetition in force are not entered in the tables: their
 * last position follows from the period.
 *
 * Cost: O(1) expected per symbol, O(log n) for a new candidate. 25 bytes a symbol, and 12 to 24
 * more while nothing repeats.
 * Fails on streams of varying order (several threads), and on sequences whose grams recur within a
 * period at every scale. */
#include "detect.h"

#include "load.h"
#include "seen.h"
#include "sums.h"

#include "base/tuning.h"

#include "base/vec.h"

#include <string.h>

enum {
    SMALL_PERIODS = 8,        /* always tracked */
    CANDIDATE_LIMIT = 32,     /* in total; more than eight at a time were never seen */
    LEVEL_COUNT = 7,          /* grams of 8, 64 ... 2^21 symbols */
    LONG_GRAM_SHARE = 8,      /* one in this many symbols enters grams of 64 and more */
    EARLY_LOOKS = 16,         /* in a period that has not been seen twice */
    COMPARED_ONE_BY_ONE = 32, /* symbols of a run; hashes are faster for more */
};

struct candidate {
    size_t period, run;
};

/* One past repetition: it covered the symbols [first, last). */
struct stretch {
    size_t first, last, period;
};

struct ebb_detector {
    struct ebb_rolling rolling;
    EBB_VEC(uint64_t) symbols;
    EBB_VEC(uint64_t) live;
    struct ebb_sums allocated; /* of the symbols, if these are bytes; else empty */
    uint64_t peak;
    /* Candidates: symbols [begins[i], now) equal those periods[i] earlier. The first SMALL_PERIODS
     * are permanent. */
    size_t periods[CANDIDATE_LIMIT], begins[CANDIDATE_LIMIT];
    size_t candidate_count;
    struct ebb_seen grams[LEVEL_COUNT]; /* hash of a gram -> its last symbol */
    struct ebb_seen loads;              /* load_key() -> newest symbol with that key */
    EBB_VEC(struct stretch) stretches;  /* the tables do not have their grams */
    struct ebb_detection current;
    size_t current_first; /* the repetition in force begins here */
    size_t same_phase;    /* symbol in the period of the announcement, at the newest symbol's
                             phase */
    bool skipped;         /* the tables do not have the grams of the repetition in force */
    size_t early_period, early_divisor; /* ebb__detector_announce_early() */
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
        made->periods[i] = i + 1;
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
    ebb_vec_free(&detector->stretches);
    ebb__detector_settle(detector);
    free(detector);
}

void ebb__detector_settle(struct ebb_detector *detector)
{
    for (size_t i = 0; i < LEVEL_COUNT; i++) {
        free(detector->grams[i].slots);
        detector->grams[i] = (struct ebb_seen){0};
    }
    free(detector->loads.slots);
    detector->loads = (struct ebb_seen){0};
    ebb_vec_free(&detector->allocated.kept);
}

static bool load_is_back(const struct ebb_detector *d, size_t period, size_t run)
{
    const uint64_t *symbols = d->symbols.items;
    size_t count = d->symbols.count;
    const struct ebb_load load = {
        .live = d->live.items,
        .count = d->live.count,
        .peak_bytes = d->peak,
        .period_bytes = ebb__sums_first(&d->allocated, symbols, count) -
                        ebb__sums_first(&d->allocated, symbols, count - period),
    };
    return ebb__load_is_back(&load, period, run);
}

/* The number of newest symbols that equal the one `period` earlier. */
static size_t backward_run(const struct ebb_detector *d, size_t period)
{
    size_t count = d->symbols.count, most = count - period, run = 0;
    const uint64_t *newest = &d->symbols.items[count - 1];
    while (run < most && run < COMPARED_ONE_BY_ONE && *(newest - run) == *(newest - run - period))
        run++;
    if (run < COMPARED_ONE_BY_ONE)
        return run;
    return ebb__rolling_common_before(&d->rolling, count, count - period, most);
}

/* True for a multiple of a tracked period whose run only follows from that period's. */
static bool is_mere_multiple(const struct ebb_detector *d, size_t period)
{
    size_t count = d->symbols.count;
    for (size_t i = 0; i < d->candidate_count; i++) {
        size_t base = d->periods[i], run = count - d->begins[i];
        if (run == 0 || period <= base || run + base <= period || period % base != 0)
            continue;
        size_t implied = run + base - period;
        if (count <= implied + period ||
            d->symbols.items[count - 1 - implied] != d->symbols.items[count - 1 - implied - period])
            return true;
    }
    return false;
}

static void add_candidate(struct ebb_detector *d, size_t period, size_t gram)
{
    if (period <= SMALL_PERIODS)
        return;
    for (size_t i = SMALL_PERIODS; i < d->candidate_count; i++)
        if (d->periods[i] == period)
            return;
    size_t run = backward_run(d, period);
    if (run < gram || is_mere_multiple(d, period))
        return;
    size_t place = d->candidate_count;
    if (place == CANDIDATE_LIMIT) {
        place = SMALL_PERIODS;
        for (size_t i = SMALL_PERIODS; i < CANDIDATE_LIMIT; i++)
            if (d->begins[i] > d->begins[place])
                place = i;
        if (d->symbols.count - d->begins[place] >= run ||
            d->periods[place] == d->current.period_symbols)
            return;
    } else {
        d->candidate_count++;
    }
    d->periods[place] = period;
    d->begins[place] = d->symbols.count - run;
}

/* Ends the runs of all candidates that the newest symbol breaks. */
static void advance_candidates(struct ebb_detector *d)
{
    size_t count = d->symbols.count;
    const uint64_t *newest = &d->symbols.items[count - 1];
    size_t enough = count > SMALL_PERIODS ? SMALL_PERIODS : count - 1;
    for (size_t i = 0; i < enough; i++) { /* branch-free: a branch would be unpredictable */
        size_t broken = *newest != *(newest - i - 1);
        d->begins[i] += (count - d->begins[i]) & (0 - broken);
    }
    for (size_t i = enough; i < SMALL_PERIODS; i++)
        d->begins[i] = count;
    for (size_t i = SMALL_PERIODS; i < d->candidate_count;) {
        if (*newest == *(newest - d->periods[i])) {
            i++;
        } else {
            d->candidate_count--;
            d->periods[i] = d->periods[d->candidate_count];
            d->begins[i] = d->begins[d->candidate_count];
        }
    }
}

/* The gram that ends with symbol `place` was entered there. Returns its newest position, including
 * repetitions whose grams were not entered. */
static size_t newest_place(const struct ebb_detector *d, size_t place, size_t gram)
{
    size_t low = 0, high = d->stretches.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (d->stretches.items[middle].last <= place)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < d->stretches.count; low++) {
        const struct stretch *stretch = &d->stretches.items[low];
        if (stretch->first + gram - 1 <= place && place < stretch->last)
            place += (stretch->last - 1 - place) / stretch->period * stretch->period;
        else if (stretch->first > place)
            break;
    }
    return place;
}

/* Looks up the newest grams and enters them. Short ones are entered at every symbol, long ones if
 * the hash of the short one selects them. These are at the same positions in every iteration. */
static bool meet_grams(struct ebb_detector *d)
{
    size_t count = d->symbols.count;
    size_t in_force = d->current.found ? count - d->current_first : 0;
    for (size_t level = 0; level < LEVEL_COUNT; level++) {
        size_t symbols = gram_symbols(level), before;
        if (count < symbols)
            break;
        uint64_t hash = ebb__rolling_range(&d->rolling, count - symbols, count);
        if (in_force >= symbols) { /* its last position is one period earlier */
            d->skipped = true;
        } else {
            if (!ebb__seen_meet(&d->grams[level], hash, count - 1, &before))
                return false;
            if (before != SIZE_MAX)
                add_candidate(d, count - 1 - newest_place(d, before, symbols), symbols);
        }
        if (level == 0 && hash % LONG_GRAM_SHARE != 0)
            break;
    }
    return true;
}

/* The repetition in force ends before symbol `last`. */
static bool leave_current(struct ebb_detector *d, size_t last)
{
    struct stretch stretch = {d->current_first, last, d->current.period_symbols};
    bool ok = !d->skipped || ebb_vec_push(&d->stretches, stretch);
    memset(&d->current, 0, sizeof d->current);
    d->skipped = false;
    return ok;
}

/* True if the repetition in force ends here. Its symbol differs, or the load has drifted by a
 * quarter of the peak since it was announced. (If all sizes are equal, symbols alone never end
 * anything.) */
static bool check_current(struct ebb_detector *d)
{
    if (!d->current.found)
        return true;
    size_t newest = d->symbols.count - 1, period = d->current.period_symbols;
    d->same_phase = d->same_phase == d->current.found_at_symbol ? d->same_phase + 1 - period
                                                                : d->same_phase + 1;
    if (d->symbols.items[newest] == d->symbols.items[newest - period] &&
        ebb__load_distance(d->live.items[newest], d->live.items[d->same_phase]) <= d->peak / 4)
        return true;
    return leave_current(d, newest);
}

/* The load at and before the newest symbol, to distinguish increase from decrease. */
static uint64_t load_key(const struct ebb_detector *d)
{
    size_t newest = d->live.count - 1;
    uint64_t before = newest ? d->live.items[newest - 1] : 0;
    return ebb__hash_mix(ebb__hash_mix(before) ^ d->live.items[newest]);
}

/* Had what repeats, but not yet for a period, come once more before? The first step of a training
 * begins as the others do, and is up to a quarter longer or an eighth shorter. Two steps that are
 * equal by chance, of sequences of equal lengths, have others before them. O(period). */
static bool had_come_before(const struct ebb_detector *d, size_t period, size_t run)
{
    size_t end = d->symbols.count - period, length = run / 2 + 1;
    if (end < period + length)
        return false;
    size_t about = end - period;
    size_t first = about - length > period / 4 ? about - period / 4 : length;
    uint64_t hash = ebb__rolling_range(&d->rolling, end - length, end);
    size_t last = about + period / 8 - length + 1;
    return ebb__rolling_find(&d->rolling, hash, length, first - length, last) < last;
}

/* Takes the candidate if it is better than *best and its load repeats. */
static void consider(const struct ebb_detector *d, size_t period, size_t run,
                     struct candidate *best)
{
    size_t reach = run + period, best_reach = best->run + best->period;
    if (reach < best_reach || (reach == best_reach && period >= best->period))
        return;
    if (load_is_back(d, period, run) && (run >= period || had_come_before(d, period, run)))
        *best = (struct candidate){period, run};
}

/* If all sizes are equal: the distance to the last position with the same load. */
static bool consider_load(struct ebb_detector *d, const struct candidate *shortest,
                          struct candidate *best)
{
    size_t newest = d->symbols.count - 1, before;
    if (!ebb__seen_meet(&d->loads, load_key(d), newest, &before))
        return false;
    if (before == SIZE_MAX || d->live.items[before] != d->live.items[newest])
        return true;
    size_t period = newest - before, reach = shortest->run + shortest->period;
    if (period % shortest->period == 0 && reach >= 2 * period)
        consider(d, period, reach - period, best);
    return true;
}

/* The run after which a period is announced. */
static size_t enough_run(const struct ebb_detector *d, size_t period)
{
    return d->early_divisor && period >= d->early_period ? period / d->early_divisor : period;
}

static bool announce(struct ebb_detector *d)
{
    size_t count = d->symbols.count;
    struct candidate best = {0, 0}, shortest = {0, 0};
    /* Only a longer run replaces the repetition in force. */
    size_t limit = d->current.found ? d->current_first : count;
    uint32_t ready = 0;
    for (size_t i = 0; i < d->candidate_count; i++) {
        size_t period = d->periods[i];
        ready |= (uint32_t)((d->begins[i] + enough_run(d, period) <= count) &
                            (d->begins[i] < limit + period))
                 << i;
    }
    for (; ready; ready &= ready - 1) {
        size_t i = (size_t)__builtin_ctz(ready), period = d->periods[i], run = count - d->begins[i];
        if (run < period && (run - enough_run(d, period)) % (period / EARLY_LOOKS + 1))
            continue;
        consider(d, period, run, &best);
        if (shortest.period == 0 || period < shortest.period)
            shortest = (struct candidate){period, run};
    }
    if (best.period == 0 && shortest.period != 0 && !d->current.found &&
        !consider_load(d, &shortest, &best))
        return false;
    if (best.period == 0)
        return true;
    bool ok = !d->current.found || leave_current(d, count);
    d->current = (struct ebb_detection){
        .found = true,
        .first_symbol =
            best.run < best.period ? count - best.run - best.period : count - 2 * best.period,
        .period_symbols = best.period,
        .found_at_symbol = count - 1,
    };
    d->current_first = count - best.run - best.period;
    d->same_phase = count - 1;
    return ok;
}

void ebb__detector_announce_early(struct ebb_detector *detector, size_t least_period,
                                  size_t divisor)
{
    detector->early_period = least_period > SMALL_PERIODS ? least_period : SMALL_PERIODS + 1;
    detector->early_divisor = divisor;
}

enum ebb_status ebb__detector_reserve(struct ebb_detector *detector, size_t symbols)
{
    return ebb_vec_reserve(&detector->rolling.prefix, symbols) &&
                   ebb_vec_reserve(&detector->symbols, symbols) &&
                   ebb_vec_reserve(&detector->live, symbols)
               ? EBB_OK
               : EBB_ERR_MEMORY;
}

enum ebb_status ebb__detector_push(struct ebb_detector *detector, uint64_t symbol, bool allocates,
                                   uint64_t live_bytes)
{
    size_t count = detector->symbols.count;
    if (count == UINT32_MAX - 1 || !ebb__rolling_push(&detector->rolling, symbol) ||
        !ebb_vec_push(&detector->symbols, symbol) || !ebb_vec_push(&detector->live, live_bytes) ||
        (allocates && !ebb__sums_follow(&detector->allocated, detector->symbols.items, count + 1)))
        return EBB_ERR_MEMORY;
    if (live_bytes > detector->peak)
        detector->peak = live_bytes;
    advance_candidates(detector);
    return check_current(detector) && meet_grams(detector) && announce(detector) ? EBB_OK
                                                                                 : EBB_ERR_MEMORY;
}

struct ebb_detection ebb__detector_current(const struct ebb_detector *detector)
{
    return detector->current;
}

size_t ebb__detector_run(const struct ebb_detector *detector)
{
    return detector->current.found ? detector->symbols.count - detector->current_first -
                                         detector->current.period_symbols
                                   : 0;
}

const struct ebb_rolling *ebb__detector_rolling(const struct ebb_detector *detector)
{
    return &detector->rolling;
}

uint64_t ebb__detector_symbol(const struct ebb_detector *detector, size_t index,
                              uint64_t *live_bytes)
{
    *live_bytes = detector->live.items[index];
    return detector->symbols.items[index];
}
