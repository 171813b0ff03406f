#include "lab/tier/program.h"

#include "base/clock.h"
#include "base/order.h"
#include "base/vec.h"
#include "lab/tier/carry.h"
#include "lab/tier/program_model.h"
#include "lab/tier/tier.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT_BYTES 64 /* of vectors: kernels then take the same way in both tiers */
#define SAMPLE_EVERY 4     /* planned iterations; arbitrary: a sample takes time */

/* One plan, carried out in memory of its own. */
struct running {
    struct ebb_tier_memory memory;
    struct ebb_tier_carry carry;
    struct ebb_tier_row row;
};

struct ebb_tier_program {
    struct ebb_tier_program_options options;
    char *place;
    const struct ebb_tier_policy *policy;
    struct ebb_tier_machine machine;
    EBB_VEC(struct ebb_operation_block) blocks;
    EBB_VEC(struct ebb_operation) items;
    EBB_VEC(struct ebb_use) uses;
    struct ebb_operations operations; /* of the three above */
    struct ebb_model model;
    struct ebb_tier_request request;
    struct running *running;
    uint64_t peak_bytes;
    uint64_t iteration; /* that runs, or comes next */
    uint64_t began_ns;  /* of the operation */
    uint64_t iteration_began_ns;
    double copy_before_ns, copy_ns; /* of the lanes: at the begin of an iteration; in all timed */
    uint64_t compute_ns;            /* of the operations so far, in this iteration */
    EBB_VEC(uint64_t) times_ns;     /* of the timed iterations */
    EBB_VEC(uint64_t) rests_ns;     /* likewise, without their operations */
};

/* ---- what the program says ------------------------------------------------------------------- */

enum ebb_status ebb__tier_program_create(const struct ebb_tier_program_options *options,
                                         struct ebb_tier_program **program, struct ebb_error *error)
{
    const struct ebb_tier_policy *policy = ebb__tier_policy(options->policy);
    if (!policy || !policy->make)
        return ebb__fail(error, EBB_ERR_ARGUMENT, options->policy,
                         policy ? "makes no plan that can be carried out"
                                : "no policy for two tiers has this name");
    struct ebb_tier_program *made = calloc(1, sizeof *made);
    char *place = strdup(options->place);
    if (!made || !place) {
        free(made);
        free(place);
        return ebb__fail(error, EBB_ERR_MEMORY, "tiers", "no memory for the program");
    }
    *made = (struct ebb_tier_program){.options = *options, .policy = policy, .place = place};
    enum ebb_status status = ebb__tiers_find(options->machine, &made->machine, error);
    if (!status && made->machine.page_bytes % 4096)
        status = ebb__fail(error, EBB_ERR_UNSUPPORTED, options->machine,
                           "its pages are no whole pages of this machine");
    if (status)
        ebb__tier_program_destroy(made);
    else
        *program = made;
    return status;
}

static void running_free(struct running *running)
{
    if (!running)
        return;
    ebb__tier_carry_fini(&running->carry);
    ebb__tier_memory_close(&running->memory);
    ebb__tier_plan_fini(&running->row.plan);
    free(running);
}

void ebb__tier_program_destroy(struct ebb_tier_program *program)
{
    if (!program)
        return;
    running_free(program->running);
    ebb__model_fini(&program->model);
    free(program->operations.order);
    ebb_vec_free(&program->blocks);
    ebb_vec_free(&program->items);
    ebb_vec_free(&program->uses);
    ebb_vec_free(&program->times_ns);
    ebb_vec_free(&program->rests_ns);
    free(program->place);
    free(program);
}

uint32_t ebb__tier_program_block(struct ebb_tier_program *program, uint64_t bytes, bool persistent)
{
    uint64_t units = (bytes + ALIGNMENT_BYTES - 1) / ALIGNMENT_BYTES;
    struct ebb_operation_block block = {.size_bytes = units * ALIGNMENT_BYTES,
                                        .persistent = persistent};
    return ebb_vec_push(&program->blocks, block) ? (uint32_t)program->blocks.count - 1 : UINT32_MAX;
}

enum ebb_status ebb__tier_program_operation(struct ebb_tier_program *program,
                                            const struct ebb_tier_program_use *uses, uint32_t count,
                                            struct ebb_error *error)
{
    uint32_t number = (uint32_t)program->items.count;
    struct ebb_operation operation = {.first_use = (uint32_t)program->uses.count,
                                      .use_count = count};
    bool ok = ebb_vec_push(&program->items, operation);
    for (uint32_t u = 0; ok && u < count; u++) {
        bool good = uses[u].block < program->blocks.count;
        for (uint32_t before = 0; good && before < u; before++)
            good = uses[before].block != uses[u].block;
        if (!good)
            return ebb__fail(error, EBB_ERR_ARGUMENT, "tiers", "an operation names no block twice");
        uint64_t bytes = program->blocks.items[uses[u].block].size_bytes;
        struct ebb_use use = {.operation = number,
                              .block = uses[u].block,
                              .read_bytes = uses[u].reads ? bytes : 0,
                              .write_bytes = uses[u].writes ? bytes : 0};
        ok = ebb_vec_push(&program->uses, use);
    }
    return ok ? EBB_OK : ebb__fail(error, EBB_ERR_MEMORY, "tiers", "no memory for an operation");
}

