#include "train/op/build.h"

#include <stdlib.h>
#include <string.h>

enum { BINDINGS_MAX = EBB_OP_CONCAT_MAX + 2 };

struct binding {
    int argument;
    struct ebb__place place;
    dnnl_memory_t memory;
};

/* A primitive, or only a descriptor that later ones refer to (`steps` is 0). */
struct ebb__op_primitive {
    struct ebb__op_primitive *next;
    dnnl_primitive_desc_t pd;
    dnnl_primitive_t primitive;
    uint32_t steps;
    int binding_count;
    struct binding bindings[BINDINGS_MAX];
};

void ebb__primitives_destroy(struct ebb__op_primitive *primitives)
{
    while (primitives) {
        struct ebb__op_primitive *next = primitives->next;
        for (int i = 0; i < primitives->binding_count; i++)
            dnnl_memory_destroy(primitives->bindings[i].memory);
        if (primitives->primitive)
            dnnl_primitive_destroy(primitives->primitive);
        if (primitives->pd)
            dnnl_primitive_desc_destroy(primitives->pd);
        free(primitives);
        primitives = next;
    }
}

static struct ebb__op_primitive *last_of(struct ebb__op_primitive *primitives)
{
    while (primitives && primitives->next)
        primitives = primitives->next;
    return primitives;
}

static struct ebb__op_primitive *append(struct ebb__builder *build)
{
    struct ebb__op_primitive *made = calloc(1, sizeof *made);
    if (!made) {
        ebb__build_fail(build, EBB_ERR_MEMORY, "no memory for its primitives");
        return NULL;
    }
    struct ebb__op_primitive *last = last_of(build->op->primitives);
    if (last)
        last->next = made;
    else
        build->op->primitives = made;
    return made;
}

const_dnnl_primitive_desc_t ebb__build_keep(struct ebb__builder *build, dnnl_status_t status,
                                            dnnl_primitive_desc_t pd, const char *what)
{
    ebb__build_check(build, status, what);
    if (build->status != EBB_OK)
        return NULL;
    struct ebb__op_primitive *made = append(build);
    if (!made) {
        dnnl_primitive_desc_destroy(pd);
        return NULL;
    }
    made->pd = pd;
    return pd;
}

const_dnnl_primitive_desc_t ebb__build_pd(struct ebb__builder *build, const_dnnl_op_desc_t desc,
                                          const_dnnl_primitive_desc_t hint, const char *what)
{
    if (build->status != EBB_OK)
        return NULL;
    const struct ebb_op_engine *engine = build->op->engine;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t status =
        dnnl_primitive_desc_create(&pd, desc, engine->attributes, engine->engine, hint);
    return ebb__build_keep(build, status, pd, what);
}

dnnl_memory_desc_t ebb__build_layout(const struct ebb__builder *build,
                                     const_dnnl_primitive_desc_t pd, int argument)
{
    dnnl_memory_desc_t layout;
    memset(&layout, 0, sizeof layout);
    if (build->status != EBB_OK)
        return layout;
    const dnnl_memory_desc_t *found =
        dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, argument);
    if (found)
        layout = *found;
    return layout;
}

void ebb__build_primitive(struct ebb__builder *build, const_dnnl_primitive_desc_t pd,
                          uint32_t steps)
{
    if (build->status != EBB_OK)
        return;
    struct ebb__op_primitive *made = append(build);
    if (!made)
        return;
    made->steps = steps;
    dnnl_status_t status = dnnl_primitive_desc_clone(&made->pd, pd);
    if (status == dnnl_success)
        status = dnnl_primitive_create(&made->primitive, pd);
    ebb__build_check(build, status, "the creation of a primitive");
    dnnl_memory_desc_t scratchpad = ebb__build_layout(build, pd, DNNL_ARG_SCRATCHPAD);
    uint64_t bytes = dnnl_memory_desc_get_size(&scratchpad);
    if (bytes > 0)
        ebb__build_bind(build, DNNL_ARG_SCRATCHPAD, ebb__build_workspace(build, steps, bytes));
}

void ebb__build_bind(struct ebb__builder *build, int argument, struct ebb__place place)
{
    if (build->status != EBB_OK)
        return;
    struct ebb__op_primitive *at = last_of(build->op->primitives);
    if (at->binding_count == BINDINGS_MAX) {
        ebb__build_fail(build, EBB_ERR_LIMIT, "a primitive has more than %d arguments",
                        BINDINGS_MAX);
        return;
    }
    dnnl_memory_desc_t layout = ebb__build_layout(build, at->pd, argument);
    struct binding binding = {.argument = argument, .place = place};
    dnnl_status_t status =
        dnnl_memory_create(&binding.memory, &layout, build->op->engine->engine, DNNL_MEMORY_NONE);
    if (status == dnnl_success)
        at->bindings[at->binding_count++] = binding;
    ebb__build_check(build, status, "the memory of an argument");
}

