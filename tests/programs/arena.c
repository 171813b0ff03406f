/* arena: a program with all its tensors in one block, which verifies every byte of it.
 *
 * The block is cut into ranges that do not end at page boundaries. The forward pass of an iteration
 * verifies the range before and fills the next one. The backward pass verifies each range and
 * writes its gradient over it. Like compilers of graphs, it allocates the block in each iteration,
 * and some scratch memory between the steps. Or, like older programs, it allocates everything once,
 * so that no call of malloc shows its progress. It prints one line, a checksum over every word that
 * it read. The checksum does not depend on time or addresses: compare runs with and without Ebb.
 *
 * Exit codes: 0 success; 1 a wrong byte; 2 bad usage; 3 no memory. Errors are printed to stderr.
 * Needs only libc: cc -O2 arena.c. */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char usage[] =
    "usage: arena [options]\n"
    "  --iterations N  iterations (8)\n"
    "  --bytes B       size of the block (512M)\n"
    "  --ranges R      ranges that it is cut into (24)\n"
    "  --wait MS       milliseconds of a step, as if a device computed (0)\n"
    "  --once          allocate everything once, before the first iteration\n"
    "  --time          seconds of each iteration on stderr\n";

struct options {
    unsigned iterations, ranges, wait_ms;
    size_t bytes;
    bool once, time;
};

static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xBF58476D1CE4E5B9u;
    x ^= x >> 27;
    x *= 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static uint64_t seed_of(unsigned iteration, unsigned range, bool gradient)
{
    return mix((uint64_t)iteration << 32 ^ (uint64_t)range << 1 ^ gradient);
}

static void fill(uint64_t *words, size_t count, uint64_t seed)
{
    for (size_t i = 0; i < count; i++)
        words[i] = seed + i * 0x9E3779B97F4A7C15u;
}

static uint64_t verify(const uint64_t *words, size_t count, uint64_t seed, const char *what)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        if (words[i] != seed + i * 0x9E3779B97F4A7C15u) {
            fprintf(stderr, "arena: %s: word %zu at %p is %016llx\n", what, i,
                    (const void *)&words[i], (unsigned long long)words[i]);
            exit(1);
        }
        sum = mix(sum ^ words[i]);
    }
    return sum;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void *allocate(size_t bytes)
{
    void *memory = malloc(bytes);
    if (!memory) {
        fprintf(stderr, "arena: no memory for %zu bytes\n", bytes);
        exit(3);
    }
    return memory;
}

/* Scratch memory for one step of an iteration, unless everything is allocated once. */
static uint64_t scratch(const struct options *options, unsigned range, bool gradient)
{
    if (options->once)
        return 0;
    size_t count = (((size_t)256 << 10) + ((size_t)range << 14)) / 8;
    uint64_t *words = allocate(count * 8), sum;
    fill(words, count, seed_of(0, range, gradient));
    sum = verify(words, count, seed_of(0, range, gradient), "scratch");
    free(words);
    return sum;
}

static size_t range_begin(const struct options *options, unsigned range)
{
    return (size_t)((double)options->bytes / 8 * range / options->ranges);
}

static uint64_t iterate(const struct options *options, uint64_t *arena, unsigned iteration)
{
    uint64_t sum = 0;
    for (unsigned r = 0; r < options->ranges; r++) {
        size_t begin = range_begin(options, r), end = range_begin(options, r + 1);
        size_t before = r ? range_begin(options, r - 1) : 0;
        sum ^= scratch(options, r, false);
        if (r)
            sum += verify(arena + before, begin - before, seed_of(iteration, r - 1, false), "fill");
        fill(arena + begin, end - begin, seed_of(iteration, r, false));
        usleep(options->wait_ms * 1000);
    }
    for (unsigned r = options->ranges; r-- > 0;) {
        size_t begin = range_begin(options, r), end = range_begin(options, r + 1);
        sum ^= scratch(options, r, true);
        sum += verify(arena + begin, end - begin, seed_of(iteration, r, false), "forward");
        fill(arena + begin, end - begin, seed_of(iteration, r, true));
        usleep(options->wait_ms * 1000);
    }
    if (!options->once)
        return sum;
    for (unsigned r = 0; r < options->ranges; r++) {
        size_t begin = range_begin(options, r), end = range_begin(options, r + 1);
        sum += verify(arena + begin, end - begin, seed_of(iteration, r, true), "backward");
    }
    return sum;
}

static size_t size_of(const char *text)
{
    char *unit;
    double number = strtod(text, &unit);
    const char *units = "KMG", *found = *unit ? strchr(units, *unit) : NULL;
    for (const char *u = units; found && u <= found; u++)
        number *= 1024;
    return number > 0 ? (size_t)number : 0;
}

static bool parse(int count, char **arguments, struct options *options)
{
    for (int i = 1; i < count; i++) {
        const char *name = arguments[i];
        if (strcmp(name, "--once") == 0 || strcmp(name, "--time") == 0) {
            *(strcmp(name, "--once") == 0 ? &options->once : &options->time) = true;
            continue;
        }
        if (++i == count)
            return false;
        size_t value = size_of(arguments[i]);
        if (strcmp(name, "--bytes") == 0)
            options->bytes = value;
        else if (strcmp(name, "--iterations") == 0)
            options->iterations = (unsigned)value;
        else if (strcmp(name, "--ranges") == 0)
            options->ranges = (unsigned)value;
        else if (strcmp(name, "--wait") == 0)
            options->wait_ms = (unsigned)value;
        else
            return false;
    }
    return options->iterations && options->ranges && options->bytes / 8 >= options->ranges;
}

int main(int count, char **arguments)
{
    struct options options = {.iterations = 8, .ranges = 24, .bytes = (size_t)512 << 20};
    if (!parse(count, arguments, &options)) {
        fputs(usage, stderr);
        return 2;
    }
    uint64_t sum = 0, *arena = options.once ? allocate(options.bytes) : NULL;
    for (unsigned i = 0; i < options.iterations; i++) {
        double began = now();
        if (!options.once)
            arena = allocate(options.bytes);
        sum = mix(sum ^ iterate(&options, arena, i));
        if (!options.once)
            free(arena);
        if (options.time)
            fprintf(stderr, "iteration %u: %.3f s\n", i, now() - began);
    }
    printf("%016llx\n", (unsigned long long)sum);
    return 0;
}
