/* Tensors: declared once, acquired around each use.
 *
 *     ebb_tensor weights;
 *     struct ebb_tensor_desc desc = {.bytes = 4096 * 1024, .kind = EBB_TENSOR_PARAMETER};
 *     ebb_tensor_declare(context, &desc, &weights, &error);
 *
 *     void *address;
 *     ebb_tensor_acquire(context, weights, EBB_USE_OVERWRITE, &address, &error);
 *     initialise(address);
 *     ebb_tensor_release(context, weights, &error);
 *
 * A declared tensor has no contents and takes no memory. The first use must overwrite it. Between
 * acquire and release its bytes are at the given address, which no other tensor has. Otherwise they
 * may be anywhere, and the next address may be another one. A discarded tensor is as if it had just
 * been declared.
 *
 * Acquire all tensors of one operation together, and release them after it. What is acquired at the
 * same time must fit into the budget. */
#ifndef EBB_TENSOR_H
#define EBB_TENSOR_H

#include "ebb/context.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef uint32_t ebb_tensor; /* 0: none */

enum ebb_tensor_kind {
    EBB_TENSOR_PARAMETER = 1,
    EBB_TENSOR_GRADIENT,
    EBB_TENSOR_OPTIMIZER,
    EBB_TENSOR_ACTIVATION,
    EBB_TENSOR_WORKSPACE,
    EBB_TENSOR_KIND_COUNT
};

enum ebb_use {
    EBB_USE_READ = 1,  /* the bytes do not change */
    EBB_USE_UPDATE,    /* they are read and written */
    EBB_USE_OVERWRITE, /* all bytes are written before any is read; they are undefined at first */
    EBB_USE_COUNT
};

struct ebb_tensor_desc {
    uint64_t bytes;            /* 1 to 2^47 */
    uint64_t alignment;        /* a power of two up to 2 MiB; 0: a page */
    enum ebb_tensor_kind kind; /* for statistics, and for policies that tell kinds apart */
    const char *name;          /* for messages; copied; may be NULL */
};

/* Declares a tensor. EBB_ERR_ARGUMENT: the description is invalid. EBB_ERR_MEMORY. O(1). */
EBB_API EBB_NODISCARD enum ebb_status ebb_tensor_declare(struct ebb_context *context,
                                                         const struct ebb_tensor_desc *desc,
                                                         ebb_tensor *tensor,
                                                         struct ebb_error *error);

/* Declares a name for the first `bytes` of `of`: both have the same contents, space and life. An
 * output may so take over the space of an input. EBB_ERR_ARGUMENT: `of` is none, is smaller, or has
 * been removed. An alias of an alias is one of the tensor itself. */
EBB_API EBB_NODISCARD enum ebb_status ebb_tensor_alias(struct ebb_context *context, ebb_tensor of,
                                                       uint64_t bytes, ebb_tensor *alias,
                                                       struct ebb_error *error);

/* Makes the tensor resident until it is released as often as it was acquired, and returns its
 * address. Waits for the tensor, and for memory. Costs at most 100 ns if the tensor is resident.
 *
 * EBB_ERR_ARGUMENT: no such tensor; it is read but has no contents; it is overwritten while another
 * use of it goes on. EBB_INFEASIBLE: with what is acquired at present it exceeds the budget; the
 * error says what budget suffices. EBB_ERR_IO: its contents are lost, since the store cannot be
 * read. EBB_ERR_MEMORY. Nothing has changed after a failure.
 *
 * In a dry run *address is NULL. */
EBB_API EBB_NODISCARD enum ebb_status ebb_tensor_acquire(struct ebb_context *context,
                                                         ebb_tensor tensor, enum ebb_use use,
                                                         void **address, struct ebb_error *error);

/* Ends a use. EBB_ERR_ARGUMENT: the tensor is not acquired. */
EBB_API enum ebb_status ebb_tensor_release(struct ebb_context *context, ebb_tensor tensor,
                                           struct ebb_error *error);

/* The contents are no longer needed: nothing is written back, and the memory is free at once.
 * EBB_ERR_ARGUMENT: no such tensor, or it is acquired. Without contents it has no effect. */
EBB_API enum ebb_status ebb_tensor_discard(struct ebb_context *context, ebb_tensor tensor,
                                           struct ebb_error *error);

/* Hints for programs that schedule transfers themselves, as a policy of their own. Evict starts to
 * write the tensor back; its memory is free once that is done. Prefetch starts to fetch it. Both
 * have no effect if the tensor has no contents, is acquired (evict), or is there or away already.
 * EBB_ERR_ARGUMENT: no such tensor. */
EBB_API enum ebb_status ebb_tensor_evict(struct ebb_context *context, ebb_tensor tensor,
                                         struct ebb_error *error);
EBB_API enum ebb_status ebb_tensor_prefetch(struct ebb_context *context, ebb_tensor tensor,
                                            struct ebb_error *error);
/* Waits until all transfers that have begun are over. */
EBB_API enum ebb_status ebb_barrier(struct ebb_context *context, struct ebb_error *error);

/* Discards the tensor, and ends its declaration with those of all its aliases. Errors as for
 * ebb_tensor_discard(). */
EBB_API enum ebb_status ebb_tensor_remove(struct ebb_context *context, ebb_tensor tensor,
                                          struct ebb_error *error);

#ifdef __cplusplus
}
#endif

#endif
