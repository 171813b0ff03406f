/* The effort of a search: the requested steps, else the steps that the time limit usually suffices
 * for, else the value of the tuning table. */
#include "base/tuning.h"
#include "plan/plan.h"

struct ebb_effort ebb__plan_effort(const struct ebb_plan_request *request)
{
    const struct ebb_tuning *tuning = ebb__tuning();
    uint64_t box_ns = request->time_limit_ns ? request->time_limit_ns : tuning->plan_box_ns;
    uint64_t steps = request->effort_steps;
    if (!steps && request->time_limit_ns)
        steps = (uint64_t)((double)box_ns / 1e9 * (double)tuning->plan_steps_a_second);
    struct ebb_effort effort = ebb__effort(steps ? steps : tuning->plan_steps, box_ns);
    effort.stop = request->stop;
    return effort;
}
