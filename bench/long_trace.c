/* Makes a long trace, to measure the memory and time of what reads traces. Each shape stresses
 * another table of the analysis.
 *
 *     build/release/bench/bench_long_trace long.ebbt SHAPE [EVENTS]
 *     /usr/bin/time -v ebb report long.ebbt -o long.html
 *
 * Shapes, by what most of the events are; 10,000,000 by default:
 *   steps     short iterations: 24 layers with 168 temporary blocks in each
 *   random    blocks of random sizes and lifetimes, without an iteration
 *   whole     iterations of a third of the trace, of blocks of random sizes and lifetimes
 *   once      accesses to blocks that are allocated once, in iterations of 20,000
 *   strange   random accesses to such blocks, without an iteration
 * Shapes without an iteration end with some short ones, since a report needs one. Every run writes
 * the same file. */
#include "trace/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EVENTS 10000000
#define BATCH 65536
#define HELD 1024     /* blocks of the shapes without an order */
#define USES 20000    /* accesses in an iteration of `once` */
#define TAIL_STEPS 16 /* short iterations behind a shape without any */

struct generator {
    struct ebb_trace_writer *writer;
    struct ebb_error *error;
    enum ebb_status status;
    struct ebb_event events[BATCH];
    size_t filled;
    uint64_t count, now_ns, serial, chance;
    uint64_t held[HELD], sizes[HELD];
};

static uint64_t chance(struct generator *generator, uint64_t below)
{
    uint64_t *state = &generator->chance;
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state % below;
}

static void flush(struct generator *generator)
{
    if (!generator->status)
        generator->status = ebb__trace_writer_append(generator->writer, generator->events,
                                                     generator->filled, generator->error);
    generator->filled = 0;
}

static void put(struct generator *generator, struct ebb_event event)
{
    generator->now_ns += 2000;
    event.time_ns = generator->now_ns;
    generator->events[generator->filled++] = event;
    generator->count++;
    if (generator->filled == BATCH)
        flush(generator);
}

static uint64_t make(struct generator *generator, uint64_t size_bytes)
{
    put(generator, (struct ebb_event){.block = ++generator->serial,
                                      .size_bytes = size_bytes,
                                      .kind = EBB_EVENT_ALLOC});
    return generator->serial;
}

static void use(struct generator *generator, uint64_t block, uint64_t size_bytes,
                enum ebb_access_kind access)
{
    put(generator, (struct ebb_event){.block = block,
                                      .size_bytes = size_bytes,
                                      .kind = EBB_EVENT_ACCESS,
                                      .access = (uint8_t)access});
}

static void drop(struct generator *generator, uint64_t block, uint64_t size_bytes)
{
    put(generator,
        (struct ebb_event){.block = block, .size_bytes = size_bytes, .kind = EBB_EVENT_FREE});
}

/* One short iteration: forward and backward. */
static void step(struct generator *generator)
{
    enum { LAYERS = 24, LOOPS = 168 };
    uint64_t outputs[LAYERS];
    for (uint64_t pass = 0; pass < 2; pass++)
        for (uint64_t i = 0; i < LAYERS; i++) {
            uint64_t l = pass ? LAYERS - 1 - i : i, size_bytes = 1000000 + l * 8192;
            if (!pass)
                outputs[l] = make(generator, size_bytes);
            use(generator, outputs[l], size_bytes, pass ? EBB_ACCESS_READ : EBB_ACCESS_WRITE);
            for (int k = 0; k < LOOPS; k++) {
                uint64_t block = make(generator, 262144);
                use(generator, block, 262144, EBB_ACCESS_WRITE);
                drop(generator, block, 262144);
            }
            if (pass)
                drop(generator, outputs[l], size_bytes);
        }
}

static void hold(struct generator *generator)
{
    for (size_t i = 0; i < HELD; i++) {
        generator->sizes[i] = 4096 + chance(generator, 1 << 20);
        generator->held[i] = make(generator, generator->sizes[i]);
    }
}

