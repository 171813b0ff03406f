#include "train/op/op.h"

#include "train/op/build.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const step_names[EBB_OP_STEP_COUNT] = {"forward", "recompute", "evaluate",
                                                          "backward weights", "backward data"};

enum ebb_status ebb_op_engine_create(struct ebb_op_engine **engine, struct ebb_error *error)
{
    struct ebb_op_engine *made = calloc(1, sizeof *made);
    if (!made)
        return ebb__op_fail(error, EBB_ERR_MEMORY, NULL, "no memory for the engine");
    dnnl_status_t status = dnnl_engine_create(&made->engine, dnnl_cpu, 0);
    if (status == dnnl_success)
        status = dnnl_stream_create(&made->stream, made->engine, dnnl_stream_default_flags);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_create(&made->attributes);
    if (status == dnnl_success)
        status =
            dnnl_primitive_attr_set_scratchpad_mode(made->attributes, dnnl_scratchpad_mode_user);
    if (status != dnnl_success) {
        ebb_op_engine_destroy(made);
        return ebb__op_fail(error, EBB_ERR_UNSUPPORTED, NULL, "oneDNN does not start: status %d",
                            (int)status);
    }
    *engine = made;
    return EBB_OK;
}

void ebb_op_engine_destroy(struct ebb_op_engine *engine)
{
    if (!engine)
        return;
    if (engine->attributes)
        dnnl_primitive_attr_destroy(engine->attributes);
    if (engine->stream)
        dnnl_stream_destroy(engine->stream);
    if (engine->engine)
        dnnl_engine_destroy(engine->engine);
    free(engine);
}

void ebb_op_destroy(struct ebb_op *op)
{
    if (!op)
        return;
    ebb__primitives_destroy(op->primitives);
    free(op->buffers);
    free(op->own);
    free(op);
}

int ebb_op_find(const struct ebb_op *op, enum ebb_op_role role, uint32_t index)
{
    for (uint32_t i = 0; i < op->buffer_count; i++) {
        if (op->buffers[i].role == role && op->buffers[i].index == index)
            return (int)i;
    }
    return -1;
}

const struct ebb_op_desc *ebb_op_output(const struct ebb_op *op, uint32_t index)
{
    int at = ebb_op_find(op, EBB_OP_OUTPUT, index);
    return at < 0 ? NULL : &op->buffers[at].desc;
}

uint32_t ebb_op_count(const struct ebb_op *op, enum ebb_op_role role)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < op->buffer_count; i++)
        count += op->buffers[i].role == role;
    return count;
}

bool ebb_op_has(const struct ebb_op *op, enum ebb_op_step step)
{
    return op->steps >> step & 1;
}

enum ebb_status ebb_op_run(struct ebb_op *op, enum ebb_op_step step, void *const *addresses,
                           const struct ebb_op_call *call, struct ebb_error *error)
{
    static const struct ebb_op_call no_call;
    if ((unsigned)step >= EBB_OP_STEP_COUNT || !ebb_op_has(op, step))
        return ebb__op_fail(error, EBB_ERR_ARGUMENT, op, "there is no step \"%s\"",
                            (unsigned)step < EBB_OP_STEP_COUNT ? step_names[step] : "?");
    for (uint32_t i = 0; i < op->buffer_count; i++) {
        if (op->buffers[i].use[step] == 0)
            continue;
        if (!addresses[i] || (uintptr_t)addresses[i] % EBB_OP_ALIGNMENT_BYTES != 0)
            return ebb__op_fail(
                error, EBB_ERR_ARGUMENT, op,
                "%s: the address of buffer %" PRIu32 " (%s) is %p, but must be a multiple of %d",
                step_names[step], i, op->buffers[i].name, addresses[i], EBB_OP_ALIGNMENT_BYTES);
    }
    enum ebb_status status = ebb__primitives_run(op, step, addresses, error);
    if (status == EBB_OK && op->table->run)
        status = op->table->run(op, step, addresses, call ? call : &no_call, error);
    return status;
}

enum ebb_status ebb__op_fail(struct ebb_error *error, enum ebb_status status,
                             const struct ebb_op *op, const char *why, ...)
{
    if (error) {
        memset(error, 0, sizeof *error);
        error->status = status;
        if (op)
            snprintf(error->what, sizeof error->what, "%s %s", op->kind, op->name);
        va_list arguments;
        va_start(arguments, why);
        vsnprintf(error->why, sizeof error->why, why, arguments);
        va_end(arguments);
    }
    return status;
}
