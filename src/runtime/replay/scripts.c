/* The scripts that are known, which of them is in force, and what takes over from it. */
#include "runtime/replay/replay.h"

#include <string.h>
#include <sys/mman.h>

bool ebb__replay_prepare(const struct replay *replay, struct performance *performance,
                         const struct ebb_script *script)
{
    size_t clocks = script->clock_count, absences = script->absence_count;
    size_t woven_words = ebb__woven_words(script);
    size_t placed_words = ebb__placed_table_words(replay, script);
    size_t words = script->block_count + 3 * clocks + 4 * absences + woven_words + placed_words;
    size_t bytes = words * sizeof(uint32_t) + clocks * sizeof(uint64_t) +
                   absences * (2 * sizeof(uint64_t) + 2 * sizeof *performance->timers) +
                   script->block_count + 8;
    uint32_t *memory = ebb__core_memory(bytes);
    if (!memory)
        return false;
    performance->script = script;
    performance->tables = memory;
    performance->table_bytes = bytes;
    performance->in_delay_ns = (uint64_t *)memory;
    performance->out_delay_ns = performance->in_delay_ns + absences;
    performance->stretch_ns = performance->out_delay_ns + absences;
    performance->timers = (struct timer *)(performance->stretch_ns + clocks);
    memory = (uint32_t *)(performance->timers + 2 * absences);
    performance->live = memory;
    memory += script->block_count;
    uint32_t **heads[] = {&performance->out_first, &performance->in_first, &performance->due_first};
    for (size_t i = 0; i < 3; i++) {
        *heads[i] = memory;
        memory += clocks;
        for (size_t position = 0; position < clocks; position++)
            (*heads[i])[position] = EBB_SCRIPT_NONE;
    }
    performance->out_next = memory;
    performance->in_next = memory + absences;
    performance->due_next = memory + 2 * absences;
    performance->in_clock = memory + 3 * absences;
    memory += 4 * absences;
    ebb__woven_prepare(performance, woven_words ? memory : NULL);
    if (placed_words)
        ebb__placed_prepare(performance, memory + woven_words);
    performance->changes = (uint8_t *)(memory + woven_words + placed_words);
    const struct ebb_script_absence *all = ebb__script_absences(script);
    for (uint32_t i = script->absence_count; i-- > 0;) { /* backwards: chains keep the order */
        performance->out_next[i] = performance->out_first[all[i].out_clock];
        performance->out_first[all[i].out_clock] = i;
        performance->in_clock[i] = all[i].in_clock;
        performance->in_delay_ns[i] = all[i].in_delay_ns;
        performance->out_delay_ns[i] = all[i].out_delay_ns;
        if (all[i].in_clock == EBB_SCRIPT_NONE || all[i].due_clock == EBB_SCRIPT_NONE)
            continue;
        performance->in_next[i] = performance->in_first[all[i].in_clock];
        performance->in_first[all[i].in_clock] = i;
        if (all[i].in_within)
            continue;
        performance->due_next[i] = performance->due_first[all[i].due_clock];
        performance->due_first[all[i].due_clock] = i;
    }
    return true;
}

bool ebb__replay_init(struct replay *replay, struct transfer *transfer)
{
    replay->core = transfer->core;
    replay->table = transfer->table;
    replay->addresses = transfer->addresses;
    replay->transfer = transfer;
    replay->history = ebb__core_memory(HISTORY * sizeof *replay->history);
    return replay->history != NULL;
}

void ebb__replay_fini(struct replay *replay)
{
    ebb__core_unmap(replay->history, HISTORY * sizeof *replay->history);
}

void ebb__replay_forked(struct replay *replay)
{
    replay->playing = NULL;
    replay->awaited = (struct performance){0};
    replay->awaited_due = false;
    replay->script_count = 0;
}

