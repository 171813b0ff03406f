/* How operations are made: what constructors share.
 *
 * A builder keeps the first failure. Its functions do nothing after one, so that a constructor is a
 * list of calls, and the end tells. An operation is a list of buffers and of oneDNN's primitives,
 * each for some steps, with buffers bound to its arguments. What oneDNN lacks is `run` of the
 * table, which follows the primitives. */
#ifndef EBB_TRAIN_BUILD_H
#define EBB_TRAIN_BUILD_H

#include "train/op/kinds.h"

#include <oneapi/dnnl/dnnl.h>
#include <stddef.h>

struct ebb_op_engine {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_attr_t attributes; /* scratchpads are workspaces of the caller */
};

struct ebb_op_table {
    enum ebb_status (*run)(struct ebb_op *op, enum ebb_op_step step, void *const *addresses,
                           const struct ebb_op_call *call, struct ebb_error *error); /* or NULL */
};

/* Sets of steps. */
enum {
    EBB__FORWARD = 1u << EBB_OP_FORWARD | 1u << EBB_OP_RECOMPUTE,
    EBB__EVALUATE = 1u << EBB_OP_EVALUATE,
    EBB__FORWARDS = EBB__FORWARD | EBB__EVALUATE,
    EBB__WEIGHTS = 1u << EBB_OP_BACKWARD_WEIGHTS,
    EBB__DATA = 1u << EBB_OP_BACKWARD_DATA,
    EBB__BACKWARDS = EBB__WEIGHTS | EBB__DATA
};

struct ebb__builder {
    struct ebb_op *op; /* NULL after a failure */
    enum ebb_status status;
    struct ebb_error *error;
};

/* Fails with the operation's kind and name as what failed. Returns `status`. */
__attribute__((format(printf, 4, 5))) enum ebb_status ebb__op_fail(struct ebb_error *error,
                                                                   enum ebb_status status,
                                                                   const struct ebb_op *op,
                                                                   const char *why, ...);

/* Begins an operation with `steps`, and `own_bytes` of zeros for its kind. */
struct ebb__builder ebb__build_begin(struct ebb_op_engine *engine, const char *kind,
                                     const char *name, const struct ebb_op_table *table,
                                     uint32_t steps, size_t own_bytes, struct ebb_error *error);
/* Ends the construction. *op is set on success only. */
enum ebb_status ebb__build_end(struct ebb__builder *build, struct ebb_op **op);
/* Fails the construction unless an earlier failure has. */
__attribute__((format(printf, 3, 4))) void ebb__build_fail(struct ebb__builder *build,
                                                           enum ebb_status status, const char *why,
                                                           ...);
/* Fails the construction if oneDNN has failed at `what`. */
void ebb__build_check(struct ebb__builder *build, dnnl_status_t status, const char *what);

/* Adds a buffer, with the next index of its role. Returns its position; 0 after a failure. */
uint32_t ebb__build_buffer(struct ebb__builder *build, enum ebb_op_role role, const char *name,
                           const struct ebb_op_desc *desc);
/* The same for a buffer that has a number of floats, or bytes, and no layout to speak of. */
uint32_t ebb__build_floats(struct ebb__builder *build, enum ebb_op_role role, const char *name,
                           int64_t count);
uint32_t ebb__build_bytes(struct ebb__builder *build, enum ebb_op_role role, const char *name,
                          uint64_t bytes);
/* Says how each of `steps` uses a buffer. */
void ebb__build_use(struct ebb__builder *build, uint32_t buffer, uint32_t steps, enum ebb_use use);
/* `buffer` may have the address of `other` in the step that writes it. */
void ebb__build_replace(struct ebb__builder *build, uint32_t buffer, uint32_t other);
/* Says how a parameter or state begins. */
void ebb__build_fill(struct ebb__builder *build, uint32_t buffer, enum ebb_op_filling filling,
                     float spread, bool decays);
/* Adds inputs, outputs, and their gradients, in this order, with the uses that are usual.
 * Forward steps read inputs and write outputs. Backward steps read output gradients, and the data
 * step writes input gradients. With one of each the positions are those of `enum ebb__build_place`.
 */
void ebb__build_values(struct ebb__builder *build, uint32_t input_count,
                       const struct ebb_op_desc *const *inputs, const struct ebb_op_desc *output);
enum ebb__build_place { EBB__X, EBB__Y, EBB__DX, EBB__DY };
/* A parameter and its gradient, which is next to it. Forward steps read the one, the weights step
 * writes the other. Returns the position of the parameter. */
uint32_t ebb__build_parameter(struct ebb__builder *build, const char *name,
                              const struct ebb_op_desc *desc);

/* Space in the workspace of `steps` (all forward ones, weights, or data). Returns its offset there
 * and its buffer's position. */
