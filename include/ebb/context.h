/* The context: the tensors of one training, kept within a budget.
 *
 *     struct ebb_options options = {.budget_bytes = 8ull << 30};
 *     struct ebb_context *context;
 *     if (ebb_context_create(&options, &context, NULL) == EBB_OK) {
 *         ...
 *         ebb_context_destroy(context);
 *     }
 *
 * All functions that take a context are thread-safe, unless they say otherwise. One context can
 * exist in a process at a time. A child of fork() must not use its parent's context. */
#ifndef EBB_CONTEXT_H
#define EBB_CONTEXT_H

#include "ebb/status.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_context;

/* Takes a message for the person who runs the program: the store is full, or works again. It may be
 * called by any thread during any call, and must call no function of Ebb. */
typedef void (*ebb_warning)(void *user, const char *message);

/* Zero or NULL fields have the defaults that are given here. */
struct ebb_options {
    uint64_t budget_bytes; /* most bytes of memory that tensors take, with all that Ebb needs to
                              move them; 0: no budget, nothing is evicted */
    const char *store;     /* places of evicted tensors, separated by newlines: directories, or
                              `memory`; NULL: the system's directory for temporary files */
    const char *machine;   /* what plans assume of the lanes: a named machine, or `host`, which is
                              measured at creation; NULL: `host` */
    bool no_plan;          /* tensors move only if memory is lacking, or as the program says */
    ebb_warning warn;      /* NULL: nobody is told */
    void *user;            /* passed to `warn` */
};

/* Creates a context. EBB_ERR_ARGUMENT: an option is invalid, or a store cannot be written.
 * EBB_ERR_LIMIT: there is a context, or threads cannot be started. EBB_ERR_UNSUPPORTED: the system
 * lacks what Ebb needs (Linux 5.7). EBB_ERR_MEMORY. `*context` is set on success only. */
EBB_API EBB_NODISCARD enum ebb_status ebb_context_create(const struct ebb_options *options,
                                                         struct ebb_context **context,
                                                         struct ebb_error *error);

/* Frees the context and the memory of all its tensors. NULL is allowed. No other call on the
 * context may be in progress, or follow. */
EBB_API void ebb_context_destroy(struct ebb_context *context);

#ifdef __cplusplus
}
#endif

#endif