/* ---- plans ----------------------------------------------------------------------------------- */

/* Errors of the slow tier name its place. */
static enum ebb_status named(const struct ebb_tier_program *program, enum ebb_status status,
                             struct ebb_error *error)
{
    if (status == EBB_ERR_IO && error)
        snprintf(error->what, sizeof error->what, "%s", program->place);
    return status;
}

static enum ebb_status running_init(struct ebb_tier_program *program, struct running *running,
                                    struct ebb_error *error)
{
    enum ebb_status status =
        ebb__tier_memory_open(&running->memory, &program->operations, &running->row.plan,
                              program->machine.page_bytes, program->place, error);
    if (!status)
        status = ebb__tier_carry_init(&running->carry, &program->request, &running->row.plan,
                                      &running->memory, error);
    return status;
}

/* All blocks in the slow tier. */
static enum ebb_status first_run(struct ebb_tier_program *program, struct ebb_error *error)
{
    struct running *running = program->running = calloc(1, sizeof *program->running);
    if (!running)
        return ebb__fail(error, EBB_ERR_MEMORY, "tiers", "no memory for the first plan");
    running->memory.file = -1;
    if (!ebb__tier_plan_init(&running->row.plan, &program->operations))
        return ebb__fail(error, EBB_ERR_MEMORY, "tiers", "no memory for the first plan");
    enum ebb_status status = ebb__tier_plan_close(&running->row.plan, &program->operations, error);
    if (!status)
        status = running_init(program, running, error);
    return status ? status : ebb__tier_carry_begin(&running->carry, NULL, error);
}

enum ebb_status ebb__tier_program_start(struct ebb_tier_program *program, struct ebb_error *error)
{
    struct ebb_operations *operations = &program->operations;
    *operations = (struct ebb_operations){.items = program->items.items,
                                          .count = (uint32_t)program->items.count,
                                          .uses = program->uses.items,
                                          .use_count = (uint32_t)program->uses.count,
                                          .blocks = program->blocks.items,
                                          .block_count = (uint32_t)program->blocks.count};
    if (!operations->use_count)
        return ebb__fail(error, EBB_ERR_ARGUMENT, "tiers", "the program does nothing");
    program->request = (struct ebb_tier_request){operations, &program->machine, 0,
                                                 program->options.time_limit_ns, &program->model};
    enum ebb_status status = ebb__tier_program_lives(operations, error);
    if (!status)
        status = ebb__tiers_peak(operations, &program->machine, &program->peak_bytes, error);
    if (status)
        return status;
    program->request.budget_bytes =
        (uint64_t)(program->options.share * (double)program->peak_bytes);
    return named(program, first_run(program, error), error);
}

/* The policy plans with what was measured. The plan is in force from now on. */
static enum ebb_status plan(struct ebb_tier_program *program, struct ebb_error *error)
{
    struct running *next = calloc(1, sizeof *next);
    if (!next)
        return ebb__fail(error, EBB_ERR_MEMORY, "tiers", "no memory for a plan");
    next->memory.file = -1;
    enum ebb_status status = ebb__tier_program_model(&program->operations, &program->model, error);
    if (!status)
        status = ebb__tier_run(program->policy, &program->request, &next->row, error);
    if (!status)
        status = running_init(program, next, error);
    if (!status)
        status = ebb__tier_carry_begin(&next->carry, &program->running->carry, error);
    if (!status)
        status = ebb__tier_carry_start(&next->carry, error);
    if (status) {
        running_free(next);
        return status;
    }
    running_free(program->running);
    program->running = next;
    return EBB_OK;
}

/* ---- iterations ------------------------------------------------------------------------------ */

static bool is_planned(const struct ebb_tier_program *program)
{
    return program->iteration >= EBB_TIER_PROFILED;
}

static bool is_sampled(const struct ebb_tier_program *program)
{
    return is_planned(program) && (program->iteration - EBB_TIER_PROFILED) % SAMPLE_EVERY == 0;
}

static enum ebb_status iteration_begin(struct ebb_tier_program *program, struct ebb_error *error)
{
    enum ebb_status status = EBB_OK;
    if (program->iteration == EBB_TIER_PROFILED)
        status = plan(program, error);
    struct ebb_tier_carry *carry = &program->running->carry;
    program->copy_before_ns = ebb__tier_carry_copy_ns(carry);
    carry->predicted_copy_ns = 0;
    carry->copies = 0;
    program->compute_ns = 0;
    program->iteration_began_ns = ebb__now_ns();
    return status;
}

