/* Reclaim alone: which blocks are evicted to free memory, how many bytes, and the slabs. The test
 * provides the next use of each block. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/tuning.h"
#include "lanes_rig.h"
#include "runtime/reclaim/reclaim.h"

#define BLOCKS 6u
#define BLOCK_BYTES EBB_HUGE_BYTES

struct stage {
    struct lanes lanes;
    struct reclaim reclaim;
    struct block *blocks[BLOCKS];
    uint64_t next_use[64]; /* by serial; 0: it is in use */
    bool knows;
    unsigned evicting;
};

static uint64_t iteration_ns(const void *context)
{
    (void)context;
    return 0;
}

static bool knows(const void *context, const struct block *block)
{
    (void)block;
    return ((const struct stage *)context)->knows;
}

static uint64_t next_use(const void *context, const struct block *block)
{
    return ((const struct stage *)context)->next_use[block->serial];
}

static bool is_awaited(const void *context, const struct block *block)
{
    (void)context;
    (void)block;
    return false;
}

static void evicting(void *context, struct block *block)
{
    (void)block;
    ((struct stage *)context)->evicting++;
}

static void was_late(void *context, const struct block *block, uint64_t ns)
{
    (void)context;
    (void)block;
    (void)ns;
}

static bool make_room(void *context, uint64_t bytes, struct asking *asking)
{
    return ebb__room_get(&((struct stage *)context)->reclaim, bytes, asking);
}

static void slab_parked(void *context, struct block *block)
{
    ebb__slab_count(&((struct stage *)context)->reclaim, block, false);
}

static void slab_back(void *context, struct block *block)
{
    ebb__slab_back(&((struct stage *)context)->reclaim, block);
}

static const struct policy policy = {
    .is_planned = lanes_unplanned,
    .iteration_ns = iteration_ns,
    .knows = knows,
    .next_use = next_use,
    .is_awaited = is_awaited,
    .evicting = evicting,
    .was_late = was_late,
    .fire = lanes_nothing_due,
    .resumed = lanes_resumed,
    .make_room = make_room,
    .slab_parked = slab_parked,
    .slab_back = slab_back,
};

/* BLOCKS blocks fill the budget. If `run`, the lanes run. The lock is held. */
static void start(struct stage *stage, bool run)
{
    memset(stage, 0, sizeof *stage);
    stage->knows = true;
    lanes_open(&stage->lanes, BLOCKS * BLOCK_BYTES, &policy, stage, false);
    stage->lanes.ground.core.config.slab_reclaim_ns = 1;
    ebb__reclaim_init(&stage->reclaim, &stage->lanes.transfer);
    if (run)
        assert_true(ebb__mover_start(&stage->lanes.transfer));
    lanes_lock(&stage->lanes);
    for (unsigned i = 0; i < BLOCKS; i++) {
        stage->blocks[i] = lanes_block(&stage->lanes, BLOCK_BYTES);
        stage->blocks[i]->use.touch = ++stage->lanes.table.uses.touches;
        stage->next_use[stage->blocks[i]->serial] = 10 + i;
    }
}

static void stop(struct stage *stage)
{
    ebb__foresee_fini(&stage->reclaim.foresee);
    lanes_unlock(&stage->lanes);
    lanes_close(&stage->lanes);
}

static struct block *slab(struct stage *stage)
{
    struct block *block = ebb__slab_take(&stage->lanes.addresses);
    assert_non_null(block);
    ebb__block_become(block, BLOCK_BARE);
    assert_true(ebb__pages_force(&stage->lanes.memory, block->address, EBB_SLAB_BYTES));
    ebb__block_become(block, BLOCK_RESIDENT);
    ebb__slab_count(&stage->reclaim, block, true);
    lanes_fill(block);
    return block;
}

/* The victim is the block that is used latest, or the larger of two equal ones. A block that is in
 * use or cannot be evicted is no victim. */
static void the_one_used_latest_is_chosen(void **state)
{
    (void)state;
    struct stage stage;
    start(&stage, false);
    assert_ptr_equal(ebb__victim_choose(&stage.reclaim), stage.blocks[BLOCKS - 1]);
    stage.next_use[stage.blocks[2]->serial] = 99;
    assert_ptr_equal(ebb__victim_choose(&stage.reclaim), stage.blocks[2]);
    stage.blocks[2]->kept = true;
    assert_ptr_equal(ebb__victim_choose(&stage.reclaim), stage.blocks[BLOCKS - 1]);
    stage.blocks[BLOCKS - 1]->pinned_until = 1;
    assert_ptr_equal(ebb__victim_choose(&stage.reclaim), stage.blocks[BLOCKS - 2]);
    stage.next_use[stage.blocks[BLOCKS - 2]->serial] = 0;
    assert_ptr_equal(ebb__victim_choose(&stage.reclaim), stage.blocks[BLOCKS - 3]);
    stop(&stage);
}

