/* The executor: trains a network within an Ebb context.
 *
 *     struct ebb_exec *exec;
 *     ebb__exec_create(net, data, &options, &exec, &error);
 *     printf("%llu bytes at most\n", (unsigned long long)exec->train.peak_bytes);
 *     ebb__exec_attach(exec, context, &error);
 *     ebb__exec_dry_run(exec, &error);
 *     ebb__exec_begin(exec, &error);
 *     for (int i = 0; i < iterations; i++)
 *         ebb__exec_iterate(exec, &result, &error);
 *     ebb__exec_destroy(exec);
 *
 * What an iteration does is a schedule that is made once. So every iteration is the same, and all
 * modes compute the same numbers. The context must outlive the executor. Not thread-safe. After a
 * failure of a function that runs something the executor can only be destroyed. */
#ifndef EBB_TRAIN_EXEC_H
#define EBB_TRAIN_EXEC_H

#include "train/data/data.h"
#include "train/exec/schedule.h"

#include "ebb/context.h"

struct ebb_exec_options {
    enum ebb_mode mode;
    enum ebb_optimizer optimizer;
    float rate;                  /* of learning, at first */
    uint64_t halving_iterations; /* the rate is halved after each so many; 0: never */
    float momentum;              /* of SGD */
    float decay;                 /* of weights */
    uint64_t seed;
};

/* Memory that is not Ebb's: somebody else says where a storage is. */
struct ebb_exec_places {
    void *self;
    /* Before and after a step that is not left out; in order. */
    enum ebb_status (*before)(void *self, uint32_t step, struct ebb_error *error);
    void (*after)(void *self, uint32_t step);
    /* The address of a storage: of any during a step that uses it, of a persistent one always. */
    void *(*at)(void *self, uint32_t storage);
};

struct ebb_exec {
    struct ebb_exec_options options;
    struct ebb_graph graph;
    struct ebb_schedule train, evaluate;
    struct ebb_data *data;                /* the caller's */
    struct ebb_context *context;          /* the caller's; NULL: not attached */
    const struct ebb_exec_places *places; /* the caller's; NULL: tensors of the context */
    ebb_tensor *train_tensors;            /* [slot]; 0: none */
    ebb_tensor *evaluate_tensors;
    void **held; /* [storage]: addresses in a static mode; else NULL */
    bool are_held;
    uint64_t iteration; /* the next one; the number of its batch, too */
};

struct ebb_exec_result {
    float loss;      /* mean of the batch */
    int32_t correct; /* labels that have the highest score */
};

/* Makes operations and schedules. The net and the data must outlive the executor.
 * EBB_ERR_ARGUMENT, EBB_ERR_UNSUPPORTED: an operation cannot be made. EBB_ERR_MEMORY. */
EBB_NODISCARD enum ebb_status ebb__exec_create(const struct ebb_net *net, struct ebb_data *data,
                                               const struct ebb_exec_options *options,
                                               struct ebb_exec **exec, struct ebb_error *error);
/* NULL is allowed. Before the context is destroyed. */
void ebb__exec_destroy(struct ebb_exec *exec);

/* Bytes that the network takes if each buffer has its own memory all the time. */
EBB_NODISCARD enum ebb_status ebb__exec_static_bytes(const struct ebb_exec *exec, uint64_t *bytes,
                                                     struct ebb_error *error);

/* Declares all tensors. Errors as ebb_tensor_declare(). */
EBB_NODISCARD enum ebb_status ebb__exec_attach(struct ebb_exec *exec, struct ebb_context *context,
                                               struct ebb_error *error);
/* Instead: the training is in these places, which must outlive the executor. Nothing is evaluated,
 * and there is no dry run. */
void ebb__exec_place(struct ebb_exec *exec, const struct ebb_exec_places *places);
/* Iterations that compute nothing, so that a plan is in force from the first one. Modes other than
 * EBB_MODE_EBB need none: then it does nothing. Errors as ebb_dry_run_end(). */
EBB_NODISCARD enum ebb_status ebb__exec_dry_run(struct ebb_exec *exec, struct ebb_error *error);
/* Gives parameters and states their first contents, which depend on the seed. A static mode
 * acquires everything here. Errors as ebb_tensor_acquire(). */
EBB_NODISCARD enum ebb_status ebb__exec_begin(struct ebb_exec *exec, struct ebb_error *error);
/* One iteration of training. */
EBB_NODISCARD enum ebb_status ebb__exec_iterate(struct ebb_exec *exec,
                                                struct ebb_exec_result *result,
                                                struct ebb_error *error);
/* One batch of test data. Changes neither parameters nor states. */
EBB_NODISCARD enum ebb_status ebb__exec_evaluate(struct ebb_exec *exec, uint64_t batch,
                                                 struct ebb_exec_result *result,
                                                 struct ebb_error *error);

/* Persistent contents: slots [0, exec->train.persistent_count) are parameters, states, and states
 * of the optimizer. Acquires one of them, from then on until it is closed. */
EBB_NODISCARD enum ebb_status ebb__exec_open_slot(struct ebb_exec *exec, uint32_t slot,
                                                  enum ebb_use use, void **address,
                                                  struct ebb_error *error);
enum ebb_status ebb__exec_close_slot(struct ebb_exec *exec, uint32_t slot, struct ebb_error *error);

/* --- compute.c, run.c, placed.c --------------------------------------------------------------- */

/* Uses of one step: the buffers of an operation, or parameter, gradient and states. */
#define EBB_STEP_USES_MOST EBB_OP_BUFFERS_MAX

/* Which steps to run, and on what. */
struct ebb_run {
    struct ebb_exec *exec;
    const struct ebb_schedule *schedule;
    const ebb_tensor *tensors; /* [slot] */
    bool is_dry;
    uint64_t batch;
    struct ebb_exec_result result;
};

/* Computes one step. Its holds have these addresses. */
EBB_NODISCARD enum ebb_status ebb__step_compute(struct ebb_run *run, const struct ebb_step *step,
                                                void *const *addresses, struct ebb_error *error);

/* Runs all steps, on tensors of the context. For exec.c alone. */
EBB_NODISCARD enum ebb_status ebb__run(struct ebb_run *run, struct ebb_error *error);
/* Runs all steps, in the executor's places. For exec.c alone. */
EBB_NODISCARD enum ebb_status ebb__run_placed(struct ebb_run *run, struct ebb_error *error);

#endif
