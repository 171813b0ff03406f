/* Replay alone: the events of a program follow a script made by hand, depart from it and match
 * again. This is done with each of the three matchers. Running lanes do the transfers of each
 * position. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/tuning.h"

#include "replay_rig.h"

#define KIB ((uint64_t)1024)
#define WEIGHT_BYTES EBB_HUGE_BYTES

enum { WEIGHT, FIRST, SECOND, THIRD }; /* blocks of the iteration */
static const uint64_t bytes_of[] = {WEIGHT_BYTES, 16 * KIB, 32 * KIB, 64 * KIB};

/* alloc 1, alloc 2, free 1, alloc 3, free 3, free 2. The weight is used at position 3. It is
 * evicted after 0, fetched from 2 on, and due at 3. */
static struct written iteration(uint32_t flags)
{
    struct written written = {.head = {.flags = flags}};
    add_block(&written, 1, bytes_of[WEIGHT]);
    for (uint32_t i = FIRST; i <= THIRD; i++)
        add_block(&written, 0, bytes_of[i]);
    static const struct {
        enum ebb_event_kind kind;
        uint32_t block;
    } events[] = {{EBB_EVENT_ALLOC, FIRST}, {EBB_EVENT_ALLOC, SECOND}, {EBB_EVENT_FREE, FIRST},
                  {EBB_EVENT_ALLOC, THIRD}, {EBB_EVENT_FREE, THIRD},   {EBB_EVENT_FREE, SECOND}};
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++)
        add_event(&written, events[i].kind, events[i].block);
    written.uses[written.head.use_count++] = (struct ebb_script_use){.clock = 3};
    written.blocks[WEIGHT].use_count = 1;
    written.absences[written.head.absence_count++] =
        (struct ebb_script_absence){.block = WEIGHT, .out_clock = 0, .in_clock = 2, .due_clock = 3};
    finish(&written);
    return written;
}

/* As above, with a second persistent block of the size of the first allocation. */
static struct written with_gradient(uint32_t flags, uint64_t serial)
{
    struct written plain = iteration(flags), written = {.head = {.flags = flags}};
    add_block(&written, 1, bytes_of[WEIGHT]);
    add_block(&written, serial, bytes_of[FIRST]);
    for (uint32_t i = FIRST; i <= THIRD; i++)
        add_block(&written, 0, bytes_of[i]);
    for (uint32_t i = 0; i < plain.head.clock_count; i++)
        add_event(&written, (enum ebb_event_kind)plain.events[i].kind, plain.events[i].block + 1);
    finish(&written);
    return written;
}

/* The weights are used in turn, and nothing is allocated. */
static struct written accesses(uint32_t weights)
{
    struct written written = {0};
    for (uint32_t i = 0; i < weights; i++)
        add_block(&written, i + 1, WEIGHT_BYTES);
    for (uint32_t i = 0; i < weights; i++)
        add_event(&written, EBB_EVENT_ACCESS, i);
    finish(&written);
    return written;
}

/* --- the program --- */

/* Runs one iteration in the script's order, or with the middle events swapped. If a script is in
 * force, the weight is evicted after the first event and is resident at its use. The duration of
 * its absence depends on earlier delays. */
static void lap(struct stage *stage, const struct block *weight, bool swapped)
{
    struct block *blocks[4];
    bool is_followed;
    blocks[FIRST] = alloc(stage, bytes_of[FIRST]);
    for (unsigned i = 0; i < 2; i++) {
        unsigned which = (i == 0) == swapped ? THIRD : SECOND;
        is_followed = stage->replay.current != NULL;
        blocks[which] = alloc(stage, bytes_of[which]);
        if (which == THIRD && is_followed && stage->replay.current)
            assert_true(weight->state == BLOCK_RESIDENT && lanes_is_right(&stage->lanes, weight));
        if (which == SECOND)
            drop(stage, blocks[FIRST]);
    }
    drop(stage, blocks[THIRD]);
    drop(stage, blocks[SECOND]);
}

