/* Measures the cost of a pair of malloc and free, in ns. bench/malloc_pairs.py runs it alternately
 * alone and under `ebb run`.
 *
 * `small` pairs have 64 bytes, `slab` pairs 1,024; both are medians of ROUNDS rounds. `large` pairs
 * have 1 to 2 MiB, which are not touched. They are part of an iteration that uses memory like
 * training. Their figure is the median of the last half of the iterations, when a plan is in force.
 * Prints one JSON object. */
#include "base/clock.h"
#include "base/order.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 15
#define PAIRS 200000
#define ITERATIONS 120
#define LAYERS 24
#define LAYER_BYTES ((size_t)6 << 20)
#define LARGE_PAIRS 64

static void *volatile escaped; /* keeps the compiler from removing the pair */

static double pair_ns(size_t bytes)
{
    uint64_t rounds[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t before = ebb__now_ns();
        for (int i = 0; i < PAIRS; i++) {
            escaped = malloc(bytes);
            free(escaped);
        }
        rounds[round] = ebb__now_ns() - before;
    }
    return (double)ebb__median_u64(rounds, ROUNDS) / PAIRS;
}

/* Runs an iteration. Returns the time of the pairs in its middle, in ns. */
static uint64_t iterate(uint64_t number, uint64_t *sum)
{
    unsigned char *layers[LAYERS];
    size_t bytes = LAYER_BYTES;
    for (size_t i = 0; i < LAYERS; i++) {
        layers[i] = malloc(bytes + i * 4096);
        if (!layers[i])
            abort();
        memset(layers[i], (int)(number + i), bytes);
    }
    uint64_t before = ebb__now_ns();
    for (size_t i = 0; i < LARGE_PAIRS; i++) {
        escaped = malloc(((size_t)1 << 20) + i * 16384);
        free(escaped);
    }
    uint64_t taken = ebb__now_ns() - before;
    for (size_t i = LAYERS; i-- > 0;) {
        for (size_t at = 0; at < bytes; at += 512)
            *sum += layers[i][at];
        free(layers[i]);
    }
    return taken;
}

int main(void)
{
    uint64_t large[ITERATIONS], sum = 0;
    double small = pair_ns(64), slab = pair_ns(1024);
    for (uint64_t i = 0; i < ITERATIONS; i++)
        large[i] = iterate(i, &sum);
    double median = (double)ebb__median_u64(large + ITERATIONS / 2, ITERATIONS / 2) / LARGE_PAIRS;
    printf("{\"small_ns\": %.1f, \"slab_ns\": %.1f, \"large_ns\": %.1f, \"sum\": %llu}\n", small,
           slab, median, (unsigned long long)sum);
    return 0;
}
