/* The clock: where in the template the program is, and what hangs on that position.
 *
 * The live stream of managed ALLOC and FREE events is matched to the template of the script.
 * Allocation sizes identify the position. Frees are hints: one that comes early or late is taken
 * as it comes. An allocation that is not the expected one ends the match at once; the runtime is
 * then reactive and looks for the last allocations anywhere in any script it knows, so that an
 * evaluation, a checkpoint or a partial batch costs one stretch of reactive running and no more.
 * Where threads interleave no allocation is the expected one: woven.c. */
#include "runtime/internal.h"

/* So many allocations in a row must agree before a position counts as found. */
#define SYNC_ALLOCATIONS 12u
/* While accesses are observed an operation without an event in it goes on for so much longer with each
 * fault that it has seen: a fault costs 15 to 55 us, so that watching takes a tenth of the time at most. */
#define PAUSE_A_FAULT_NS ((uint64_t)300000)

/* Within a shorter stretch no time is worth correcting, within a longer one it is off by so much at
 * least. Arbitrary. */
#define LONG_STRETCH_NS ((uint64_t)20000000)
#define LEAST_DRIFT_NS ((uint64_t)5000000)
/* Uses that are less apart count as one. Arbitrary, as that. */
#define FINE_US 4095u

static const struct ebb_script_event *event_at(const struct performance *playing, uint32_t position)
{
    return &ebb__script_events(playing->script)[position];
}