/* The program has followed its script for a lap. Returns its weight. */
static struct block *start_planned(struct stage *stage)
{
    start(stage);
    struct block *weight = lanes_block(&stage->lanes, WEIGHT_BYTES);
    stage->written = iteration(0);
    set_script(stage, &stage->written);
    lap(stage, weight, false);
    return weight;
}

static uint64_t count(const _Atomic uint64_t *counter)
{
    return atomic_load(counter);
}

/* --- tests --- */

static void each_script_has_its_matcher(void **state)
{
    (void)state;
    struct written ordered = iteration(0), unordered = iteration(EBB_SCRIPT_UNORDERED);
    struct written clock = accesses(3);
    assert_ptr_equal(ebb__matcher_of(&ordered.head), &ebb__matcher_ordered);
    assert_ptr_equal(ebb__matcher_of(&unordered.head), &ebb__matcher_unordered);
    assert_ptr_equal(ebb__matcher_of(&clock.head), &ebb__matcher_access_clock);
    const struct matcher *all[] = {&ebb__matcher_ordered, &ebb__matcher_unordered,
                                   &ebb__matcher_access_clock};
    for (size_t i = 0; i < 3; i++) {
        assert_true(all[i]->match && all[i]->next_position);
        assert_true((all[i]->words != NULL) == (all[i]->prepare != NULL));
        assert_true((all[i]->find != NULL) == !all[i]->starts_at_once);
    }
}

static void what_hangs_on_a_position_is_done_there(void **state)
{
    (void)state;
    struct stage stage;
    struct block *weight = start_planned(&stage);
    struct ebb_counters *counters = stage.lanes.ground.core.counters;
    assert_non_null(stage.replay.current); /* since the third allocation */
    assert_int_equal(count(&counters->resyncs), 1);
    assert_int_equal(weight->script_block, WEIGHT);
    struct block *first = alloc(&stage, bytes_of[FIRST]);
    lanes_wait(&stage.lanes, weight, BLOCK_EVICTED);
    struct block *second = alloc(&stage, bytes_of[SECOND]);
    assert_int_equal(weight->state, BLOCK_EVICTED);
    drop(&stage, first); /* its fetch begins */
    assert_int_not_equal(weight->state, BLOCK_PARKED);
    struct block *third = alloc(&stage, bytes_of[THIRD]); /* it is due */
    assert_int_equal(weight->state, BLOCK_RESIDENT);
    assert_true(lanes_is_right(&stage.lanes, weight));
    drop(&stage, third);
    drop(&stage, second);
    uint64_t laps = stage.replay.laps;
    lap(&stage, weight, false);
    assert_int_equal(stage.replay.laps, laps + 1);
    assert_int_equal(count(&counters->mismatches), 0);
    assert_true(count(&counters->moved_out_bytes) >= WEIGHT_BYTES);
    stop(&stage);
}

static void another_allocation_ends_the_match_for_a_while(void **state)
{
    (void)state;
    struct stage stage;
    struct block *weight = start_planned(&stage);
    struct ebb_counters *counters = stage.lanes.ground.core.counters;
    struct block *other = alloc(&stage, 128 * KIB);
    assert_null(stage.replay.current);
    assert_int_equal(count(&counters->mismatches), 1);
    assert_int_equal(ebb__clock_page_bytes(&stage.replay, 5000), 2 * EBB_PAGE_BYTES);
    drop(&stage, other);
    lap(&stage, weight, false);
    assert_non_null(stage.replay.current);
    assert_int_equal(count(&counters->resyncs), 2);
    stop(&stage);
}

