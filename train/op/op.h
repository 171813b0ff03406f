/* Operations of the trainer: what they compute, and which buffers they need for it.
 *
 * An operation owns no tensor. It lists all its buffers, with their sizes, and says for each step
 * which of them it reads or writes. The caller acquires exactly those around the call:
 *
 *     for (uint32_t i = 0; i < op->buffer_count; i++)
 *         addresses[i] = op->buffers[i].use[step] ? acquire(tensor[i], op->buffers[i].use[step])
 *                                                 : NULL;
 *     ebb_op_run(op, step, addresses, &call, &error);
 *     release them
 *
 * In training an operation runs FORWARD, later BACKWARD_WEIGHTS, then BACKWARD_DATA. So the
 * gradient of an input may take over the space of that input. Steps that op->steps lacks do not
 * exist.
 *
 * The same inputs give the same bits in each call, wherever the buffers are, if the number of
 * threads (OMP_NUM_THREADS) is the same. Addresses are multiples of EBB_OP_ALIGNMENT_BYTES.
 *
 * Constructors are in kinds.h, optimizers in optimizer.h. One thread at a time may call functions
 * that have the same engine. */
#ifndef EBB_TRAIN_OP_H
#define EBB_TRAIN_OP_H

#include "ebb/status.h"
#include "ebb/tensor.h"

#include <oneapi/dnnl/dnnl_types.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    EBB_OP_RANK_MAX = 5,
    EBB_OP_BUFFERS_MAX = 64, /* bits of `may_replace` */
    EBB_OP_ALIGNMENT_BYTES = 64
};

/* What a buffer holds: shape and order of its elements. Images are (batch, channels, height, width)
 * in `dims`, whatever their order in memory. Sequences are (batch, time, features). Plain data: may
 * be copied. A gradient has the description of its value. */
struct ebb_op_desc {
    uint32_t rank;
    int64_t dims[EBB_OP_RANK_MAX]; /* those from `rank` on are 0 */
    uint64_t bytes;                /* of the buffer, including padding */
    dnnl_memory_desc_t layout;     /* order in memory; for operations only */
};

/* Describes float elements in row-major order: an input of the network that is not indices.
 * EBB_ERR_ARGUMENT: rank or a dimension is out of range. */
EBB_NODISCARD enum ebb_status ebb_op_desc_floats(uint32_t rank, const int64_t *dims,
                                                 struct ebb_op_desc *desc, struct ebb_error *error);
/* Describes int32_t elements in row-major order: labels and tokens. */
EBB_NODISCARD enum ebb_status ebb_op_desc_indices(uint32_t rank, const int64_t *dims,
                                                  struct ebb_op_desc *desc,
                                                  struct ebb_error *error);
/* Product of the dimensions. Cannot fail. */
uint64_t ebb_op_desc_count(const struct ebb_op_desc *desc);
/* Position in the buffer, in elements, of the element with this row-major index. It is how
 * checkpoints and tests see a buffer in plain order. */
uint64_t ebb_op_desc_offset(const struct ebb_op_desc *desc, uint64_t index);
/* "32x64x56x56", for messages. Returns `text`. */
const char *ebb_op_desc_text(const struct ebb_op_desc *desc, char text[96]);

enum ebb_op_step {
    EBB_OP_FORWARD,          /* of training: writes outputs, and what backward steps need */
    EBB_OP_RECOMPUTE,        /* FORWARD once more, same bits: does not touch states */
    EBB_OP_EVALUATE,         /* outputs only, as for a trained network */
    EBB_OP_BACKWARD_WEIGHTS, /* writes gradients of parameters */
    EBB_OP_BACKWARD_DATA,    /* writes gradients of inputs; after BACKWARD_WEIGHTS if that exists */
    EBB_OP_STEP_COUNT
};

enum ebb_op_role {
    EBB_OP_INPUT = 1,
    EBB_OP_OUTPUT,
    EBB_OP_PARAMETER,
    EBB_OP_STATE,     /* kept from step to step, not trained: running mean and variance */
    EBB_OP_SAVED,     /* written by FORWARD for backward steps */
    EBB_OP_WORKSPACE, /* no contents before and after a step */
    EBB_OP_INPUT_GRADIENT,
    EBB_OP_OUTPUT_GRADIENT,
    EBB_OP_PARAMETER_GRADIENT,
    EBB_OP_ROLE_COUNT
};

