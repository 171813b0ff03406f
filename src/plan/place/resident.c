#include "plan/place/resident.h"

#include "base/geometry.h"

#include <stdlib.h>
#include <string.h>

/* At one instant copies out end first, then events happen in order, then copies in start. */
enum change_class { OUT_ENDS, EVENT_HAPPENS, IN_STARTS };

struct ebb__resident_change {
    uint64_t ns;
    uint32_t class;
    uint32_t item; /* tick or block */
};

static int by_time(const void *left, const void *right)
{
    const struct ebb__resident_change *a = left, *b = right;
    if (a->ns != b->ns)
        return a->ns < b->ns ? -1 : 1;
    if (a->class != b->class)
        return a->class < b->class ? -1 : 1;
    return a->item < b->item ? -1 : a->item > b->item;
}

static uint64_t bytes_of(const struct ebb__resident *resident, uint32_t block)
{
    return ebb__plan_block_bytes(resident->request, &resident->request->model->blocks[block]);
}

static void placed_change(struct ebb__resident *resident, uint32_t block, bool born)
{
    uint64_t at = resident->offsets[block], end = at + bytes_of(resident, block);
    resident->live[block] = born;
    for (uint64_t unit = at / EBB_HUGE_BYTES; unit * EBB_HUGE_BYTES < end; unit++) {
        if (born && resident->users[unit]++ == 0)
            resident->bytes += EBB_HUGE_BYTES;
        else if (!born && --resident->users[unit] == 0)
            resident->bytes -= EBB_HUGE_BYTES;
    }
}

static void block_change(struct ebb__resident *resident, uint32_t block, bool born)
{
    if (resident->offsets[block] != EBB_PLACE_NONE)
        placed_change(resident, block, born);
    else if (born)
        resident->bytes += bytes_of(resident, block);
    else
        resident->bytes -= bytes_of(resident, block);
}

/* Sets the state just before the iteration's first event. The sum may wrap below zero; it is
 * correct at the end. */
static void begin(struct ebb__resident *resident)
{
    const struct ebb_model *model = resident->request->model;
    const struct ebb_plan *plan = resident->plan;
    resident->bytes = 0;
    memset(resident->users, 0, resident->unit_count * sizeof *resident->users);
    memset(resident->live, 0, model->block_count * sizeof *resident->live);
    for (uint32_t b = 0; b < model->block_count; b++) {
        const struct ebb_model_block *block = &model->blocks[b];
        uint64_t instances =
            block->alloc_tick == EBB_TICK_NONE
                ? 1
                : ((uint64_t)block->alloc_tick + block->span_ticks) / model->tick_count;
        while (instances-- > 0)
            block_change(resident, b, true);
    }
    for (uint32_t i = 0; i < plan->absence_count; i++) {
        const struct ebb_absence *absence = &plan->absences[i];
        uint64_t back_ns = absence->drops ? model->time_ns[absence->to_tick] : absence->in_start_ns;
        if (back_ns < absence->out_end_ns)
            block_change(resident, absence->block, false);
    }
}

static void apply(struct ebb__resident *resident, const struct ebb__resident_change *change)
{
    const struct ebb_model *model = resident->request->model;
    bool event = change->class == EVENT_HAPPENS;
    uint32_t block = event ? model->events[change->item].block : change->item;
    bool born =
        event ? model->events[change->item].kind == EBB_EVENT_ALLOC : change->class == IN_STARTS;
    if (born || !event || !resident->dropped[block])
        block_change(resident, block, born);
}

static void collect_changes(struct ebb__resident *resident)
{
    const struct ebb_model *model = resident->request->model;
    const struct ebb_plan *plan = resident->plan;
    struct ebb__resident_change *changes = resident->changes;
    uint32_t count = 0;
    for (uint32_t tick = 0; tick < model->tick_count; tick++)
        if (model->events[tick].kind == EBB_EVENT_ALLOC ||
            model->events[tick].kind == EBB_EVENT_FREE)
            changes[count++] =
                (struct ebb__resident_change){model->time_ns[tick], EVENT_HAPPENS, tick};
    for (uint32_t i = 0; i < plan->absence_count; i++) {
        const struct ebb_absence *absence = &plan->absences[i];
        changes[count++] =
            (struct ebb__resident_change){absence->out_end_ns, OUT_ENDS, absence->block};
        if (absence->drops)
            resident->dropped[absence->block] = true;
        else
            changes[count++] =
                (struct ebb__resident_change){absence->in_start_ns, IN_STARTS, absence->block};
    }
    qsort(changes, count, sizeof *changes, by_time);
    resident->change_count = count;
}

enum ebb_status ebb__resident_init(struct ebb__resident *resident,
                                   const struct ebb_plan_request *request,
                                   const struct ebb_plan *plan, const uint64_t *offsets,
                                   uint32_t unit_count)
{
    size_t changes = request->model->tick_count + 2 * (size_t)plan->absence_count + 1;
    size_t blocks = request->model->block_count + (size_t)1;
    *resident = (struct ebb__resident){
        .request = request, .plan = plan, .offsets = offsets, .unit_count = unit_count};
    resident->changes = calloc(changes, sizeof *resident->changes);
    resident->users = calloc(unit_count + (size_t)1, sizeof *resident->users);
    resident->live = calloc(blocks, sizeof *resident->live);
    resident->dropped = calloc(blocks, sizeof *resident->dropped);
    if (!resident->changes || !resident->users || !resident->live || !resident->dropped) {
        ebb__resident_fini(resident);
        return EBB_ERR_MEMORY;
    }
    collect_changes(resident);
    return EBB_OK;
}

void ebb__resident_fini(struct ebb__resident *resident)
{
    free(resident->changes);
    free(resident->users);
    free(resident->live);
    free(resident->dropped);
    *resident = (struct ebb__resident){0};
}

uint64_t ebb__resident_peak(struct ebb__resident *resident, uint32_t *when)
{
    begin(resident);
    uint64_t peak = resident->bytes;
    uint32_t there = 0;
    for (uint32_t i = 0; i < resident->change_count; i++) {
        apply(resident, &resident->changes[i]);
        if (resident->bytes > peak) {
            peak = resident->bytes;
            there = i + 1;
        }
    }
    if (when)
        *when = there;
    return peak;
}

void ebb__resident_go_to(struct ebb__resident *resident, uint32_t when)
{
    begin(resident);
    for (uint32_t i = 0; i < when; i++)
        apply(resident, &resident->changes[i]);
}