/* The program makes its weight anew. Once the script knows its name, the plan acts on it. */
static void a_weight_gets_another_name(void **state)
{
    (void)state;
    struct stage stage;
    struct block *weight = start_planned(&stage);
    lap(&stage, weight, false);
    assert_int_equal(weight->script_block, WEIGHT);
    struct due due = ebb__clock_step(&stage.replay, EBB_EVENT_FREE, weight);
    ebb__move_discard(&stage.lanes.transfer, weight);
    ebb__clock_end_step(&stage.replay, EBB_EVENT_FREE, due);
    struct block *anew = lanes_block(&stage.lanes, WEIGHT_BYTES);
    struct block *first = alloc(&stage, bytes_of[FIRST]);
    drop(&stage, first);
    assert_int_equal(anew->script_block, EBB_SCRIPT_NONE);

    const struct ebb_renaming other[] = {{1, anew->serial + 100}, {7, anew->serial}};
    const struct ebb_renaming right[] = {{anew->serial + 100, anew->serial}};
    lanes_unlock(&stage.lanes);
    ebb__replay_rename(&stage.replay, other, 2); /* no script names block 7 */
    lanes_lock(&stage.lanes);
    assert_int_equal(anew->script_block, EBB_SCRIPT_NONE);
    lanes_unlock(&stage.lanes);
    ebb__replay_rename(&stage.replay, right, 1);
    lanes_lock(&stage.lanes);
    lap(&stage, anew, false);
    lap(&stage, anew, false);
    assert_non_null(stage.replay.current);
    assert_int_equal(anew->script_block, WEIGHT);
    assert_int_equal(stage.replay.scripts[0].live[WEIGHT],
                     ebb__block_index(&stage.lanes.table, anew));
    stop(&stage);
}

/* A new gradient takes the place of a block that later iterations free, and stays. Its name counts
 * more than that place, whether it is known before or comes later. */
static void a_name_counts_more_than_a_place(void **state)
{
    (void)state;
    enum { GRADIENT = 1, FREED = 2, SERIAL = 5, OTHER = 1000 };
    for (unsigned kind = 0; kind < 4; kind++) {
        bool known = kind % 2;
        struct stage stage;
        start(&stage);
        struct block *weight = lanes_block(&stage.lanes, WEIGHT_BYTES);
        stage.written = with_gradient(kind / 2 ? EBB_SCRIPT_UNORDERED : 0, known ? SERIAL : OTHER);
        set_script(&stage, &stage.written);
        lap(&stage, weight, false);
        struct block *gradient = alloc(&stage, bytes_of[FIRST]);
        assert_int_equal(gradient->serial, SERIAL);
        assert_int_equal(gradient->script_block, known ? GRADIENT : FREED);
        struct block *second = alloc(&stage, bytes_of[SECOND]);
        struct block *third = alloc(&stage, bytes_of[THIRD]);
        drop(&stage, third);
        drop(&stage, second);
        const struct ebb_renaming right = {OTHER, SERIAL};
        lanes_unlock(&stage.lanes);
        ebb__replay_rename(&stage.replay, &right, 1);
        lanes_lock(&stage.lanes);
        for (unsigned i = 0; i < 3; i++) {
            assert_int_equal(gradient->script_block, GRADIENT);
            assert_int_equal(stage.replay.scripts[0].live[GRADIENT],
                             ebb__block_index(&stage.lanes.table, gradient));
            lap(&stage, weight, false);
        }
        assert_int_equal(count(&stage.lanes.ground.core.counters->mismatches), 0);
        stop(&stage);
    }
}

/* Names may be given in any order, and twice. Of a name that is twice there, sizes decide. */
static void names_are_found_after_changes(void **state)
{
    (void)state;
    struct stage stage;
    start(&stage);
    struct written written = accesses(4);
    for (uint32_t i = 0; i < 4; i++)
        written.blocks[i].size_bytes = written.events[i].size_bytes = (i + 1) * WEIGHT_BYTES;
    set_script(&stage, &written);
    struct prepared_script *prepared = &stage.replay.scripts[0];
    static const struct ebb_renaming turned[] = {{1, 40}, {2, 30}, {4, 10}};
    lanes_unlock(&stage.lanes);
    ebb__replay_rename(&stage.replay, turned, 3);
    lanes_lock(&stage.lanes);
    static const uint64_t serials[] = {40, 30, 3, 10};
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(ebb__names_persistent(&prepared->names, prepared->script, serials[i],
                                               (i + 1) * WEIGHT_BYTES),
                         i);
        assert_int_equal(
            ebb__names_persistent(&prepared->names, prepared->script, serials[i], WEIGHT_BYTES / 2),
            EBB_SCRIPT_NONE);
    }
    assert_int_equal(ebb__names_persistent(&prepared->names, prepared->script, 1, WEIGHT_BYTES),
                     EBB_SCRIPT_NONE);
    assert_int_equal(ebb__names_persistent(&prepared->names, prepared->script, 41, WEIGHT_BYTES),
                     EBB_SCRIPT_NONE);
    stop(&stage);
}

