#include "lab/tier/execute.h"

#include "base/clock.h"
#include "lab/tier/carry.h"

#include <stdlib.h>

#define STEP 0x9e3779b97f4a7c15ull

struct execution {
    struct ebb_tier_carry carry;
    struct ebb_tier_memory memory;
    const struct ebb_operations *operations;
    struct ebb_tier_execution *run;
    uint64_t sum;
};

static void block_read(struct execution *it, uint32_t block)
{
    const uint64_t *words = (const void *)ebb__tier_carry_at(&it->carry, block);
    size_t count = it->operations->blocks[block].size_bytes / sizeof *words;
    uint64_t sum = it->sum;
    for (size_t i = 0; i < count; i++)
        sum += words[i] ^ (sum >> 7);
    it->sum = sum * STEP + block;
}

static void block_write(struct execution *it, uint32_t block)
{
    uint64_t *words = (void *)ebb__tier_carry_at(&it->carry, block);
    size_t count = it->operations->blocks[block].size_bytes / sizeof *words;
    for (size_t i = 0; i < count; i++)
        words[i] = it->sum + i * STEP;
}

static void compute(struct execution *it, uint32_t at)
{
    const struct ebb_operation *operation = &it->operations->items[at];
    for (uint32_t u = 0; u < operation->use_count; u++) {
        const struct ebb_use *use = &it->operations->uses[operation->first_use + u];
        if (use->read_bytes && it->carry.live[use->block])
            block_read(it, use->block);
    }
    for (uint32_t u = 0; u < operation->use_count; u++) {
        const struct ebb_use *use = &it->operations->uses[operation->first_use + u];
        if (use->write_bytes && it->carry.live[use->block])
            block_write(it, use->block);
    }
}

static enum ebb_status operation_run(struct execution *it, uint32_t at, struct ebb_error *error)
{
    uint64_t opened_ns = ebb__now_ns();
    enum ebb_status status = ebb__tier_carry_lives(&it->carry, at, error);
    uint64_t lives_ns = ebb__now_ns() - opened_ns; /* of the operation, too */
    if (!status)
        status = ebb__tier_carry_moves(&it->carry, at, error);
    if (status)
        return status;
    uint64_t began_ns = ebb__now_ns() - lives_ns;
    compute(it, at);
    if (it->run->samples)
        ebb__tier_carry_sample(&it->carry, at);
    if (it->run->paces)
        ebb__tier_until(began_ns + ebb__tier_carry_pace_ns(&it->carry, at));
    if (it->run->operation_ns)
        it->run->operation_ns[at] = (double)(ebb__now_ns() - began_ns);
    return EBB_OK;
}

static enum ebb_status laps_run(struct execution *it, struct ebb_error *error)
{
    enum ebb_status status = ebb__tier_carry_begin(&it->carry, NULL, error);
    if (!status)
        status = ebb__tier_carry_start(&it->carry, error);
    for (uint32_t lap = 0; !status && lap < it->run->laps; lap++) {
        uint64_t began_ns = ebb__now_ns();
        double before_ns = ebb__tier_carry_copy_ns(&it->carry);
        it->carry.predicted_copy_ns = 0;
        it->carry.copies = 0;
        for (uint32_t at = 0; !status && at < it->operations->count; at++)
            status = operation_run(it, at, error);
        it->run->iteration_ns = (double)(ebb__now_ns() - began_ns);
        it->run->copy_ns = ebb__tier_carry_copy_ns(&it->carry) - before_ns;
    }
    ebb__tier_carry_settle(&it->carry);
    return status;
}

static void results_set(const struct execution *it)
{
    const struct ebb_tier_samples *samples = &it->carry.samples;
    struct ebb_tier_execution *run = it->run;
    run->checksum = it->sum;
    run->predicted_copy_ns = it->carry.predicted_copy_ns;
    run->copies = it->carry.copies;
    run->samples_taken = *samples;
}

enum ebb_status ebb__tier_execute(const struct ebb_tier_request *request,
                                  const struct ebb_tier_plan *plan, struct ebb_tier_execution *run,
                                  struct ebb_error *error)
{
    struct execution it = {.operations = request->operations, .run = run};
    enum ebb_status status = ebb__tier_memory_open(
        &it.memory, request->operations, plan, request->machine->page_bytes, run->folder, error);
    if (!status)
        status = ebb__tier_carry_init(&it.carry, request, plan, &it.memory, error);
    if (!status)
        status = laps_run(&it, error);
    if (!status)
        results_set(&it);
    ebb__tier_carry_fini(&it.carry);
    ebb__tier_memory_close(&it.memory);
    return status;
}