/* If all blocks are in use, the victim is the one touched earliest. The last touched ones that
 * tuning takes to be in use are exempt. So is a block that was needed again at once. */
static void of_what_is_in_use_the_earliest_touched_goes(void **state)
{
    (void)state;
    struct stage stage;
    start(&stage, false);
    memset(stage.next_use, 0, sizeof stage.next_use);
    assert_ptr_equal(ebb__victim_choose(&stage.reclaim), stage.blocks[0]);
    stage.blocks[0]->use.evicted_at = stage.lanes.table.uses.event_number + 1;
    ebb__move_touch(&stage.lanes.transfer, stage.blocks[0]);
    assert_int_equal(stage.blocks[0]->use.needed_at, stage.lanes.table.uses.event_number + 1);
    assert_ptr_equal(ebb__victim_choose(&stage.reclaim), stage.blocks[1]);
    stage.blocks[1]->kept = stage.blocks[2]->kept = true;
    assert_null(ebb__victim_choose(&stage.reclaim)); /* the others were touched last */
    stop(&stage);
}

/* A block whose move failed is left alone for some events. If nothing else can be evicted, it is
 * tried again, but only once an event. A parked block has been moved, so nothing pins it. */
static void a_pinned_block_is_tried_again_if_there_is_no_other(void **state)
{
    (void)state;
    struct stage stage;
    start(&stage, false);
    struct uses *uses = &stage.lanes.table.uses;
    for (unsigned i = 1; i < BLOCKS; i++)
        stage.blocks[i]->kept = true;
    stage.blocks[0]->pinned_until = uses->event_number + ebb__tuning()->pinned_events;
    assert_null(ebb__victim_choose(&stage.reclaim));
    uses->event_number++;
    assert_ptr_equal(ebb__victim_choose(&stage.reclaim), stage.blocks[0]);
    assert_null(ebb__victim_ahead(&stage.reclaim)); /* memory is not needed now */
    stage.blocks[1]->kept = false;
    assert_ptr_equal(ebb__victim_choose(&stage.reclaim), stage.blocks[1]);
    stage.blocks[1]->kept = true;
    assert_true(ebb__move_park(&stage.lanes.transfer, stage.blocks[0]));
    assert_true(ebb__block_may_be_evicted(uses, stage.blocks[0]));
    stop(&stage);
}

/* Once memory was lacking, some of it is kept free. What is in use stays, and so does everything if
 * nothing was lacking lately. */
static void some_is_evicted_ahead_once_memory_was_lacking(void **state)
{
    (void)state;
    struct stage stage;
    start(&stage, false);
    struct transfer *transfer = &stage.lanes.transfer;
    uint64_t wanted = BLOCKS * BLOCK_BYTES / (uint64_t)ebb__tuning()->ahead_divisor;
    ebb__reclaim_ahead(&stage.reclaim);
    assert_int_equal(transfer->out_pending_bytes, 0);
    assert_true(ebb__room_make(&stage.reclaim, 1));
    assert_int_equal(transfer->out_pending_bytes, BLOCK_BYTES);
    ebb__reclaim_ahead(&stage.reclaim); /* that is more than what is kept free */
    assert_int_equal(transfer->out_pending_bytes, BLOCK_BYTES);
    assert_true(wanted <= BLOCK_BYTES);

    ebb__move_unqueue_out(transfer, stage.blocks[BLOCKS - 1]);
    memset(stage.next_use, 0, sizeof stage.next_use);
    ebb__reclaim_ahead(&stage.reclaim);
    assert_int_equal(transfer->out_pending_bytes, 0);
    stage.next_use[stage.blocks[2]->serial] = 5;
    ebb__reclaim_ahead(&stage.reclaim);
    assert_int_equal(stage.blocks[2]->transfer.queue, QUEUE_OUT);
    ebb__move_unqueue_out(transfer, stage.blocks[2]);
    stage.reclaim.short_until_ns = 1;
    ebb__reclaim_ahead(&stage.reclaim);
    assert_int_equal(transfer->out_pending_bytes, 0);
    stop(&stage);
}