/* A script of few events does not know most blocks. Of those the least recently used goes first,
 * however long ago that was. */
static void unknown_blocks_go_by_their_age(void **state)
{
    (void)state;
    struct stage stage;
    const struct block *weight = start_planned(&stage);
    struct block *old = lanes_block(&stage.lanes, 16 * KIB);
    struct block *older = lanes_block(&stage.lanes, 16 * KIB);
    assert_non_null(stage.replay.current);
    stage.lanes.table.uses.event_number += 1000;
    old->use.last = 500;
    older->use.last = 400;
    assert_true(ebb__replay_next_use(&stage.replay, older) >
                ebb__replay_next_use(&stage.replay, old));
    assert_true(ebb__replay_next_use(&stage.replay, old) >
                ebb__replay_next_use(&stage.replay, weight));
    stop(&stage);
}

/* A free that comes late or never is no mismatch. */
static void frees_are_hints(void **state)
{
    (void)state;
    struct stage stage;
    struct block *weight = start_planned(&stage);
    struct block *first = alloc(&stage, bytes_of[FIRST]);
    struct block *second = alloc(&stage, bytes_of[SECOND]);
    struct block *third = alloc(&stage, bytes_of[THIRD]);
    assert_int_equal(weight->state, BLOCK_RESIDENT);
    drop(&stage, first);
    drop(&stage, third);
    lap(&stage, weight, false);
    assert_non_null(stage.replay.current);
    assert_int_equal(count(&stage.lanes.ground.core.counters->mismatches), 0);
    drop(&stage, second);
    stop(&stage);
}

/* Events in another order are followed only if the script says that the order varies. */
static void an_order_that_varies_is_followed(void **state)
{
    (void)state;
    for (unsigned unordered = 0; unordered < 2; unordered++) {
        struct stage stage;
        start(&stage);
        struct ebb_counters *counters = stage.lanes.ground.core.counters;
        struct block *weight = lanes_block(&stage.lanes, WEIGHT_BYTES);
        struct written written = iteration(unordered ? EBB_SCRIPT_UNORDERED : 0);
        set_script(&stage, &written);
        for (unsigned i = 0; i < 6; i++)
            lap(&stage, weight, i % 2);
        assert_int_equal(count(&counters->mismatches) == 0, unordered);
        assert_true(!unordered || stage.replay.laps >= 3);
        /* The landmark of the last iteration has evicted it. */
        assert_true(!unordered || weight->use.planned_evict_at == 5 * 6 + 2);
        stop(&stage);
    }
}

/* Accesses are the clock. The next three are observed. An access that comes advances the position,
 * also past accesses before it. Freeing a block of the clock ends the replay. */
static void accesses_are_a_clock(void **state)
{
    (void)state;
    enum { WEIGHTS = 5 };
    struct stage stage;
    start(&stage);
    struct lanes *lanes = &stage.lanes;
    struct replay *replay = &stage.replay;
    struct block *weights[WEIGHTS];
    for (unsigned i = 0; i < WEIGHTS; i++)
        weights[i] = lanes_block(lanes, WEIGHT_BYTES);
    struct written written = accesses(WEIGHTS);
    written.head.iteration_ns = 8; /* no iteration is too short */
    set_script(&stage, &written);
    assert_non_null(replay->current);
    assert_int_equal(replay->position, 0);
    for (unsigned i = 0; i < WEIGHTS; i++) {
        assert_int_equal(weights[i]->state, i < 3 ? BLOCK_PARKED : BLOCK_RESIDENT);
        assert_int_equal(ebb__replay_is_awaited(replay, weights[i]), i < 3);
    }
    ebb__move_unpark(&lanes->transfer, weights[0]);
    ebb__replay_touched(replay, weights[0], false);
    assert_int_equal(replay->position, 1);
    assert_int_equal(weights[3]->state, BLOCK_PARKED);
    ebb__move_unpark(&lanes->transfer, weights[2]); /* weight 1 was skipped */
    ebb__replay_touched(replay, weights[2], false);
    assert_int_equal(replay->position, 3);
    assert_int_equal(ebb__clock_foresee(replay, WEIGHT_BYTES), EBB_SCRIPT_NONE);
    ebb__move_unpark(&lanes->transfer, weights[4]);
    ebb__replay_touched(replay, weights[4], false);
    assert_int_equal(replay->position, 0);
    assert_int_equal(replay->laps, 1);
    struct block *other = alloc(&stage, 16 * KIB);
    drop(&stage, other);
    assert_non_null(replay->current);
    drop(&stage, weights[1]);
    assert_null(replay->current);
    stop(&stage);
}