bool ebb__clock_prepare(const struct ebb_runtime *runtime, struct performance *performance,
                        const struct ebb_script *script)
{
    size_t clocks = script->clock_count, absences = script->absence_count;
    size_t woven_words = ebb__woven_words(script);
    size_t placed_words = ebb__placed_table_words(runtime, script);
    size_t words = script->block_count + 3 * clocks + 4 * absences + woven_words + placed_words;
    size_t bytes = words * sizeof(uint32_t) + clocks * sizeof(uint64_t) +
                   absences * (2 * sizeof(uint64_t) + 2 * sizeof *performance->timers) +
                   script->block_count + 8;
    uint32_t *memory = ebb__runtime_memory(bytes);
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

/* How far off the time within the stretch behind `position` may be. */
static uint64_t drift_ns(const struct performance *playing, uint32_t position)
{
    uint64_t shift_ns = ebb__timers_most_shift_ns(playing, position);
    return shift_ns > LEAST_DRIFT_NS ? shift_ns : LEAST_DRIFT_NS;
}

uint32_t ebb__clock_first_alloc(const struct ebb_script *script, uint64_t size_bytes)
{
    const struct ebb_script_event *events = ebb__script_events(script);
    const uint32_t *allocs = ebb__script_allocs(script); /* by size, then by position */
    uint32_t low = 0, high = script->alloc_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (events[allocs[middle]].size_bytes < size_bytes)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

uint32_t ebb__clock_next_alloc(const struct ebb_runtime *runtime, uint64_t size_bytes)
{
    const struct ebb_script *script = runtime->replay.playing->script;
    const struct ebb_script_event *events = ebb__script_events(script);
    const uint32_t *allocs = ebb__script_allocs(script);
    uint32_t first_of_size = ebb__clock_first_alloc(script, size_bytes);
    uint32_t low = first_of_size, high = script->alloc_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        const struct ebb_script_event *event = &events[allocs[middle]];
        if (event->size_bytes == size_bytes && allocs[middle] < runtime->replay.position)
            low = middle + 1;
        else
            high = middle;
    }
    if (low < script->alloc_count && events[allocs[low]].size_bytes == size_bytes)
        return allocs[low] - runtime->replay.position;
    if (first_of_size < script->alloc_count &&
        events[allocs[first_of_size]].size_bytes == size_bytes)
        return allocs[first_of_size] + script->clock_count - runtime->replay.position;
    return UINT32_MAX;
}

uint64_t ebb__clock_distance(const struct ebb_runtime *runtime, const struct block *block,
                             bool *done)
{
    const struct performance *playing = runtime->replay.playing;
    const struct ebb_script *script = playing->script;
    *done = false;
    if (block->script_block == EBB_SCRIPT_NONE)
        return UINT64_MAX;
    const struct ebb_script_block *known = &ebb__script_blocks(script)[block->script_block];
    const struct ebb_script_use *uses = ebb__script_uses(script) + known->first_use;
    uint32_t clocks = script->clock_count, now = ebb__clock_now(runtime);
    uint64_t best = (uint64_t)clocks << 32;
    uint64_t drift_us = drift_ns(playing, now) / 1000;
    uint64_t since_us = playing->woven.passed ? 0 : ebb__timers_since_ns(runtime) / 1000;
    bool here = false, ahead = false;
    for (uint32_t i = 0; i < known->use_count; i++) {
        uint64_t distance = (uint64_t)((uses[i].clock + clocks - now) % clocks) << 32;
        if (distance) {
            distance += uses[i].within_us & ~FINE_US;
        } else {
            here = true;
            if (uses[i].within_us + drift_us < since_us)
                continue;
            ahead = true;
            if (uses[i].within_us > since_us + drift_us)
                distance = uses[i].within_us - since_us;
        }
        if (distance < best)
            best = distance;
    }
    *done = here && !ahead;
    return best;
}

void ebb__clock_seen(struct ebb_runtime *runtime, const struct block *block)
{
    const struct performance *playing = runtime->replay.playing;
    if (!playing || playing->woven.passed || block->script_block == EBB_SCRIPT_NONE)
        return;
    uint32_t now = ebb__clock_now(runtime);
    if (ebb__timers_stretch_ns(playing, now) < LONG_STRETCH_NS)
        return;
    const struct ebb_script *script = playing->script;
    const struct ebb_script_block *known = &ebb__script_blocks(script)[block->script_block];
    const struct ebb_script_use *uses = ebb__script_uses(script) + known->first_use;
    uint64_t since_ns = ebb__timers_since_ns(runtime), nearest_ns = UINT64_MAX, least = UINT64_MAX;
    for (uint32_t i = 0; i < known->use_count; i++) {
        uint64_t use_ns = (uint64_t)uses[i].within_us * 1000;
        uint64_t off = use_ns > since_ns ? use_ns - since_ns : since_ns - use_ns;
        if (uses[i].clock == now && off < least) {
            least = off;
            nearest_ns = use_ns;
        }
    }
    if (least != UINT64_MAX)
        ebb__timers_set_since(runtime, nearest_ns);
}

void ebb__clock_close_operation(struct ebb_runtime *runtime)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < runtime->uses.open_count; i++) {
        struct block *block = &runtime->table.blocks[runtime->uses.open_blocks[i]];
        block->use.open = false;
        if (block->state == BLOCK_RESIDENT && !ebb__move_park(runtime, block)) {
            block->use.open =
                true; /* pinned: its next use is not seen, try again at the next event */
            runtime->uses.open_blocks[kept++] = runtime->uses.open_blocks[i];
        }
    }
    runtime->uses.open_count = kept;
}

static void begin_operation(struct ebb_runtime *runtime, uint64_t now_ns)
{
    runtime->uses.event_number++;
    runtime->uses.operation_ns = now_ns;
    runtime->uses.pause_faults = 0;
    if (runtime->uses.blind_until)
        ebb__runtime_note_trace(runtime);
    if (runtime->store.failed)
        ebb__move_retry_store(runtime, now_ns);
}

/* Give the parts of `block` that lie in `known` the script's number; the first of them. */
static uint32_t bind_part(struct ebb_runtime *runtime, struct block *block, uint32_t script_block,
                          const struct ebb_script_block *known)
{
    uint32_t first = ebb__part_shape(runtime, block, known->part_first, known->part_count);
    uint32_t end = ebb__block_index(runtime, block) + known->part_first + known->part_count;
    for (uint32_t i = first; i != NO_BLOCK && i < end; i = ebb__part_next(runtime, i))
        runtime->table.blocks[i].script_block = script_block;
    return first;
}

