/* Method: the loads are compared at phases spread evenly over what has been seen again. */
#include "load.h"

#include "base/tuning.h"

enum { SAMPLE_LIMIT = 32 }; /* phases at which the load is compared */

/* All positions if the period is short. */
static size_t sample_offset(size_t sample, size_t period)
{
    return period < SAMPLE_LIMIT ? sample : sample * period / SAMPLE_LIMIT;
}

/* The permitted difference of two loads: the lower of two limits. The first is a part of what a
 * period allocates, between 1 % and 3 % of the peak. It allows for queues that a program fills in
 * its first iterations. The second is a part of the load's swing, at least 1/4096 of the peak. An
 * inner repetition of a deep network keeps less than the first limit, but much compared with its
 * own swing. */
static uint64_t tolerance_of(const struct ebb_load *load, uint64_t swing)
{
    uint64_t limit = load->period_bytes / ebb__tuning()->load_growth_divisor;
    uint64_t peak = load->peak_bytes, share = swing / ebb__tuning()->load_swing_divisor;
    limit = limit < peak / 32 ? limit : peak / 32;
    limit = limit > peak / 100 ? limit : peak / 100;
    share = share > peak / 4096 ? share : peak / 4096;
    return limit < share ? limit : share;
}

bool ebb__load_is_back(const struct ebb_load *load, size_t period, size_t run)
{
    const uint64_t *live = load->live;
    size_t newest = load->count - 1;
    uint64_t apart = ebb__load_distance(live[newest], live[newest - period]);
    if (apart > (run < period ? 0 : tolerance_of(load, UINT64_MAX)))
        return false;
    size_t compared = run < period ? run : period;
    size_t samples = compared < SAMPLE_LIMIT ? compared : SAMPLE_LIMIT;
    uint64_t low = UINT64_MAX, high = 0;
    for (size_t i = 0; i < samples; i++) {
        size_t at = newest - sample_offset(i, compared);
        uint64_t now = live[at], before = live[at - period];
        low = now < low ? now : low;
        low = before < low ? before : low;
        high = now > high ? now : high;
        high = before > high ? before : high;
    }
    uint64_t tolerance = run < period ? 0 : tolerance_of(load, high - low);
    if (apart > tolerance)
        return false;
    size_t agree = 0;
    for (size_t i = 0; i < samples; i++) {
        size_t at = newest - sample_offset(i, compared);
        agree += ebb__load_distance(live[at], live[at - period]) <= tolerance;
    }
    return agree * 4 >= samples * 3;
}