/* The program allocates at its `place`, and uses blocks[place]. */
static void step(struct stage *stage, struct block *temporary, unsigned place)
{
    struct table *table = &stage->lanes.table;
    struct foresee *foresee = &stage->reclaim.foresee;
    table->uses.event_number++;
    temporary->size_bytes = 1000 + place;
    temporary->serial = ++table->newest_serial;
    ebb__foresee_alloc(foresee, table, temporary);
    stage->blocks[place]->use.last = table->uses.event_number;
    stage->blocks[place]->use.touch = ++table->uses.touches;
    ebb__foresee_used(foresee, table, stage->blocks[place]);
    ebb__foresee_freed(foresee, table, temporary);
}

/* The program has gone round its blocks twice and used the first three once more, observed. Returns
 * what it allocates at each place. */
static struct block *walk(struct stage *stage)
{
    struct table *table = &stage->lanes.table;
    struct block *temporary = ebb__space_take(&stage->lanes.addresses, EBB_PAGE_BYTES);
    assert_non_null(temporary);
    table->uses.trace = true;
    for (unsigned i = 0; i < BLOCKS; i++)
        ebb__foresee_alloc(&stage->reclaim.foresee, table, stage->blocks[i]);
    for (unsigned i = 0; i < 2 * BLOCKS + 3; i++)
        step(stage, temporary, i % BLOCKS);
    table->uses.event_number++;
    return temporary;
}

/* While accesses are observed, the victim is what prediction expects to be used last, unless it has
 * moved too much. The policy knows better, or as well, otherwise. */
static void while_accesses_are_observed_the_predicted_latest_goes(void **state)
{
    (void)state;
    struct stage stage;
    start(&stage, false);
    struct table *table = &stage.lanes.table;
    struct foresee *foresee = &stage.reclaim.foresee;
    struct rival *rival = &foresee->rival;
    walk(&stage);
    /* The next are 3, 4, 5, 0, 1, 2. LRU would evict 3, the policy the last. */
    assert_ptr_equal(ebb__victim_choose(&stage.reclaim), stage.blocks[2]);
    assert_int_equal(rival->really_bytes, BLOCK_BYTES);
    assert_int_equal(rival->capacity_bytes, BLOCKS * BLOCK_BYTES);
    rival->moved_bytes = BLOCK_BYTES; /* LRU would have, too */
    stage.blocks[2]->kept = true;
    assert_ptr_equal(ebb__victim_choose(&stage.reclaim), stage.blocks[1]);
    rival->really_bytes += 3 * BLOCKS * BLOCK_BYTES;
    assert_ptr_equal(ebb__victim_choose(&stage.reclaim), stage.blocks[BLOCKS - 1]);
    rival->really_bytes = 0;
    assert_ptr_equal(ebb__victim_choose(&stage.reclaim), stage.blocks[1]);
    table->uses.trace = false;
    assert_ptr_equal(ebb__victim_choose(&stage.reclaim), stage.blocks[BLOCKS - 1]);
    assert_false(foresee->is_on);
    stop(&stage);
}

/* What was evicted and is used again is counted once each way, and a recalled one not at all. When
 * observation begins again the rival does, too, with what is in memory. */
static void what_is_moved_is_counted(void **state)
{
    (void)state;
    struct stage stage;
    start(&stage, true);
    struct table *table = &stage.lanes.table;
    struct foresee *foresee = &stage.reclaim.foresee;
    table->uses.trace = true;
    for (unsigned i = 0; i < BLOCKS; i++)
        ebb__foresee_used(foresee, table, stage.blocks[i]);
    assert_int_equal(foresee->rival.resident_bytes, BLOCKS * BLOCK_BYTES);
    table->uses.event_number++;
    struct block *first = ebb__victim_choose(&stage.reclaim);
    ebb__move_evict(&stage.lanes.transfer, first);
    ebb__foresee_used(foresee, table, first);
    assert_int_equal(foresee->rival.really_bytes, 0);
    lanes_settle(&stage.lanes);
    assert_int_equal(first->state, BLOCK_EVICTED);
    ebb__foresee_used(foresee, table, first);
    assert_int_equal(foresee->rival.really_bytes, BLOCK_BYTES);
    assert_int_equal(foresee->rival.moved_bytes, 0);
    table->uses.trace = false;
    ebb__foresee_used(foresee, table, first);
    table->uses.trace = true;
    ebb__foresee_freed(foresee, table, stage.blocks[first == stage.blocks[0]]);
    assert_int_equal(foresee->rival.really_bytes, 0);
    assert_int_equal(foresee->rival.resident_bytes, (BLOCKS - 2) * BLOCK_BYTES);
    stop(&stage);
}

