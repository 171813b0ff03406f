#include "train/op/build.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ebb__builder ebb__build_begin(struct ebb_op_engine *engine, const char *kind,
                                     const char *name, const struct ebb_op_table *table,
                                     uint32_t steps, size_t own_bytes, struct ebb_error *error)
{
    struct ebb__builder build = {.status = EBB_OK, .error = error};
    struct ebb_op *op = calloc(1, sizeof *op);
    void *own = calloc(1, own_bytes ? own_bytes : 1);
    if (!op || !own) {
        free(op);
        free(own);
        build.status = ebb__op_fail(error, EBB_ERR_MEMORY, NULL, "no memory for %s %s", kind, name);
        return build;
    }
    op->kind = kind;
    snprintf(op->name, sizeof op->name, "%s", name);
    op->steps = steps;
    op->engine = engine;
    op->table = table;
    op->own = own;
    build.op = op;
    return build;
}

enum ebb_status ebb__build_end(struct ebb__builder *build, struct ebb_op **op)
{
    if (build->status == EBB_OK)
        *op = build->op;
    return build->status;
}

static void give_up(struct ebb__builder *build, enum ebb_status status)
{
    build->status = status;
    ebb_op_destroy(build->op);
    build->op = NULL;
}

void ebb__build_fail(struct ebb__builder *build, enum ebb_status status, const char *why, ...)
{
    if (build->status != EBB_OK)
        return;
    char text[sizeof build->error->why];
    va_list arguments;
    va_start(arguments, why);
    vsnprintf(text, sizeof text, why, arguments);
    va_end(arguments);
    ebb__op_fail(build->error, status, build->op, "%s", text);
    give_up(build, status);
}

void ebb__build_check(struct ebb__builder *build, dnnl_status_t status, const char *what)
{
    if (status == dnnl_success)
        return;
    enum ebb_status as = status == dnnl_out_of_memory   ? EBB_ERR_MEMORY
                         : status == dnnl_unimplemented ? EBB_ERR_UNSUPPORTED
                                                        : EBB_ERR_INTERNAL;
    ebb__build_fail(build, as, "oneDNN fails at %s with status %d", what, (int)status);
}

uint32_t ebb__build_buffer(struct ebb__builder *build, enum ebb_op_role role, const char *name,
                           const struct ebb_op_desc *desc)
{
    if (build->status != EBB_OK)
        return 0;
    struct ebb_op *op = build->op;
    if (op->buffer_count == EBB_OP_BUFFERS_MAX) {
        ebb__build_fail(build, EBB_ERR_LIMIT, "has more than %d buffers", EBB_OP_BUFFERS_MAX);
        return 0;
    }
    struct ebb_op_buffer *buffers =
        realloc(op->buffers, (op->buffer_count + 1) * sizeof *op->buffers);
    if (!buffers) {
        ebb__build_fail(build, EBB_ERR_MEMORY, "no memory for its buffers");
        return 0;
    }
    uint32_t at = op->buffer_count;
    op->buffers = buffers;
    buffers[at] = (struct ebb_op_buffer){
        .role = role, .index = ebb_op_count(op, role), .name = name, .desc = *desc};
    op->buffer_count++;
    return at;
}

uint32_t ebb__build_floats(struct ebb__builder *build, enum ebb_op_role role, const char *name,
                           int64_t count)
{
    struct ebb_op_desc desc = ebb__desc_floats(1, &count);
    return ebb__build_buffer(build, role, name, &desc);
}

uint32_t ebb__build_bytes(struct ebb__builder *build, enum ebb_op_role role, const char *name,
                          uint64_t bytes)
{
    int64_t count = (int64_t)bytes, stride = 1;
    dnnl_memory_desc_t layout = ebb__layout(1, &count, dnnl_u8, &stride);
    struct ebb_op_desc desc = ebb__desc_of(&layout);
    return ebb__build_buffer(build, role, name, &desc);
}

void ebb__build_use(struct ebb__builder *build, uint32_t buffer, uint32_t steps, enum ebb_use use)
{
    if (build->status != EBB_OK)
        return;
    for (int step = 0; step < EBB_OP_STEP_COUNT; step++) {
        if (steps & build->op->steps & 1u << step)
            build->op->buffers[buffer].use[step] = use;
    }
}