/* An iteration that is far too short is a mismatch, and replay ends. */
static void laps_of_accesses_take_their_time(void **state)
{
    (void)state;
    struct stage stage;
    start(&stage);
    struct lanes *lanes = &stage.lanes;
    struct block *weights[2];
    for (unsigned i = 0; i < 2; i++)
        weights[i] = lanes_block(lanes, WEIGHT_BYTES);
    struct written written = accesses(2);
    written.head.iteration_ns = UINT64_MAX / 2;
    set_script(&stage, &written);
    stage.replay.access_clock_began_ns = ebb__now_ns();
    for (unsigned i = 0; i < 2; i++) {
        assert_non_null(stage.replay.current);
        ebb__move_unpark(&lanes->transfer, weights[i]);
        ebb__replay_touched(&stage.replay, weights[i], false);
    }
    assert_null(stage.replay.current);
    assert_int_equal(count(&lanes->ground.core.counters->mismatches), 1);
    assert_int_equal(weights[0]->state, BLOCK_RESIDENT);
    stop(&stage);
}

/* A timed action waits for its time after a position, and for a program that is waiting. */
static void timers_wait_for_their_time(void **state)
{
    (void)state;
    struct stage stage;
    start(&stage);
    struct lanes *lanes = &stage.lanes;
    struct block *weight = lanes_block(lanes, WEIGHT_BYTES);
    struct written written = iteration(0);
    written.absences[0].out_delay_ns = 3000000 * (uint64_t)STEP_NS; /* on any machine */
    set_script(&stage, &written);
    lap(&stage, weight, false);
    struct block *first = alloc(&stage, bytes_of[FIRST]);
    assert_int_equal(stage.replay.current->timer_count, 1);
    assert_int_equal(weight->state, BLOCK_RESIDENT);
    assert_true(stage.replay.current->timers[0].at_ns > ebb__progress_ns(&lanes->ground.core));
    ebb__progress_hold(&lanes->ground.core,
                       true); /* while the program waits, nothing more is evicted */
    stage.replay.current->timers[0].at_ns = ebb__progress_ns(&lanes->ground.core) - 1;
    pthread_cond_broadcast(&lanes->transfer.out.work);
    lanes_unlock(lanes);
    usleep(40 * STEP_NS / 1000);
    lanes_lock(lanes);
    assert_int_equal(weight->state, BLOCK_RESIDENT);
    assert_int_equal(stage.replay.current->timer_count, 1);
    ebb__progress_hold(&lanes->ground.core, false);
    lanes_wait(lanes, weight, BLOCK_EVICTED);
    assert_int_equal(stage.replay.current->timer_count, 0);
    drop(&stage, first);
    stop(&stage);
}

/* A late prefetch starts earlier, but never before the eviction. If it is in time again, it returns
 * to the script. */
static void a_late_return_starts_earlier(void **state)
{
    (void)state;
    struct stage stage;
    start(&stage);
    struct written written = iteration(0);
    struct prepared_script prepared = {0};
    assert_true(ebb__replay_prepare(&stage.replay, &prepared, &written.head));
    assert_int_equal(prepared.in_first[2], 0);
    ebb__feedback_learn(&prepared, 0, STEP_NS / 2);
    assert_int_equal(prepared.in_clock[0], 1);
    assert_int_equal(prepared.in_first[1], 0);
    assert_int_equal(prepared.in_first[2], EBB_SCRIPT_NONE);
    ebb__feedback_learn(&prepared, 0, 100 * STEP_NS);
    assert_int_equal(prepared.in_clock[0], 0);
    assert_int_equal(prepared.in_delay_ns[0], 0);
    unsigned laps = 0;
    while ((prepared.in_clock[0] != 2 || prepared.in_delay_ns[0]) && laps < 1000) {
        ebb__feedback_learn(&prepared, 0, 0);
        laps++;
    }
    assert_true(laps > 3 && laps < 1000);
    ebb__core_unmap(prepared.tables, prepared.table_bytes);
    stop(&stage);
}