void ebb__clock_bind(struct ebb_runtime *runtime, struct performance *playing, struct block *block,
                     uint32_t script_block)
{
    const struct ebb_script_block *known = &ebb__script_blocks(playing->script)[script_block];
    bool large = ebb__part_is_large(runtime, block->run.total_units * EBB_HUGE_BYTES);
    for (uint32_t i = 0; large && known->part_count && i < known->parts; i++)
        playing->live[script_block + i] = bind_part(runtime, block, script_block + i, &known[i]);
    if (large && known->part_count)
        return;
    playing->live[script_block] = ebb__block_index(runtime, block);
    for (uint32_t i = playing->live[script_block]; i != NO_BLOCK; i = ebb__part_next(runtime, i))
        runtime->table.blocks[i].script_block = script_block;
}

void ebb__clock_unbind(const struct ebb_runtime *runtime, struct performance *playing,
                       const struct block *block)
{
    uint32_t known = block->script_block;
    if (playing->live[known] == ebb__block_index(runtime, block))
        for (uint32_t i = ebb__script_blocks(playing->script)[known].parts; i-- > 0;)
            playing->live[known + i] = NO_BLOCK;
}

static void begin_return(struct ebb_runtime *runtime, struct block *block, bool keep_copy,
                         bool urgent)
{
    block->copy.stays = keep_copy;
    if (block->transfer.queue == QUEUE_OUT)
        ebb__move_unqueue_out(runtime, block);
    else if (block->state == BLOCK_LEAVING)
        block->transfer.cancelled = true;
    else if (block->state == BLOCK_AWAY)
        ebb__move_queue_in(runtime, block, urgent);
}

void ebb__clock_changed(struct ebb_runtime *runtime, const struct block *block)
{
    if (runtime->replay.playing && block->script_block != EBB_SCRIPT_NONE)
        runtime->replay.playing->changes[block->script_block] = true;
}

/* The block that `absence` is about, or the first part of it that is; NULL: none is there. */
static struct block *absent_block(struct ebb_runtime *runtime, const struct performance *playing,
                                  uint32_t absence)
{
    uint32_t index = playing->live[ebb__script_absences(playing->script)[absence].block];
    return index == NO_BLOCK ? NULL : &runtime->table.blocks[index];
}

/* The next part that the same absences are about; NULL: none. */
static struct block *next_absent(struct ebb_runtime *runtime, const struct block *block)
{
    uint32_t next = ebb__part_next(runtime, ebb__block_index(runtime, block));
    return next != NO_BLOCK && runtime->table.blocks[next].script_block == block->script_block
               ? &runtime->table.blocks[next]
               : NULL;
}

/* Has the end of the absence been seen before its beginning? */
static bool is_over(const struct performance *playing, const struct ebb_script_absence *absence)
{
    const uint32_t *passed = playing->woven.passed;
    return passed && absence->due_clock != EBB_SCRIPT_NONE &&
           absence->due_clock > absence->out_clock && passed[absence->due_clock];
}

static void leave(struct ebb_runtime *runtime, const struct performance *playing, uint32_t absence)
{
    if (is_over(playing, &ebb__script_absences(playing->script)[absence]))
        return;
    for (struct block *block = absent_block(runtime, playing, absence); block;
         block = next_absent(runtime, block))
        if ((block->state == BLOCK_RESIDENT || block->state == BLOCK_PARKED) &&
            block->transfer.queue != QUEUE_OUT && block->kind != BLOCK_PLACED &&
            !runtime->store.failed) {
            block->use.left_at = runtime->uses.event_number + 1;
            ebb__move_queue_out(runtime, block, false);
        }
}

static void come_back(struct ebb_runtime *runtime, const struct performance *playing,
                      uint32_t absence)
{
    const struct ebb_script_absence *planned = &ebb__script_absences(playing->script)[absence];
    bool keep_copy = planned->keep_copy && !playing->changes[planned->block];
    for (struct block *block = absent_block(runtime, playing, absence); block;
         block = next_absent(runtime, block))
        begin_return(runtime, block, keep_copy, false);
}

