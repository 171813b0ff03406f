/* A lane of ebb__tier_execute(): a thread that copies, one copy after another, at a given rate. */
#ifndef EBB_LAB_TIER_EXECUTE_LANE_H
#define EBB_LAB_TIER_EXECUTE_LANE_H

#include "machine/machine.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ebb_tier_copy {
    unsigned char *to;
    const unsigned char *from;
    size_t bytes;
    uint64_t lane_ns; /* that it takes at least; 0 for parts of a run after the first */
    bool *done;
};

struct ebb_tier_lane {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct ebb_tier_copy *queue; /* a ring */
    size_t capacity, first, count;
    double busy_ns; /* spent on copies */
    bool ends, started;
};

/* Returns at that time of ebb__now_ns(): it sleeps, then spins for what a sleep cannot hit. */
void ebb__tier_until(uint64_t ns);

/* EBB_ERR_MEMORY. At most `capacity` copies wait at a time. */
EBB_NODISCARD enum ebb_status ebb__tier_lane_init(struct ebb_tier_lane *lane, size_t capacity);
void ebb__tier_lane_push(struct ebb_tier_lane *lane, struct ebb_tier_copy copy);
/* Copies in the caller's thread, behind all that waits: no thread has to wake up for it. */
void ebb__tier_lane_copy(struct ebb_tier_lane *lane, struct ebb_tier_copy copy);
/* Waits until *done, which a copy of this lane sets. */
void ebb__tier_lane_wait(struct ebb_tier_lane *lane, const bool *done);
void ebb__tier_lane_fini(struct ebb_tier_lane *lane);

#endif