void ebb__build_reorder(struct ebb__builder *build, uint32_t steps, const dnnl_memory_desc_t *from,
                        struct ebb__place source, const dnnl_memory_desc_t *to,
                        struct ebb__place target)
{
    if (build->status != EBB_OK)
        return;
    const struct ebb_op_engine *engine = build->op->engine;
    dnnl_primitive_desc_t made = NULL;
    dnnl_status_t status = dnnl_reorder_primitive_desc_create(&made, from, engine->engine, to,
                                                              engine->engine, engine->attributes);
    const_dnnl_primitive_desc_t pd = ebb__build_keep(build, status, made, "a reorder");
    ebb__build_primitive(build, pd, steps);
    ebb__build_bind(build, DNNL_ARG_FROM, source);
    ebb__build_bind(build, DNNL_ARG_TO, target);
}

struct ebb__place ebb__build_adopt(struct ebb__builder *build, uint32_t steps,
                                   const dnnl_memory_desc_t *from, struct ebb__place source,
                                   const dnnl_memory_desc_t *to)
{
    if (build->status != EBB_OK || dnnl_memory_desc_equal(from, to))
        return source;
    struct ebb__place target = ebb__build_workspace(build, steps, dnnl_memory_desc_get_size(to));
    ebb__build_reorder(build, steps, from, source, to, target);
    return target;
}

struct ebb__place ebb__build_outlet(struct ebb__builder *build, uint32_t steps,
                                    const dnnl_memory_desc_t *from, struct ebb__place target,
                                    const dnnl_memory_desc_t *to)
{
    return dnnl_memory_desc_equal(from, to)
               ? target
               : ebb__build_workspace(build, steps, dnnl_memory_desc_get_size(from));
}

void ebb__build_deliver(struct ebb__builder *build, uint32_t steps, const dnnl_memory_desc_t *from,
                        struct ebb__place outlet, const dnnl_memory_desc_t *to,
                        struct ebb__place target)
{
    if (!dnnl_memory_desc_equal(from, to))
        ebb__build_reorder(build, steps, from, outlet, to, target);
}

struct ebb__place ebb__build_weights(struct ebb__builder *build, uint32_t steps,
                                     const_dnnl_primitive_desc_t pd, uint32_t parameter,
                                     const struct ebb_op_desc *desc)
{
    ebb__build_use(build, parameter, steps, EBB_USE_READ);
    dnnl_memory_desc_t wanted = ebb__build_layout(build, pd, DNNL_ARG_WEIGHTS);
    return ebb__build_adopt(build, steps, &desc->layout, ebb__place(parameter), &wanted);
}

void ebb__build_map(struct ebb__builder *build, const_dnnl_primitive_desc_t pd, uint32_t steps,
                    uint32_t saved)
{
    ebb__build_primitive(build, pd, steps);
    ebb__build_bind(build, DNNL_ARG_SRC, ebb__place(EBB__X));
    ebb__build_bind(build, DNNL_ARG_DST, ebb__place(EBB__Y));
    if (saved)
        ebb__build_bind(build, DNNL_ARG_WORKSPACE, ebb__place(saved));
}

enum ebb_status ebb__primitives_run(struct ebb_op *op, enum ebb_op_step step,
                                    void *const *addresses, struct ebb_error *error)
{
    dnnl_stream_t stream = op->engine->stream;
    dnnl_status_t status = dnnl_success;
    for (struct ebb__op_primitive *at = op->primitives; at; at = at->next) {
        if (!(at->steps >> step & 1))
            continue;
        dnnl_exec_arg_t arguments[BINDINGS_MAX];
        for (int i = 0; i < at->binding_count && status == dnnl_success; i++) {
            const struct binding *binding = &at->bindings[i];
            char *address = addresses[binding->place.buffer];
            status = dnnl_memory_set_data_handle_v2(binding->memory,
                                                    address + binding->place.offset_bytes, stream);
            arguments[i] = (dnnl_exec_arg_t){binding->argument, binding->memory};
        }
        if (status == dnnl_success)
            status = dnnl_primitive_execute(at->primitive, stream, at->binding_count, arguments);
        if (status == dnnl_success)
            status = dnnl_stream_wait(stream);
        if (status != dnnl_success)
            return ebb__op_fail(error,
                                status == dnnl_out_of_memory ? EBB_ERR_MEMORY : EBB_ERR_INTERNAL,
                                op, "oneDNN fails with status %d", (int)status);
    }
    return EBB_OK;
}