void ebb__clock_fire(struct ebb_runtime *runtime, uint32_t absence, bool in)
{
    const struct performance *playing = runtime->replay.playing;
    const struct ebb_script_absence *planned = &ebb__script_absences(playing->script)[absence];
    uint32_t in_clock = playing->in_clock[absence], now = ebb__clock_now(runtime);
    uint64_t in_ns = playing->in_delay_ns[absence], out_ns = playing->out_delay_ns[absence];
    bool is_past =
        in ? !ebb__script_is_during(now, in_clock, in_ns, planned->due_clock, planned->due_delay_ns)
           : in_clock != EBB_SCRIPT_NONE &&
                 !ebb__script_is_during(now, planned->out_clock, out_ns, in_clock, in_ns);
    if (is_past && !playing->woven.passed)
        return;
    if (in)
        come_back(runtime, playing, absence);
    else
        leave(runtime, playing, absence);
}

void ebb__clock_act(struct ebb_runtime *runtime, struct performance *playing, uint32_t position)
{
    ebb__timers_pace(runtime, playing, position);
    for (uint32_t i = playing->out_first[position]; i != EBB_SCRIPT_NONE; i = playing->out_next[i])
        if (!ebb__timers_set(runtime, playing, position, i, false))
            leave(runtime, playing, i);
    for (uint32_t i = playing->in_first[position]; i != EBB_SCRIPT_NONE; i = playing->in_next[i])
        if (!ebb__timers_set(runtime, playing, position, i, true))
            come_back(runtime, playing, i);
}

void ebb__clock_pass(struct ebb_runtime *runtime)
{
    ebb__clock_act(runtime, runtime->replay.playing, runtime->replay.position);
    runtime->replay.position++;
    if (runtime->replay.position == runtime->replay.playing->script->clock_count) {
        runtime->replay.position = 0;
        runtime->replay.laps++;
        ebb__runtime_mark(runtime, EBB_MARK_LAP, runtime->replay.laps);
    }
    if (runtime->replay.awaited.script && runtime->replay.position == runtime->replay.awaited_at)
        runtime->replay.awaited_due = true;
}

/* Wait until `block` is back; *began: when the first of several had to be waited for, or 0. Releases
 * the lock. False: the block is another, or the script is not followed any more. */
static bool wait_for_block(struct ebb_runtime *runtime, const struct performance *playing,
                           struct block *block, uint64_t *began)
{
    uint64_t serial = block->serial, sets = runtime->replay.script_sets;
    struct ebb_wait *wait = NULL;
    bool there = false;
    while (runtime->replay.script_sets == sets && runtime->replay.playing == playing &&
           block->serial == serial) {
        if (block->transfer.queue == QUEUE_OUT)
            ebb__move_unqueue_out(runtime, block);
        if (block->state == BLOCK_PARKED)
            ebb__move_unpark(runtime, block);
        if (block->state != BLOCK_LEAVING && block->state != BLOCK_AWAY &&
            block->state != BLOCK_COMING) {
            there = true;
            break;
        }
        if (block->state == BLOCK_AWAY && block->transfer.error) {
            there = true; /* its only copy is lost, and that has been said */
            break;
        }
        if (!wait)
            wait = ebb__waits_block(runtime, block);
        if (!*began)
            *began = ebb__now_ns();
        begin_return(runtime, block, block->copy.stays, true);
        pthread_cond_wait(&runtime->core.changed, &runtime->core.lock);
    }
    ebb__wait_end(wait);
    return there;
}

/* Wait until every block that is due at `position` is back. Releases the lock; scripts may come and
 * go meanwhile, and `playing` with them. */
static void wait_for_due(struct ebb_runtime *runtime, struct performance *playing,
                         uint32_t position)
{
    uint64_t sets = runtime->replay.script_sets, planned_ns = 0;
    for (uint32_t i = playing->due_first[position]; i != EBB_SCRIPT_NONE; i = playing->due_next[i])
        planned_ns += ebb__script_absences(playing->script)[i].stall_ns;
    for (uint32_t i = playing->due_first[position]; i != EBB_SCRIPT_NONE;
         i = playing->due_next[i]) {
        uint64_t began = 0;
        struct block *block = absent_block(runtime, playing, i);
        ebb__timers_hold(runtime, true);
        bool lacked_room = false;
        while (block && wait_for_block(runtime, playing, block, &began)) {
            lacked_room |= block->transfer.lacked_room;
            block = next_absent(runtime, block);
        }
        uint64_t late_ns = began ? ebb__now_ns() - began : 0;
        ebb__timers_hold(runtime, false);
        if (runtime->replay.script_sets != sets)
            return;
        uint64_t expected_ns = late_ns < planned_ns ? late_ns : planned_ns;
        planned_ns -= expected_ns;
        if (runtime->replay.playing == playing)
            ebb__feedback_learn(playing, i, lacked_room ? 0 : late_ns - expected_ns);
    }
}

