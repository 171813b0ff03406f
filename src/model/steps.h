/* Counts the steps of a training as its programmer does, from allocations and frees alone.
 *
 * Rule. A step raises the live bytes and lowers them again:
 *  1. It is a large swing: live bytes rise, and fall again, by two thirds at least of the swing
 *     that tells a step. That is the swing of the iteration that was planned. If none was, it is
 *     the one whose number, times its bytes squared, is the largest of those that have occurred
 *     three times. Loops before the training, evaluations, samples and the moves of a rollout keep
 *     nothing for gradients. They swing less, and belong to the step beside them. So does the
 *     second of two optimizers, if its network holds less. A fold that frees its model swings more,
 *     but more rarely.
 *  2. It begins at the base: four successive swings beside it begin with as many live bytes, but
 *     for a thirty-second of the swing. Between micro-batches gradients stay, and
 *     between the updates of a rollout what was seen. So up to five of them are one step. The base
 *     may change: an optimizer makes its state, a fold makes a new model.
 *  3. If the planned iteration is known to consist of micro-batches (lives.h), so many of them are
 *     one step as it has.
 *
 * Where it errs: steps whose batch or sequence is shorter than two thirds are not counted, unless
 * they are planned by their shape. Two networks that are trained in turn, and hold about the same,
 * count twice. So do more than five micro-batches that are not planned.
 *
 *     struct ebb_steps steps = {0};
 *     for (each event) if (ebb__steps_push(&steps, &event, is_planned) != EBB_OK) ...
 *     struct ebb_steps_found found;
 *     if (ebb__steps_find(&steps, rule, &found) == EBB_OK) ... found.count ...
 *     ebb__steps_fini(&steps);
 *
 * Not thread-safe. */
#ifndef EBB_MODEL_STEPS_H
#define EBB_MODEL_STEPS_H

#include "base/status.h"
#include "base/vec.h"
#include "model/lost.h"
#include "trace/event.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where live bytes turn. Troughs and peaks alternate; the first is a trough. */
struct ebb_turn {
    uint64_t bytes, time_ns, event;
    uint64_t lost_ns[EBB_LOST_CAUSES]; /* before it, since the begin */
    bool planned;                      /* of a peak: a plan was in force */
};

typedef EBB_VEC(struct ebb_turn) ebb_turns;

/* What is known of a step. Zeros: nothing. */
struct ebb_steps_rule {
    uint64_t telling_bytes; /* the swing that tells a step */
    unsigned batches;       /* so many that begin at the base are one: its micro-batches */
};

enum { EBB_STEPS_RECUR = 3 }; /* a swing that has occurred so often is one of a loop */

struct ebb_steps_found {
    uint64_t count;
    uint64_t planned;      /* of these, those with a plan in force at their peak */
    uint64_t planned_from; /* the first of these, from 0; UINT64_MAX: none */
    /* Of planned ones that are kept, from begin to begin; 0: none. */
    uint64_t median_ns, min_ns, max_ns;
    struct ebb_lost lost; /* of the first ones, as far as memory has come down again */
};

struct ebb_steps {
    ebb_turns turns; /* the last one is not over */
    uint64_t events; /* pushed so far */
    uint64_t live_bytes, peak_bytes;
    struct ebb_lost_sums lost;
    struct ebb_steps_found before; /* steps of turns that are no longer kept */
    uint64_t before_bytes;         /* the swing that they were measured by */
};

/* Takes an event. Steps are of ALLOC and FREE, lost time is of marks; other kinds are ignored. O(1)
 * amortised. EBB_ERR_MEMORY. */
EBB_NODISCARD enum ebb_status ebb__steps_push(struct ebb_steps *steps,
                                              const struct ebb_event *event, bool planned);
/* The swing of live bytes in the time [first_ns, last_ns]. */
uint64_t ebb__steps_swing(const struct ebb_steps *steps, uint64_t first_ns, uint64_t last_ns);
/* How often live bytes have come down by `least_bytes` since `from_ns`, having gone up as much
 * before. O(turns kept); 0 if out of memory. */
uint64_t ebb__steps_swings(const struct ebb_steps *steps, uint64_t least_bytes, uint64_t from_ns);
/* The steps so far, one that is not over included. O(turns kept). EBB_ERR_MEMORY. */
EBB_NODISCARD enum ebb_status ebb__steps_find(const struct ebb_steps *steps,
                                              struct ebb_steps_rule rule,
                                              struct ebb_steps_found *found);
/* The number of steps that begin in the time [first_ns, last_ns). O(turns kept); 0 if out of
 * memory. */
uint64_t ebb__steps_within(const struct ebb_steps *steps, struct ebb_steps_rule rule,
                           uint64_t first_ns, uint64_t last_ns);
/* The number of the step in which event number `event` (from 0) was pushed, from 0. If there are no
 * steps, 0. Otherwise as above. */
EBB_NODISCARD enum ebb_status ebb__steps_at(const struct ebb_steps *steps,
                                            struct ebb_steps_rule rule, uint64_t event,
                                            uint64_t *number);
void ebb__steps_fini(struct ebb_steps *steps);

#endif
