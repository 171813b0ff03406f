/* Prefix hashes of a growing sequence: the hash of any range of it in O(1).
 *
 * The hash is a polynomial over the Mersenne prime 2^61 - 1, after a mixer has spread the symbols.
 * Two ranges count as equal if their hashes are equal. About one in 2^61 comparisons is wrong. 8
 * bytes a symbol. Not thread-safe. */
#ifndef EBB_MODEL_ROLLING_H
#define EBB_MODEL_ROLLING_H

#include "base/vec.h"

#define EBB_ROLLING_PRIME (((uint64_t)1 << 61) - 1)
#define EBB_ROLLING_BASE UINT64_C(0x0b4c9d2f7a31e685) /* any number below the prime */

#define EBB_ROLLING_STEP 1024 /* arbitrary: it keeps both tables of powers small */

/* A zeroed struct is the empty sequence. The power of any length is the product of two entries. */
struct ebb_rolling {
    EBB_VEC(uint64_t) prefix; /* [i]: hash of symbols [0, i] */
    EBB_VEC(uint64_t) near;   /* [i]: base to the power i, i < EBB_ROLLING_STEP */
    EBB_VEC(uint64_t) far;    /* [i]: base to the power i * EBB_ROLLING_STEP */
};

/* Spreads the bits of a value (splitmix64's finaliser). */
static inline uint64_t ebb__hash_mix(uint64_t value)
{
    value += UINT64_C(0x9e3779b97f4a7c15);
    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

static inline uint64_t ebb__rolling_multiply(uint64_t a, uint64_t b)
{
    __extension__ typedef unsigned __int128 wide;
    wide product = (wide)a * b;
    uint64_t sum = (uint64_t)(product & EBB_ROLLING_PRIME) + (uint64_t)(product >> 61);
    return sum >= EBB_ROLLING_PRIME ? sum - EBB_ROLLING_PRIME : sum;
}

/* Adds the next power to `far`; the first time it makes all of `near`, too. Returns false if out of
 * memory. */
static inline bool ebb__rolling_grow_powers(struct ebb_rolling *rolling)
{
    uint64_t power = 1;
    while (rolling->near.count < EBB_ROLLING_STEP) {
        if (!ebb_vec_push(&rolling->near, power))
            return false;
        power = ebb__rolling_multiply(power, EBB_ROLLING_BASE);
    }
    if (rolling->far.count == 0)
        return ebb_vec_push(&rolling->far, 1);
    power = ebb__rolling_multiply(rolling->near.items[EBB_ROLLING_STEP - 1], EBB_ROLLING_BASE);
    uint64_t last = rolling->far.items[rolling->far.count - 1];
    return ebb_vec_push(&rolling->far, ebb__rolling_multiply(last, power));
}

/* The base to the power `length`, which is at most the number of symbols. */
static inline uint64_t ebb__rolling_power(const struct ebb_rolling *rolling, size_t length)
{
    uint64_t near = rolling->near.items[length % EBB_ROLLING_STEP];
    return length < EBB_ROLLING_STEP
               ? near
               : ebb__rolling_multiply(near, rolling->far.items[length / EBB_ROLLING_STEP]);
}

/* Appends a symbol; returns false if out of memory (sequence unchanged). */
static inline bool ebb__rolling_push(struct ebb_rolling *rolling, uint64_t symbol)
{
    size_t count = rolling->prefix.count;
    uint64_t before = count ? rolling->prefix.items[count - 1] : 0;
    uint64_t hash =
        ebb__rolling_multiply(before, EBB_ROLLING_BASE) + ebb__hash_mix(symbol) % EBB_ROLLING_PRIME;
    if (hash >= EBB_ROLLING_PRIME)
        hash -= EBB_ROLLING_PRIME;
    return ((count + 1) / EBB_ROLLING_STEP < rolling->far.count ||
            ebb__rolling_grow_powers(rolling)) &&
           ebb_vec_push(&rolling->prefix, hash);
}

static inline size_t ebb__rolling_count(const struct ebb_rolling *rolling)
{
    return rolling->prefix.count;
}

/* Hash of symbols [first, last), first < last <= count. */
static inline uint64_t ebb__rolling_range(const struct ebb_rolling *rolling, size_t first,
                                          size_t last)
{
    uint64_t whole = rolling->prefix.items[last - 1];
    if (first == 0)
        return whole;
    uint64_t head = ebb__rolling_multiply(rolling->prefix.items[first - 1],
                                          ebb__rolling_power(rolling, last - first));
    return whole >= head ? whole - head : whole + EBB_ROLLING_PRIME - head;
}

/* Hash of symbols [at, last) with [first, at) behind them: what repeats, at another phase. first <=
 * at < last <= count. */
static inline uint64_t ebb__rolling_turned(const struct ebb_rolling *rolling, size_t first,
                                           size_t at, size_t last)
{
    uint64_t front = ebb__rolling_range(rolling, at, last);
    if (at == first)
        return front;
    uint64_t hash = ebb__rolling_multiply(front, ebb__rolling_power(rolling, at - first)) +
                    ebb__rolling_range(rolling, first, at);
    return hash >= EBB_ROLLING_PRIME ? hash - EBB_ROLLING_PRIME : hash;
}

/* How many symbols before `at` equal those before `other`: at most `most`, which both have. O(log
 * most). */
static inline size_t ebb__rolling_common_before(const struct ebb_rolling *rolling, size_t at,
                                                size_t other, size_t most)
{
    size_t low = 0, high = most;
    while (low < high) {
        size_t middle = low + (high - low + 1) / 2;
        if (ebb__rolling_range(rolling, at - middle, at) ==
            ebb__rolling_range(rolling, other - middle, other))
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* The same from `at` and `other` on. */
static inline size_t ebb__rolling_common_ahead(const struct ebb_rolling *rolling, size_t at,
                                               size_t other, size_t most)
{
    size_t low = 0, high = most;
    while (low < high) {
        size_t middle = low + (high - low + 1) / 2;
        if (ebb__rolling_range(rolling, at, at + middle) ==
            ebb__rolling_range(rolling, other, other + middle))
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* The first place in [first, last) at which `length` symbols with this hash begin; `last`: none.
 * They may end behind it. O(last - first). */
static inline size_t ebb__rolling_find(const struct ebb_rolling *rolling, uint64_t hash,
                                       size_t length, size_t first, size_t last)
{
    while (first < last && ebb__rolling_range(rolling, first, first + length) != hash)
        first++;
    return first;
}

/* The same, but they also end in [first, last). */
static inline size_t ebb__rolling_find_within(const struct ebb_rolling *rolling, uint64_t hash,
                                              size_t length, size_t first, size_t last)
{
    if (first + length > last)
        return last;
    size_t end = last - length + 1, found = ebb__rolling_find(rolling, hash, length, first, end);
    return found < end ? found : last;
}

static inline void ebb__rolling_fini(struct ebb_rolling *rolling)
{
    ebb_vec_free(&rolling->prefix);
    ebb_vec_free(&rolling->near);
    ebb_vec_free(&rolling->far);
}

#endif