void ebb__clock_stop(struct ebb_runtime *runtime)
{
    if (!runtime->replay.playing)
        return;
    atomic_fetch_add(&runtime->core.counters->mismatches, 1);
    ebb__runtime_mark(runtime, EBB_MARK_PLAN_OFF, runtime->replay.position);
    runtime->replay.playing = NULL;
    if (runtime->replay.awaited.script)
        ebb__runtime_take_over(runtime);
}

uint32_t ebb__clock_foresee(const struct ebb_runtime *runtime, uint64_t size_bytes)
{
    const struct performance *playing = runtime->replay.playing;
    uint32_t clocks = playing->script->clock_count, position = runtime->replay.position, passed = 0;
    if (playing->woven.passed)
        position = ebb__woven_next_alloc(playing, size_bytes);
    if (position == EBB_SCRIPT_NONE)
        return EBB_SCRIPT_NONE;
    for (; event_at(playing, position)->kind == EBB_EVENT_FREE; position = (position + 1) % clocks)
        if (++passed > clocks)
            return EBB_SCRIPT_NONE;
    const struct ebb_script_event *event = event_at(playing, position);
    return event->size_bytes == size_bytes ? event->block : EBB_SCRIPT_NONE;
}

uint64_t ebb__clock_page_bytes(const struct ebb_runtime *runtime, uint64_t bytes)
{
    uint64_t page_bytes = ebb__whole_pages(bytes);
    if (!runtime->replay.playing || runtime->uses.trace || page_bytes < bytes)
        return page_bytes;
    uint32_t known = ebb__clock_foresee(runtime, bytes);
    if (known == EBB_SCRIPT_NONE ||
        !ebb__script_blocks(runtime->replay.playing->script)[known].wide)
        return page_bytes;
    return ebb__whole_units(bytes);
}

bool ebb__clock_expects_parts(const struct ebb_runtime *runtime, uint64_t size_bytes)
{
    if (!runtime->replay.playing || !ebb__part_is_large(runtime, size_bytes))
        return false;
    uint32_t known = ebb__clock_foresee(runtime, size_bytes);
    return known != EBB_SCRIPT_NONE &&
           ebb__script_blocks(runtime->replay.playing->script)[known].part_count > 0;
}

/* Match one event; false: the stream has left the template. Positions passed are
 * [*first, runtime->replay.position) on the cyclic template, *passed of them. */
static bool match(struct ebb_runtime *runtime, enum ebb_event_kind kind, struct block *block,
                  uint32_t *passed)
{
    struct performance *playing = runtime->replay.playing;
    uint32_t clocks = playing->script->clock_count;
    *passed = 0;
    if (ebb__guards_play(runtime)) {
        uint32_t known = block->script_block;
        if (kind == EBB_EVENT_ALLOC || known == EBB_SCRIPT_NONE)
            return true;
        for (uint32_t i = 0; i < clocks; i++)
            if (event_at(playing, i)->block == known)
                return false; /* what the clock stands on must not go */
        ebb__clock_unbind(runtime, playing, block);
        return true;
    }
    if (kind == EBB_EVENT_FREE) {
        uint32_t known = block->script_block;
        if (known == EBB_SCRIPT_NONE)
            return true;
        const struct ebb_script_event *event = event_at(playing, runtime->replay.position);
        bool expected = event->kind == EBB_EVENT_FREE && event->block == known;
        ebb__clock_unbind(runtime, playing, block);
        if (expected) {
            ebb__clock_pass(runtime);
            *passed = 1;
        }
        return true;
    }
    while (event_at(playing, runtime->replay.position)->kind == EBB_EVENT_FREE) {
        if (++*passed > clocks)
            return false;
        ebb__clock_pass(runtime);
    }
    const struct ebb_script_event *event = event_at(playing, runtime->replay.position);
    if (event->size_bytes != block->size_bytes)
        return false;
    ebb__clock_bind(runtime, playing, block, event->block);
    ebb__clock_pass(runtime);
    ++*passed;
    return true;
}