/* How ebb_op_fill() fills a parameter or state. */
enum ebb_op_filling { EBB_OP_ZEROS, EBB_OP_ONES, EBB_OP_NORMAL, EBB_OP_UNIFORM };

/* One buffer of an operation. `use` is 0 if the step does not touch the buffer. Otherwise it is how
 * the step acquires it. An EBB_USE_OVERWRITE writes all of `desc.bytes`, workspaces excepted. */
struct ebb_op_buffer {
    enum ebb_op_role role;
    uint32_t index;   /* among those of its role. A gradient has the index of its value */
    const char *name; /* "weights", "mask"; static storage */
    struct ebb_op_desc desc;
    enum ebb_use use[EBB_OP_STEP_COUNT];
    uint64_t may_replace; /* bit i: in the step that writes this buffer it may have the address of
                             buffer i, even if the step reads that. At most one of them */
    bool is_copy;         /* an input gradient that equals the output gradient. With the same
                             address for both nothing is computed, and the step may be left out */
    bool decays;          /* a parameter to which weight decay applies */
    enum ebb_op_filling filling;
    float spread; /* standard deviation of NORMAL, bound of UNIFORM */
};

struct ebb_op_engine;
struct ebb_op_table;
struct ebb__op_primitive;

/* Fields are for reading. */
struct ebb_op {
    const char *kind; /* "convolution"; static storage */
    char name[64];
    uint32_t steps; /* bit s: the operation has step s */
    uint32_t buffer_count;
    struct ebb_op_buffer *buffers;
    uint64_t flops[EBB_OP_STEP_COUNT]; /* floating-point operations, about; 0 if bound by memory */
    struct ebb_op_engine *engine;
    const struct ebb_op_table *table;
    struct ebb__op_primitive *primitives; /* of oneDNN, in the order in which steps run them */
    void *own;                            /* of the operation's kind */
};

/* What differs between two runs of a step, other than the contents of the buffers. */
struct ebb_op_call {
    uint64_t seed; /* of dropout. Another one for each iteration, the same for RECOMPUTE */
};

/* Makes what all operations share. EBB_ERR_MEMORY, EBB_ERR_UNSUPPORTED: oneDNN does not start. */
EBB_NODISCARD enum ebb_status ebb_op_engine_create(struct ebb_op_engine **engine,
                                                   struct ebb_error *error);
/* After all its operations. NULL is allowed. */
void ebb_op_engine_destroy(struct ebb_op_engine *engine);

/* NULL is allowed. */
void ebb_op_destroy(struct ebb_op *op);

/* Position in op->buffers of buffer `index` of a role; -1: there is none. */
int ebb_op_find(const struct ebb_op *op, enum ebb_op_role role, uint32_t index);
/* Description of output `index`, for the constructor of the operation that reads it; NULL: there is
 * none. Belongs to `op`. */
const struct ebb_op_desc *ebb_op_output(const struct ebb_op *op, uint32_t index);
uint32_t ebb_op_count(const struct ebb_op *op, enum ebb_op_role role);
bool ebb_op_has(const struct ebb_op *op, enum ebb_op_step step);

/* Runs a step. `addresses` has op->buffer_count entries. Those with no use in this step are
 * ignored, the others must be valid. `call` may be NULL if the operation is not dropout.
 * EBB_ERR_ARGUMENT: no such step, a missing or misaligned address, or an index (label, token) out
 * of range. EBB_ERR_MEMORY, EBB_ERR_INTERNAL: oneDNN failed. Outputs are undefined then. */
EBB_NODISCARD enum ebb_status ebb_op_run(struct ebb_op *op, enum ebb_op_step step,
                                         void *const *addresses, const struct ebb_op_call *call,
                                         struct ebb_error *error);

/* Fills a parameter or state with its first contents, padding included. An element depends on
 * `seed`, the names of operation and buffer, and its row-major index. It depends neither on the
 * order of calls nor on the layout. */
void ebb_op_fill(const struct ebb_op *op, uint32_t buffer, uint64_t seed, void *address);

/* sum[i] += addend[i] for all floats of a buffer: a value that several operations read has the sum
 * of their gradients. */
void ebb_op_accumulate(uint64_t bytes, void *sum, const void *addend);

#endif
