#include "lab/pool/instants.h"

#include <stdlib.h>

/* The sort key of an instant. Copies between the ticks `slot` - 1 and `slot` are sorted by their
 * time since the former tick. At equal times, ends of copies out are first. */
struct entry {
    uint32_t slot;
    bool tick;
    uint64_t since_ns;
    struct ebb_pool_instant instant;
};

static int entry_compare(const void *left, const void *right)
{
    const struct entry *a = left, *b = right;
    if (a->slot != b->slot)
        return a->slot < b->slot ? -1 : 1;
    if (a->tick != b->tick)
        return a->tick ? 1 : -1;
    if (a->since_ns != b->since_ns)
        return a->since_ns < b->since_ns ? -1 : 1;
    if (a->instant.kind != b->instant.kind)
        return a->instant.kind < b->instant.kind ? -1 : 1;
    return (a->instant.index > b->instant.index) - (a->instant.index < b->instant.index);
}

/* Time of an unrolled tick: ticks and times continue to count after the iteration's end. */
static uint64_t time_of(const struct ebb_model *model, uint64_t tick)
{
    return model->time_ns[tick % model->tick_count] +
           tick / model->tick_count * ebb__model_iteration_ns(model);
}

/* Shifts `time_ns` by whole iterations, to the first such time at or after `after_ns`. */
static uint64_t unroll(const struct ebb_model *model, uint64_t time_ns, uint64_t after_ns)
{
    uint64_t turn = ebb__model_iteration_ns(model);
    if (time_ns < after_ns)
        time_ns += (after_ns - time_ns + turn - 1) / turn * turn;
    else if (time_ns >= after_ns + turn)
        time_ns -= (time_ns - after_ns) / turn * turn;
    return time_ns;
}

/* The first tick in [low, high] at or after `time_ns`; `high` if there is none. If `after`, ticks
 * at `time_ns` itself are excluded. */
static uint64_t slot_of(const struct ebb_model *model, uint64_t low, uint64_t high,
                        uint64_t time_ns, bool after)
{
    while (low < high) {
        uint64_t middle = low + (high - low) / 2, at_ns = time_of(model, middle);
        if (at_ns < time_ns || (after && at_ns == time_ns))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct entry entry_of(const struct ebb_model *model, uint64_t slot, uint64_t time_ns,
                             enum ebb_pool_instant_kind kind, uint32_t index)
{
    uint64_t before_ns = time_of(model, slot - 1);
    return (struct entry){.slot = (uint32_t)(slot % model->tick_count),
                          .since_ns = time_ns > before_ns ? time_ns - before_ns : 0,
                          .instant = {kind, index}};
}

/* Of several ticks at one time, a copy out ends before the first and a copy in starts after the
 * last, within the absence. At the tick that starts the eviction, the program may have waited for
 * the copy before it continued. */
static uint32_t absence_enter(const struct ebb_pool_source *source, uint32_t index,
                              struct entry *entries)
{
    const struct ebb_model *model = source->model;
    const struct ebb_absence *absence = &source->absences[index];
    uint64_t ticks = model->tick_count, from = absence->from_tick;
    uint64_t to = from + (absence->to_tick + ticks - from - 1) % ticks + 1;
    uint64_t ready = from + absence->margin_ticks;
    uint32_t clock = ebb__model_clock_after(model, (uint32_t)(ready % ticks));
    ready += clock == EBB_TICK_NONE ? 1 : (clock + ticks - ready % ticks - 1) % ticks + 1;
    uint64_t start_ns = unroll(model, absence->out_start_ns, time_of(model, ready));
    uint64_t left_ns = unroll(model, absence->out_end_ns, start_ns);
    uint64_t left = slot_of(model, ready < to ? ready : to, to, left_ns, false);
    entries[0] = entry_of(model, left, left_ns, EBB_POOL_EVICTED, index);
    if (absence->drops)
        return 1;
    uint64_t comes_ns = unroll(model, absence->in_start_ns, left_ns);
    uint64_t comes = slot_of(model, left, to, comes_ns, true);
    entries[1] = entry_of(model, comes, comes_ns, EBB_POOL_FETCH, index);
    return 2;
}

static void positions_set(struct ebb_pool_instants *instants, const struct entry *entries)
{
    for (uint32_t i = 0; i < instants->count; i++) {
        const struct ebb_pool_instant *instant = &entries[i].instant;
        uint32_t *positions[] = {instants->ticks, instants->left, instants->comes};
        positions[instant->kind][instant->index] = i;
        instants->order[i] = *instant;
    }
}

enum ebb_status ebb__pool_instants_init(struct ebb_pool_instants *instants,
                                        const struct ebb_pool_source *source,
                                        struct ebb_error *error)
{
    uint32_t ticks = source->model->tick_count, absences = source->absence_count;
    size_t most = ticks + 2 * (size_t)absences;
    struct entry *entries = malloc(most * sizeof *entries);
    *instants = (struct ebb_pool_instants){.order = malloc(most * sizeof *instants->order),
                                           .ticks = malloc(ticks * sizeof *instants->ticks),
                                           .left = malloc((absences + 1u) * sizeof(uint32_t)),
                                           .comes = calloc(absences + 1u, sizeof(uint32_t))};
    if (!entries || !instants->order || !instants->ticks || !instants->left || !instants->comes) {
        free(entries);
        ebb__pool_instants_fini(instants);
        return ebb__fail(error, EBB_ERR_MEMORY, "model", "too many events to pack");
    }
    for (uint32_t tick = 0; tick < ticks; tick++)
        entries[instants->count++] =
            (struct entry){.slot = tick, .tick = true, .instant = {EBB_POOL_TICK, tick}};
    for (uint32_t i = 0; i < absences; i++)
        instants->count += absence_enter(source, i, &entries[instants->count]);
    qsort(entries, instants->count, sizeof *entries, entry_compare);
    positions_set(instants, entries);
    free(entries);
    return EBB_OK;
}

void ebb__pool_instants_fini(struct ebb_pool_instants *instants)
{
    free(instants->order);
    free(instants->ticks);
    free(instants->left);
    free(instants->comes);
    *instants = (struct ebb_pool_instants){0};
}