static void evict(struct stage *stage, unsigned which)
{
    ebb__move_evict(&stage->lanes.transfer, stage->blocks[which]);
    lanes_settle(&stage->lanes);
    assert_int_equal(stage->blocks[which]->state, BLOCK_EVICTED);
}

/* What is expected next is fetched, and what is expected last gives way to it. It is counted once.
 * What is expected hardly sooner than anything else stays where it is. */
static void what_is_expected_next_is_fetched_ahead(void **state)
{
    (void)state;
    struct stage stage;
    start(&stage, true);
    struct table *table = &stage.lanes.table;
    struct foresee *foresee = &stage.reclaim.foresee;
    struct block *temporary = walk(&stage);
    evict(&stage, 1); /* the next are 3, 4, 5, 0, 1, 2 */
    stage.reclaim.short_until_ns = UINT64_MAX;
    ebb__reclaim_ahead(&stage.reclaim);
    lanes_settle(&stage.lanes);
    assert_int_equal(stage.blocks[1]->state, BLOCK_EVICTED);

    evict(&stage, 3);
    uint64_t before = foresee->rival.really_bytes;
    stage.reclaim.look_at = 0;
    ebb__reclaim_ahead(&stage.reclaim);
    lanes_settle(&stage.lanes);
    assert_int_equal(stage.blocks[3]->state, BLOCK_RESIDENT);
    assert_true(lanes_is_right(&stage.lanes, stage.blocks[3]));
    assert_true(foresee->rival.really_bytes >= before + BLOCK_BYTES);
    before = foresee->rival.really_bytes;
    step(&stage, temporary, 3);
    assert_int_equal(foresee->rival.really_bytes, before);

    table->uses.trace = false; /* nothing is foreseen */
    evict(&stage, 4);
    stage.reclaim.look_at = 0;
    ebb__reclaim_ahead(&stage.reclaim);
    lanes_settle(&stage.lanes);
    assert_int_equal(stage.blocks[4]->state, BLOCK_EVICTED);
    stop(&stage);
}

/* The oldest `count` blocks have been evicted. */
static void start_absent(struct stage *stage, unsigned count)
{
    start(stage, true);
    for (unsigned i = 0; i < count; i++)
        evict(stage, i);
}

static void demand(struct stage *stage, unsigned which)
{
    ebb__reclaim_demanded(&stage->reclaim, stage->blocks[which]);
    ebb__move_queue_in(&stage->lanes.transfer, stage->blocks[which], true);
    lanes_settle(&stage->lanes);
    assert_int_equal(stage->blocks[which]->state, BLOCK_RESIDENT);
}

/* Does the next call fetch this block, and nothing else? BLOCKS: does it fetch nothing? */
static void expect_ahead(struct stage *stage, unsigned which)
{
    bool was_absent[BLOCKS];
    for (unsigned i = 0; i < BLOCKS; i++)
        was_absent[i] = stage->blocks[i]->state == BLOCK_EVICTED;
    ebb__reclaim_ahead(&stage->reclaim);
    lanes_settle(&stage->lanes);
    for (unsigned i = 0; i < BLOCKS; i++)
        assert_int_equal(was_absent[i] && stage->blocks[i]->state != BLOCK_EVICTED, i == which);
}

/* Two neighbours are demanded, the newer one first, so the next older one is fetched. It does not
 * give way until it is used. Only so much waits at a time. */
static void demands_against_the_order_go_on(void **state)
{
    (void)state;
    struct stage stage;
    start_absent(&stage, 5);
    struct in_order *order = &stage.reclaim.order;
    demand(&stage, 4);
    expect_ahead(&stage, BLOCKS);
    demand(&stage, 3);
    expect_ahead(&stage, 2);
    assert_true(ebb__in_order_awaits(order, stage.blocks[2]));
    expect_ahead(&stage, BLOCKS);
    stage.next_use[stage.blocks[2]->serial] = 1000;
    assert_ptr_equal(ebb__victim_ahead(&stage.reclaim), stage.blocks[5]);
    ebb__in_order_used(order, stage.blocks[2]);
    assert_int_equal(order->useful_bytes, BLOCK_BYTES);
    assert_ptr_equal(ebb__victim_ahead(&stage.reclaim), stage.blocks[2]);
    expect_ahead(&stage, BLOCKS); /* it is not looked again at once */
    stage.lanes.table.uses.touches += 100;
    expect_ahead(&stage, 1);
    stop(&stage);
}

