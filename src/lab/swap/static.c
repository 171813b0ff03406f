/* Static: each blob is allocated once and kept, as Caffe does it.
 *
 * Problem: what does a program hold that never gives memory back within an iteration? Method: each
 * block has memory of its own for the whole iteration. Nothing moves. Two blocks are never in the
 * same memory, not even if one is freed before the other is allocated. A block that outlives an
 * iteration has memory for each instance that lives at once. It is the reference that Layrub's
 * savings are given for: Jin et al., ACM TACO 2018, doi 10.1145/3243904. O(ticks + gaps). */
#include "lab/swap/layers.h"
#include "lab/swap/policies.h"

enum ebb_status ebb__swap_static(const struct ebb_plan_request *request, struct ebb_plan *plan,
                                 struct ebb_error *error)
{
    const struct ebb_plan_rules rules = {.keeps_all = true};
    const struct ebb_plan_request unlimited = ebb__unlimited(request);
    struct ebb_swap swap;
    enum ebb_status status = ebb__swap_init(&swap, &unlimited, error);
    if (status)
        return status;
    status = ebb__unlimited_finish(&swap, request->budget_bytes, &rules, plan, error);
    ebb__swap_fini(&swap);
    return status;
}

enum ebb_status ebb__swap_static_zero_stall(const struct ebb_plan_request *request,
                                            struct ebb_plan *plan, struct ebb_error *error)
{
    return ebb__unlimited_zero_stall(ebb__swap_static, request, plan, error);
}
