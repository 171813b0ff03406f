/* The known scripts, the one in force, and its replacement. */
#include "runtime/replay/matcher.h"

#include <string.h>
#include <sys/mman.h>

/* Attaches the absences to their positions in the script. */
static void chain_absences(struct prepared_script *prepared)
{
    const struct ebb_script *script = prepared->script;
    const struct ebb_script_absence *all = ebb__script_absences(script);
    for (uint32_t i = script->absence_count; i-- > 0;) { /* backwards, so that chains keep the
                                                            order */
        prepared->out_next[i] = prepared->out_first[all[i].out_clock];
        prepared->out_first[all[i].out_clock] = i;
        prepared->in_clock[i] = all[i].in_clock;
        prepared->in_delay_ns[i] = all[i].in_delay_ns;
        prepared->out_delay_ns[i] = all[i].out_delay_ns;
        if (all[i].in_clock == EBB_SCRIPT_NONE || all[i].due_clock == EBB_SCRIPT_NONE)
            continue;
        prepared->in_next[i] = prepared->in_first[all[i].in_clock];
        prepared->in_first[all[i].in_clock] = i;
        if (all[i].in_within)
            continue;
        prepared->due_next[i] = prepared->due_first[all[i].due_clock];
        prepared->due_first[all[i].due_clock] = i;
    }
}

bool ebb__replay_prepare(const struct replay *replay, struct prepared_script *prepared,
                         const struct ebb_script *script)
{
    size_t clocks = script->clock_count, absences = script->absence_count;
    const struct matcher *matcher = ebb__matcher_of(script);
    size_t matcher_words = matcher->words ? matcher->words(script) : 0;
    size_t placement_words = ebb__placement_table_words(replay, script);
    size_t persistent = script->persistent_count;
    size_t words = script->block_count + 3 * clocks + 4 * absences + persistent + matcher_words +
                   placement_words;
    size_t bytes = words * sizeof(uint32_t) + (clocks + persistent) * sizeof(uint64_t) +
                   absences * (2 * sizeof(uint64_t) + 2 * sizeof *prepared->timers) +
                   script->block_count + 8;
    uint32_t *memory = ebb__core_memory(bytes);
    if (!memory)
        return false;
    prepared->script = script;
    prepared->matcher = matcher;
    prepared->tables = memory;
    prepared->table_bytes = bytes;
    prepared->left.at = EBB_SCRIPT_NONE;
    prepared->in_delay_ns = (uint64_t *)memory;
    prepared->out_delay_ns = prepared->in_delay_ns + absences;
    prepared->pace.stretch_ns = prepared->out_delay_ns + absences;
    prepared->names.serials = prepared->pace.stretch_ns + clocks;
    prepared->timers = (struct timer *)(prepared->names.serials + persistent);
    memory = (uint32_t *)(prepared->timers + 2 * absences);
    prepared->live = memory;
    memory += script->block_count;
    uint32_t **heads[] = {&prepared->out_first, &prepared->in_first, &prepared->due_first};
    for (size_t i = 0; i < 3; i++) {
        *heads[i] = memory;
        memory += clocks;
        for (size_t position = 0; position < clocks; position++)
            (*heads[i])[position] = EBB_SCRIPT_NONE;
    }
    prepared->out_next = memory;
    prepared->in_next = memory + absences;
    prepared->due_next = memory + 2 * absences;
    prepared->in_clock = memory + 3 * absences;
    prepared->names.by_serial = memory + 4 * absences;
    memory = prepared->names.by_serial + persistent;
    ebb__names_prepare(&prepared->names, script);
    if (matcher->prepare)
        matcher->prepare(prepared, memory);
    if (placement_words)
        ebb__placement_prepare(prepared, memory + matcher_words);
    prepared->changes = (uint8_t *)(memory + matcher_words + placement_words);
    chain_absences(prepared);
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
    replay->current = NULL;
    replay->awaited = (struct prepared_script){0};
    replay->awaited_due = false;
    replay->script_count = 0;
}

/* The script that a new one replaces: one of the same iteration. If there are too many, it is the
 * one that was in force least recently. script_count: none. */