static void demands_in_another_order_tell_nothing(void **state)
{
    (void)state;
    struct stage stage;
    start_absent(&stage, 5);
    demand(&stage, 1);
    demand(&stage, 2);
    expect_ahead(&stage, BLOCKS);
    demand(&stage, 4);
    expect_ahead(&stage, BLOCKS);
    stop(&stage);
}

/* What is evicted without a use was fetched in vain. After a sixteenth of the budget this ends. */
static void few_blocks_are_fetched_in_vain(void **state)
{
    (void)state;
    struct stage stage;
    start_absent(&stage, 5);
    struct in_order *order = &stage.reclaim.order;
    demand(&stage, 4);
    demand(&stage, 3);
    expect_ahead(&stage, 2);
    ebb__in_order_gone(order, stage.blocks[2]);
    assert_int_equal(order->wasted_bytes, BLOCK_BYTES);
    ebb__in_order_gone(order, stage.blocks[2]);
    assert_int_equal(order->wasted_bytes, BLOCK_BYTES);
    expect_ahead(&stage, BLOCKS);
    order->useful_bytes = 64 * BLOCK_BYTES;
    stage.reclaim.order_at = 0;
    expect_ahead(&stage, 1);
    stop(&stage);
}

/* Weights and activations take turns. A walk that nothing follows any more is over. */
static void walks_take_turns(void **state)
{
    (void)state;
    struct stage stage;
    start_absent(&stage, BLOCKS);
    struct in_order *order = &stage.reclaim.order;
    demand(&stage, 5);
    demand(&stage, 2);
    demand(&stage, 4);
    expect_ahead(&stage, 3);
    ebb__in_order_used(order, stage.blocks[3]);
    demand(&stage, 1);
    expect_ahead(&stage, 0);
    for (unsigned i = 0; i < 100; i++)
        ebb__in_order_demanded(order, &stage.lanes.table, stage.blocks[5]);
    assert_false(ebb__in_order_awaits(order, stage.blocks[0]));
    stop(&stage);
}

/* A copy is kept for a read while accesses are observed, unless the store becomes full. That it was
 * in vain is told once, even if observation has ended meanwhile. */
static void a_copy_is_kept_for_a_read(void **state)
{
    (void)state;
    struct stage stage;
    start(&stage, false);
    struct table *table = &stage.lanes.table;
    struct foresee *foresee = &stage.reclaim.foresee;
    struct block *block = stage.blocks[0];
    assert_false(ebb__foresee_keeps_copy(foresee, table, block));
    assert_false(ebb__foresee_changed(foresee, table, block));
    table->uses.trace = true;
    ebb__foresee_alloc(foresee, table, block);
    ebb__foresee_used(foresee, table, block);
    table->copies.extents.used_bytes = table->copies.extents.limit_bytes / 2 + 1;
    assert_false(ebb__foresee_keeps_copy(foresee, table, block));
    table->copies.extents.used_bytes = 0;
    assert_false(ebb__foresee_changed(foresee, table, block));
    assert_true(ebb__foresee_keeps_copy(foresee, table, block));
    table->uses.trace = false;
    assert_true(ebb__foresee_changed(foresee, table, block));
    assert_false(ebb__foresee_changed(foresee, table, block));
    stop(&stage);
}

/* A large block is evicted part by part, unless a plan moves it as a whole. */
static void large_blocks_leave_by_the_part(void **state)
{
    (void)state;
    struct stage stage;
    start(&stage, false);
    stage.lanes.ground.core.config.part_from_bytes = 2 * EBB_HUGE_BYTES;
    atomic_store(&stage.lanes.ground.ledger.budget_bytes, UINT64_MAX);
    struct block *large = lanes_block(&stage.lanes, 3 * EBB_HUGE_BYTES);
    stage.next_use[large->serial] = 1000;
    assert_ptr_equal(ebb__victim_choose(&stage.reclaim), large);
    assert_int_equal(large->run.parts, 1);
    stage.knows = false;
    struct block *part = ebb__victim_choose(&stage.reclaim);
    assert_int_equal(part->run.head, ebb__block_index(&stage.lanes.table, large));
    assert_int_equal(large->run.parts, 3);
    stop(&stage);
}