/* Are these plans for the same iteration? */
static bool same_template(const struct ebb_script *a, const struct ebb_script *b)
{
    if (a->clock_count != b->clock_count || a->alloc_count != b->alloc_count)
        return false;
    const struct ebb_script_event *left = ebb__script_events(a), *right = ebb__script_events(b);
    for (uint32_t i = 0; i < a->clock_count; i++)
        if (left[i].kind != right[i].kind || left[i].size_bytes != right[i].size_bytes)
            return false;
    return true;
}

/* Put it among the scripts, where it replaces one of the same iteration, or the oldest once there are too
 * many; what plays stops. */
static struct performance *install(struct replay *replay, const struct performance *performance)
{
    replay->playing = NULL;
    replay->script_sets++;
    uint32_t replaced = 0;
    while (replaced < replay->script_count &&
           !same_template(replay->scripts[replaced].script, performance->script))
        replaced++;
    if (replaced == replay->script_count && replaced == MAX_SCRIPTS)
        replaced = 0;
    if (replaced < replay->script_count) {
        munmap(replay->scripts[replaced].tables, replay->scripts[replaced].table_bytes);
        memmove(&replay->scripts[replaced], &replay->scripts[replaced + 1],
                (replay->script_count - replaced - 1) * sizeof replay->scripts[0]);
        replay->script_count--;
    }
    replay->scripts[replay->script_count++] = *performance;
    replay->planned_clocks = performance->script->clock_count;
    return &replay->scripts[replay->script_count - 1];
}

static void forget_awaited(struct replay *replay)
{
    if (replay->awaited.script)
        munmap(replay->awaited.tables, replay->awaited.table_bytes);
    replay->awaited.script = NULL;
    replay->awaited_due = false;
}

void ebb__replay_take_over(struct replay *replay)
{
    struct performance awaited = replay->awaited;
    bool plays = replay->playing != NULL;
    uint32_t clocks = awaited.script->clock_count;
    replay->awaited.script = NULL;
    replay->awaited_due = false;
    struct performance *installed = install(replay, &awaited);
    if (plays)
        ebb__clock_start(replay, installed, (replay->position + clocks - 1) % clocks);
}

/* What lies at planned addresses cannot make way for what the next plan puts elsewhere: it takes over
 * from one of the same iteration where the least of that is there. */
static bool defer(struct replay *replay, const struct performance *performance)
{
    const struct performance *playing = replay->playing;
    if (!playing || playing->woven.passed || performance->script->alloc_count == 0 ||
        !same_template(playing->script, performance->script))
        return false;
    replay->awaited = *performance;
    replay->awaited_at = ebb__placed_least(playing->script);
    if (replay->addresses->pool.load_bytes == 0)
        ebb__replay_take_over(replay);
    return true;
}

enum ebb_status ebb__replay_set_script(struct replay *replay, const struct ebb_script *script,
                                       uint64_t bytes)
{
    struct performance performance = {0};
    if (!ebb__script_valid(script, bytes))
        return EBB_ERR_FORMAT;
    if (!ebb__replay_prepare(replay, &performance, script))
        return EBB_ERR_MEMORY;
    pthread_mutex_lock(&replay->core->lock);
    if (replay->awaited.script && !same_template(replay->awaited.script, script))
        ebb__replay_take_over(replay);
    forget_awaited(replay);
    if (!defer(replay, &performance)) {
        struct performance *installed = install(replay, &performance);
        if (script->alloc_count == 0) {
            ebb__clock_start(replay, installed, script->clock_count - 1);
            ebb__guards_arm(replay);
        }
    }
    pthread_mutex_unlock(&replay->core->lock);
    return EBB_OK;
}

void ebb__replay_forget_scripts(struct replay *replay)
{
    pthread_mutex_lock(&replay->core->lock);
    if (replay->playing)
        ebb__core_mark(replay->core, EBB_MARK_PLAN_OFF, replay->position);
    replay->playing = NULL;
    replay->script_sets++;
    forget_awaited(replay);
    while (replay->script_count) {
        struct performance *last = &replay->scripts[--replay->script_count];
        munmap(last->tables, last->table_bytes);
    }
    pthread_mutex_unlock(&replay->core->lock);
}
