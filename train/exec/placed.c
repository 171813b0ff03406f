/* Follows a schedule in memory of somebody else, who says where each storage is. */
#include "train/exec/exec.h"

enum ebb_status ebb__run_placed(struct ebb_run *run, struct ebb_error *error)
{
    const struct ebb_schedule *schedule = run->schedule;
    const struct ebb_exec_places *places = run->exec->places;
    for (uint32_t number = 0; number < schedule->steps.count; number++) {
        const struct ebb_step *step = &schedule->steps.items[number];
        void *addresses[EBB_STEP_USES_MOST];
        if (step->is_left_out)
            continue;
        enum ebb_status status = places->before(places->self, number, error);
        if (status)
            return status;
        for (uint32_t h = 0; h < step->hold_count; h++) {
            uint32_t slot = schedule->holds.items[step->first_hold + h].slot;
            addresses[h] = places->at(places->self, schedule->slots.items[slot].storage);
        }
        status = ebb__step_compute(run, step, addresses, error);
        if (status)
            return status;
        places->after(places->self, number);
    }
    return EBB_OK;
}
