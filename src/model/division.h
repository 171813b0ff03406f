/* The state of a model while its large blocks are divided into parts. units.c finds the parts;
 * parts.c writes them. */
#ifndef EBB_MODEL_DIVISION_H
#define EBB_MODEL_DIVISION_H

#include "model.h"

#include "base/vec.h"

/* A use of a unit. `operation` counts operations since its allocation: the stretches between clock
 * events, and the pieces of large ones. */
struct use {
    uint32_t block;
    uint32_t unit;
    uint64_t operation;
    uint64_t position; /* ticks since tick 0 of the iteration of its allocation */
    uint8_t access;
};

/* Units [first, first + count) of an old block, with the position among the new blocks. */
struct part {
    uint32_t block;
    uint32_t first, count;
    uint32_t made;
    uint64_t first_position; /* position of its first use */
};

struct division {
    const struct ebb_model *old;
    const uint32_t *unit_at_tick;
    EBB_VEC(struct use) uses;
    EBB_VEC(struct part) parts;
    uint32_t *first_part;   /* old block -> its first part; EBB_TICK_NONE: none */
    uint32_t *last_part;    /* old block -> one behind its last part */
    uint32_t *made_block;   /* old block -> new block */
    uint32_t *operations;   /* old tick -> number of operations before it; [tick_count]: all */
    uint32_t *clock_before; /* old tick -> the tick of the last clock event before it */
    uint32_t *part_at;      /* old tick -> the part that it uses; EBB_TICK_NONE: the tick uses no
                             part */
    bool *dropped;          /* old tick -> true: another use in the same operation stands for it */
    uint32_t *made_tick;    /* old tick -> new tick */
    uint32_t *alloc_tick, *free_tick; /* part -> new ticks; not for first parts */
    struct ebb_model made;
};

/* Lists the uses of the units of all blocks to be divided, unit by unit. Returns false if out of
 * memory. */
bool ebb__division_collect_uses(struct division *division);
/* Joins neighbouring units with the same history to parts. Returns false if out of memory. */
bool ebb__division_find_parts(struct division *division);

#endif
