/* The state of following a script: follow.c, follow_find.c and follow_scripts.c share it. */
#ifndef EBB_CUDA_FOLLOW_STATE_H
#define EBB_CUDA_FOLLOW_STATE_H

#include "cuda/follow.h"
#include "runtime/template.h"
#include "trace/event.h"

#define NO_BLOCK UINT32_MAX
#define MAX_SCRIPTS 12u /* a limit: an iteration, and what comes between its repetitions */
#define HISTORY 16384u  /* number of events remembered: several iterations */
/* So many events may be ahead of one that has not come yet. Threads of a program that take turns
 * exchange neighbours. */
#define MOST_AHEAD 8u
/* So many uses in a row that do not fit, and so many that do not come, are no departure. */
#define MOST_STRAYS 64u

/* A script with its tables. */
struct follow_script {
    const struct ebb_script *script;
    struct ebb_names names; /* of its persistent blocks in this process */
    uint32_t *live;         /* [script block] the engine's block; NO_BLOCK: none */
    uint32_t *free_at;      /* [script block] position of its FREE; EBB_SCRIPT_NONE: none */
    /* For each position, the absences that begin and those whose prefetch starts there: the head
     * of a chain. For each absence, the next one in its chain. */
    uint32_t *out_first, *out_next, *in_first, *in_next;
    /* The hash of the events up to each position, without those of kind FREE. For each bucket, the
     * head of a chain of positions. For each position, the next one in its chain. */
    uint64_t *hashes;
    uint32_t *buckets, *bucket_next;
    uint32_t bucket_mask;
    uint32_t told_count;       /* events other than FREE */
    uint32_t *turns, *turn_at; /* the ALLOCs and FREEs, and their positions: follow_ahead.c */
    uint32_t turn_count;
    uint8_t *settled; /* [script block] while the border is crossed: nothing more is due for it */
    uint64_t used;    /* value of `uses` when it was sent or last put in force */
    size_t bytes;     /* of this struct and the arrays, which follow it */
};

/* A block of the engine. */
struct follow_block {
    uint64_t serial; /* 0: not live */
    uint64_t bytes;
    uint32_t script_block; /* in the script in force; EBB_SCRIPT_NONE: it does not know it */
};

/* An ALLOC or ACCESS that has happened. */
struct follow_past {
    uint64_t bytes, serial;
    uint32_t block;
    uint32_t kind;
};

struct ebb_cuda_follow {
    struct follow_block *blocks; /* of most_blocks */
    uint32_t most_blocks, top;   /* none at or above `top` has been live */
    struct follow_past *history; /* ring of HISTORY */
    uint64_t past;               /* number of events ever in it */
    uint64_t hash;               /* of the newest `window` of them */
    uint32_t window;
    uint64_t window_factor; /* of an event that leaves the window */
    uint64_t newest_serial;
    struct follow_script *scripts[MAX_SCRIPTS]; /* the newest last */
    uint32_t script_count;
    uint64_t uses;
    struct follow_script *current; /* in force; NULL: none */
    struct follow_script *awaited; /* replaces `current` at awaited_at */
    uint32_t awaited_at;
    uint32_t position;          /* of the next event expected */
    uint32_t ahead[MOST_AHEAD]; /* positions that were seen before their turn */
    uint32_t ahead_count, strays;
    bool border_due; /* the script in force knows more blocks, or has just begun */
    struct cuda_action *actions;
    size_t action_count, action_space;
    struct cuda_follow_counts counts;
};

static inline const struct ebb_script_event *follow_event(const struct follow_script *known,
                                                          uint32_t position)
{
    return &ebb__script_events(known->script)[position];
}
/* The position passed last. Only while a script is followed. */
static inline uint32_t follow_now(const struct ebb_cuda_follow *follow)
{
    uint32_t clocks = follow->current->script->clock_count;
    return (follow->position + clocks - 1) % clocks;
}

/* follow_find.c */
void ebb__find_init(struct ebb_cuda_follow *follow);
/* Fills in the tables by which positions are found. */
void ebb__find_prepare(const struct ebb_cuda_follow *follow, struct follow_script *known);
/* Adds an ALLOC or ACCESS to the history. */
void ebb__find_note(struct ebb_cuda_follow *follow, const struct cuda_event *event);
/* The script that ends in the newest events, and its *position of the newest one. NULL: none, or it
 * is not known which. */
struct follow_script *ebb__find_script(const struct ebb_cuda_follow *follow, uint32_t *position);
/* How many of the newest events agree with the script if the newest is at `position`. */
uint32_t ebb__find_agreement(const struct ebb_cuda_follow *follow,
                             const struct follow_script *known, uint32_t position, uint32_t most);

/* follow_ahead.c. Fills in the list of turns. */
void ebb__ahead_prepare(struct follow_script *known);

/* follow_scripts.c */
/* Follows `known`, whose `position` has just been passed. */
void ebb__follow_start(struct ebb_cuda_follow *follow, struct follow_script *known,
                       uint32_t position);
/* The awaited script takes the place of that in force. */
void ebb__follow_take_over(struct ebb_cuda_follow *follow);
/* Gives `block` of the engine the name `script_block`. */
void ebb__follow_bind(struct ebb_cuda_follow *follow, uint32_t block, uint32_t script_block);

/* The first step makes what is there in each later one: an optimizer's states. Blocks of later
 * steps that are freed at once may have their sizes and order. A script of an earlier run cannot
 * tell them apart, and what is placed would keep others' places for good. */
static inline bool follow_may_place(const struct ebb_cuda_follow *follow)
{
    return follow->current && (!follow->current->script->first_serial || follow->counts.laps);
}

#endif
