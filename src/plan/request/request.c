#include "plan/request/request.h"

#include "base/geometry.h"
#include "base/tuning.h"

#include "check/check.h"
#include "plan/request/compile.h"

/* A program whose iterations are short runs many of them without a plan while one is searched. */
static uint64_t effort_steps(const struct ebb_model *model)
{
    const struct ebb_tuning *tuning = ebb__tuning();
    double iterations_ns = (double)ebb__model_iteration_ns(model) * (double)tuning->plan_iterations;
    double steps = iterations_ns / 1e9 * (double)tuning->plan_steps_a_second;
    uint64_t least = tuning->plan_steps / 10;
    return steps >= (double)tuning->plan_steps ? tuning->plan_steps
           : steps > (double)least             ? (uint64_t)steps
                                               : least;
}

struct ebb_plan_terms ebb__plan_terms(const struct ebb_policy *policy,
                                      const struct ebb_model *model,
                                      const struct ebb_machine *machine, uint64_t budget_bytes)
{
    return (struct ebb_plan_terms){.policy = policy,
                                   .model = model,
                                   .machine = machine,
                                   .budget_bytes = budget_bytes,
                                   .page_bytes = EBB_PAGE_BYTES,
                                   .smallest_block_bytes = ebb__tuning()->plan_smallest_block_bytes,
                                   .effort_steps = effort_steps(model)};
}

static uint64_t share_of(const struct ebb_plan_terms *terms)
{
    if (terms->budget_bytes == UINT64_MAX)
        return UINT64_MAX;
    return terms->budget_bytes > terms->beside_bytes ? terms->budget_bytes - terms->beside_bytes
                                                     : 0;
}

/* So much longer a plan may last that leaves memory for the waste of large units. Otherwise blocks
 * get pages of their own, and to map those takes longer than the plan says. */
#define CHUNKS_COST_DIVISOR 12u

/* The runtime has pages, and its traces say so. Traces of other tools have none, and the runtime's
 * limits do not apply to them. */
static bool is_of_runtime(uint64_t page_bytes)
{
    return page_bytes == EBB_PAGE_BYTES;
}

struct ebb_plan_request ebb__plan_request(const struct ebb_plan_terms *terms)
{
    return (struct ebb_plan_request){
        .model = terms->model,
        .machine = terms->machine,
        .budget_bytes = share_of(terms),
        .page_bytes = terms->page_bytes,
        .smallest_block_bytes = terms->smallest_block_bytes,
        .place_unit_bytes = terms->place_unit_bytes,
        .effort_steps = terms->effort_steps,
        .time_limit_ns = terms->time_limit_ns,
        .seed = terms->seed,
        .chance_used = terms->chance_used,
        .stop = terms->stop,
        .newest_only = is_of_runtime(terms->page_bytes),
    };
}

uint64_t ebb__plan_slack(const struct ebb_plan_terms *terms)
{
    uint64_t share = share_of(terms), most = share / ebb__tuning()->slack_most_divisor;
    uint64_t slack =
        terms->model->slack_bytes + terms->model->slack_bytes / 2 + terms->margin_bytes;
    if (share == UINT64_MAX)
        return 0;
    return slack < most ? slack : most;
}

/* The runtime evicts idle blocks without being told. Other plans are as traces say. */
static bool may_leave_idle_out(const struct ebb_plan_request *request, const struct ebb_plan *plan)
{
    return !plan->feasible && !plan->reactive && !plan->rules.passive && ebb__plan_is_plain(plan) &&
           is_of_runtime(request->page_bytes);
}

/* The plan replaces a first one, which was infeasible. */
static void note_first(struct ebb_plan *plan, uint64_t spent_ns, bool timed_out)
{
    plan->plan_ns += spent_ns;
    plan->timed_out |= timed_out;
}

enum ebb_status ebb__plan_make_for_uses(const struct ebb_policy *policy,
                                        struct ebb_plan_request *request,
                                        struct ebb_without_idle *without_idle,
                                        struct ebb_plan *plan, struct ebb_error *error)
{
    *without_idle = (struct ebb_without_idle){0};
    enum ebb_status made = ebb__plan_make(policy, request, plan, error);
    if (made != EBB_OK || !may_leave_idle_out(request, plan) ||
        ebb__without_idle_init(request->model, without_idle) != EBB_OK || !without_idle->count)
        return made;
    uint64_t spent_ns = plan->plan_ns;
    bool timed_out = plan->timed_out;
    ebb__plan_fini(plan);
    request->model = &without_idle->model;
    made = ebb__plan_make(policy, request, plan, error);
    if (made == EBB_OK)
        note_first(plan, spent_ns, timed_out);
    else
        ebb__without_idle_fini(without_idle);
    return made;
}

/* A plan for the request's budget minus `slack_bytes`, or for all of it if that is too little. */
static enum ebb_status make_plan(const struct ebb_policy *policy, struct ebb_planned *planned,
                                 uint64_t slack_bytes, struct ebb_error *error)
{
    struct ebb_plan_request *request = &planned->request;
    struct ebb_plan *plan = &planned->plan;
    if (slack_bytes == 0)
        return ebb__plan_make_for_uses(policy, request, &planned->without_idle, plan, error);
    request->budget_bytes -= slack_bytes;
    enum ebb_status made = ebb__plan_make(policy, request, plan, error);
    if (made != EBB_OK || plan->feasible)
        return made;
    uint64_t spent_ns = plan->plan_ns;
    bool timed_out = plan->timed_out;
    ebb__plan_fini(plan);
    request->budget_bytes += slack_bytes;
    made = ebb__plan_make_for_uses(policy, request, &planned->without_idle, plan, error);
    if (made == EBB_OK)
        note_first(plan, spent_ns, timed_out);
    return made;
}

