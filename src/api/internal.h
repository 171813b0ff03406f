/* The context of the public C API, in explicit use. What each function does: include/ebb/.
 *
 * Two locks: that of the context guards tensors and records, that of the runtime guards blocks. The
 * context's is never held while the runtime waits. */
#ifndef EBB_API_INTERNAL_H
#define EBB_API_INTERNAL_H

#include "ebb/ebb.h"

#include "base/status.h"
#include "base/vec.h"
#include "device/device.h"
#include "machine/machine.h"
#include "model/model.h"
#include "runtime/runtime.h"
#include "runtime/slabs.h"
#include "trace/file.h"

#include <pthread.h>

#define API_NAME_BYTES 48

/* A tensor, or a name for the beginning of another one. */
struct tensor {
    uint64_t bytes;
    uint64_t alignment;
    uint32_t of;    /* the tensor whose space it has: itself, or another one */
    uint32_t lives; /* how often it got contents */
    void *address;  /* NULL: it has no contents, or the dry run has given it some */
    uint32_t holds; /* uses in progress */
    enum ebb_tensor_kind kind;
    bool is_declared;
    bool is_small;  /* an object in a slab: never moved, and in no plan */
    bool is_alive;  /* it has contents */
    bool was_alive; /* before the dry run */
    char name[API_NAME_BYTES];
};

/* The events of an iteration, after what is alive where it begins. */
struct record {
    EBB_VEC(struct ebb_event) events;
    size_t first;    /* the first event of the iteration */
    uint64_t digest; /* of kinds and tensors of its events, without the ends of lives */
    bool is_whole;   /* it has all events */
};

/* The plan of a kind of iterations. */
struct plan_of_kind {
    struct ebb_script *script; /* NULL: none yet */
    uint32_t *tensors;         /* of each persistent block of the script */
    uint64_t *names;           /* what the script calls it at present */
    struct record newest;
    struct record before; /* the iteration before `newest`, if alike; empty: none */
    uint64_t planned_digest;
    uint64_t unplanned_digest; /* of the last iteration that did not follow the plan */
    unsigned plans;            /* made for this digest */
};

enum phase_of_context { API_IDLE, API_ITERATION, API_DRY_RUN };

struct ebb_context {
    pthread_mutex_t lock;
    struct ebb_device device;
    struct ebb_ledger *ledger;
    struct ebb_ring *ring;
    struct ebb_runtime *runtime;
    struct ebb_slabs *slabs;
    struct ebb_machine machine;
    char *places;          /* of the store */
    uint64_t budget_bytes; /* UINT64_MAX: none */
    bool no_plan;
    ebb_warning warn;
    void *user;
    EBB_VEC(struct tensor) tensors; /* [0] is none */
    uint64_t held_bytes;            /* pages of tensors in use */
    uint64_t small_bytes;           /* of all small tensors */
    enum phase_of_context phase;
    uint32_t kind;    /* of the iteration in progress */
    bool is_recorded; /* its events are */
    uint64_t time_ns; /* of the newest event */
    struct plan_of_kind plans[EBB_ITERATION_KINDS];
    const struct ebb_script *followed;    /* by the last iteration, to its end; NULL: none */
    EBB_VEC(struct ebb_script *) retired; /* scripts that the runtime may still refer to */
    struct recording {
        struct ebb_trace_writer *writer; /* of ebb_record(); NULL: none */
        enum ebb_status status;          /* its first failure */
    } recording;
    struct ebb_statistics counts; /* iterations and plans */
};

/* A dry run assumes that it has contents before the iteration. */
static inline bool ebb__api_is_assumed(const struct tensor *tensor)
{
    return tensor->kind == EBB_TENSOR_PARAMETER || tensor->kind == EBB_TENSOR_OPTIMIZER;
}

/* tensor.c */
/* The tensor whose space `tensor` has. NULL, with *error: there is no such tensor. */
struct tensor *ebb__api_tensor(struct ebb_context *context, ebb_tensor tensor,
                               struct ebb_error *error);
/* The block of a tensor's present contents, in records. */
static inline uint64_t ebb__api_life(const struct ebb_context *context, const struct tensor *tensor)
{
    return (uint64_t)tensor->lives << 32 | (uint64_t)(tensor - context->tensors.items);
}
static inline uint32_t ebb__api_tensor_of(uint64_t life)
{
    return (uint32_t)life;
}

/* record.c. All expect the lock. */
/* What small tensors take of the budget: their slabs now, or what they will be. */
uint64_t ebb__api_small_bytes(const struct ebb_context *context);
void ebb__api_record_event(struct ebb_context *context, enum ebb_event_kind kind,
                           const struct tensor *tensor, enum ebb_access_kind access, bool held);
void ebb__api_record_mark(struct ebb_context *context, enum ebb_mark mark, uint64_t value);
/* A record begins, with what is alive. False: memory is exhausted. */
bool ebb__api_record_begin(struct ebb_context *context, struct record *record);
void ebb__api_record_fini(struct record *record);
/* The model of the newest iteration of a kind. */
EBB_NODISCARD enum ebb_status ebb__api_model(const struct plan_of_kind *plan,
                                             struct ebb_model *model, struct ebb_error *error);

/* plan.c. Both expect the lock. */
/* Makes a plan of the newest iteration, unless it would be no news. EBB_INFEASIBLE: as in
 * ebb_dry_run_end(). */
EBB_NODISCARD enum ebb_status ebb__api_plan(struct ebb_context *context, uint32_t kind,
                                            struct ebb_error *error);
/* Puts the plan of a kind in force. */
void ebb__api_plan_begin(struct ebb_context *context, uint32_t kind);
void ebb__api_plan_fini(struct ebb_context *context);

#endif