/* Distances to the next allocation of a size, and to the next use. */
static void the_script_tells_what_is_next(void **state)
{
    (void)state;
    struct stage stage;
    start(&stage);
    struct replay *replay = &stage.replay;
    struct block *weight = lanes_block(&stage.lanes, WEIGHT_BYTES);
    struct written written = iteration(0);
    assert_int_equal(ebb__replay_next_use(replay, weight), 0);
    replay->table->uses.event_number = 7;
    assert_int_equal(ebb__replay_next_use(replay, weight), 7); /* since the last one */
    set_script(&stage, &written);
    lap(&stage, weight, false);
    assert_int_equal(replay->position, 0);
    assert_int_equal(ebb__replay_next_alloc(replay, bytes_of[FIRST]), 0);
    assert_int_equal(ebb__replay_next_alloc(replay, bytes_of[THIRD]), 3);
    assert_int_equal(ebb__replay_next_alloc(replay, 5), UINT32_MAX);
    assert_int_equal(ebb__clock_foresee(replay, bytes_of[FIRST]), FIRST);
    assert_int_equal(ebb__clock_foresee(replay, bytes_of[SECOND]), EBB_SCRIPT_NONE);
    bool done;
    assert_int_equal(ebb__replay_distance(replay, weight, &done) >> 32, 4); /* from 5 to 3 */
    stop(&stage);
}

/* An allocation gets the script's address for it, once. */
static void planned_addresses_are_given_once(void **state)
{
    (void)state;
    struct stage stage;
    start(&stage);
    struct block *weight = lanes_block(&stage.lanes, WEIGHT_BYTES);
    struct written written = iteration(0);
    written.blocks[FIRST].place = 4 * EBB_PAGE_BYTES;
    written.head.placement_bytes = EBB_HUGE_BYTES;
    set_script(&stage, &written);
    lap(&stage, weight, false);
    assert_int_equal(ebb__replay_next_cover(&stage.replay, 0), 0);
    assert_null(ebb__replay_place(&stage.replay, bytes_of[SECOND], EBB_PAGE_BYTES));
    struct block *placed = ebb__replay_place(&stage.replay, bytes_of[FIRST], EBB_PAGE_BYTES);
    assert_non_null(placed);
    assert_int_equal(placed->address, stage.lanes.addresses.placement.base + 4 * EBB_PAGE_BYTES);
    assert_null(ebb__replay_place(&stage.replay, bytes_of[FIRST], EBB_PAGE_BYTES));
    assert_int_equal(atomic_load(&stage.lanes.ground.core.counters->placement_misses), 1);
    ebb__block_become(placed, BLOCK_BARE);
    ebb__space_give(&stage.lanes.addresses, placed);
    stop(&stage);
}

enum { OTHER = THIRD + 1 };
#define OTHER_BYTES (128 * KIB)

/* The iteration, and what comes behind it now and then. The weight is not used there. */
static struct written with_another_phrase(void)
{
    struct written written = iteration(0);
    add_block(&written, 0, OTHER_BYTES);
    add_event(&written, EBB_EVENT_ALLOC, OTHER);
    add_event(&written, EBB_EVENT_FREE, OTHER);
    finish(&written);
    return written;
}

