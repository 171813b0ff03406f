/* The rig of tests of the trainer's operations. It runs a step with exactly the buffers that the
 * step declares, and checks that it keeps to them.
 *
 * Buffers that a step overwrites are filled with NaN before, so what it leaves out shows. Behind
 * each buffer are guard bytes. What a step only reads must have the same bytes afterwards. */
#ifndef EBB_TESTS_TRAIN_RIG_H
#define EBB_TESTS_TRAIN_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "train/op/build.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD_BYTES = 256 };

struct rig {
    struct ebb_op_engine *engine;
    struct ebb_op *op;
    char *memory[EBB_OP_BUFFERS_MAX];
    void *address[EBB_OP_BUFFERS_MAX];
    double *value[EBB_OP_BUFFERS_MAX]; /* in row-major order; for references */
    struct ebb_op_call call;
};

#define assert_near(got, expected, most) assert_true(fabs((double)(got) - (expected)) <= (most))

/* Uniform in [-1, 1), and at least 0.01 from 0: finite differences must not cross a kink. */
static inline float rig_number(uint64_t seed, uint64_t index)
{
    uint64_t bits = (seed + index + 1) * UINT64_C(0x9e3779b97f4a7c15);
    bits = (bits ^ bits >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    bits = (bits ^ bits >> 27) * UINT64_C(0x94d049bb133111eb);
    double number = (double)((bits ^ bits >> 31) >> 11) * 0x1p-52 - 1;
    return (float)(number < 0 ? number * 0.99 - 0.01 : number * 0.99 + 0.01);
}

/* `shift` moves all addresses, by a multiple of the alignment. */
static inline void rig_init(struct rig *rig, struct ebb_op_engine *engine, struct ebb_op *op,
                            size_t shift)
{
    memset(rig, 0, sizeof *rig);
    rig->engine = engine;
    rig->op = op;
    rig->call.seed = 7;
    for (uint32_t i = 0; i < op->buffer_count; i++) {
        uint64_t bytes = op->buffers[i].desc.bytes;
        size_t whole = (bytes + shift + GUARD_BYTES + 4095) / 4096 * 4096;
        rig->memory[i] = aligned_alloc(4096, whole);
        assert_non_null(rig->memory[i]);
        rig->address[i] = rig->memory[i] + shift;
        memset(rig->memory[i], 0xa5, whole);
        memset(rig->address[i], 0xff, bytes); /* NaN */
    }
}

static inline void rig_fini(struct rig *rig)
{
    for (uint32_t i = 0; i < rig->op->buffer_count; i++) {
        free(rig->memory[i]);
        free(rig->value[i]);
    }
}

static inline bool rig_is_float(const struct ebb_op_buffer *buffer)
{
    return buffer->desc.layout.data_type == dnnl_f32;
}

static inline double rig_element(const struct rig *rig, uint32_t buffer, uint64_t index)
{
    uint64_t offset = ebb_op_desc_offset(&rig->op->buffers[buffer].desc, index);
    return rig_is_float(&rig->op->buffers[buffer])
               ? (double)((const float *)rig->address[buffer])[offset]
               : (double)((const int32_t *)rig->address[buffer])[offset];
}

/* Fills a buffer of floats with numbers around `middle`, with zeros in the padding. */
static inline void rig_fill(struct rig *rig, uint32_t buffer, uint64_t seed, float middle,
                            float spread)
{
    const struct ebb_op_desc *desc = &rig->op->buffers[buffer].desc;
    memset(rig->address[buffer], 0, desc->bytes);
    for (uint64_t i = 0; i < ebb_op_desc_count(desc); i++)
        ((float *)rig->address[buffer])[ebb_op_desc_offset(desc, i)] =
            middle + spread * rig_number(seed, i);
}

/* Fills whatever a first step may read: inputs, parameters, states, output gradients. Indices are
 * below `classes`. */
static inline void rig_fill_all(struct rig *rig, int32_t classes)
{
    for (uint32_t i = 0; i < rig->op->buffer_count; i++) {
        const struct ebb_op_buffer *buffer = &rig->op->buffers[i];
        if (buffer->role == EBB_OP_INPUT && !rig_is_float(buffer)) {
            for (uint64_t j = 0; j < ebb_op_desc_count(&buffer->desc); j++)
                ((int32_t *)rig->address[i])[j] = (int32_t)(j * 5 % (uint64_t)classes);
        } else if (buffer->role == EBB_OP_INPUT || buffer->role == EBB_OP_OUTPUT_GRADIENT) {
            rig_fill(rig, i, 1000 * i, 0.0f, 1.0f);
        } else if (buffer->role == EBB_OP_PARAMETER) {
            rig_fill(rig, i, 1000 * i, 0.5f, 0.4f);
        } else if (buffer->role == EBB_OP_STATE) {
            rig_fill(rig, i, 1000 * i, 1.0f, 0.5f);
        }
    }
}

static inline void rig_check_guards(const struct rig *rig)
{
    for (uint32_t i = 0; i < rig->op->buffer_count; i++) {
        const unsigned char *guard =
            (const unsigned char *)rig->address[i] + rig->op->buffers[i].desc.bytes;
        for (int j = 0; j < GUARD_BYTES; j++) {
            if (guard[j] != 0xa5)
                fail_msg("%s %s writes behind %s", rig->op->kind, rig->op->name,
                         rig->op->buffers[i].name);
        }
    }
}

/* Runs a step with what it declares. */
static inline void rig_run(struct rig *rig, enum ebb_op_step step)
{
    struct ebb_op *op = rig->op;
    void *addresses[EBB_OP_BUFFERS_MAX] = {0};
    void *copies[EBB_OP_BUFFERS_MAX] = {0};
    for (uint32_t i = 0; i < op->buffer_count; i++) {
        const struct ebb_op_buffer *buffer = &op->buffers[i];
        if (buffer->use[step] == 0)
            continue;
        addresses[i] = rig->address[i];
        if (buffer->use[step] == EBB_USE_OVERWRITE) {
            memset(addresses[i], 0xff, buffer->desc.bytes);
        } else if (buffer->use[step] == EBB_USE_READ) {
            copies[i] = malloc(buffer->desc.bytes);
            assert_non_null(copies[i]);
            memcpy(copies[i], addresses[i], buffer->desc.bytes);
        }
    }
    struct ebb_error error;
    if (ebb_op_run(op, step, addresses, &rig->call, &error) != EBB_OK)
        fail_msg("%s: %s", error.what, error.why);
    for (uint32_t i = 0; i < op->buffer_count; i++) {
        const struct ebb_op_buffer *buffer = &op->buffers[i];
        if (copies[i] && memcmp(copies[i], addresses[i], buffer->desc.bytes) != 0)
            fail_msg("%s %s changes %s in step %d", op->kind, op->name, buffer->name, (int)step);
        free(copies[i]);
        bool whole = buffer->use[step] == EBB_USE_OVERWRITE && buffer->role != EBB_OP_WORKSPACE;
        const float *floats = addresses[i];
        for (uint64_t j = 0; whole && rig_is_float(buffer) && j < buffer->desc.bytes / 4; j++) {
            if (isnan(floats[j]))
                fail_msg("%s %s leaves element %llu of %s in step %d", op->kind, op->name,
                         (unsigned long long)j, buffer->name, (int)step);
        }
    }
    rig_check_guards(rig);
}

/* Makes the values of a buffer for references: what it holds now. */
static inline void rig_load(struct rig *rig, uint32_t buffer)
{
    uint64_t count = ebb_op_desc_count(&rig->op->buffers[buffer].desc);
    free(rig->value[buffer]);
    rig->value[buffer] = calloc(count, sizeof(double));
    assert_non_null(rig->value[buffer]);
    for (uint64_t i = 0; i < count; i++)
        rig->value[buffer][i] = rig_element(rig, buffer, i);
}

static inline void rig_load_all(struct rig *rig)
{
    for (uint32_t i = 0; i < rig->op->buffer_count; i++) {
        const struct ebb_op_buffer *buffer = &rig->op->buffers[i];
        if (buffer->role == EBB_OP_INPUT || buffer->role == EBB_OP_PARAMETER ||
            buffer->role == EBB_OP_STATE || buffer->role == EBB_OP_OUTPUT)
            rig_load(rig, i);
    }
}

/* Compares a buffer with values: differences relative to the largest one. */
static inline void rig_compare(const struct rig *rig, uint32_t buffer, const double *expected,
                               double tolerance, const char *what)
{
    uint64_t count = ebb_op_desc_count(&rig->op->buffers[buffer].desc);
    double largest = 1e-3;
    for (uint64_t i = 0; i < count; i++)
        largest = fabs(expected[i]) > largest ? fabs(expected[i]) : largest;
    for (uint64_t i = 0; i < count; i++) {
        double got = rig_element(rig, buffer, i);
        if (!(fabs(got - expected[i]) <= tolerance * largest))
            fail_msg("%s %s, %s: element %llu of %s is %.9g, not %.9g", rig->op->kind,
                     rig->op->name, what, (unsigned long long)i, rig->op->buffers[buffer].name, got,
                     expected[i]);
    }
}

#endif