struct ebb__place {
    uint32_t buffer;
    uint64_t offset_bytes;
};
struct ebb__place ebb__build_workspace(struct ebb__builder *build, uint32_t steps, uint64_t bytes);
/* The beginning of a buffer. */
struct ebb__place ebb__place(uint32_t buffer);

/* Describes a primitive by oneDNN's descriptor of its operation. `hint` is of the forward one, or
 * NULL. It lives as long as the operation. NULL after a failure. */
const_dnnl_primitive_desc_t ebb__build_pd(struct ebb__builder *build, const_dnnl_op_desc_t desc,
                                          const_dnnl_primitive_desc_t hint, const char *what);
/* Hands a descriptor over. Returns it. */
const_dnnl_primitive_desc_t ebb__build_keep(struct ebb__builder *build, dnnl_status_t status,
                                            dnnl_primitive_desc_t pd, const char *what);
/* Adds a primitive to `steps`, after those that are there. Its scratchpad is in the workspace. */
void ebb__build_primitive(struct ebb__builder *build, const_dnnl_primitive_desc_t pd,
                          uint32_t steps);
/* Binds an argument of the newest primitive. */
void ebb__build_bind(struct ebb__builder *build, int argument, struct ebb__place place);
/* Adds a reorder from one layout to another. */
void ebb__build_reorder(struct ebb__builder *build, uint32_t steps, const dnnl_memory_desc_t *from,
                        struct ebb__place source, const dnnl_memory_desc_t *to,
                        struct ebb__place target);
/* The place of a value in the layout `to`: `source` itself if it has that layout. Otherwise
 * `steps` reorder it into their workspace. */
struct ebb__place ebb__build_adopt(struct ebb__builder *build, uint32_t steps,
                                   const dnnl_memory_desc_t *from, struct ebb__place source,
                                   const dnnl_memory_desc_t *to);
/* The other way: a primitive writes a value in the layout `from`, which is to be at `target` in the
 * layout `to`. This is the place where it writes: `target` if the layouts are the same, otherwise a
 * workspace of `steps`. Behind the primitive ebb__build_deliver() reorders it, if necessary. */
struct ebb__place ebb__build_outlet(struct ebb__builder *build, uint32_t steps,
                                    const dnnl_memory_desc_t *from, struct ebb__place target,
                                    const dnnl_memory_desc_t *to);
void ebb__build_deliver(struct ebb__builder *build, uint32_t steps, const dnnl_memory_desc_t *from,
                        struct ebb__place outlet, const dnnl_memory_desc_t *to,
                        struct ebb__place target);
/* `steps` read the parameter, in the layout that the primitive wants for its weights. */
struct ebb__place ebb__build_weights(struct ebb__builder *build, uint32_t steps,
                                     const_dnnl_primitive_desc_t pd, uint32_t parameter,
                                     const struct ebb_op_desc *desc);
/* A primitive from the input to the output. saved: the buffer of its workspace; 0: none. */
void ebb__build_map(struct ebb__builder *build, const_dnnl_primitive_desc_t pd, uint32_t steps,
                    uint32_t saved);
/* The layout that a primitive wants for an argument. Zeros after a failure. */
dnnl_memory_desc_t ebb__build_layout(const struct ebb__builder *build,
                                     const_dnnl_primitive_desc_t pd, int argument);

/* A layout with these distances between elements; NULL: one that a primitive may choose. Zeros if
 * oneDNN refuses it. */
dnnl_memory_desc_t ebb__layout(uint32_t rank, const int64_t *dims, dnnl_data_type_t type,
                               const int64_t *strides);
/* Describes what oneDNN has laid out. */
struct ebb_op_desc ebb__desc_of(const dnnl_memory_desc_t *layout);
/* The same dimensions, in a layout that the primitive may choose. */
dnnl_memory_desc_t ebb__desc_any(const struct ebb_op_desc *desc);
/* Row-major floats. For dimensions that are known to be valid. */
struct ebb_op_desc ebb__desc_floats(uint32_t rank, const int64_t *dims);

/* An image as oneDNN lays it out: batch x groups of channels x positions x channels of a group. */
struct ebb__planes {
    int64_t batch;
    int64_t groups;    /* of channels */
    int64_t positions; /* of an image: height x width */
    int64_t block;     /* channels of a group, including padding */
    int64_t channels;  /* without padding */
};
/* False: the layout is none of rows, channels last, or blocked channels. */
bool ebb__planes_of(const struct ebb_op_desc *desc, struct ebb__planes *planes);

/* For op.c: runs the primitives of a step, and frees them. */
enum ebb_status ebb__primitives_run(struct ebb_op *op, enum ebb_op_step step,
                                    void *const *addresses, struct ebb_error *error);
void ebb__primitives_destroy(struct ebb__op_primitive *primitives);

#endif
