#include "plan/place/resident.h"

#include "base/geometry.h"

#include <stdlib.h>
#include <string.h>

enum change_class { OUT_ENDS, EVENT_HAPPENS, IN_STARTS };

/* At one instant copies out end first, then events happen in order, then copies in start. But a
 * copy follows the event that permits it, and precedes the one that needs it: while the program
 * waits, time stands still. Changes of different classes never have the same moment. */
struct moment {
    uint64_t ns;
    uint64_t order;
};

struct ebb__resident_change {
    struct moment moment;
    uint32_t class;
    uint32_t item; /* tick or block */
};

static bool is_before(struct moment a, struct moment b)
{
    return a.ns < b.ns || (a.ns == b.ns && a.order < b.order);
}

static struct moment event_at(const struct ebb_model *model, uint32_t tick)
{
    return (struct moment){model->time_ns[tick], 4 * (uint64_t)tick + 2};
}

static struct moment out_ends(const struct ebb_model *model, const struct ebb_absence *absence)
{
    struct moment from = event_at(model, absence->from_tick);
    bool at_once = from.ns == absence->out_end_ns;
    return (struct moment){absence->out_end_ns, at_once ? from.order + 1 : 0};
}

static struct moment in_starts(const struct ebb_model *model, const struct ebb_absence *absence)
{
    struct moment to = event_at(model, absence->to_tick);
    if (absence->drops)
        return to;
    bool at_last = to.ns == absence->in_start_ns;
    return (struct moment){absence->in_start_ns, at_last ? to.order - 1 : UINT64_MAX};
}

static int by_time(const void *left, const void *right)
{
    const struct ebb__resident_change *a = left, *b = right;
    if (is_before(a->moment, b->moment))
        return -1;
    if (is_before(b->moment, a->moment))
        return 1;
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
    uint64_t unit_bytes = ebb__plan_place_unit(resident->request);
    for (uint64_t unit = at / unit_bytes; unit * unit_bytes < end; unit++) {
        if (born && resident->users[unit]++ == 0)
            resident->bytes += unit_bytes;
        else if (!born && --resident->users[unit] == 0)
            resident->bytes -= unit_bytes;
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
        if (is_before(in_starts(model, absence), out_ends(model, absence)))
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
                (struct ebb__resident_change){event_at(model, tick), EVENT_HAPPENS, tick};
    for (uint32_t i = 0; i < plan->absence_count; i++) {
        const struct ebb_absence *absence = &plan->absences[i];
        changes[count++] =
            (struct ebb__resident_change){out_ends(model, absence), OUT_ENDS, absence->block};
        if (absence->drops)
            resident->dropped[absence->block] = true;
        else
            changes[count++] =
                (struct ebb__resident_change){in_starts(model, absence), IN_STARTS, absence->block};
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
