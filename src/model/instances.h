/* The blocks of a whole trace, and which of them are the same block of one iteration (the window).
 * This is the first half of building a model; build.c is the other. */
#ifndef EBB_MODEL_INSTANCES_H
#define EBB_MODEL_INSTANCES_H

#include "model/model.h"

#include "base/map.h"
#include "base/vec.h"

#define NO_INDEX SIZE_MAX

/* What the whole trace says about one block. */
struct instance {
    uint64_t serial;
    uint64_t size_bytes;
    size_t alloc_event; /* NO_INDEX: older than the trace */
    size_t free_event;  /* NO_INDEX: not freed in the trace */
    size_t alloc_rank;  /* number of ALLOCs before its own; NO_INDEX: older than the trace */
    uint32_t block;     /* template block; EBB_TICK_NONE: none yet */
    uint32_t wraps;     /* age in iterations, relative to the template block's own instance */
    bool is_outlier;    /* not part of the repetition */
};

/* A template block that is allocated in the window. */
struct periodic {
    size_t instance;   /* index of the instance allocated in the window */
    size_t free_event; /* of any instance; NO_INDEX: none known */
    uint32_t wraps;    /* iterations from the ALLOC's to the FREE's */
    bool synthetic;    /* the window has no FREE of it: one is inserted behind event `place` */
    size_t place;
};

/* An event that goes into the model. */
struct entry {
    size_t event; /* in the trace; NO_INDEX for the FREE of a synthetic entry */
    uint32_t block;
    uint32_t wraps;
    uint64_t time_ns; /* since the window's start */
};

struct builder {
    struct ebb_event_span trace;
    size_t first, last; /* the window */
    uint64_t duration_ns;
    EBB_VEC(struct instance) instances;
    struct ebb_map serials; /* serial -> index into instances */
    EBB_VEC(size_t) allocs; /* by rank: index into instances */
    size_t first_rank;      /* rank of the window's first ALLOC */
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

#endif
