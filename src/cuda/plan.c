/* The plan: what is due at a place of the launch order, and what the parent says. */
#include "cuda/internal.h"

/* Field by field: it is copied at once, and a copy of bytes that were just written one by one
 * stalls. */
void ebb__cuda_event(struct ebb_event *event, const struct cuda_block *block, uint8_t kind,
                     uint8_t access)
{
    bool is_access = kind == EBB_EVENT_ACCESS;
    event->time_ns = 0;
    event->block = block->serial;
    event->size_bytes = is_access ? 0 : block->bytes;
    event->kind = kind;
    event->access = access <= EBB_ACCESS_WRITE ? access : EBB_ACCESS_WRITE;
    event->mark = 0;
    event->flags = is_access ? EBB_EVENT_ANNOUNCED : 0;
    event->thread = 0;
}

static void mark(struct ebb_cuda *engine, enum ebb_mark mark, uint64_t value)
{
    struct ebb_event event = {.size_bytes = value, .kind = EBB_EVENT_MARK, .mark = (uint8_t)mark};
    ebb__clock_event(engine->clock, &event);
}

void ebb__cuda_mark(struct ebb_cuda *engine, enum ebb_mark kind, uint64_t value)
{
    if (!ebb__cuda_lock(engine))
        return;
    mark(engine, kind, value);
    ebb__cuda_unlock(engine);
}

/* ---- observing ------------------------------------------------------------------------------- */

static void update_observing(struct ebb_cuda *engine)
{
    struct cuda_plan *plan = &engine->plan;
    bool on = plan->observe == EBB_OBSERVE_ALWAYS || plan->observe == EBB_OBSERVE_EXACTLY ||
              (plan->observe == EBB_OBSERVE_DEPARTURES && plan->has_script && !plan->was_planned);
    if (on == plan->is_observing)
        return;
    plan->is_observing = on;
    ebb__clock_observe(engine->clock, on);
    mark(engine, on ? EBB_MARK_TRACE_ON : EBB_MARK_TRACE_OFF, 0);
}

void ebb__cuda_note_plan(struct ebb_cuda *engine)
{
    struct cuda_plan *plan = &engine->plan;
    bool is_planned = ebb__follow_is_planned(engine->follow);
    if (!is_planned && !plan->was_planned)
        return;
    struct ebb_counters *counters = &engine->config.ring->counters;
    struct cuda_follow_counts counts = ebb__follow_counts(engine->follow);
    if (is_planned != plan->was_planned) {
        plan->was_planned = is_planned;
        mark(engine, is_planned ? EBB_MARK_PLAN_ON : EBB_MARK_PLAN_OFF, 0);
        update_observing(engine);
    }
    if (counts.laps != plan->laps)
        mark(engine, EBB_MARK_LAP, counts.laps);
    plan->laps = counts.laps;
    atomic_store_explicit(&counters->mismatches, counts.mismatches, memory_order_relaxed);
    atomic_store_explicit(&counters->resyncs, counts.resyncs, memory_order_relaxed);
}

/* ---- what is due ----------------------------------------------------------------------------- */

static void prefetch(struct ebb_cuda *engine, const struct cuda_action *action)
{
    struct cuda_room *room = &engine->room;
    struct cuda_block *entry = &engine->table.blocks[action->block];
    entry->evict_due = 0;
    if (entry->state != CUDA_BLOCK_ABSENT || entry->stays_absent || engine->config.record)
        return;
    /* Only what the plan evicts makes room for a prefetch. Otherwise its use fetches it. */
    uint64_t wanted = (engine->pool.backed_units + entry->unit_count) * EBB_CUDA_UNIT_BYTES;
    uint64_t cached =
        (engine->pool.cached_units + engine->pool.area_cached_units) * EBB_CUDA_UNIT_BYTES;
    if (wanted <= cached + ebb__room_limit(room) && ebb__room_make(room, entry->unit_count))
        ebb__room_fetch(room, action->block);
}

static void evict(struct ebb_cuda *engine, uint32_t block)
{
    struct cuda_block *entry = &engine->table.blocks[block];
    if (entry->state != CUDA_BLOCK_RESIDENT)
        return;
    if (entry->holds)
        entry->evict_due = 1;
    else
        ebb__room_evict(&engine->room, block);
}

void ebb__cuda_let_go(struct ebb_cuda *engine, uint32_t block)
{
    engine->table.blocks[block].evict_due = 0;
    ebb__room_evict(&engine->room, block);
}

void ebb__cuda_step(struct ebb_cuda *engine, uint8_t kind, uint32_t block)
{
    const struct cuda_block *entry = &engine->table.blocks[block];
    struct cuda_event event = {
        .kind = kind, .block = block, .serial = entry->serial, .bytes = entry->bytes};
    const struct cuda_action *actions = NULL;
    size_t count = ebb__follow_step(engine->follow, &event, &actions);
    for (size_t i = 0; i < count; i++) {
        if (actions[i].block == CUDA_NO_BLOCK || actions[i].block >= engine->table.used)
            continue;
        if (actions[i].kind == CUDA_ACTION_EVICT)
            evict(engine, actions[i].block);
        else
            prefetch(engine, &actions[i]);
    }
}

/* ---- the parent's messages ------------------------------------------------------------------- */

enum ebb_status ebb__cuda_set_script(struct ebb_cuda *engine, const struct ebb_script *script,
                                     uint64_t bytes)
{
    if (!ebb__cuda_lock(engine))
        return EBB_ERR_UNSUPPORTED;
    enum ebb_status status = ebb__follow_set_script(engine->follow, script, bytes);
    engine->plan.has_script |= status == EBB_OK;
    update_observing(engine);
    ebb__cuda_unlock(engine);
    return status;
}

void ebb__cuda_forget_scripts(struct ebb_cuda *engine)
{
    if (!ebb__cuda_lock(engine))
        return;
    ebb__follow_forget(engine->follow);
    engine->plan.has_script = false;
    ebb__cuda_note_plan(engine);
    update_observing(engine);
    ebb__cuda_unlock(engine);
}

void ebb__cuda_rename(struct ebb_cuda *engine, const struct ebb_renaming *renamings, size_t count)
{
    if (!ebb__cuda_lock(engine))
        return;
    ebb__follow_rename(engine->follow, renamings, count);
    ebb__cuda_unlock(engine);
}

void ebb__cuda_set_trace(struct ebb_cuda *engine, enum ebb_observe observe, uint64_t allocations)
{
    (void)allocations; /* a departure is observed until a script is followed again */
    if (!ebb__cuda_lock(engine))
        return;
    engine->plan.observe = observe;
    update_observing(engine);
    ebb__cuda_unlock(engine);
}

void ebb__cuda_trim(struct ebb_cuda *engine)
{
    if (!ebb__cuda_lock(engine))
        return;
    ebb__room_make(&engine->room, 0);
    ebb__cuda_unlock(engine);
}

void ebb__cuda_shrink(struct ebb_cuda *engine, uint64_t bytes)
{
    if (!ebb__cuda_lock(engine))
        return;
    ebb__room_shrink(&engine->room, bytes);
    ebb__cuda_unlock(engine);
}
