/* Which repetitions are micro-batches: in whatever phase they are seen, and with evaluations
 * between them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "model/lives.h"

#define MIB ((uint64_t)1 << 20)

enum { LAYERS = 8, STEPS = 15, ALLOCS = 2 * LAYERS + 1 };

struct program {
    struct ebb_stream stream;
    uint64_t now_ns, serials;
    uint64_t activations[LAYERS], gradients[LAYERS];
};

static void event(struct program *p, enum ebb_event_kind kind, uint64_t block, uint64_t bytes)
{
    const struct ebb_event made = {
        .time_ns = p->now_ns += 1000, .block = block, .size_bytes = bytes, .kind = (uint8_t)kind};
    assert_int_equal(ebb__stream_push(&p->stream, &made), EBB_OK);
}

static uint64_t take(struct program *p, uint64_t bytes)
{
    event(p, EBB_EVENT_ALLOC, ++p->serials, bytes);
    return p->serials;
}

static uint64_t activation_bytes(unsigned layer)
{
    return 4 * MIB + layer * MIB / 16;
}

static uint64_t gradient_bytes(unsigned layer)
{
    return MIB + layer * MIB / 16;
}

static void forward(struct program *p)
{
    for (unsigned i = 0; i < LAYERS; i++)
        p->activations[i] = take(p, activation_bytes(i));
}

static void free_activation(struct program *p, unsigned layer)
{
    event(p, EBB_EVENT_FREE, p->activations[layer], activation_bytes(layer));
}

static void free_gradients(struct program *p)
{
    for (unsigned i = 0; i < LAYERS; i++) {
        if (p->gradients[i])
            event(p, EBB_EVENT_FREE, p->gradients[i], gradient_bytes(i));
        p->gradients[i] = 0;
    }
}

/* In the first micro-batch gradients stay. In later ones they are added to those, and freed. */
static void train(struct program *p, bool frees_first)
{
    event(p, EBB_EVENT_FREE, take(p, 2 * MIB), 2 * MIB);
    if (frees_first)
        free_gradients(p);
    forward(p);
    for (unsigned i = LAYERS; i-- > 0;) {
        uint64_t made = take(p, gradient_bytes(i));
        if (p->gradients[i])
            event(p, EBB_EVENT_FREE, made, gradient_bytes(i));
        else
            p->gradients[i] = made;
        free_activation(p, i);
    }
}

static void evaluate(struct program *p)
{
    for (unsigned k = 0; k < 2; k++) {
        forward(p);
        for (unsigned i = 0; i < LAYERS; i++)
            free_activation(p, i);
    }
}

static void begin(struct program *p)
{
    *p = (struct program){0};
    assert_int_equal(ebb__stream_init(&p->stream), EBB_OK);
}

/* As seen from allocation `phase` on. */
static bool differ_from(struct program *p, size_t phase)
{
    const struct ebb_symbols *symbols = &p->stream.symbols[EBB_SYMBOL_ALLOC];
    const struct ebb_template template = {
        .kind = EBB_SYMBOL_ALLOC,
        .period_symbols = ALLOCS,
        .hash = ebb__rolling_range(symbols->rolling, phase, phase + ALLOCS)};
    return ebb__lives_differ(&p->stream, &template, phase, symbols->events.count);
}

/* The next step frees the gradients of the one before, however much comes between them. */
static void evaluations_are_between_iterations(void **state)
{
    (void)state;
    for (unsigned between = 3; between <= 5; between++) {
        struct program program;
        begin(&program);
        for (unsigned step = 0; step < STEPS; step++) {
            train(&program, true);
            if (step % between == between - 1)
                evaluate(&program);
        }
        for (size_t phase = 0; phase < ALLOCS; phase++)
            assert_false(differ_from(&program, phase));
        ebb__stream_fini(&program.stream);
    }
}

/* Gradients are added up over `batches` of these, and freed before the next one, or behind its
 * first allocation. */
static void micro_batches_differ(void **state)
{
    (void)state;
    for (unsigned batches = 2; batches <= 4; batches++)
        for (unsigned is_late = 0; is_late < 2; is_late++) {
            struct program program;
            begin(&program);
            for (unsigned batch = 0; batch < 24; batch++) {
                train(&program, is_late && batch % batches == 0);
                if (!is_late && batch % batches == batches - 1)
                    free_gradients(&program);
            }
            for (size_t phase = 0; phase < ALLOCS; phase++)
                assert_true(differ_from(&program, phase));
            ebb__stream_fini(&program.stream);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(evaluations_are_between_iterations),
        cmocka_unit_test(micro_batches_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
