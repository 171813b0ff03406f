/* Method: sort the newest symbols by size. A size whose last three occurrences are about equally
 * far apart is a candidate. The candidates with the least load before them are examined: all
 * threads have probably met there, so that no thread's work crosses the cut. The two windows
 * between the occurrences are compared as multisets, by number and by bytes. A candidate may be
 * only a part (a layer) of a longer one. Then it occurs several times and pauses, or continues at
 * another distance while much of the iteration is live.
 * Fails if every size occurs more than once an iteration. */
#include "landmark.h"

#include "base/tuning.h"

#include "base/order.h"
#include "base/vec.h"

#include <stdlib.h>

enum {
    LOOKED_AT = 1 << 15, /* symbols; an iteration may have a third of them */
    COMPARED = 12,       /* candidates, a limit: the right one is among the first */
    ALIKE_SHARE = 1024,  /* similarity is a number from 0 to this */
    ALIKE_STEP = 16,     /* similarities are compared in steps of this size */
};

struct place {
    uint64_t size_bytes;
    size_t at;
};

struct candidate {
    uint64_t size_bytes;
    size_t at[3];               /* the last three occurrences */
    uint64_t load_bytes;        /* live bytes before the newest occurrence */
    uint64_t swing_bytes;       /* swing of the load in the last two periods */
    uint64_t alike;             /* similarity, in steps; 0: no landmark */
    const struct place *places; /* all its occurrences */
    size_t count;
};

static int by_size(const void *a, const void *b)
{
    const struct place *left = a, *right = b;
    if (left->size_bytes != right->size_bytes)
        return left->size_bytes < right->size_bytes ? -1 : 1;
    return left->at < right->at ? -1 : left->at > right->at;
}

static uint64_t load_before(const struct ebb_detector *detector, size_t at)
{
    uint64_t load, size_bytes = ebb__detector_symbol(detector, at, &load);
    return load - size_bytes;
}

/* True if the load at the start of each iteration is the same, up to a sixteenth of its swing (as
 * for exact repetitions). */
static bool load_is_back(const struct ebb_detector *detector, const size_t at[3],
                         uint64_t *swing_bytes)
{
    uint64_t low = UINT64_MAX, high = 0, least = UINT64_MAX, most = 0;
    for (size_t i = at[0]; i < at[2]; i++) {
        uint64_t load;
        ebb__detector_symbol(detector, i, &load);
        low = load < low ? load : low;
        high = load > high ? load : high;
    }
    for (size_t i = 0; i < 3; i++) {
        uint64_t load = load_before(detector, at[i]);
        least = load < least ? load : least;
        most = load > most ? load : most;
    }
    *swing_bytes = high - low;
    return most - least <= *swing_bytes / ebb__tuning()->load_swing_divisor;
}

/* Inserts the candidate among those with the least load, sorted by load. */
static void keep(struct candidate *kept, size_t *count, const struct candidate *made)
{
    size_t place = *count;
    while (place > 0 && kept[place - 1].load_bytes > made->load_bytes)
        place--;
    if (place == COMPARED)
        return;
    if (*count < COMPARED)
        ++*count;
    for (size_t i = *count - 1; i > place; i--)
        kept[i] = kept[i - 1];
    kept[place] = *made;
}

static size_t collect(const struct ebb_detector *detector, const struct place *places, size_t count,
                      size_t end, struct candidate *kept)
{
    size_t kept_count = 0;
    for (size_t i = 0, next; i < count; i = next) {
        next = i + 1;
        while (next < count && places[next].size_bytes == places[i].size_bytes)
            next++;
        if (next - i < 3)
            continue;
        struct candidate made = {
            .size_bytes = places[i].size_bytes,
            .at = {places[next - 3].at, places[next - 2].at, places[next - 1].at},
            .places = &places[i],
            .count = next - i};
        size_t older = made.at[1] - made.at[0], newer = made.at[2] - made.at[1];
        size_t apart = older > newer ? older - newer : newer - older;
        if (newer < ebb__tuning()->landmark_least_period ||
            apart > ebb__landmark_tolerance(newer) ||
            end - made.at[2] > newer + ebb__landmark_tolerance(newer))
            continue;
        made.load_bytes = load_before(detector, made.at[2]);
        keep(kept, &kept_count, &made);
    }
    return kept_count;
}

static void sorted_sizes(const struct ebb_detector *detector, size_t first, size_t last,
                         uint64_t *sizes)
{
    uint64_t load;
    for (size_t i = first; i < last; i++)
        sizes[i - first] = ebb__detector_symbol(detector, i, &load);
    ebb__sort_u64(sizes, last - first);
}

static uint64_t share(uint64_t part, uint64_t left, uint64_t right)
{
    uint64_t whole = left > right ? left : right;
    return whole ? (uint64_t)((double)part * ALIKE_SHARE / (double)whole) : ALIKE_SHARE;
}

/* The common share of the two windows, by number or by bytes, whichever is less. `left` and `right`
 * are scratch for their sizes. */
