/* AutoTM: an integer program over a fixed order of operations (docs/papers.md).
 *
 * Its result is a plan; the simulator says what it takes. Memory is placed by a packing, so it
 * may be fragmented. Then the program is solved again, as its authors do, with less memory: as
 * much less as the packing exceeded the budget. If the solver finds nothing in its time,
 * everything stays in the slow tier, and the plan says so. Its profile measures each distinct
 * operation once for each placement of its operands; that time is computed, not measured. */
#include "lab/tier/autotm.h"

#include "base/clock.h"
#include "lab/tier/policies.h"
#include "plan/pool/pool.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GAP 0.01             /* relative; its authors accept 1 % as well */
#define SECONDS 30.0         /* without a time limit */
#define FRAGMENTED_ROUNDS 4  /* solutions at most */
#define MOST_PLACEMENTS 1024 /* of one operation that are profiled */

static bool chosen(const struct ebb_mip_solution *solution, int column)
{
    return column >= 0 && solution->values[column] > 0.5;
}

/* The operation whose hidden copy the gap has, counted from its begin or its end; -1: none. */
static int hidden(const struct ebb_mip_solution *solution, const int *columns)
{
    for (int k = 0; k < EBB_AUTOTM_NEAR; k++)
        if (chosen(solution, columns[k]))
            return k;
    return -1;
}

static bool stays_of_gap(const struct ebb_autotm *it, const struct ebb_mip_solution *solution,
                         const struct ebb_autotm_use *use, bool next_fast, uint32_t b,
                         struct ebb_tier_plan *plan)
{
    uint32_t count = it->request->operations->count;
    uint32_t end = (use->gap_first + use->gap_span) % count;
    bool fast = chosen(solution, use->fast);
    bool stays = chosen(solution, use->stays) || (use->gap_span == 0 && fast && next_fast);
    bool ok = true;
    if (stays || (!fast && !next_fast))
        return true;
    if (fast) {
        int k = hidden(solution, use->out);
        struct ebb_stay stay = {.block = b, .first = use->gap_first, .start = use->gap_first};
        stay.tier = EBB_TIER_SLOW;
        if (k >= 0) {
            stay.start = (use->gap_first + (uint32_t)k) % count;
            stay.first = (stay.start + 1) % count;
        }
        ok = ebb__tier_plan_add(plan, stay);
    }
    if (ok && next_fast) {
        int k = hidden(solution, use->in);
        struct ebb_stay stay = {.block = b, .first = end, .start = end, .tier = EBB_TIER_FAST};
        if (k >= 0) {
            stay.start = (use->gap_first + use->gap_span - 1 - (uint32_t)k) % count;
            stay.first = (stay.start + 1) % count;
        }
        ok = ebb__tier_plan_add(plan, stay);
    }
    return ok;
}

static int by_first(const void *left, const void *right)
{
    const struct ebb_stay *a = left, *b = right;
    return (a->first > b->first) - (a->first < b->first);
}

static bool block_stays(const struct ebb_autotm *it, const struct ebb_mip_solution *solution,
                        uint32_t b, struct ebb_tier_plan *plan)
{
    const struct ebb_operation_block *block = &it->request->operations->blocks[b];
    const struct ebb_autotm_use *uses = &it->uses[block->first_use];
    uint32_t birth = ebb__tier_birth(it->request->operations, b);
    size_t before = plan->stays.count;
    if (block->use_count == 0)
        return true;
    bool ok = true;
    if (!block->persistent)
        ok = ebb__tier_plan_add(plan, (struct ebb_stay){.block = b,
                                                        .first = birth,
                                                        .start = birth,
                                                        .tier = !chosen(solution, uses[0].fast)});
    for (uint32_t i = 0; ok && i < block->use_count; i++) {
        uint32_t next = (i + 1) % block->use_count;
        if (i + 1 < block->use_count || block->persistent)
            ok = stays_of_gap(it, solution, &uses[i], chosen(solution, uses[next].fast), b, plan);
    }
    if (ok && block->persistent && plan->stays.count == before)
        ok = ebb__tier_plan_add(
            plan, (struct ebb_stay){.block = b, .tier = !chosen(solution, uses[0].fast)});
    if (ok && block->persistent) /* the copies of the last gap may come before the first use */
        qsort(plan->stays.items + before, plan->stays.count - before, sizeof *plan->stays.items,
              by_first);
    return ok;
}