/* Blocks are evicted until enough bytes are free. Evictions under way count, and free memory
 * counts. */
static void as_much_leaves_as_is_lacking(void **state)
{
    (void)state;
    struct stage stage;
    start(&stage, false);
    struct transfer *transfer = &stage.lanes.transfer;
    assert_false(ebb__room_make(&stage.reclaim, 0));
    assert_true(ebb__room_make(&stage.reclaim, 2 * BLOCK_BYTES - 1));
    assert_int_equal(stage.evicting, 2);
    assert_int_equal(transfer->out_pending_bytes, 2 * BLOCK_BYTES);
    assert_true(ebb__room_make(&stage.reclaim, 2 * BLOCK_BYTES));
    assert_int_equal(stage.evicting, 2);
    ebb__room_evict_until(&stage.reclaim, 3 * BLOCK_BYTES);
    assert_int_equal(stage.evicting, 3);
    for (unsigned i = 3; i < BLOCKS; i++)
        assert_int_equal(stage.blocks[i]->transfer.queue, QUEUE_OUT);
    /* While the store fails, nothing more is evicted. */
    transfer->store.state = STORE_REFUSED;
    assert_true(ebb__room_make(&stage.reclaim, 6 * BLOCK_BYTES));
    ebb__room_evict_until(&stage.reclaim, 6 * BLOCK_BYTES);
    assert_int_equal(stage.evicting, 3);
    stop(&stage);
}

/* If no block can be evicted, an early prefetch is given up. */
static void early_fetches_make_way(void **state)
{
    (void)state;
    struct stage stage;
    start(&stage, true);
    struct lanes *lanes = &stage.lanes;
    struct block *fetched = stage.blocks[0];
    lanes_evict(lanes, fetched);
    atomic_store(&lanes->faulty.delay_us, 50000);
    ebb__move_queue_in(&lanes->transfer, fetched, false);
    lanes_wait(lanes, fetched, BLOCK_FETCHING);
    for (unsigned i = 1; i < BLOCKS; i++)
        stage.blocks[i]->kept = true;
    assert_true(ebb__room_make(&stage.reclaim, BLOCK_BYTES));
    assert_int_equal(fetched->transfer.end, TRANSFER_GIVEN_UP);
    atomic_store(&lanes->faulty.delay_us, 0);
    lanes_wait(lanes, fetched, BLOCK_RESIDENT);
    assert_true(lanes_is_right(lanes, fetched));
    stop(&stage);
}

/* A lowered budget is approached step by step, and is in force once it is reached. */
static void a_budget_is_approached(void **state)
{
    (void)state;
    struct stage stage;
    start(&stage, true);
    struct ebb_ledger *ledger = &stage.lanes.ground.ledger;
    uint64_t budget = 2 * BLOCK_BYTES;
    atomic_store(&ledger->budget_bytes, budget);
    ebb__room_approach_budget(&stage.reclaim);
    assert_int_equal(atomic_load(&ledger->in_force), 0);
    assert_int_equal(stage.evicting, BLOCKS - 2);
    lanes_settle(&stage.lanes);
    assert_true(atomic_load(&ledger->held_bytes) <= budget);
    ebb__room_approach_budget(&stage.reclaim);
    assert_int_equal(atomic_load(&ledger->in_force), 1);
    assert_true(atomic_load(&ledger->peak_bytes) <= budget);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(stage.blocks[i]->state, BLOCK_RESIDENT);
    stop(&stage);
}

/* Other processes are asked only if they hold memory and the parent lives, and only for a limited
 * time. */
static void others_are_asked_for_what_they_hold(void **state)
{
    (void)state;
    struct stage stage;
    start(&stage, false);
    struct core *core = &stage.lanes.ground.core;
    struct asking asking = {0};
    assert_false(ebb__room_ask_others(&stage.reclaim, BLOCK_BYTES, &asking));
    atomic_fetch_add(&core->ledger->held_bytes, BLOCK_BYTES); /* held by another process */
    assert_false(ebb__room_ask_others(&stage.reclaim, BLOCK_BYTES, &asking));
    atomic_store(&core->ring->parent_gone, 0);
    core->config.process_id = 77;
    assert_true(ebb__room_ask_others(&stage.reclaim, BLOCK_BYTES, &asking));
    assert_int_equal(atomic_load(&core->ledger->starving_process), 77);
    assert_int_equal(atomic_load(&core->ledger->starving_bytes), BLOCK_BYTES);
    asking.is_heard = true;
    asking.since_ns = ebb__now_ns() - 1000000000; /* without an answer */
    assert_false(ebb__room_ask_others(&stage.reclaim, BLOCK_BYTES, &asking));
    struct asking again = {0};
    assert_false(ebb__room_ask_others(&stage.reclaim, BLOCK_BYTES, &again));
    stop(&stage);
}