void ebb__build_replace(struct ebb__builder *build, uint32_t buffer, uint32_t other)
{
    if (build->status == EBB_OK)
        build->op->buffers[buffer].may_replace |= UINT64_C(1) << other;
}

void ebb__build_fill(struct ebb__builder *build, uint32_t buffer, enum ebb_op_filling filling,
                     float spread, bool decays)
{
    if (build->status != EBB_OK)
        return;
    struct ebb_op_buffer *at = &build->op->buffers[buffer];
    at->filling = filling;
    at->spread = spread;
    at->decays = decays;
}

void ebb__build_values(struct ebb__builder *build, uint32_t input_count,
                       const struct ebb_op_desc *const *inputs, const struct ebb_op_desc *output)
{
    for (uint32_t i = 0; i < input_count; i++) {
        uint32_t at = ebb__build_buffer(build, EBB_OP_INPUT, "input", inputs[i]);
        ebb__build_use(build, at, EBB__FORWARDS, EBB_USE_READ);
    }
    uint32_t at = ebb__build_buffer(build, EBB_OP_OUTPUT, "output", output);
    ebb__build_use(build, at, EBB__FORWARDS, EBB_USE_OVERWRITE);
    for (uint32_t i = 0; i < input_count; i++) {
        at = ebb__build_buffer(build, EBB_OP_INPUT_GRADIENT, "input gradient", inputs[i]);
        ebb__build_use(build, at, EBB__DATA, EBB_USE_OVERWRITE);
    }
    at = ebb__build_buffer(build, EBB_OP_OUTPUT_GRADIENT, "output gradient", output);
    ebb__build_use(build, at, EBB__BACKWARDS, EBB_USE_READ);
}

uint32_t ebb__build_parameter(struct ebb__builder *build, const char *name,
                              const struct ebb_op_desc *desc)
{
    uint32_t parameter = ebb__build_buffer(build, EBB_OP_PARAMETER, name, desc);
    ebb__build_use(build, parameter, EBB__FORWARDS, EBB_USE_READ);
    uint32_t gradient = ebb__build_buffer(build, EBB_OP_PARAMETER_GRADIENT, name, desc);
    ebb__build_use(build, gradient, EBB__WEIGHTS, EBB_USE_OVERWRITE);
    return parameter;
}

struct ebb__place ebb__place(uint32_t buffer)
{
    return (struct ebb__place){.buffer = buffer};
}

struct ebb__place ebb__build_workspace(struct ebb__builder *build, uint32_t steps, uint64_t bytes)
{
    struct ebb__place place = {0};
    if (build->status != EBB_OK)
        return place;
    struct ebb_op *op = build->op;
    uint32_t at = 0;
    while (
        at < op->buffer_count &&
        !(op->buffers[at].role == EBB_OP_WORKSPACE &&
          op->buffers[at].use[EBB_OP_FORWARD] == (steps & EBB__FORWARDS ? EBB_USE_OVERWRITE : 0) &&
          op->buffers[at].use[EBB_OP_BACKWARD_DATA] == (steps & EBB__DATA ? EBB_USE_OVERWRITE : 0)))
        at++;
    if (at == op->buffer_count) {
        at = ebb__build_bytes(build, EBB_OP_WORKSPACE, "workspace", EBB_OP_ALIGNMENT_BYTES);
        if (build->status != EBB_OK)
            return place;
        op->buffers[at].desc.bytes = 0;
        ebb__build_use(build, at, steps & EBB__FORWARDS ? EBB__FORWARDS : steps, EBB_USE_OVERWRITE);
    }
    place.buffer = at;
    place.offset_bytes = op->buffers[at].desc.bytes;
    struct ebb_op_desc *desc = &op->buffers[at].desc;
    desc->bytes +=
        (bytes + EBB_OP_ALIGNMENT_BYTES - 1) / EBB_OP_ALIGNMENT_BYTES * EBB_OP_ALIGNMENT_BYTES;
    desc->dims[0] = desc->layout.dims[0] = desc->layout.padded_dims[0] = (int64_t)desc->bytes;
    return place;
}