enum ebb_status ebb__tier_program_before(struct ebb_tier_program *program, uint32_t operation,
                                         struct ebb_error *error)
{
    enum ebb_status status = operation == 0 ? iteration_begin(program, error) : EBB_OK;
    if (status)
        return named(program, status, error);
    struct ebb_tier_carry *carry = &program->running->carry;
    uint64_t opened_ns = ebb__now_ns();
    status = ebb__tier_carry_lives(carry, operation, error);
    uint64_t lives_ns = ebb__now_ns() - opened_ns; /* of the operation, too */
    if (!status)
        status = ebb__tier_carry_moves(carry, operation, error);
    program->began_ns = ebb__now_ns() - lives_ns;
    return named(program, status, error);
}

void *ebb__tier_program_at(const struct ebb_tier_program *program, uint32_t block)
{
    return ebb__tier_carry_at(&program->running->carry, block);
}

static void iteration_end(struct ebb_tier_program *program)
{
    if (is_planned(program) && !is_sampled(program)) {
        program->copy_ns +=
            ebb__tier_carry_copy_ns(&program->running->carry) - program->copy_before_ns;
        uint64_t took_ns = ebb__now_ns() - program->iteration_began_ns;
        (void)ebb_vec_push(&program->times_ns, took_ns);
        (void)ebb_vec_push(&program->rests_ns, took_ns - program->compute_ns);
    }
    program->iteration++;
}

void ebb__tier_program_after(struct ebb_tier_program *program, uint32_t operation)
{
    struct ebb_tier_carry *carry = &program->running->carry;
    double throttle = program->options.throttle;
    uint64_t took_ns = ebb__now_ns() - program->began_ns;
    if (is_sampled(program))
        ebb__tier_carry_sample(carry, operation);
    if (!is_planned(program))
        program->operations.items[operation].ns =
            throttle > 0 ? (uint64_t)(throttle * (double)took_ns) : took_ns;
    else if (throttle > 0)
        ebb__tier_until(program->began_ns + ebb__tier_carry_pace_ns(carry, operation));
    program->compute_ns += ebb__now_ns() - program->began_ns;
    if (operation + 1 == program->operations.count)
        iteration_end(program);
}

/* ---- figures --------------------------------------------------------------------------------- */

static void predicted_set(const struct running *running, struct ebb_tier_program_figures *figures)
{
    const struct ebb_tier_result *result = &running->row.result;
    figures->plan_ns = running->row.plan.plan_ns;
    figures->predicted_iteration_ns = result->iteration_ns;
    figures->predicted_rest_ns = result->iteration_ns - result->compute_ns;
    figures->predicted_fast_ns = result->fast_ns;
    figures->predicted_copy_ns = running->carry.predicted_copy_ns;
    figures->copies = running->carry.copies;
    figures->moved_out_bytes = result->moved_out_bytes;
    figures->moved_in_bytes = result->moved_in_bytes;
    figures->planned_fast_bytes = result->fast_peak_bytes;
    figures->planned_slow_bytes = result->slow_peak_bytes;
    snprintf(figures->note, sizeof figures->note, "%s", running->row.plan.note);
}

void ebb__tier_program_figures(const struct ebb_tier_program *program,
                               struct ebb_tier_program_figures *figures)
{
    *figures = (struct ebb_tier_program_figures){.peak_bytes = program->peak_bytes,
                                                 .budget_bytes = program->request.budget_bytes,
                                                 .timed_iterations = program->times_ns.count};
    snprintf(figures->policy, sizeof figures->policy, "%s", program->policy->name);
    snprintf(figures->machine, sizeof figures->machine, "%s", program->machine.name);
    if (program->iteration <= EBB_TIER_PROFILED)
        return; /* nothing was planned */
    const struct ebb_tier_samples *samples = &program->running->carry.samples;
    predicted_set(program->running, figures);
    figures->planned_iterations = program->iteration - EBB_TIER_PROFILED;
    if (program->times_ns.count) {
        figures->iteration_ns =
            (double)ebb__median_u64(program->times_ns.items, program->times_ns.count);
        figures->copy_ns = program->copy_ns / (double)program->times_ns.count;
        figures->rest_ns =
            (double)ebb__median_u64(program->rests_ns.items, program->rests_ns.count);
    }
    figures->fast_bytes = samples->peak_bytes[EBB_TIER_FAST];
    figures->slow_bytes = samples->peak_bytes[EBB_TIER_SLOW];
    figures->sampled_operations = samples->operations;
    figures->same_operations = samples->same;
    figures->off_operations = samples->off;
}
