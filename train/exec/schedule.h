/* Schedules: the steps of one iteration, and the storages that they need.
 *
 * A slot is a logical buffer: an output, a gradient, weights. A storage is a tensor of Ebb. Slots
 * share a storage if an operation works in place, or if one takes over the space of another. Order
 * and lifetimes are known before anything runs. So all decisions are made here, once, and the
 * executor only follows. Memory that is not persistent is first written and last used within one
 * iteration.
 *
 * There are four passes, each linear in the number of uses, but for sorting. The first one
 * (schedule.c) lists slots and steps. The second (reuse.c) gives them storages. The third (holds.c)
 * says what each step acquires and discards, the fourth (migrate.c) what is transferred when. */
#ifndef EBB_TRAIN_EXEC_SCHEDULE_H
#define EBB_TRAIN_EXEC_SCHEDULE_H

#include "train/base/list.h"
#include "train/exec/graph.h"

#include "ebb/iteration.h"
#include "ebb/tensor.h"

#include <stdbool.h>
#include <stdint.h>

#define EBB_NONE UINT32_MAX

enum ebb_mode {
    EBB_MODE_EBB,       /* acquired around each step, discarded at the last use */
    EBB_MODE_STATIC,    /* each storage is held all the time, as in Caffe */
    EBB_MODE_INTRA,     /* static, but a gradient takes the space of its value */
    EBB_MODE_INTER,     /* outputs migrate; a barrier after each layer */
    EBB_MODE_HYBRID,    /* both */
    EBB_MODE_VDNN_ALL,  /* memory as EBB_MODE_EBB, and outputs migrate */
    EBB_MODE_VDNN_CONV, /* only those that convolutions read */
    EBB_MODE_COUNT
};

enum ebb_optimizer { EBB_OPTIMIZER_SGD, EBB_OPTIMIZER_ADAM };

enum ebb_slot_role {
    EBB_SLOT_VALUE, /* also tokens and labels */
    EBB_SLOT_SAVED,
    EBB_SLOT_WORKSPACE,
    EBB_SLOT_GRADIENT,
    EBB_SLOT_PARTIAL, /* one of several gradients of a value, before they are added up */
    EBB_SLOT_PARAMETER_GRADIENT,
    EBB_SLOT_PARAMETER, /* this and the following are persistent */
    EBB_SLOT_STATE,
    EBB_SLOT_OPTIMIZER
};

struct ebb_slot {
    enum ebb_slot_role role;
    uint32_t layer;
    uint32_t buffer;  /* of the layer's operation; EBB_NONE: none */
    const char *name; /* static storage */
    uint64_t bytes;
    uint32_t first_step, last_step; /* EBB_NONE: not used */
    uint32_t first_update;          /* the first step that changes it after it was written */
    uint32_t storage;
};

enum ebb_step_kind {
    EBB_STEP_FILL,       /* the next batch */
    EBB_STEP_RUN,        /* an operation */
    EBB_STEP_ACCUMULATE, /* use 0 += use 1 */
    EBB_STEP_UPDATE      /* parameter, gradient, states of the optimizer */
};

struct ebb_step_use {
    uint32_t slot;
    uint32_t buffer; /* of the operation; EBB_NONE: none */
    enum ebb_use use;
    uint32_t hold; /* of its step */
};

/* What a step acquires. Uses of one storage are one hold. */
struct ebb_hold {
    uint32_t slot; /* by whose name it is acquired */
    enum ebb_use use;
};

struct ebb_step {
    enum ebb_step_kind kind;
    enum ebb_op_step op_step;
    enum ebb_phase phase;
    uint32_t layer;
    bool is_left_out; /* nothing is to be computed: its output is its input */
    uint32_t first_use, use_count;
    uint32_t first_hold, hold_count;
    uint32_t first_discard, discard_count;
    uint64_t estimate_ns;
};

enum ebb_transfer { EBB_TRANSFER_BARRIER, EBB_TRANSFER_EVICT, EBB_TRANSFER_PREFETCH };

/* Before a step. Only the modes of Layrub and vDNN have them. */
struct ebb_transfer_at {
    uint32_t step;
    enum ebb_transfer transfer;
    uint32_t storage;
};

struct ebb_storage {
    uint64_t bytes;
    uint32_t slot; /* the first one */
    uint32_t last_step;
    bool is_persistent;
};

struct ebb_schedule_options {
    enum ebb_mode mode;
    enum ebb_optimizer optimizer;
    bool is_training; /* false: evaluation */
};

struct ebb_schedule {
    struct ebb_schedule_options options;
    const struct ebb_graph *graph; /* the caller's */
    EBB_LIST(struct ebb_slot) slots;
    EBB_LIST(struct ebb_step) steps;
    EBB_LIST(struct ebb_step_use) uses;
    EBB_LIST(struct ebb_hold) holds;
    EBB_LIST(uint32_t) discards; /* storages */
    EBB_LIST(struct ebb_transfer_at) transfers;
    EBB_LIST(struct ebb_storage) storages;
    uint32_t *value_slots;    /* [layer] */
    uint32_t *gradient_slots; /* [layer]; EBB_NONE: none yet */
    uint32_t *first_buffers;  /* [layer]: position in buffer_slots */
    uint32_t *buffer_slots;   /* of the buffers that belong to one operation alone */
    bool *needs_gradient;     /* [layer] */
    uint32_t labels_slot;
    uint32_t persistent_count; /* these slots come first, and are the same in all schedules */
    uint64_t static_bytes;     /* of all storages */
    uint64_t peak_bytes;       /* most of storages that live at one time */
    uint64_t working_bytes;    /* most that one step holds */
    uint32_t working_layer;    /* of that step */
};

/* EBB_ERR_MEMORY. Destroy *schedule also after a failure. */
EBB_NODISCARD enum ebb_status ebb__schedule_create(const struct ebb_graph *graph,
                                                   const struct ebb_schedule_options *options,
                                                   struct ebb_schedule *schedule,
                                                   struct ebb_error *error);
void ebb__schedule_destroy(struct ebb_schedule *schedule);

/* The second, third and fourth pass. */
EBB_NODISCARD enum ebb_status ebb__schedule_reuse(struct ebb_schedule *schedule,
                                                  struct ebb_error *error);
EBB_NODISCARD enum ebb_status ebb__schedule_hold(struct ebb_schedule *schedule,
                                                 struct ebb_error *error);
EBB_NODISCARD enum ebb_status ebb__schedule_migrate(struct ebb_schedule *schedule,
                                                    struct ebb_error *error);

/* Does the mode hold all storages all the time? */
bool ebb__mode_is_static(enum ebb_mode mode);
/* May every operation work in place, and is memory discarded at the last use? */
bool ebb__mode_is_dynamic(enum ebb_mode mode);
/* Does vDNN decide what migrates? */
bool ebb__mode_is_vdnn(enum ebb_mode mode);

static inline bool ebb__slot_is_persistent(const struct ebb_slot *slot)
{
    return slot->role >= EBB_SLOT_PARAMETER;
}

#endif