/* Two micro-batches, and what comes behind them. */
static struct written of_two_halves(void)
{
    struct written half = iteration(0), written = {0};
    add_block(&written, 1, bytes_of[WEIGHT]);
    for (uint32_t i = 0; i < 2; i++)
        for (uint32_t k = FIRST; k <= THIRD; k++)
            add_block(&written, 0, bytes_of[k]);
    for (uint32_t i = 0; i < 2; i++)
        for (uint32_t k = 0; k < half.head.clock_count; k++)
            add_event(&written, (enum ebb_event_kind)half.events[k].kind,
                      half.events[k].block + i * THIRD);
    add_block(&written, 0, OTHER_BYTES);
    add_event(&written, EBB_EVENT_ALLOC, 2 * THIRD + 1);
    add_event(&written, EBB_EVENT_FREE, 2 * THIRD + 1);
    finish(&written);
    return written;
}

/* What one script does not expect is in another one: that is followed from there on, and the first
 * one where it fits again. There is no mismatch in between. */
static void another_script_takes_over_at_once(void **state)
{
    (void)state;
    struct stage stage;
    start(&stage);
    struct replay *replay = &stage.replay;
    struct ebb_counters *counters = stage.lanes.ground.core.counters;
    struct block *weight = lanes_block(&stage.lanes, WEIGHT_BYTES);
    struct written written = iteration(0), longer = with_another_phrase();
    set_script(&stage, &written);
    lap(&stage, weight, false);
    set_script(&stage, &longer); /* which does not end the replay of the first one */
    assert_ptr_equal(replay->current->script, &written.head);
    lap(&stage, weight, false);
    assert_ptr_equal(replay->current->script, &written.head);
    struct block *other = alloc(&stage, OTHER_BYTES);
    assert_ptr_equal(replay->current->script, &longer.head);
    drop(&stage, other);
    lap(&stage, weight, false); /* of the longer one, and then of the first one */
    assert_ptr_equal(replay->current->script, &longer.head);
    lap(&stage, weight, false);
    assert_ptr_equal(replay->current->script, &written.head);
    lap(&stage, weight, false);
    assert_int_equal(count(&counters->mismatches), 0);
    struct block *unknown = alloc(&stage, OTHER_BYTES - EBB_PAGE_BYTES);
    assert_null(replay->current);
    assert_int_equal(count(&counters->mismatches), 1);
    drop(&stage, unknown);
    lap(&stage, weight, false); /* both fit, and the shorter one counts */
    assert_ptr_equal(replay->current->script, &written.head);
    stop(&stage);
}

/* A script of two equal halves is found again where it was left, whatever came in between. */
static void a_script_goes_on_where_it_was_left(void **state)
{
    (void)state;
    struct stage stage;
    start(&stage);
    assert_int_equal(ebb__tuning_set("sync_allocations=3", NULL), EBB_OK);
    struct replay *replay = &stage.replay;
    struct block *weight = lanes_block(&stage.lanes, WEIGHT_BYTES);
    struct written written = of_two_halves();
    set_script(&stage, &written);
    lap(&stage, weight, false);
    lap(&stage, weight, false);
    drop(&stage, alloc(&stage, OTHER_BYTES));
    assert_non_null(replay->current);
    assert_int_equal(replay->position, 0);
    for (unsigned i = 0; i < 2; i++) { /* the first one is a false start */
        drop(&stage, alloc(&stage, OTHER_BYTES - EBB_PAGE_BYTES));
        assert_null(replay->current);
        struct block *first = alloc(&stage, bytes_of[FIRST]);
        struct block *second = alloc(&stage, bytes_of[SECOND]);
        drop(&stage, first);
        assert_null(replay->current);
        struct block *third = alloc(&stage, bytes_of[THIRD]);
        assert_non_null(replay->current);
        assert_int_equal(replay->position, 4);
        drop(&stage, third);
        drop(&stage, second);
    }
    lap(&stage, weight, false);
    drop(&stage, alloc(&stage, OTHER_BYTES));
    assert_int_equal(replay->position, 0);
    assert_int_equal(count(&stage.lanes.ground.core.counters->mismatches), 2);
    stop(&stage);
    ebb__tuning_reset();
}

