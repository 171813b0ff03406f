/* A base for tests of one part of the runtime. It has a core with a ring, a ledger and a device of
 * plain memory, but no runtime. The test provides the policy. Include it after cmocka.
 *
 *     struct ground ground;
 *     ground_open(&ground, budget_bytes, &policy, context);     ground.core is the core
 *     ...the parts below, ebb__block_init() and so on...
 *     ground_close(&ground);
 */
#ifndef EBB_TESTS_PART_RIG_H
#define EBB_TESTS_PART_RIG_H

#include "runtime/core/core.h"

#include <stdlib.h>
#include <string.h>

#ifndef GROUND_ARENA_BYTES
#define GROUND_ARENA_BYTES ((uint64_t)64 << 20)
#endif

struct ground {
    struct core core;
    struct ebb_device device;
    struct ebb_ledger ledger;
    struct ebb_ring *ring;
    unsigned warned, lost;
};

static inline void ground_warn(void *context, const char *message)
{
    struct ground *ground = context;
    (void)message;
    ground->warned++;
}

static inline void ground_lost(void *context, const char *message)
{
    struct ground *ground = context;
    (void)message;
    ground->lost++;
}

static inline struct ebb_ring *ground_ring(void)
{
    struct ebb_ring *ring = calloc(1, ebb__ring_bytes(EBB_RING_EVENTS));
    assert_non_null(ring);
    ebb__ring_init(ring, EBB_RING_EVENTS, ebb__now_ns());
    atomic_store(&ring->parent_gone, 1); /* nobody drains the ring: do not wait if it is full */
    return ring;
}

static inline struct ebb_runtime_config ground_config(struct ground *ground)
{
    return (struct ebb_runtime_config){.device = ground->device,
                                       .ledger = &ground->ledger,
                                       .ring = ground->ring,
                                       .store_pause_ns = UINT64_MAX / 128,
                                       .warn = ground_warn,
                                       .lost = ground_lost,
                                       .context = ground};
}

/* `policy` may be changed until the lanes run. */
static inline void ground_open(struct ground *ground, uint64_t budget_bytes,
                               const struct policy *policy, void *context)
{
    memset(ground, 0, sizeof *ground);
    ground->ring = ground_ring();
    ground->ledger.magic = EBB_LEDGER_MAGIC;
    atomic_store(&ground->ledger.budget_bytes, budget_bytes);
    assert_int_equal(ebb__fake_create(GROUND_ARENA_BYTES, &ground->device), EBB_OK);
    struct ebb_runtime_config config = ground_config(ground);
    ebb__core_init(&ground->core, &config, policy, context);
}

static inline void ground_close(struct ground *ground)
{
    ebb__fake_destroy(&ground->device);
    free(ground->ring);
}

static inline uint64_t ground_held(struct ground *ground)
{
    return atomic_load(&ground->ledger.held_bytes);
}

/* A pseudo-random number below `most`. */
static inline uint32_t ground_random(uint64_t *state, uint32_t most)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33) % most;
}

#endif