static uint64_t similarity(const struct ebb_detector *detector, const size_t at[3], uint64_t *left,
                           uint64_t *right)
{
    size_t left_count = at[1] - at[0], right_count = at[2] - at[1], common = 0;
    uint64_t left_bytes = 0, right_bytes = 0, common_bytes = 0;
    sorted_sizes(detector, at[0], at[1], left);
    sorted_sizes(detector, at[1], at[2], right);
    for (size_t i = 0, k = 0; i < left_count && k < right_count;) {
        if (left[i] == right[k]) {
            common++;
            common_bytes += left[i++];
            k++;
        } else if (left[i] < right[k]) {
            i++;
        } else {
            k++;
        }
    }
    for (size_t i = 0; i < left_count; i++)
        left_bytes += left[i];
    for (size_t i = 0; i < right_count; i++)
        right_bytes += right[i];
    uint64_t by_count = share(common, left_count, right_count);
    uint64_t by_volume = share(common_bytes, left_bytes, right_bytes);
    return by_count < by_volume ? by_count : by_volume;
}

static size_t period_of(const struct candidate *candidate)
{
    return candidate->at[2] - candidate->at[1];
}

/* True if the candidate recurs throughout the last two periods of `longer`. *evenly: at equal
 * distances. */
static bool goes_on(const struct candidate *candidate, const struct candidate *longer, bool *evenly)
{
    size_t period = period_of(candidate), last = longer->at[0];
    size_t tolerance = ebb__landmark_tolerance(period), seen = 0;
    *evenly = true;
    for (size_t i = 0; i < candidate->count; i++) {
        size_t at = candidate->places[i].at;
        if (at < longer->at[0] || at > longer->at[2])
            continue;
        if (at - last > period + tolerance)
            return false;
        *evenly = *evenly && (seen++ == 0 || at - last + tolerance >= period);
        last = at;
    }
    return longer->at[2] <= last + period + tolerance;
}

/* True if the candidate's load is well above that at the start of `longer`. */
static bool is_within(const struct candidate *candidate, const struct candidate *longer)
{
    return candidate->load_bytes >
           longer->load_bytes + longer->swing_bytes / ebb__tuning()->load_swing_divisor;
}

/* Parts of an iteration pause, or recur at other distances (forward and backward) while much of the
 * iteration is live. */
static bool is_part_of(const struct candidate *candidate, const struct candidate *longer)
{
    bool evenly;
    return period_of(longer) > 2 * period_of(candidate) &&
           (!goes_on(candidate, longer, &evenly) || (!evenly && is_within(candidate, longer)));
}

static bool is_part_of_any(const struct candidate *candidate, const struct candidate *kept,
                           size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (kept[i].alike && is_part_of(candidate, &kept[i]))
            return true;
    return false;
}

/* Chooses the candidate whose iterations are most alike; of those the shortest; of those the one
 * with the least load. */
static bool choose(const struct ebb_detector *detector, struct candidate *kept, size_t count,
                   uint64_t *room, size_t most, struct ebb_landmark *landmark)
{
    uint64_t best_alike = 0;
    for (size_t i = 0; i < count; i++) {
        kept[i].alike = 0;
        if (load_is_back(detector, kept[i].at, &kept[i].swing_bytes))
            kept[i].alike = similarity(detector, kept[i].at, room, room + most) / ALIKE_STEP;
        if ((double)(kept[i].alike * ALIKE_STEP) < ebb__tuning()->landmark_alike * ALIKE_SHARE)
            kept[i].alike = 0;
    }
    for (size_t i = 0; i < count; i++) {
        size_t period = period_of(&kept[i]);
        if (!kept[i].alike || kept[i].alike < best_alike ||
            (kept[i].alike == best_alike &&
             period + ebb__landmark_tolerance(period) >= landmark->period_symbols) ||
            is_part_of_any(&kept[i], kept, count))
            continue;
        best_alike = kept[i].alike;
        *landmark = (struct ebb_landmark){kept[i].size_bytes, period, kept[i].at[0], kept[i].at[2]};
    }
    return best_alike > 0;
}

enum ebb_status ebb__landmark_find(const struct ebb_detector *detector,
                                   struct ebb_landmark *landmark, bool *found)
{
    size_t end = ebb__rolling_count(ebb__detector_rolling(detector));
    size_t first = end > LOOKED_AT ? end - LOOKED_AT : 0, count = end - first;
    struct candidate kept[COMPARED];
    *found = false;
    struct place *places = malloc((count + 1) * sizeof *places);
    uint64_t *room = malloc((2 * count + 1) * sizeof *room);
    if (!places || !room) {
        free(places);
        free(room);
        return EBB_ERR_MEMORY;
    }
    for (size_t i = 0; i < count; i++) {
        uint64_t load;
        places[i] = (struct place){ebb__detector_symbol(detector, first + i, &load), first + i};
    }
    qsort(places, count, sizeof *places, by_size);
    size_t candidates = collect(detector, places, count, end, kept);
    struct ebb_landmark made = {0};
    *found = choose(detector, kept, candidates, room, count, &made);
    if (*found)
        *landmark = made;
    free(places);
    free(room);
    return EBB_OK;
}
