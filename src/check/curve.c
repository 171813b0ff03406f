/* The resident bytes under a plan, instant by instant. */
#include "check/internal.h"

#include <inttypes.h>
#include <stdlib.h>

/* A change of the resident bytes. At one instant copies out end first, then the program's events
 * happen in order, then copies in start. During a stall the clock stands still. A copy out then
 * ends right before the event at which it was ready; a copy in starts before the use. */
enum change_class { OUT_ENDS, IN_STARTS, EVENT_HAPPENS };
#define FIRST 0
#define LAST UINT64_MAX

struct change {
    uint64_t time_ns;
    uint64_t order; /* order among equal times: FIRST, order_at() or LAST */
    int64_t bytes;
};

static uint64_t order_at(uint32_t tick, enum change_class class)
{
    return (uint64_t)tick * 4 + class;
}

static int change_compare(const void *left, const void *right)
{
    const struct change *a = left, *b = right;
    if (a->time_ns != b->time_ns)
        return a->time_ns < b->time_ns ? -1 : 1;
    return (a->order > b->order) - (a->order < b->order);
}

struct instant {
    uint64_t turn, time_ns, order;
};

/* The instant next to the event at `tick`, which may be at an iteration's very end. */
static struct instant instant_at(const struct check *check, uint64_t unrolled_ns, uint32_t tick,
                                 enum change_class class)
{
    uint64_t time_ns = check->model->time_ns[tick];
    return (struct instant){(unrolled_ns - time_ns) / check->turn_ns, time_ns,
                            order_at(tick, class)};
}

/* A block is allocated or freed. */
static void change_add(const struct check *check, uint32_t tick, int64_t bytes,
                       struct change *changes, uint32_t *count)
{
    changes[(*count)++] =
        (struct change){check->model->time_ns[tick], order_at(tick, EVENT_HAPPENS), bytes};
}

/* Lists the resident bytes just before tick 0, and every change after it. */
static int64_t changes_list(struct check *check, struct change *changes, uint32_t *count)
{
    const struct ebb_model *model = check->model;
    int64_t resident = 0;
    for (uint32_t b = 0; b < model->block_count; b++) {
        const struct life *life = &check->lives[b];
        if (life->alloc_tick == EBB_TICK_NONE) {
            resident += (int64_t)life->bytes;
            continue;
        }
        uint64_t end = life->alloc_tick + life->span_ticks;
        for (uint64_t boundary = model->tick_count; boundary <= end; boundary += model->tick_count)
            resident += (int64_t)life->bytes;
    }
    for (uint32_t i = 0; i < check->plan->absence_count; i++) {
        const struct ebb_absence *absence = &check->plan->absences[i];
        const struct span *span = &check->spans[i];
        int64_t bytes = (int64_t)ebb__check_bytes(check, absence->block);
        uint32_t ready = ebb__check_ready_tick(check, absence), to = absence->to_tick;
        struct instant out = instant_at(check, span->ready, ready, OUT_ENDS);
        if (span->out_end > span->ready) /* at an iteration's end: before the remaining events
                                            there */
            out = (struct instant){(span->out_end - 1) / check->turn_ns,
                                   (span->out_end - 1) % check->turn_ns + 1, FIRST};
        struct instant back = {span->in_start / check->turn_ns, span->in_start % check->turn_ns,
                               LAST};
        if (absence->drops) {
            back.turn = to <= ready ? 1 : 0;
            check->dropped[to] = true;
        } else if (span->in_start == span->need) {
            back = instant_at(check, span->need, to, IN_STARTS);
        }
        if (back.turn > out.turn)
            resident -= bytes * (int64_t)(back.turn - out.turn);
        changes[(*count)++] = (struct change){out.time_ns, out.order, -bytes};
        if (!absence->drops)
            changes[(*count)++] = (struct change){back.time_ns, back.order, bytes};
    }
    for (uint32_t b = 0; b < model->block_count; b++) {
        const struct life *life = &check->lives[b];
        if (life->alloc_tick == EBB_TICK_NONE)
            continue;
        change_add(check, life->alloc_tick, (int64_t)life->bytes, changes, count);
        if (!check->dropped[life->free_tick])
            change_add(check, life->free_tick, -(int64_t)life->bytes, changes, count);
    }
    return resident;
}

enum ebb_status ebb__check_curve(struct check *check)
{
    uint32_t count = 0;
    const struct ebb_plan *plan = check->plan;
    size_t room = 2 * ((size_t)check->model->block_count + plan->absence_count);
    struct change *changes = malloc((room + 1) * sizeof *changes);
    if (!changes)
        return EBB_ERR_MEMORY;
    int64_t resident = changes_list(check, changes, &count);
    qsort(changes, count, sizeof *changes, change_compare);
    enum ebb_status status = EBB_OK;
    for (uint32_t i = 0; i <= count && !status; i++) {
        uint64_t at_ns = i ? changes[i - 1].time_ns : 0;
        if (i)
            resident += changes[i - 1].bytes;
        if (resident < 0)
            status = VIOLATION(check, "more is evicted than is resident at %" PRIu64 " ns", at_ns);
        else if ((uint64_t)resident > plan->peak_bytes)
            status = VIOLATION(check,
                               "%" PRId64 " bytes resident at %" PRIu64
                               " ns, over the claimed peak of %" PRIu64,
                               resident, at_ns, plan->peak_bytes);
        else if (plan->feasible && (uint64_t)resident > check->request->budget_bytes)
            status = VIOLATION(
                check, "%" PRId64 " bytes resident at %" PRIu64 " ns, over the budget of %" PRIu64,
                resident, at_ns, check->request->budget_bytes);
    }
    free(changes);
    return status;
}
