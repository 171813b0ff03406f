/* A training as a device sees it: a network of layers that are alike. It makes the events of the
 * launch order, one after the other. Include it after cmocka. */
#ifndef EBB_TESTS_CUDA_TRAINING_H
#define EBB_TESTS_CUDA_TRAINING_H

#include "model/model.h"
#include "runtime/script.h"
#include "trace/event.h"

#include <stdlib.h>
#include <string.h>

#define TRAINING_MIB ((uint64_t)1 << 20)

enum { TRAINING_LAYERS = 12, TRAINING_BLOCKS = 256, TRAINING_EVENTS = 8192 };

struct training_block {
    uint64_t serial, bytes; /* serial 0: free */
};

struct training {
    struct training_block blocks[TRAINING_BLOCKS];
    uint32_t weights[TRAINING_LAYERS], moments[TRAINING_LAYERS];
    uint32_t layers;
    uint64_t serial;
    /* The events made so far, and the block of the table that each is about. A work begins at an
     * ACCESS of another number in `works` than the event before. */
    struct ebb_event events[TRAINING_EVENTS];
    uint32_t of[TRAINING_EVENTS], works[TRAINING_EVENTS];
    size_t count;
    uint32_t work;
    uint64_t now_ns;
};

static inline void training_push(struct training *training, enum ebb_event_kind kind,
                                 uint32_t block, enum ebb_access_kind access)
{
    assert_true(training->count < TRAINING_EVENTS);
    training->of[training->count] = block;
    training->works[training->count] = training->work;
    training->events[training->count++] = (struct ebb_event){
        .time_ns = training->now_ns,
        .block = training->blocks[block].serial,
        .size_bytes = training->blocks[block].bytes,
        .kind = (uint8_t)kind,
        .access = (uint8_t)access,
        .flags = kind == EBB_EVENT_ACCESS ? EBB_EVENT_ANNOUNCED : 0,
    };
}

static inline uint32_t training_alloc(struct training *training, uint64_t bytes)
{
    uint32_t block = 1;
    while (training->blocks[block].serial)
        assert_true(++block < TRAINING_BLOCKS);
    training->blocks[block] = (struct training_block){++training->serial, bytes};
    training_push(training, EBB_EVENT_ALLOC, block, 0);
    return block;
}

static inline void training_free(struct training *training, uint32_t block)
{
    training_push(training, EBB_EVENT_FREE, block, 0);
    training->blocks[block].serial = 0;
}

/* A kernel that reads `a` and `b` and writes `c`; 0: none. While a trace is made, each use ends
 * with the kernel. */
static inline void training_launch(struct training *training, uint64_t ns, uint32_t a, uint32_t b,
                                   uint32_t c)
{
    const uint32_t used[] = {a, b, c};
    training->work++;
    for (size_t i = 0; i < 3; i++)
        if (used[i])
            training_push(training, EBB_EVENT_ACCESS, used[i],
                          i < 2 ? EBB_ACCESS_READ : EBB_ACCESS_WRITE);
    training->now_ns += ns;
}

static inline void training_init(struct training *training, uint32_t layers)
{
    memset(training, 0, sizeof *training);
    training->layers = layers;
    for (uint32_t i = 0; i < layers; i++) {
        training->weights[i] = training_alloc(training, 24 * TRAINING_MIB);
        training->moments[i] = training_alloc(training, 24 * TRAINING_MIB);
    }
}

static inline void training_forward(struct training *training, uint32_t *outputs, bool keeps)
{
    outputs[0] = training_alloc(training, 8 * TRAINING_MIB);
    training_launch(training, 1000000, 0, 0, outputs[0]);
    for (uint32_t i = 0; i < training->layers; i++) {
        outputs[i + 1] = training_alloc(training, 32 * TRAINING_MIB);
        training_launch(training, 8000000, training->weights[i], outputs[i], outputs[i + 1]);
        if (!keeps)
            training_free(training, outputs[i]);
    }
}

/* An iteration: forward, backward, optimizer. */
static inline void training_iterate(struct training *training)
{
    uint32_t outputs[TRAINING_LAYERS + 1], gradients[TRAINING_LAYERS], flowing;
    training_forward(training, outputs, true);
    flowing = training_alloc(training, 32 * TRAINING_MIB + TRAINING_MIB);
    training_launch(training, 1000000, outputs[training->layers], 0, flowing);
    for (uint32_t i = training->layers; i-- > 0;) {
        gradients[i] = training_alloc(training, 24 * TRAINING_MIB);
        training_launch(training, 8000000, outputs[i], flowing, gradients[i]);
        training_launch(training, 8000000, training->weights[i], flowing, flowing);
        training_free(training, outputs[i + 1]);
    }
    training_free(training, outputs[0]);
    training_free(training, flowing);
    for (uint32_t i = 0; i < training->layers; i++) {
        training_launch(training, 1000000, gradients[i], training->moments[i],
                        training->weights[i]);
        training_free(training, gradients[i]);
    }
}

/* An evaluation: it keeps nothing. */
static inline void training_evaluate(struct training *training)
{
    uint32_t outputs[TRAINING_LAYERS + 1];
    training_forward(training, outputs, false);
    training_free(training, outputs[training->layers]);
}

/* The model of the last events, from `first` on, with uses held until the next work. The caller
 * releases it. */
static inline void training_model(const struct training *training, size_t first,
                                  struct ebb_model *model)
{
    size_t most = 3 * training->count + 2, count = 0, begin = 0, used = 0;
    struct ebb_event *events = calloc(most, sizeof *events);
    struct ebb_error error;
    assert_non_null(events);
    events[count++] = (struct ebb_event){.kind = EBB_EVENT_MARK, .mark = EBB_MARK_TRACE_ON};
    for (size_t i = 0; i < training->count; i++) {
        if (i == first)
            begin = count;
        events[count++] = training->events[i];
        used = training->events[i].kind == EBB_EVENT_ACCESS ? used + 1 : 0;
        bool ends =
            used && (i + 1 == training->count || training->events[i + 1].kind != EBB_EVENT_ACCESS ||
                     training->works[i + 1] != training->works[i]);
        uint64_t end_ns =
            i + 1 < training->count ? training->events[i + 1].time_ns : training->now_ns;
        for (size_t k = 0; ends && k < used; k++) {
            events[count] = training->events[i + 1 - used + k];
            events[count].time_ns = end_ns;
            events[count++].flags = EBB_EVENT_HELD;
        }
        used = ends ? 0 : used;
    }
    assert_int_equal(ebb__model_build((struct ebb_event_span){events, count}, begin, count - begin,
                                      model, &error),
                     EBB_OK);
    free(events);
}

#endif