/* Slabs that are unused for an iteration are parked, and evicted before any block. A use fetches
 * them. */
static void idle_slabs_leave_first(void **state)
{
    (void)state;
    struct stage stage;
    start(&stage, true);
    struct lanes *lanes = &stage.lanes;
    struct ebb_counters *counters = lanes->ground.core.counters;
    struct block *first = slab(&stage), *second = slab(&stage);
    assert_int_equal(atomic_load(&counters->small_bytes), 2 * EBB_SLAB_BYTES);
    ebb__slab_look(&stage.reclaim, 8);
    assert_int_equal(first->state, BLOCK_PARKED);
    assert_int_equal(second->state, BLOCK_PARKED);
    assert_int_equal(atomic_load(&counters->small_bytes), 0);
    ebb__slab_fault(&stage.reclaim, second, second->address);
    assert_int_equal(second->state, BLOCK_RESIDENT);
    assert_int_equal(atomic_load(&counters->small_bytes), EBB_SLAB_BYTES);
    assert_int_equal(ebb__slab_record_at(&lanes->addresses, second->address)->doublings, 1);
    second->kept = true;
    assert_ptr_equal(ebb__victim_choose(&stage.reclaim), first);
    lanes_evict(lanes, first);
    ebb__slab_fault(&stage.reclaim, first, first->address);
    lanes_wait(lanes, first, BLOCK_RESIDENT);
    assert_true(lanes_is_right(lanes, first));
    assert_int_equal(atomic_load(&counters->demand_faults), 1);
    stop(&stage);
}

/* What a child has inherited is not in the ledger, so evicting it would free nothing. */
static void what_is_inherited_stays(void **state)
{
    (void)state;
    struct stage stage;
    start(&stage, false);
    struct block *inherited = slab(&stage);
    inherited->inherited = stage.blocks[BLOCKS - 1]->inherited = true;
    assert_ptr_equal(ebb__victim_choose(&stage.reclaim), stage.blocks[BLOCKS - 2]);
    ebb__slab_look(&stage.reclaim, 8);
    assert_int_equal(inherited->state, BLOCK_RESIDENT);
    assert_null(ebb__slab_victim(&stage.reclaim));
    stage.blocks[BLOCKS - 1]->inherited = false;
    assert_ptr_equal(ebb__victim_choose(&stage.reclaim), stage.blocks[BLOCKS - 1]);
    stop(&stage);
}

/* A fork leaves evicted slabs where they are. Parked ones become resident for it, which counts
 * as no use of them. */
static void a_fork_is_no_use_of_a_slab(void **state)
{
    (void)state;
    struct stage stage;
    start(&stage, true);
    struct lanes *lanes = &stage.lanes;
    struct ebb_counters *counters = lanes->ground.core.counters;
    struct block *evicted = slab(&stage), *parked = slab(&stage);
    struct slab_record *record = ebb__slab_record_at(&lanes->addresses, parked->address);
    lanes_evict(lanes, evicted);
    ebb__slab_look(&stage.reclaim, 8);
    assert_int_equal(parked->state, BLOCK_PARKED);
    struct slab_record before = *record;
    ebb__reclaim_before_fork(&stage.reclaim);
    assert_true(ebb__transfer_before_fork(&lanes->transfer));
    assert_int_equal(evicted->state, BLOCK_EVICTED);
    assert_int_equal(parked->state, BLOCK_RESIDENT);
    assert_int_equal(atomic_load(&counters->small_bytes), EBB_SLAB_BYTES);
    assert_memory_equal(record, &before, sizeof before);
    ebb__transfer_after_fork(&lanes->transfer);
    ebb__reclaim_after_fork(&stage.reclaim);
    assert_int_equal(atomic_load(&counters->demand_faults), 0);
    ebb__slab_look(&stage.reclaim, 8);
    assert_int_equal(parked->state, BLOCK_PARKED);
    ebb__slab_fault(&stage.reclaim, parked, parked->address);
    assert_int_equal(record->doublings, 1); /* that is a use */
    stop(&stage);
}