/* True if whole pages of blocks are moved: huge pages cost less. */
static bool has_pages(const struct ebb_planned *planned)
{
    return planned->plan.feasible && !planned->plan.reactive && !planned->model->unordered &&
           !planned->model->varies && ebb__plan_is_plain(&planned->plan) &&
           (is_of_runtime(planned->request.page_bytes) || planned->request.place_unit_bytes);
}

/* Plans again with more huge pages, which cost less to move and to use. Blocks are huge-rounded,
 * and memory is left for the waste of the static placement's units. The result is kept if it costs
 * no time. */
static void plan_for_pages(const struct ebb_policy *policy, struct ebb_planned *planned)
{
    struct ebb_plan_request *request = &planned->request;
    struct ebb_plan *plan = &planned->plan, other;
    struct ebb_huge_rounded *huge_rounded = &planned->huge_rounded;
    struct ebb_places *places = &planned->places;
    if (!has_pages(planned) || ebb__place_blocks(request, plan, places, NULL) != EBB_OK)
        return;
    uint64_t lacking = places->lacking_bytes;
    if ((is_of_runtime(request->page_bytes) &&
         ebb__huge_round(request->model, plan, huge_rounded) != EBB_OK) ||
        (huge_rounded->count == 0 && lacking == 0))
        return;
    struct ebb_plan_request again = *request;
    if (huge_rounded->count)
        again.model = &huge_rounded->model;
    if (lacking > request->budget_bytes / ebb__tuning()->lacking_most_divisor)
        lacking = request->budget_bytes / ebb__tuning()->lacking_most_divisor;
    again.budget_bytes -= lacking;
    bool kept = false;
    if (ebb__plan_make(policy, &again, &other, NULL) == EBB_OK) {
        uint64_t spent_ns = plan->plan_ns + other.plan_ns;
        bool timed_out = plan->timed_out || other.timed_out;
        kept =
            other.feasible &&
            other.iteration_ns <=
                plan->iteration_ns + plan->iteration_ns / (request->place_unit_bytes
                                                               ? CHUNKS_COST_DIVISOR
                                                               : ebb__tuning()->pages_cost_divisor);
        ebb__plan_fini(kept ? plan : &other);
        if (kept)
            *plan = other;
        plan->plan_ns = spent_ns;
        plan->timed_out = timed_out;
    }
    if (kept) {
        ebb__places_fini(places);
        plan->searched_bytes = again.budget_bytes;
        plan->budget_bytes = request->budget_bytes;
        request->model = again.model;
    } else {
        huge_rounded->count = 0;
    }
}

enum ebb_status ebb__planned_make(const struct ebb_plan_terms *terms, struct ebb_planned *planned,
                                  struct ebb_error *error)
{
    *planned = (struct ebb_planned){.model = terms->model, .request = ebb__plan_request(terms)};
    if (is_of_runtime(terms->page_bytes))
        ebb__plan_request_share(&planned->request, 2); /* there may be two plans to choose from */
    enum ebb_status made = make_plan(terms->policy, planned, ebb__plan_slack(terms), error);
    if (made != EBB_OK)
        return made;
    plan_for_pages(terms->policy, planned);
    planned->beside_bytes = terms->budget_bytes - planned->request.budget_bytes;
    return EBB_OK;
}

enum ebb_status ebb__planned_zero_stall(const struct ebb_plan_terms *terms,
                                        struct ebb_planned *planned, struct ebb_error *error)
{
    *planned = (struct ebb_planned){.model = terms->model, .request = ebb__plan_request(terms)};
    enum ebb_status made =
        ebb__plan_zero_stall(terms->policy, &planned->request, &planned->plan, error);
    if (made == EBB_OK)
        planned->request.budget_bytes = planned->plan.budget_bytes;
    return made;
}

enum ebb_status ebb__planned_check(const struct ebb_planned *planned, struct ebb_error *error)
{
    const struct ebb_plan_request *request = &planned->request;
    const struct ebb_check_request check = {request->model, request->machine, request->budget_bytes,
                                            request->page_bytes};
    return ebb__check_plan(&check, &planned->plan, error);
}

enum ebb_status ebb__planned_script(struct ebb_planned *planned, struct ebb_script **script,
                                    struct ebb_error *error)
{
    struct ebb_places *places = &planned->places;
    enum ebb_status status = EBB_OK;
    if (!ebb__plan_is_plain(&planned->plan))
        return ebb__fail(error, EBB_ERR_UNSUPPORTED, "script", "%s is only for comparison",
                         planned->plan.policy);
    if (!places->offsets)
        status = ebb__place_blocks(&planned->request, &planned->plan, places, error);
    if (status != EBB_OK)
        return status;
    places->huge_rounded = planned->huge_rounded.count ? planned->huge_rounded.blocks : NULL;
    status = ebb__compile_script(planned->model, &planned->plan, places, script);
    if (status != EBB_OK)
        return ebb__fail(error, status, "script", "%s", ebb_status_text(status));
    return EBB_OK;
}

void ebb__planned_fini(struct ebb_planned *planned)
{
    ebb__places_fini(&planned->places);
    ebb__plan_fini(&planned->plan);
    ebb__huge_rounded_fini(&planned->huge_rounded);
    ebb__without_idle_fini(&planned->without_idle);
}