/* The time that profiling takes: each distinct operation, with each placement of its operands. */
static double profile_ns(const struct ebb_tier_request *request)
{
    const struct ebb_operations *operations = request->operations;
    double sum = 0;
    for (uint32_t i = 0; i < operations->count; i++) {
        const struct ebb_operation *a = &operations->items[i];
        bool known = a->use_count == 0;
        for (uint32_t j = 0; j < i && !known; j++) {
            const struct ebb_operation *b = &operations->items[j];
            known = a->use_count == b->use_count;
            for (uint32_t u = 0; known && u < a->use_count; u++) {
                const struct ebb_use *x = &operations->uses[a->first_use + u];
                const struct ebb_use *y = &operations->uses[b->first_use + u];
                known = x->read_bytes == y->read_bytes && x->write_bytes == y->write_bytes;
            }
        }
        if (!known)
            sum += (double)a->ns * fmin(pow(2, a->use_count), MOST_PLACEMENTS);
    }
    return sum;
}

/* Bytes by which a packing of the plan's stays in fast memory exceeds the budget. A stay needs its
 * addresses from the start of its copy in to the end of its copy out. */
static enum ebb_status excess_find(const struct ebb_tier_request *request,
                                   const struct ebb_tier_plan *plan, uint64_t *excess_bytes,
                                   struct ebb_error *error)
{
    const struct ebb_operations *operations = request->operations;
    struct ebb_pool_buffer *buffers = calloc(plan->stays.count + 1, sizeof *buffers);
    struct ebb_pool_problem problem = {
        .buffers = buffers, .period = operations->count, .capacity_bytes = request->budget_bytes};
    struct ebb_pool_solution solution;
    if (!buffers)
        return ebb__fail(error, EBB_ERR_MEMORY, "autotm", "no memory to pack");
    for (uint32_t b = 0; b < plan->block_count; b++) {
        const struct ebb_operation_block *block = &operations->blocks[b];
        uint32_t from = plan->first_stay[b], to = plan->first_stay[b + 1];
        for (uint32_t s = from; s < to; s++) {
            const struct ebb_stay *stay = &plan->stays.items[s];
            const struct ebb_stay *next = &plan->stays.items[s + 1 < to ? s + 1 : from];
            if (stay->tier != EBB_TIER_FAST)
                continue;
            uint32_t end = next->first;
            if (s + 1 == to && !block->persistent)
                end = (block->first + block->span) % operations->count;
            uint32_t span = ebb__operations_between(operations, stay->start, end);
            if (to - from == 1)
                span = block->span;
            buffers[problem.count++] = (struct ebb_pool_buffer){
                .lower = stay->start,
                .upper = stay->start + (span ? span : operations->count),
                .size_bytes = ebb__tier_bytes(request->machine, block->size_bytes)};
        }
    }
    enum ebb_status status = ebb__pool_solve("portfolio", &problem, &solution, error);
    free(buffers);
    if (status)
        return status;
    *excess_bytes = solution.height_bytes > request->budget_bytes
                        ? solution.height_bytes - request->budget_bytes
                        : 0;
    ebb__pool_solution_fini(&solution);
    return EBB_OK;
}

static enum ebb_status plan_take(const struct ebb_autotm *it,
                                 const struct ebb_mip_solution *solution,
                                 struct ebb_tier_plan *plan, struct ebb_error *error)
{
    bool ok = true;
    plan->stays.count = 0;
    for (uint32_t b = 0; ok && b < it->request->operations->block_count; b++)
        ok = block_stays(it, solution, b, plan);
    if (!ok)
        return ebb__fail(error, EBB_ERR_MEMORY, "autotm", "no memory for the plan");
    plan->optimal = solution->optimal && solution->values;
    plan->bound_ns = solution->bound > -1e40 && fabs(solution->bound) < 1e40
                         ? it->constant_ns + solution->bound * 1e3
                         : 0;
    return ebb__tier_plan_close(plan, it->request->operations, error);
}

/* A solution, by use: what the next program begins from. */
struct known {
    bool *fast, *stays;
    bool found; /* by the solver */
};

static void known_take(const struct ebb_autotm *it, const struct ebb_mip_solution *solution,
                       struct known *known)
{
    for (uint32_t u = 0; u < it->request->operations->use_count; u++) {
        known->fast[u] = chosen(solution, it->uses[u].fast);
        known->stays[u] = chosen(solution, it->uses[u].stays);
    }
}

/* If there is no solution in time, that which it began from is one: all in the slow tier, or the
 * static one. */
static bool start_take(const struct ebb_autotm *it, struct ebb_mip_solution *solution)
{
    size_t bytes = (it->mip.lower.count + 1) * sizeof *solution->values;
    solution->values = malloc(bytes);
    if (solution->values)
        memcpy(solution->values, it->start, bytes);
    return solution->values != NULL;
}