/* Where a script begins to be followed, blocks are as its plan has them there. */
static void blocks_are_as_planned_where_a_script_begins(void **state)
{
    (void)state;
    struct stage stage;
    start(&stage);
    struct block *weight = lanes_block(&stage.lanes, WEIGHT_BYTES);
    struct written written = iteration(0), evicted = iteration(0);
    set_script(&stage, &written);
    lanes_evict(&stage.lanes, weight);
    lap(&stage, weight, false);
    assert_non_null(stage.replay.current);
    lanes_settle(&stage.lanes); /* nobody has used it */
    assert_int_equal(weight->state, BLOCK_RESIDENT);
    assert_true(lanes_is_right(&stage.lanes, weight));
    /* It is used at the first allocation only: behind the third one it is gone. */
    evicted.uses[0].clock = 0;
    evicted.absences[0] =
        (struct ebb_script_absence){.block = WEIGHT, .out_clock = 2, .in_clock = 5, .due_clock = 0};
    lanes_unlock(&stage.lanes);
    ebb__replay_forget_scripts(&stage.replay);
    lanes_lock(&stage.lanes);
    set_script(&stage, &evicted);
    drop(&stage, alloc(&stage, OTHER_BYTES));
    struct block *first = alloc(&stage, bytes_of[FIRST]), *second = alloc(&stage, bytes_of[SECOND]);
    drop(&stage, first);
    assert_null(stage.replay.current);
    struct block *third = alloc(&stage, bytes_of[THIRD]);
    assert_non_null(stage.replay.current);
    lanes_wait(&stage.lanes, weight, BLOCK_EVICTED);
    drop(&stage, third);
    drop(&stage, second);
    lap(&stage, weight, false);
    stop(&stage);
}

static void scripts_come_and_go(void **state)
{
    (void)state;
    struct stage stage;
    start(&stage);
    struct replay *replay = &stage.replay;
    struct block *weight = lanes_block(&stage.lanes, WEIGHT_BYTES);
    struct written written = iteration(0), same = iteration(0), bad = iteration(0);
    struct written others[MAX_SCRIPTS];
    bad.absences[0].out_clock = 6;
    lanes_unlock(&stage.lanes);
    assert_int_equal(ebb__replay_set_script(replay, &bad.head, sizeof bad), EBB_ERR_FORMAT);
    lanes_lock(&stage.lanes);
    set_script(&stage, &written);
    set_script(&stage, &same);
    assert_int_equal(replay->script_count, 1);
    assert_ptr_equal(replay->scripts[0].script, &same.head);
    lap(&stage, weight, false);
    assert_ptr_equal(replay->current->script, &same.head);
    for (uint32_t i = 0; i < MAX_SCRIPTS; i++) {
        others[i] = iteration(0);
        others[i].blocks[SECOND].size_bytes += (i + 1) * EBB_PAGE_BYTES;
        others[i].events[1].size_bytes = others[i].blocks[SECOND].size_bytes;
        set_script(&stage, &others[i]);
    }
    assert_int_equal(replay->script_count, MAX_SCRIPTS); /* the oldest was removed */
    assert_null(replay->current);
    lap(&stage, weight, false);
    assert_null(replay->current);
    ebb__replay_forked(replay);
    assert_int_equal(replay->script_count, 0);
    stop(&stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_script_has_its_matcher),
        cmocka_unit_test(what_hangs_on_a_position_is_done_there),
        cmocka_unit_test(another_allocation_ends_the_match_for_a_while),
        cmocka_unit_test(a_weight_gets_another_name),
        cmocka_unit_test(a_name_counts_more_than_a_place),
        cmocka_unit_test(names_are_found_after_changes),
        cmocka_unit_test(unknown_blocks_go_by_their_age),
        cmocka_unit_test(frees_are_hints),
        cmocka_unit_test(an_order_that_varies_is_followed),
        cmocka_unit_test(accesses_are_a_clock),
        cmocka_unit_test(laps_of_accesses_take_their_time),
        cmocka_unit_test(timers_wait_for_their_time),
        cmocka_unit_test(a_late_return_starts_earlier),
        cmocka_unit_test(the_script_tells_what_is_next),
        cmocka_unit_test(planned_addresses_are_given_once),
        cmocka_unit_test(another_script_takes_over_at_once),
        cmocka_unit_test(a_script_goes_on_where_it_was_left),
        cmocka_unit_test(blocks_are_as_planned_where_a_script_begins),
        cmocka_unit_test(scripts_come_and_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