/* How many of the newest allocations, walking back from template position `position`, agree. */
static uint32_t agreement(const struct ebb_runtime *runtime, const struct performance *playing,
                          uint32_t position, uint32_t most)
{
    uint32_t clocks = playing->script->clock_count, agreed = 0, steps = 0;
    while (agreed < most && steps++ < 2 * clocks) {
        const struct ebb_script_event *event = event_at(playing, position);
        if (event->kind == EBB_EVENT_ALLOC) {
            uint64_t at = runtime->replay.allocations - 1 - agreed;
            if (runtime->replay.history[at % HISTORY].size_bytes != event->size_bytes)
                return agreed;
            agreed++;
        }
        position = (position + clocks - 1) % clocks;
    }
    return agreed;
}

/* The one position of `playing` at which the newest allocations end; EBB_SCRIPT_NONE: none, or
 * more than one. */
static uint32_t find_position(const struct ebb_runtime *runtime, const struct performance *playing)
{
    const struct ebb_script *script = playing->script;
    const uint32_t *allocs = ebb__script_allocs(script);
    uint64_t size = runtime->replay.history[(runtime->replay.allocations - 1) % HISTORY].size_bytes;
    uint32_t most = script->alloc_count < SYNC_ALLOCATIONS ? script->alloc_count : SYNC_ALLOCATIONS;
    if (runtime->replay.allocations < most ||
        runtime->next_serial + 1 < script->first_serial + most)
        return EBB_SCRIPT_NONE;
    uint32_t low = ebb__clock_first_alloc(script, size);
    uint32_t found = EBB_SCRIPT_NONE;
    for (; low < script->alloc_count && event_at(playing, allocs[low])->size_bytes == size; low++) {
        if (agreement(runtime, playing, allocs[low], most) < most)
            continue;
        if (found != EBB_SCRIPT_NONE)
            return EBB_SCRIPT_NONE;
        found = allocs[low];
    }
    return found;
}

/* Serials and sizes: a script may come from an earlier run that allocated otherwise. */
static uint32_t find_persistent(const struct ebb_script *script, uint64_t serial,
                                uint64_t size_bytes)
{
    const struct ebb_script_block *blocks = ebb__script_blocks(script);
    uint32_t low = 0, high = script->persistent_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (blocks[middle].serial < serial)
            low = middle + 1;
        else
            high = middle;
    }
    return low < script->persistent_count && blocks[low].serial == serial &&
                   blocks[low].size_bytes == size_bytes
               ? low
               : EBB_SCRIPT_NONE;
}

/* Name the blocks of the last iteration's allocations, newest first; the newest is at `position`. */
static void name_blocks(struct ebb_runtime *runtime, struct performance *playing, uint32_t position)
{
    const struct ebb_script *script = playing->script;
    uint32_t agreed = agreement(runtime, playing, position, script->alloc_count);
    uint32_t at = position;
    for (uint32_t i = 0; i < agreed && i < HISTORY;) {
        const struct ebb_script_event *event = event_at(playing, at);
        if (event->kind == EBB_EVENT_ALLOC) {
            const struct history *past =
                &runtime->replay.history[(runtime->replay.allocations - 1 - i) % HISTORY];
            struct block *block = &runtime->table.blocks[past->block];
            if (ebb__block_is_live(block) && block->serial == past->serial)
                ebb__clock_bind(runtime, playing, block, event->block);
            i++;
        }
        at = (at + script->clock_count - 1) % script->clock_count;
    }
}