/* Solves one program. The plan is taken if `plan` is not NULL. */
static enum ebb_status program_solve(struct ebb_autotm *it, double seconds, struct known *known,
                                     struct ebb_tier_plan *plan, struct ebb_error *error)
{
    struct ebb_mip_solution solution = {0};
    it->fast = known->fast;
    it->stays = known->stays;
    if (!ebb__autotm_write(it))
        return ebb__fail(error, EBB_ERR_MEMORY, "autotm", "no memory for the program");
    enum ebb_status status = ebb__mip_solve(&it->mip, seconds, GAP, it->start, &solution, error);
    bool in_time = solution.values != NULL;
    if (!status && !in_time && !start_take(it, &solution))
        status = ebb__fail(error, EBB_ERR_MEMORY, "autotm", "no memory for a solution");
    if (!status)
        known_take(it, &solution, known);
    known->found = known->found || in_time;
    if (!status && plan) {
        plan->fell_back = !in_time;
        status = plan_take(it, &solution, plan, error);
    }
    free(solution.values);
    ebb__autotm_fini(it);
    return status;
}

/* Solves the static program first, since CBC needs a solution to begin from: in at most half of
 * the time that is left. */
static enum ebb_status solve_once(struct ebb_autotm *it, uint64_t deadline_ns,
                                  struct ebb_tier_plan *plan, uint64_t *excess_bytes,
                                  struct ebb_error *error)
{
    size_t uses = (size_t)it->request->operations->use_count + 1;
    struct known known = {calloc(uses, sizeof(bool)), calloc(uses, sizeof(bool)), false};
    enum ebb_autotm_kind kind = it->kind;
    enum ebb_status status = EBB_OK;
    if (!known.fast || !known.stays)
        status = ebb__fail(error, EBB_ERR_MEMORY, "autotm", "no memory for the program");
    for (int stage = kind == EBB_AUTOTM_STATIC ? 1 : 0; !status && stage < 2; stage++) {
        uint64_t now_ns = ebb__now_ns();
        double left = now_ns < deadline_ns ? (double)(deadline_ns - now_ns) * 1e-9 : 0;
        bool last = stage == 1;
        it->kind = last ? kind : EBB_AUTOTM_STATIC;
        status =
            program_solve(it, fmax(0.1, last ? left : left / 2), &known, last ? plan : NULL, error);
    }
    it->found = known.found;
    if (!status)
        status = excess_find(it->request, plan, excess_bytes, error);
    free(known.fast);
    free(known.stays);
    return status;
}

static void note_write(struct ebb_tier_plan *plan, bool found, bool limited, int rounds)
{
    if (plan->fell_back)
        snprintf(plan->note, sizeof plan->note, "no solution in time: %s",
                 found ? "as autotm:static" : "all in the slow tier");
    else
        snprintf(plan->note, sizeof plan->note, "%s%s",
                 plan->optimal ? "optimal within 1 %" : "time limit reached",
                 limited      ? ", fragmented still"
                 : rounds > 1 ? ", solved again: fragmented"
                              : "");
}

enum ebb_status ebb__tier_autotm(const struct ebb_tier_request *request, const char *variant,
                                 struct ebb_tier_plan *plan, struct ebb_error *error)
{
    struct ebb_autotm it = {.request = request, .budget_bytes = request->budget_bytes};
    double seconds = request->time_limit_ns ? (double)request->time_limit_ns * 1e-9 : SECONDS;
    uint64_t deadline_ns = ebb__now_ns() + (uint64_t)(seconds * 1e9), excess_bytes = 0;
    enum ebb_status status = EBB_OK;
    it.kind = strcmp(variant, "static") == 0 ? EBB_AUTOTM_STATIC
              : strcmp(variant, "sync") == 0 ? EBB_AUTOTM_SYNC
                                             : EBB_AUTOTM_ASYNC;
    int rounds = 0;
    double bound_ns = 0;
    for (; rounds < FRAGMENTED_ROUNDS; rounds++) {
        status = solve_once(&it, deadline_ns, plan, &excess_bytes, error);
        if (rounds == 0)
            bound_ns = plan->bound_ns; /* later programs have less memory */
        if (status || !excess_bytes || plan->fell_back || it.budget_bytes <= excess_bytes ||
            ebb__now_ns() >= deadline_ns)
            break;
        it.budget_bytes -= excess_bytes;
    }
    plan->bound_ns = bound_ns;
    plan->profile_ns = (uint64_t)profile_ns(request);
    note_write(plan, it.found, excess_bytes > 0, rounds + 1);
    return status;
}
