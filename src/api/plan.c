/* Plans of iterations: made where an iteration ends, in force from the next one of its kind on.
 *
 * The first plan is made of a dry run or of the first iteration. The second one knows the times of
 * an iteration that was followed, and lives that last longer than one. Later ones would hardly
 * differ. If iterations of a kind become others, the new ones are planned once two are alike. */
#include "api/internal.h"

#include "plan/request/request.h"

#include <stdlib.h>
#include <string.h>

#define FINAL_PLANS 3u /* times are known well by then */

/* Which plan would be made now, if any? */
static bool is_wanted(const struct plan_of_kind *plan)
{
    if (!plan->newest.is_whole)
        return false;
    if (!plan->script || plan->newest.digest == plan->planned_digest)
        return plan->plans < FINAL_PLANS;
    return plan->newest.digest == plan->unplanned_digest;
}

static void retire(struct ebb_context *context, struct plan_of_kind *plan)
{
    /* Without memory for its place in the list it leaks, since the runtime may refer to it. */
    if (plan->script)
        (void)ebb_vec_push(&context->retired, plan->script);
    free(plan->tensors);
    free(plan->names);
    plan->tensors = NULL;
    plan->names = NULL;
    plan->script = NULL;
}

static bool keep_names(struct plan_of_kind *plan)
{
    uint32_t count = plan->script->persistent_count;
    const struct ebb_script_block *blocks = ebb__script_blocks(plan->script);
    plan->tensors = calloc(count + 1u, sizeof *plan->tensors);
    plan->names = calloc(count + 1u, sizeof *plan->names);
    if (!plan->tensors || !plan->names)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        plan->names[i] = blocks[i].serial;
        plan->tensors[i] = ebb__api_tensor_of(blocks[i].serial);
    }
    return true;
}

/* Takes the script of a new plan into use. */
static enum ebb_status install(struct ebb_context *context, struct plan_of_kind *plan,
                               struct ebb_script *script, struct ebb_error *error)
{
    script->flags |= EBB_SCRIPT_ANNOUNCED; /* also if nothing is allocated in the iteration */
    retire(context, plan);
    plan->script = script;
    if (!keep_names(plan) ||
        ebb__runtime_set_script(context->runtime, script, script->bytes) != EBB_OK) {
        retire(context, plan);
        return ebb__fail(error, EBB_ERR_MEMORY, "plan", "no memory for it");
    }
    plan->plans = plan->newest.digest == plan->planned_digest ? plan->plans + 1 : 1;
    plan->planned_digest = plan->newest.digest;
    context->counts.plans++;
    return EBB_OK;
}

static enum ebb_status plan_model(struct ebb_context *context, struct plan_of_kind *plan,
                                  const struct ebb_model *model, struct ebb_error *error)
{
    struct ebb_plan_terms terms =
        ebb__plan_terms(ebb__plan_policy("ebb"), model, &context->machine, context->budget_bytes);
    terms.beside_bytes = ebb__api_small_bytes(context);
    struct ebb_planned planned;
    struct ebb_script *script = NULL;
    enum ebb_status status = ebb__planned_make(&terms, &planned, error);
    if (status)
        return status;
    uint64_t least_bytes = planned.plan.smallest_feasible_bytes + terms.beside_bytes;
    context->counts.smallest_feasible_bytes = least_bytes;
    if (!planned.plan.feasible) {
        status =
            ebb__fail(error, EBB_INFEASIBLE, "budget", "an iteration needs at least %llu bytes",
                      (unsigned long long)least_bytes);
        ebb__error_set_remedy(error, "give a budget of at least that");
    }
    if (!status)
        status = ebb__planned_check(&planned, error);
    if (!status)
        status = ebb__planned_script(&planned, &script, error);
    ebb__planned_fini(&planned);
    return status ? status : install(context, plan, script, error);
}

enum ebb_status ebb__api_plan(struct ebb_context *context, uint32_t kind, struct ebb_error *error)
{
    struct plan_of_kind *plan = &context->plans[kind];
    if (context->budget_bytes == UINT64_MAX || context->no_plan || !is_wanted(plan)) {
        plan->unplanned_digest = plan->newest.digest;
        return EBB_OK;
    }
    struct ebb_model model;
    enum ebb_status status = ebb__api_model(plan, &model, error);
    if (status)
        return status;
    if (ebb__model_iteration_ns(&model) > 0)
        status = plan_model(context, plan, &model, error);
    ebb__model_fini(&model);
    return status;
}

static int by_from(const void *a, const void *b)
{
    const struct ebb_renaming *left = a, *right = b;
    return left->from < right->from ? -1 : left->from > right->from;
}

/* The script's persistent blocks get the names that they have now in the runtime. */
static void rename_blocks(struct ebb_context *context, struct plan_of_kind *plan)
{
    uint32_t count = plan->script->persistent_count;
    size_t changed = 0;
    struct ebb_renaming *renamings = malloc((count + 1u) * sizeof *renamings);
    if (!renamings)
        return; /* those blocks move without the plan */
    for (uint32_t i = 0; i < count; i++) {
        const void *address = context->tensors.items[plan->tensors[i]].address;
        uint64_t serial = address ? ebb__runtime_serial(context->runtime, address) : 0;
        if (!serial || serial == plan->names[i])
            continue;
        renamings[changed++] = (struct ebb_renaming){plan->names[i], serial};
        plan->names[i] = serial;
    }
    if (changed) {
        qsort(renamings, changed, sizeof *renamings, by_from);
        ebb__runtime_rename(context->runtime, renamings, changed);
    }
    free(renamings);
}

void ebb__api_plan_begin(struct ebb_context *context, uint32_t kind)
{
    struct plan_of_kind *plan = &context->plans[kind];
    if (!plan->script)
        return;
    rename_blocks(context, plan);
    ebb__runtime_begin(context->runtime, plan->script, context->followed == plan->script);
}

void ebb__api_plan_fini(struct ebb_context *context)
{
    for (size_t i = 0; i < EBB_ITERATION_KINDS; i++) {
        struct plan_of_kind *plan = &context->plans[i];
        retire(context, plan);
        ebb__api_record_fini(&plan->newest);
        ebb__api_record_fini(&plan->before);
    }
    for (size_t i = 0; i < context->retired.count; i++)
        free(context->retired.items[i]);
    ebb_vec_free(&context->retired);
}
