/* lengths: a training whose steps have other sizes each time. It verifies its memory.
 *
 * A step goes forward over L layers (allocate two outputs, fill them) and backward (verify them,
 * allocate a gradient, free the outputs). One output grows with the length, the other with its
 * square. Then an optimizer adds all gradients to the weights, with a temporary block each.
 * It prints one line, a checksum of the weights and of all bytes read.
 *
 * Exit codes: 0 success; 1 a wrong byte; 2 bad usage; 3 no memory. Errors are printed to stderr.
 * Needs only libc: cc -O2 lengths.c. */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char usage[] =
    "usage: lengths [--NUMBER N ...]\n"
    "  --steps N       steps (20)\n"
    "  --layers N      layers, 64 at most (24)\n"
    "  --from N        shortest length, in units of 16 KiB (40)\n"
    "  --to N          longest length (100)\n"
    "  --grow N        steps from the shortest to the longest (0: by chance)\n"
    "  --last N        only each Nth step is shorter, by a half (0: none)\n"
    "  --evaluate N    an evaluation after each Nth step (0: none)\n"
    "  --work N        us of computing a layer (0)\n"
    "  --seed N        of the lengths (1)\n";

#define MOST_LAYERS 64
enum { UNIT = 16384, WEIGHT_BYTES = 1 << 20 };

static struct {
    unsigned steps, layers, from, to, grow, last, evaluate, work, seed;
} options = {.steps = 20, .layers = 24, .from = 40, .to = 100, .seed = 1};

static uint64_t *weights[MOST_LAYERS], *states[MOST_LAYERS];
static uint64_t sum;
static bool is_wrong;

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t *allocate(size_t bytes, uint64_t seed)
{
    uint64_t *block = NULL;
    if (posix_memalign((void **)&block, 64, bytes)) {
        fputs("lengths: no memory\n", stderr);
        exit(3);
    }
    for (size_t i = 0; i < bytes / 8; i++)
        block[i] = seed + i * 0x9e3779b97f4a7c15u;
    return block;
}

static void verify(const uint64_t *block, size_t bytes, uint64_t seed)
{
    for (size_t i = 0; i < bytes / 8; i++) {
        sum += block[i] ^ block[i] >> 17;
        if (block[i] != seed + i * 0x9e3779b97f4a7c15u && !is_wrong) {
            fprintf(stderr, "lengths: word %zu of %p is wrong\n", i, (const void *)block);
            is_wrong = true;
        }
    }
}

static void compute(void)
{
    struct timespec now, until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)options.work * 1000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while (now.tv_sec < until.tv_sec ||
           (now.tv_sec == until.tv_sec && now.tv_nsec < until.tv_nsec));
}

static size_t long_bytes(unsigned length, unsigned layer)
{
    return (size_t)length * (UNIT + layer % 4 * 512);
}

static size_t square_bytes(unsigned length)
{
    return (size_t)length * length * 256;
}

static void step(unsigned number, unsigned length)
{
    uint64_t *outputs[MOST_LAYERS], *squares[MOST_LAYERS], *gradients[MOST_LAYERS];
    uint64_t seed = mix(number);
    for (unsigned i = 0; i < options.layers; i++) {
        outputs[i] = allocate(long_bytes(length, i), seed + i);
        squares[i] = allocate(square_bytes(length), seed - i);
        sum += weights[i][i];
        compute();
    }
    for (unsigned i = options.layers; i-- > 0;) {
        gradients[i] = allocate(WEIGHT_BYTES, seed ^ i);
        verify(squares[i], square_bytes(length), seed - i);
        free(squares[i]);
        verify(outputs[i], long_bytes(length, i), seed + i);
        free(outputs[i]);
        compute();
    }
    for (unsigned i = 0; i < options.layers; i++) {
        uint64_t *temporary = allocate(WEIGHT_BYTES, i);
        if (!states[i])
            states[i] = allocate(2 * WEIGHT_BYTES, 0);
        for (size_t k = 0; k < WEIGHT_BYTES / 8; k++) {
            states[i][k] += gradients[i][k] + temporary[k];
            states[i][WEIGHT_BYTES / 8 + k] ^= states[i][k];
            weights[i][k] += states[i][WEIGHT_BYTES / 8 + k] >> 3;
        }
        free(temporary);
        free(gradients[i]);
    }
}

/* Each output is freed once the next one is there. */
static void evaluate(unsigned length)
{
    uint64_t *before = NULL;
    for (unsigned i = 0; i < options.layers; i++) {
        uint64_t *output = allocate(long_bytes(length, i), i);
        sum += weights[i][i + 1];
        if (before)
            verify(before, long_bytes(length, i - 1), i - 1);
        free(before);
        before = output;
    }
    free(before);
}

static unsigned length_of(unsigned number)
{
    unsigned range = options.to - options.from;
    if (options.last)
        return number % options.last == options.last - 1 ? options.to / 2 : options.to;
    if (options.grow)
        return options.from + (number < options.grow ? number * range / options.grow : range);
    return options.from + (unsigned)(mix(options.seed * 1000 + number) % (range + 1));
}

int main(int argc, char **argv)
{
    const struct {
        const char *name;
        unsigned *value;
    } numbers[] = {{"--steps", &options.steps},       {"--layers", &options.layers},
                   {"--from", &options.from},         {"--to", &options.to},
                   {"--grow", &options.grow},         {"--last", &options.last},
                   {"--evaluate", &options.evaluate}, {"--work", &options.work},
                   {"--seed", &options.seed}};
    for (int i = 1; i < argc; i += 2) {
        size_t k = 0;
        while (k < sizeof numbers / sizeof numbers[0] && strcmp(argv[i], numbers[k].name) != 0)
            k++;
        if (k == sizeof numbers / sizeof numbers[0] || i + 1 == argc) {
            fputs(usage, stderr);
            return 2;
        }
        *numbers[k].value = (unsigned)strtoul(argv[i + 1], NULL, 10);
    }
    if (!options.layers || options.layers > MOST_LAYERS || !options.from ||
        options.from > options.to) {
        fputs(usage, stderr);
        return 2;
    }
    for (unsigned i = 0; i < options.layers; i++)
        weights[i] = allocate(WEIGHT_BYTES, i);
    for (unsigned i = 0; i < options.steps; i++) {
        step(i, length_of(i));
        if (options.evaluate && i % options.evaluate == options.evaluate - 1)
            evaluate(options.to);
    }
    for (unsigned i = 0; i < options.layers; i++)
        for (size_t k = 0; k < WEIGHT_BYTES / 8; k++)
            sum = mix(sum ^ weights[i][k]);
    printf("%016llx\n", (unsigned long long)sum);
    return is_wrong;
}