/* A block takes the place of another one, and may be used. */
static void replace(struct generator *generator)
{
    size_t at = chance(generator, HELD);
    drop(generator, generator->held[at], generator->sizes[at]);
    generator->sizes[at] = 4096 + chance(generator, 1 << 20);
    generator->held[at] = make(generator, generator->sizes[at]);
    if (chance(generator, 4) == 0)
        use(generator, generator->held[at], generator->sizes[at], EBB_ACCESS_WRITE);
}

static void use_any(struct generator *generator)
{
    size_t at = chance(generator, HELD);
    use(generator, generator->held[at], generator->sizes[at],
        chance(generator, 3) ? EBB_ACCESS_READ : EBB_ACCESS_WRITE);
}

static void release(struct generator *generator)
{
    for (size_t i = 0; i < HELD; i++)
        drop(generator, generator->held[i], generator->sizes[i]);
}

/* Iterations that can be found at last. */
static void end_with_steps(struct generator *generator)
{
    release(generator);
    for (int i = 0; i < TAIL_STEPS; i++)
        step(generator);
}

static void make_steps(struct generator *generator, uint64_t events)
{
    while (generator->count < events)
        step(generator);
}

static void make_random(struct generator *generator, uint64_t events)
{
    hold(generator);
    while (generator->count < events)
        replace(generator);
    end_with_steps(generator);
}

static void make_whole(struct generator *generator, uint64_t events)
{
    uint64_t seed = generator->chance;
    for (uint64_t i = 1; i <= 3; i++) {
        generator->chance = seed;
        hold(generator);
        while (generator->count < events / 3 * i)
            replace(generator);
        release(generator);
    }
}

static void make_once(struct generator *generator, uint64_t events)
{
    hold(generator);
    uint64_t seed = generator->chance;
    while (generator->count < events) {
        generator->chance = seed;
        for (int i = 0; i < USES; i++)
            use_any(generator);
    }
}

static void make_strange(struct generator *generator, uint64_t events)
{
    hold(generator);
    while (generator->count < events)
        use_any(generator);
    end_with_steps(generator);
}

static const struct {
    const char *name;
    void (*make)(struct generator *generator, uint64_t events);
} shapes[] = {{"steps", make_steps},
              {"random", make_random},
              {"whole", make_whole},
              {"once", make_once},
              {"strange", make_strange}};

int main(int argc, char **argv)
{
    uint64_t events = argc > 3 ? strtoull(argv[3], NULL, 10) : EVENTS;
    size_t shape = 0, count = sizeof shapes / sizeof shapes[0];
    while (argc > 2 && shape < count && strcmp(argv[2], shapes[shape].name) != 0)
        shape++;
    if (argc < 3 || shape == count || events == 0) {
        fputs("usage: bench_long_trace FILE steps|random|whole|once|strange [EVENTS]\n", stderr);
        return 2;
    }
    struct ebb_error error;
    struct generator *generator = calloc(1, sizeof *generator);
    if (!generator)
        return 1;
    generator->error = &error;
    generator->chance = 88172645463325252u;
    struct ebb_trace_info info = {
        .command = "bench_long_trace", .threshold_bytes = 1, .page_bytes = 4096};
    enum ebb_status status = ebb__trace_writer_open(argv[1], &info, &generator->writer, &error);
    if (!status) {
        put(generator, (struct ebb_event){.kind = EBB_EVENT_MARK, .mark = EBB_MARK_TRACE_ON});
        shapes[shape].make(generator, events);
        flush(generator);
        status = generator->status;
        enum ebb_status closed = ebb__trace_writer_close(generator->writer, status ? NULL : &error);
        status = status ? status : closed;
    }
    if (status)
        fprintf(stderr, "bench_long_trace: %s: %s\n", error.what, error.why);
    free(generator);
    return ebb_status_exit_code(status);
}