void ebb__clock_start(struct ebb_runtime *runtime, struct performance *playing, uint32_t position)
{
    const struct ebb_script *script = playing->script;
    for (uint32_t i = 0; i < script->block_count; i++)
        playing->live[i] = NO_BLOCK;
    for (uint32_t i = 1; i <= runtime->table.count; i++) {
        struct block *block = &runtime->table.blocks[i];
        block->script_block = EBB_SCRIPT_NONE;
    }
    for (uint32_t i = 1; i <= runtime->table.count; i++) {
        struct block *block = &runtime->table.blocks[i];
        if (!ebb__block_is_live(block) || block->run.head != i)
            continue;
        uint32_t known = find_persistent(script, block->serial, block->size_bytes);
        if (known != EBB_SCRIPT_NONE)
            ebb__clock_bind(runtime, playing, block, known);
    }
    if (playing->woven.passed)
        ebb__woven_begin(runtime, playing);
    else
        name_blocks(runtime, playing, position);
    runtime->replay.playing = playing;
    runtime->replay.position = (position + 1) % script->clock_count;
    runtime->replay.position_ns = ebb__runtime_progress_ns(runtime);
    runtime->replay.position_touches = runtime->uses.touches;
    runtime->replay.position_event = runtime->uses.event_number;
    runtime->replay.lead_ns = 0;
    playing->timer_count = 0;
    atomic_fetch_add(&runtime->core.counters->resyncs, 1);
    ebb__runtime_mark(runtime, EBB_MARK_PLAN_ON, position);
}

static void look_for_script(struct ebb_runtime *runtime)
{
    for (uint32_t i = runtime->replay.script_count; i-- > 0;) { /* the newest first */
        struct performance *known = &runtime->replay.scripts[i];
        uint32_t position;
        if (known->woven.passed)
            position = ebb__woven_begins(runtime, known) ? 0 : EBB_SCRIPT_NONE;
        else
            position = find_position(runtime, known);
        if (position != EBB_SCRIPT_NONE) {
            ebb__clock_start(runtime, known, position);
            return;
        }
    }
}

bool ebb__clock_pause(struct ebb_runtime *runtime)
{
    uint64_t now = ebb__now_ns(), since = now - runtime->uses.operation_ns;
    runtime->uses.pause_faults += runtime->uses.trace;
    if (since < runtime->core.config.pause_ns ||
        since - runtime->core.config.pause_ns < runtime->uses.pause_faults * PAUSE_A_FAULT_NS)
        return false;
    begin_operation(runtime, now);
    if (runtime->uses.trace)
        ebb__clock_close_operation(runtime);
    return true;
}

struct due ebb__clock_step(struct ebb_runtime *runtime, enum ebb_event_kind kind,
                           struct block *block)
{
    struct performance *playing = runtime->replay.playing;
    struct due due = {.playing = playing, .first = runtime->replay.position};
    begin_operation(runtime, ebb__now_ns());
    if (kind == EBB_EVENT_ALLOC) {
        runtime->replay.history[runtime->replay.allocations++ % HISTORY] = (struct history){
            .size_bytes = block->size_bytes,
            .serial = block->serial,
            .block = ebb__block_index(runtime, block),
        };
    }
    if (playing) {
        bool woven = playing->woven.passed != NULL;
        if (woven ? !ebb__woven_match(runtime, kind, block, &due.first)
                  : !match(runtime, kind, block, &due.count)) {
            ebb__clock_stop(runtime);
            due.count = 0;
        } else if (woven) {
            due.count = due.first != EBB_SCRIPT_NONE;
        }
    }
    due.script_sets = runtime->replay.script_sets;
    return due;
}

void ebb__clock_end_step(struct ebb_runtime *runtime, enum ebb_event_kind kind, struct due due)
{
    for (uint32_t i = 0; i < due.count && runtime->replay.playing == due.playing &&
                         runtime->replay.script_sets == due.script_sets;
         i++)
        wait_for_due(runtime, due.playing, (due.first + i) % due.playing->script->clock_count);
    if (runtime->replay.awaited_due)
        ebb__runtime_take_over(runtime);
    if (!runtime->replay.playing && kind == EBB_EVENT_ALLOC && runtime->replay.script_count)
        look_for_script(runtime);
}
