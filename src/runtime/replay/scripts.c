/* The scripts that are known, which of them is in force, and what takes over from it. */
#include "runtime/internal.h"

#include <string.h>
#include <sys/mman.h>

bool ebb__replay_prepare(const struct ebb_runtime *runtime, struct prepared_script *prepared,
                         const struct ebb_script *script)
{
    size_t clocks = script->clock_count, absences = script->absence_count;
    size_t unordered_words = ebb__unordered_words(script);
    size_t placement_words = ebb__placement_table_words(runtime, script);
    size_t words =
        script->block_count + 3 * clocks + 4 * absences + unordered_words + placement_words;
    size_t bytes = words * sizeof(uint32_t) + clocks * sizeof(uint64_t) +
                   absences * (2 * sizeof(uint64_t) + 2 * sizeof *prepared->timers) +
                   script->block_count + 8;
    uint32_t *memory = ebb__core_memory(bytes);
    if (!memory)
        return false;
    prepared->script = script;
    prepared->tables = memory;
    prepared->table_bytes = bytes;
    prepared->in_delay_ns = (uint64_t *)memory;
    prepared->out_delay_ns = prepared->in_delay_ns + absences;
    prepared->stretch_ns = prepared->out_delay_ns + absences;
    prepared->timers = (struct timer *)(prepared->stretch_ns + clocks);
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
    memory += 4 * absences;
    ebb__unordered_prepare(prepared, unordered_words ? memory : NULL);
    if (placement_words)
        ebb__placement_prepare(prepared, memory + unordered_words);
    prepared->changes = (uint8_t *)(memory + unordered_words + placement_words);
    const struct ebb_script_absence *all = ebb__script_absences(script);
    for (uint32_t i = script->absence_count; i-- > 0;) { /* backwards: chains keep the order */
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
    return true;
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
static struct prepared_script *install(struct ebb_runtime *runtime,
                                       const struct prepared_script *prepared)
{
    runtime->replay.current = NULL;
    runtime->replay.script_sets++;
    uint32_t replaced = 0;
    while (replaced < runtime->replay.script_count &&
           !same_template(runtime->replay.scripts[replaced].script, prepared->script))
        replaced++;
    if (replaced == runtime->replay.script_count && replaced == MAX_SCRIPTS)
        replaced = 0;
    if (replaced < runtime->replay.script_count) {
        munmap(runtime->replay.scripts[replaced].tables,
               runtime->replay.scripts[replaced].table_bytes);
        memmove(&runtime->replay.scripts[replaced], &runtime->replay.scripts[replaced + 1],
                (runtime->replay.script_count - replaced - 1) * sizeof runtime->replay.scripts[0]);
        runtime->replay.script_count--;
    }
    runtime->replay.scripts[runtime->replay.script_count++] = *prepared;
    runtime->placement.clocks = prepared->script->clock_count;
    return &runtime->replay.scripts[runtime->replay.script_count - 1];
}

static void forget_awaited(struct ebb_runtime *runtime)
{
    if (runtime->replay.awaited.script)
        munmap(runtime->replay.awaited.tables, runtime->replay.awaited.table_bytes);
    runtime->replay.awaited.script = NULL;
    runtime->replay.awaited_due = false;
}

void ebb__replay_take_over(struct ebb_runtime *runtime)
{
    struct prepared_script awaited = runtime->replay.awaited;
    bool is_replaying = runtime->replay.current != NULL;
    uint32_t clocks = awaited.script->clock_count;
    runtime->replay.awaited.script = NULL;
    runtime->replay.awaited_due = false;
    struct prepared_script *installed = install(runtime, &awaited);
    if (is_replaying)
        ebb__clock_start(runtime, installed, (runtime->replay.position + clocks - 1) % clocks);
}

/* What lies at planned addresses cannot make way for what the next plan puts elsewhere: it takes over
 * from one of the same iteration where the least of that is there. */
static bool defer(struct ebb_runtime *runtime, const struct prepared_script *prepared)
{
    const struct prepared_script *current = runtime->replay.current;
    if (!current || current->unordered.passed || prepared->script->alloc_count == 0 ||
        !same_template(current->script, prepared->script))
        return false;
    runtime->replay.awaited = *prepared;
    runtime->replay.awaited_at = ebb__placement_least(current->script);
    if (runtime->placement.load_bytes == 0)
        ebb__replay_take_over(runtime);
    return true;
}

enum ebb_status ebb__runtime_set_script(struct ebb_runtime *runtime,
                                        const struct ebb_script *script, uint64_t bytes)
{
    struct prepared_script prepared = {0};
    if (!ebb__script_valid(script, bytes))
        return EBB_ERR_FORMAT;
    if (!ebb__replay_prepare(runtime, &prepared, script))
        return EBB_ERR_MEMORY;
    pthread_mutex_lock(&runtime->core.lock);
    if (runtime->replay.awaited.script && !same_template(runtime->replay.awaited.script, script))
        ebb__replay_take_over(runtime);
    forget_awaited(runtime);
    if (!defer(runtime, &prepared)) {
        struct prepared_script *installed = install(runtime, &prepared);
        if (script->alloc_count == 0) {
            ebb__clock_start(runtime, installed, script->clock_count - 1);
            ebb__access_clock_arm(runtime);
        }
    }
    pthread_mutex_unlock(&runtime->core.lock);
    return EBB_OK;
}

void ebb__runtime_forget_scripts(struct ebb_runtime *runtime)
{
    pthread_mutex_lock(&runtime->core.lock);
    if (runtime->replay.current)
        ebb__core_mark(runtime, EBB_MARK_PLAN_OFF, runtime->replay.position);
    runtime->replay.current = NULL;
    runtime->replay.script_sets++;
    forget_awaited(runtime);
    while (runtime->replay.script_count) {
        struct prepared_script *last = &runtime->replay.scripts[--runtime->replay.script_count];
        munmap(last->tables, last->table_bytes);
    }
    pthread_mutex_unlock(&runtime->core.lock);
}
