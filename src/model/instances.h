/* The blocks of a whole trace, and which of them are the same block of one iteration (the window).
 * This is the first half of building a model; build.c is the other. */
#ifndef EBB_MODEL_INSTANCES_H
#define EBB_MODEL_INSTANCES_H

#include "model/model.h"

#include "base/vec.h"
#include "model/serials.h"

/* Indices of events and blocks have 32 bits, as there is one for each block of the trace. */
#define NO_INDEX UINT32_MAX

/* What the whole trace says about one block. */
struct instance {
    uint64_t serial;
    uint64_t size_bytes;
    uint32_t alloc_event; /* NO_INDEX: older than the trace */
    uint32_t free_event;  /* NO_INDEX: not freed in the trace */
    uint32_t
        block; /* template block; EBB_TICK_NONE: none yet, or it is not part of the repetition */
    uint32_t wraps; /* age in iterations, relative to the template block's own instance */
};

/* A template block that is allocated in the window. */
struct periodic {
    uint32_t instance;   /* index of the instance allocated in the window */
    uint32_t free_event; /* of any instance; NO_INDEX: none known */
    uint32_t wraps;      /* iterations from the ALLOC's to the FREE's */
    uint32_t place;
    uint32_t counterpart; /* instance of the iteration before, if it is not n allocations before;
                             else NO_INDEX */
    bool synthetic;       /* the window has no FREE of it: one is inserted behind event `place` */
};

/* An event that goes into the model. */
struct entry {
    uint32_t event; /* in the trace; of a synthetic FREE: the event before it */
    uint32_t block;
    uint32_t wraps;
    bool synthetic; /* a FREE that the window does not have */
};

struct builder {
    struct ebb_event_span trace;
    size_t first, last; /* the window */
    uint64_t duration_ns;
    EBB_VEC(struct instance) instances;
    struct ebb_serials serials; /* index into instances */
    EBB_VEC(uint32_t) allocs;   /* by rank: index into instances */
    size_t first_rank;          /* rank of the window's first ALLOC */
    EBB_VEC(struct periodic)
    periodics; /* the window's ALLOCs in order; later, dropped ones are
                                           marked */
    EBB_VEC(struct ebb_model_block) blocks;
    EBB_VEC(struct entry) entries;
    uint32_t *units; /* tick -> the used unit of a large block; NULL: no entry has one */
    struct ebb_error *error;
};

/* Numbers the blocks of the whole trace. EBB_ERR_FORMAT, EBB_ERR_MEMORY. */
EBB_NODISCARD enum ebb_status ebb__instances_collect(struct builder *b);
/* Assigns every instance that is live in the window to a template block, or excludes it.
 * EBB_ERR_MEMORY. */
EBB_NODISCARD enum ebb_status ebb__instances_match(struct builder *b);
/* Frees what entries and lifetimes were made of. */
void ebb__instances_fini(struct builder *b);

#endif