/* What a child shares cannot be freed, so parked slabs leave before it if the budget is tight. */
static void parked_slabs_leave_before_a_fork(void **state)
{
    (void)state;
    struct stage stage;
    start(&stage, true);
    struct lanes *lanes = &stage.lanes;
    struct block *parked = slab(&stage), *used = slab(&stage);
    ebb__slab_look(&stage.reclaim, 8);
    ebb__slab_fault(&stage.reclaim, used, used->address);
    atomic_store(&lanes->ground.ledger.in_force, 1);
    atomic_store(&lanes->ground.ledger.budget_bytes, 3 * BLOCKS * BLOCK_BYTES);
    ebb__reclaim_before_fork(&stage.reclaim);
    assert_int_equal(parked->state, BLOCK_PARKED);
    atomic_store(&lanes->ground.ledger.budget_bytes, BLOCKS * BLOCK_BYTES);
    ebb__reclaim_before_fork(&stage.reclaim);
    assert_int_equal(parked->state, BLOCK_EVICTED);
    assert_int_equal(used->state, BLOCK_RESIDENT);
    lanes->faulty.write_errno = EIO; /* then they stay, and nobody waits for them */
    ebb__reclaim_after_fork(&stage.reclaim);
    ebb__slab_look(&stage.reclaim, 8);
    assert_int_equal(used->state, BLOCK_PARKED);
    ebb__reclaim_before_fork(&stage.reclaim);
    assert_int_equal(used->transfer.queue, QUEUE_NONE);
    assert_false(used->state == BLOCK_EVICTED || used->state == BLOCK_WRITING_BACK);
    stop(&stage);
}

/* The child of a fork may have a device on which system calls cannot wait: all slabs come back. */
static void a_child_whose_calls_cannot_wait_has_all_slabs(void **state)
{
    (void)state;
    struct stage stage;
    start(&stage, true);
    struct lanes *lanes = &stage.lanes;
    struct block *evicted = slab(&stage);
    atomic_store(&lanes->ground.ledger.budget_bytes, UINT64_MAX); /* room for it to return */
    lanes_evict(lanes, evicted);
    ebb__reclaim_forked(&stage.reclaim);
    assert_int_equal(evicted->state, BLOCK_EVICTED);
    const struct ebb_device_ops *ops = lanes->ground.core.device.ops;
    struct ebb_device_ops needs_pins = *ops;
    needs_pins.calls_need_pins = true;
    lanes->ground.core.device.ops = &needs_pins;
    ebb__reclaim_forked(&stage.reclaim);
    assert_int_equal(evicted->state, BLOCK_RESIDENT);
    assert_true(lanes_is_right(lanes, evicted));
    lanes->ground.core.device.ops = ops;
    stop(&stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_one_used_latest_is_chosen),
        cmocka_unit_test(of_what_is_in_use_the_earliest_touched_goes),
        cmocka_unit_test(a_pinned_block_is_tried_again_if_there_is_no_other),
        cmocka_unit_test(some_is_evicted_ahead_once_memory_was_lacking),
        cmocka_unit_test(while_accesses_are_observed_the_predicted_latest_goes),
        cmocka_unit_test(what_is_moved_is_counted),
        cmocka_unit_test(what_is_expected_next_is_fetched_ahead),
        cmocka_unit_test(demands_against_the_order_go_on),
        cmocka_unit_test(demands_in_another_order_tell_nothing),
        cmocka_unit_test(few_blocks_are_fetched_in_vain),
        cmocka_unit_test(walks_take_turns),
        cmocka_unit_test(a_copy_is_kept_for_a_read),
        cmocka_unit_test(large_blocks_leave_by_the_part),
        cmocka_unit_test(as_much_leaves_as_is_lacking),
        cmocka_unit_test(early_fetches_make_way),
        cmocka_unit_test(a_budget_is_approached),
        cmocka_unit_test(others_are_asked_for_what_they_hold),
        cmocka_unit_test(idle_slabs_leave_first),
        cmocka_unit_test(what_is_inherited_stays),
        cmocka_unit_test(a_fork_is_no_use_of_a_slab),
        cmocka_unit_test(parked_slabs_leave_before_a_fork),
        cmocka_unit_test(a_child_whose_calls_cannot_wait_has_all_slabs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