static uint32_t replaced_by(const struct replay *replay, const struct prepared_script *prepared)
{
    uint32_t oldest = replay->script_count;
    for (uint32_t i = 0; i < replay->script_count; i++) {
        const struct prepared_script *known = &replay->scripts[i];
        if (ebb__template_same(known->script, prepared->script))
            return i;
        if (known != replay->current &&
            (oldest == replay->script_count || known->used < replay->scripts[oldest].used))
            oldest = i;
    }
    return replay->script_count == MAX_SCRIPTS ? oldest : replay->script_count;
}

/* Adds it to the scripts. Ends the current replay, unless the new script is of another iteration:
 * it is then followed where the program leaves the current one. */
static struct prepared_script *install(struct replay *replay,
                                       const struct prepared_script *prepared)
{
    uint32_t replaced = replaced_by(replay, prepared);
    uint32_t current = replay->current ? (uint32_t)(replay->current - replay->scripts) : UINT32_MAX;
    bool goes_on = replay->current && current != replaced &&
                   replay->current->script->alloc_count != prepared->script->alloc_count;
    replay->script_sets++;
    if (replaced < replay->script_count) {
        munmap(replay->scripts[replaced].tables, replay->scripts[replaced].table_bytes);
        memmove(&replay->scripts[replaced], &replay->scripts[replaced + 1],
                (replay->script_count - replaced - 1) * sizeof replay->scripts[0]);
        replay->script_count--;
    }
    replay->current = goes_on ? &replay->scripts[current - (current > replaced)] : NULL;
    replay->scripts[replay->script_count++] = *prepared;
    replay->scripts[replay->script_count - 1].used = ++replay->script_uses;
    replay->planned_clocks = prepared->script->clock_count;
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
    struct prepared_script awaited = replay->awaited;
    bool is_replaying = replay->current != NULL;
    uint32_t clocks = awaited.script->clock_count;
    replay->awaited.script = NULL;
    replay->awaited_due = false;
    struct prepared_script *installed = install(replay, &awaited);
    if (is_replaying)
        ebb__clock_start(replay, installed, (replay->position + clocks - 1) % clocks);
}

/* Blocks at planned addresses cannot be moved for the next plan. If both plans are for the same
 * iteration, the new one takes over when the fewest bytes are at such addresses. */
static bool defer(struct replay *replay, const struct prepared_script *prepared)
{
    const struct prepared_script *current = replay->current;
    if (!current || !current->matcher->is_ordered || prepared->matcher->starts_at_once ||
        !ebb__template_same(current->script, prepared->script))
        return false;
    replay->awaited = *prepared;
    replay->awaited_at = ebb__template_least_placed(current->script);
    if (replay->addresses->placement.load_bytes == 0)
        ebb__replay_take_over(replay);
    return true;
}

enum ebb_status ebb__replay_set_script(struct replay *replay, const struct ebb_script *script,
                                       uint64_t bytes)
{
    struct prepared_script prepared = {0};
    if (!ebb__script_valid(script, bytes))
        return EBB_ERR_FORMAT;
    if (!ebb__replay_prepare(replay, &prepared, script))
        return EBB_ERR_MEMORY;
    pthread_mutex_lock(&replay->core->lock);
    if (replay->core->retired) {
        pthread_mutex_unlock(&replay->core->lock);
        munmap(prepared.tables, prepared.table_bytes);
        return EBB_OK;
    }
    if (replay->awaited.script && !ebb__template_same(replay->awaited.script, script))
        ebb__replay_take_over(replay);
    forget_awaited(replay);
    if (!defer(replay, &prepared)) {
        struct prepared_script *installed = install(replay, &prepared);
        if (installed->matcher->starts_at_once) {
            ebb__clock_start(replay, installed, script->clock_count - 1);
            ebb__replay_watch(replay);
        }
    }
    pthread_mutex_unlock(&replay->core->lock);
    return EBB_OK;
}

void ebb__replay_forget_scripts(struct replay *replay)
{
    pthread_mutex_lock(&replay->core->lock);
    if (replay->current)
        ebb__core_mark(replay->core, EBB_MARK_PLAN_OFF, replay->position);
    replay->current = NULL;
    replay->script_sets++;
    forget_awaited(replay);
    while (replay->script_count) {
        struct prepared_script *last = &replay->scripts[--replay->script_count];
        munmap(last->tables, last->table_bytes);
    }
    pthread_mutex_unlock(&replay->core->lock);
}
