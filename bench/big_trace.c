/* Makes a trace of a large training, to measure how the planners scale. An iteration has 100,000
 * events and 20,000 blocks.
 *
 *     build/release/bench/bench_big_trace big.ebbt [LAYERS] && ebb plan big.ebbt --budget 60% ...
 *
 * Each layer has a persistent weight, an output that is kept from the forward to the backward pass,
 * a gradient, and scratch in both passes. That is 25 events and 5 blocks for each of 4,000 layers
 * (the default), in three iterations. As in a recorded trace, an access is the first one of its
 * block since the last allocation or free. Sizes and times vary pseudo-randomly; every run writes
 * the same file. */
#include "base/vec.h"
#include "trace/file.h"

#include <stdio.h>
#include <stdlib.h>

#define LAYERS 4000
#define ITERATIONS 3
#define MIB ((uint64_t)1 << 20)

struct generator {
    EBB_VEC(struct ebb_event) events;
    uint64_t now_ns, serial, chance;
};

static uint64_t chance(struct generator *generator, uint64_t below)
{
    uint64_t *state = &generator->chance;
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state % below;
}

static void put(struct generator *generator, enum ebb_event_kind kind, uint64_t block,
                uint64_t size_bytes, enum ebb_access_kind access)
{
    struct ebb_event event = {.time_ns = generator->now_ns,
                              .block = block,
                              .size_bytes = size_bytes,
                              .kind = (uint8_t)kind,
                              .access = (uint8_t)access};
    generator->now_ns += 5000;
    if (!ebb_vec_push(&generator->events, event))
        abort();
}

static uint64_t put_alloc(struct generator *generator, uint64_t size_bytes)
{
    put(generator, EBB_EVENT_ALLOC, ++generator->serial, size_bytes, EBB_ACCESS_UNKNOWN);
    return generator->serial;
}

struct layer {
    uint64_t weight, output, weight_bytes, output_bytes, scratch_bytes, work_ns;
};

static void use_weight(struct generator *generator, const struct layer *layer,
                       enum ebb_access_kind access)
{
    put(generator, EBB_EVENT_ACCESS, layer->weight, layer->weight_bytes, access);
}

static void use_output(struct generator *generator, const struct layer *layer,
                       enum ebb_access_kind access)
{
    put(generator, EBB_EVENT_ACCESS, layer->output, layer->output_bytes, access);
}

/* A layer reads the output of the layer below it. The first layer shares the weight of the last
 * one, like embeddings. */
static void read_input(struct generator *generator, const struct layer *layers, uint64_t count,
                       uint64_t l)
{
    if (l > 0)
        use_output(generator, &layers[l - 1], EBB_ACCESS_READ);
    else
        use_weight(generator, &layers[count - 1], EBB_ACCESS_READ);
}

static void forward(struct generator *generator, struct layer *layers, uint64_t count, uint64_t l)
{
    struct layer *layer = &layers[l];
    layer->output = put_alloc(generator, layer->output_bytes);
    read_input(generator, layers, count, l);
    use_weight(generator, layer, EBB_ACCESS_READ);
    uint64_t scratch = put_alloc(generator, layer->scratch_bytes);
    put(generator, EBB_EVENT_ACCESS, scratch, layer->scratch_bytes, EBB_ACCESS_WRITE);
    use_weight(generator, layer, EBB_ACCESS_READ);
    use_output(generator, layer, EBB_ACCESS_WRITE);
    generator->now_ns += layer->work_ns;
    put(generator, EBB_EVENT_FREE, scratch, layer->scratch_bytes, EBB_ACCESS_UNKNOWN);
    use_weight(generator, layer, EBB_ACCESS_READ);
    use_output(generator, layer, EBB_ACCESS_WRITE);
}

static void backward(struct generator *generator, struct layer *layers, uint64_t count, uint64_t l)
{
    struct layer *layer = &layers[l];
    uint64_t gradient_bytes = layer->scratch_bytes + 4096;
    uint64_t scratch_bytes = layer->scratch_bytes + 8192;
    uint64_t gradient = put_alloc(generator, gradient_bytes);
    use_output(generator, layer, EBB_ACCESS_READ);
    use_weight(generator, layer, EBB_ACCESS_READ);
    put(generator, EBB_EVENT_ACCESS, gradient, gradient_bytes, EBB_ACCESS_WRITE);
    uint64_t scratch = put_alloc(generator, scratch_bytes);
    put(generator, EBB_EVENT_ACCESS, scratch, scratch_bytes, EBB_ACCESS_WRITE);
    use_output(generator, layer, EBB_ACCESS_READ);
    use_weight(generator, layer, EBB_ACCESS_READ);
    put(generator, EBB_EVENT_ACCESS, gradient, gradient_bytes, EBB_ACCESS_WRITE);
    generator->now_ns += layer->work_ns;
    put(generator, EBB_EVENT_FREE, scratch, scratch_bytes, EBB_ACCESS_UNKNOWN);
    read_input(generator, layers, count, l);
    put(generator, EBB_EVENT_ACCESS, gradient, gradient_bytes, EBB_ACCESS_READ);
    use_weight(generator, layer, EBB_ACCESS_WRITE);
    put(generator, EBB_EVENT_FREE, gradient, gradient_bytes, EBB_ACCESS_UNKNOWN);
    put(generator, EBB_EVENT_FREE, layer->output, layer->output_bytes, EBB_ACCESS_UNKNOWN);
}

int main(int argc, char **argv)
{
    uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 10) : LAYERS;
    if (argc < 2 || count == 0 || count > 1000000) {
        fputs("usage: bench_big_trace FILE [LAYERS]\n", stderr);
        return 2;
    }
    struct generator generator = {.chance = 88172645463325252u};
    struct layer *layers = calloc(count, sizeof *layers);
    if (!layers)
        return 1;
    for (uint64_t l = 0; l < count; l++) {
        layers[l].weight_bytes = MIB + chance(&generator, 4 * MIB);
        layers[l].output_bytes = MIB + chance(&generator, 8 * MIB);
        layers[l].scratch_bytes = MIB / 2 + chance(&generator, 2 * MIB);
        layers[l].work_ns = 100000 + chance(&generator, 400000);
        layers[l].weight = put_alloc(&generator, layers[l].weight_bytes);
    }
    struct ebb_event on = {
        .time_ns = generator.now_ns, .kind = EBB_EVENT_MARK, .mark = EBB_MARK_TRACE_ON};
    if (!ebb_vec_push(&generator.events, on))
        return 1;
    for (int i = 0; i < ITERATIONS; i++) {
        for (uint64_t l = 0; l < count; l++)
            forward(&generator, layers, count, l);
        for (uint64_t l = count; l-- > 0;)
            backward(&generator, layers, count, l);
    }
    struct ebb_trace_info info = {
        .command = "bench_big_trace", .threshold_bytes = 1, .page_bytes = 1};
    struct ebb_trace_writer *writer;
    struct ebb_error error;
    enum ebb_status status = ebb__trace_writer_open(argv[1], &info, &writer, &error);
    if (!status) {
        status = ebb__trace_writer_append(writer, generator.events.items, generator.events.count,
                                          &error);
        enum ebb_status closed = ebb__trace_writer_close(writer, status ? NULL : &error);
        status = status ? status : closed;
    }
    if (status)
        fprintf(stderr, "bench_big_trace: %s: %s\n", error.what, error.why);
    ebb_vec_free(&generator.events);
    free(layers);
    return ebb_status_exit_code(status);
}
