/* Kinds and size classes of blocks, as a report colours them. */
#ifndef EBB_REPORT_KINDS_H
#define EBB_REPORT_KINDS_H

#include "base/size.h"
#include "model/model.h"

enum ebb_report_kind {
    EBB_KIND_PERSISTENT, /* lives through all iterations */
    EBB_KIND_KEPT,       /* lives for 5 % of an iteration or more */
    EBB_KIND_SHORT,
    EBB_KIND_COUNT
};

#define EBB_SIZE_CLASSES 5 /* below 1 MiB, 4, 16, 64 MiB, and more */
#define EBB_KEPT_DIVISOR 20

/* The time for which a block lives; of a persistent one: an iteration. */
static inline uint64_t ebb__report_life_ns(const struct ebb_model *model,
                                           const struct ebb_model_block *block)
{
    uint64_t iteration_ns = ebb__model_iteration_ns(model);
    if (block->alloc_tick == EBB_TICK_NONE)
        return iteration_ns;
    uint64_t whole = block->span_ticks / model->tick_count;
    bool is_exact = block->span_ticks % model->tick_count == 0;
    return whole * iteration_ns +
           (is_exact ? 0 : ebb__model_ns_between(model, block->alloc_tick, block->free_tick));
}

static inline enum ebb_report_kind ebb__report_kind(const struct ebb_model *model,
                                                    const struct ebb_model_block *block)
{
    if (block->alloc_tick == EBB_TICK_NONE)
        return EBB_KIND_PERSISTENT;
    return ebb__report_life_ns(model, block) >= ebb__model_iteration_ns(model) / EBB_KEPT_DIVISOR
               ? EBB_KIND_KEPT
               : EBB_KIND_SHORT;
}

static inline unsigned ebb__report_size_class(uint64_t bytes)
{
    unsigned class = 0;
    for (uint64_t limit = EBB_MIB; class + 1 < EBB_SIZE_CLASSES && bytes >= limit; limit *= 4)
        class ++;
    return class;
}

#endif
