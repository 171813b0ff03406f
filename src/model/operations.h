/* The operations of an iteration: what runs between two points at which blocks can be moved, and
 * which blocks it reads and writes.
 *
 * A trace has no operations, only events. An operation here is a stretch of the iteration: it
 * begins with allocations and frees, and ends with the accesses behind them. If uses are
 * announced, it ends with the releases. A stretch of more than EBB_OPERANDS_MOST blocks becomes
 * several. An access reads or writes the whole block, an access of unknown kind does both. The
 * time of an operation is the time from its first event to the first event of the next one. */
#ifndef EBB_MODEL_OPERATIONS_H
#define EBB_MODEL_OPERATIONS_H

#include "base/status.h"
#include "model/model.h"

#include <stdbool.h>
#include <stdint.h>

#define EBB_OPERANDS_MOST 8 /* arbitrary: more than the operands of the usual kernels */

/* A use of a block by an operation. */
struct ebb_use {
    uint32_t operation;
    uint32_t block;
    uint64_t read_bytes, write_bytes;
};

struct ebb_operation {
    uint64_t ns;
    uint32_t first_tick;
    uint32_t first_use, use_count; /* in uses */
};

/* A block is live in the operations [first, first + span), cyclic. A persistent one in all. */
struct ebb_operation_block {
    uint64_t size_bytes; /* of all its instances that live at once */
    uint32_t first, span;
    bool persistent;
    uint32_t first_use, use_count; /* in order */
};

struct ebb_operations {
    struct ebb_operation *items;
    uint32_t count;
    struct ebb_use *uses; /* by operation */
    uint32_t use_count;
    uint32_t *order; /* use_count: indices into uses, by block, in order of occurrence since its
                        allocation (persistent: since operation 0) */
    struct ebb_operation_block *blocks; /* the model's, same indices */
    uint32_t block_count;
    uint64_t ns; /* of the iteration */
};

/* Divides the iteration. On EBB_OK release *operations with ebb__operations_fini().
 * EBB_ERR_FORMAT if the iteration has no accesses, EBB_ERR_MEMORY. O(events + uses log uses). */
EBB_NODISCARD enum ebb_status ebb__operations_make(const struct ebb_model *model,
                                                   struct ebb_operations *operations,
                                                   struct ebb_error *error);
void ebb__operations_fini(struct ebb_operations *operations);
/* Fills in the order of uses, by block: first those at or after its allocation, then those beyond
 * the iteration's end. Uses and blocks are there; the blocks' use_count is 0. O(uses + blocks). */
void ebb__operations_order(struct ebb_operations *operations);

/* The use number `at` of a block, in order. */
static inline const struct ebb_use *ebb__block_use(const struct ebb_operations *operations,
                                                   uint32_t block, uint32_t at)
{
    return &operations->uses[operations->order[operations->blocks[block].first_use + at]];
}

/* Operations from one to another on the circle, in [0, count). */
static inline uint32_t ebb__operations_between(const struct ebb_operations *operations,
                                               uint32_t from, uint32_t to)
{
    return to >= from ? to - from : to + operations->count - from;
}

#endif
