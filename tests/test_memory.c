/* Pages alone: which pages the ledger counts, where free pages are kept, and which block gets them
 * next. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "part_rig.h"
#include "runtime/memory/memory.h"

#define ROUNDS 3000u
#define MOST 4u
#define BUDGET ((uint64_t)9 << 20)

struct stage {
    struct ground ground;
    struct table table;
    struct addresses addresses;
    struct memory memory;
};

static bool is_planned(const void *context)
{
    return context && *(const bool *)context;
}

/* Larger sizes and higher units are needed later. */
static uint32_t next_alloc(const void *context, uint64_t size_bytes)
{
    (void)context;
    return (uint32_t)(size_bytes / EBB_PAGE_BYTES);
}

static uint32_t next_cover(const void *context, uint32_t unit)
{
    (void)context;
    return unit;
}

static const struct policy policy = {
    .is_planned = is_planned,
    .next_alloc = next_alloc,
    .next_cover = next_cover,
};

static void stage_open(struct stage *stage, uint64_t budget_bytes)
{
    memset(stage, 0, sizeof *stage);
    ground_open(&stage->ground, budget_bytes, &policy, NULL);
    assert_true(ebb__block_init(&stage->table, &stage->ground.core));
    assert_true(ebb__address_init(&stage->addresses, &stage->table));
    assert_true(ebb__memory_init(&stage->memory, &stage->addresses));
}

static void stage_close(struct stage *stage)
{
    ebb__memory_fini(&stage->memory);
    ebb__address_fini(&stage->addresses);
    ebb__block_fini(&stage->table);
    ground_close(&stage->ground);
}

static bool is_there(const struct stage *stage, uintptr_t address, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += EBB_PAGE_BYTES)
        if (!ebb__fake_present(&stage->ground.device, address + at))
            return false;
    return true;
}

/* Pages without a block, in any of the caches. */
static uint64_t idle_bytes(const struct stage *stage)
{
    const struct memory *memory = &stage->memory;
    return memory->page_stack_bytes + memory->frames.cached_bytes +
           memory->frames.tail_cache_bytes + memory->cached_bytes;
}

static uint64_t pages_there(const struct stage *stage)
{
    const struct ebb_device_layout *layout = &stage->ground.device.layout;
    const struct ebb_device_range *ranges[] = {&layout->arena, &layout->staging,
                                               &layout->page_stack};
    uint64_t bytes = 0;
    for (size_t i = 0; i < 3; i++)
        for (uint64_t at = 0; at < ranges[i]->bytes; at += EBB_PAGE_BYTES)
            bytes +=
                ebb__fake_present(&stage->ground.device, ranges[i]->base + at) ? EBB_PAGE_BYTES : 0;
    return bytes;
}

static struct block *with_address(struct stage *stage, uint64_t bytes)
{
    struct block *block = ebb__space_take(&stage->addresses, bytes);
    while (!block &&
           ebb__pages_strip_cached(&stage->memory)) /* cached blocks occupy addresses, too */
        block = ebb__space_take(&stage->addresses, bytes);
    assert_non_null(block);
    block->page_bytes = block->size_bytes = bytes;
    ebb__block_become(block, BLOCK_BARE);
    return block;
}

/* Returns a block with pages, or NULL if the budget has none left. */
static struct block *take(struct stage *stage, uint64_t bytes)
{
    struct block *block = ebb__pages_take_cached(&stage->memory, bytes);
    if (block) {
        ebb__block_become(block, BLOCK_RESIDENT);
        return block;
    }
    block = with_address(stage, bytes);
    if (ebb__pages_take(&stage->memory, block->address, bytes)) {
        ebb__block_become(block, BLOCK_RESIDENT);
        return block;
    }
    ebb__space_give(&stage->addresses, block);
    return NULL;
}

static void give(struct stage *stage, struct block *block)
{
    ebb__pages_give(&stage->memory, block->address, block->page_bytes);
    ebb__space_give(&stage->addresses, block);
}

/* For any sequence of operations, the ledger counts exactly the existing pages, within the
 * budget. */
static void pages_are_what_the_ledger_counts(void **state)
{
    (void)state;
    struct stage stage;
    bool planned = false;
    stage_open(&stage, BUDGET);
    stage.ground.core.policy_context = &planned;
    struct block *taken[MOST];
    uint32_t count = 0, refused = 0, reused = 0;
    uint64_t random = 5, in_blocks = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        planned = ground_random(&random, 2);
        if (count == MOST || (count && ground_random(&random, 5) < 2)) {
            uint32_t at = ground_random(&random, count);
            in_blocks -= taken[at]->page_bytes;
            if (ground_random(&random, 2))
                ebb__pages_keep_cached(&stage.memory, taken[at]);
            else
                give(&stage, taken[at]);
            taken[at] = taken[--count];
        } else {
            static const uint64_t pages[] = {1, 3, 200, 511, 512, 513, 700, 1024};
            uint64_t bytes = pages[ground_random(&random, 8)] * EBB_PAGE_BYTES;
            uint64_t available = ebb__pages_available(&stage.memory);
            uint64_t cached = stage.memory.cached_bytes;
            struct block *block = take(&stage, bytes);
            assert_true(block || available < bytes);
            reused += block && stage.memory.cached_bytes < cached;
            refused += !block;
            if (block) {
                assert_true(is_there(&stage, block->address, bytes));
                in_blocks += bytes;
                taken[count++] = block;
            }
        }
        uint64_t held = ground_held(&stage.ground);
        assert_true(held <= BUDGET);
        assert_int_equal(held, in_blocks + idle_bytes(&stage));
        assert_int_equal(held, atomic_load(&stage.ground.core.counters->held_bytes));
        if (round % 64 == 0)
            assert_int_equal(held, pages_there(&stage));
    }
    assert_true(refused > 0 && reused > 0);
    stage_close(&stage);
}

static void force_goes_over_the_budget_and_says_so(void **state)
{
    (void)state;
    struct stage stage;
    stage_open(&stage, EBB_HUGE_BYTES);
    atomic_store(&stage.ground.ledger.in_force, 1);
    uint64_t bytes = 2 * EBB_HUGE_BYTES + EBB_PAGE_BYTES;
    struct block *block = with_address(&stage, bytes);
    assert_false(ebb__pages_take(&stage.memory, block->address, bytes));
    assert_int_equal(atomic_load(&stage.ground.ledger.over_bytes), 0);
    assert_true(ebb__pages_force(&stage.memory, block->address, bytes));
    assert_true(is_there(&stage, block->address, bytes));
    assert_int_equal(atomic_load(&stage.ground.ledger.over_bytes), EBB_HUGE_BYTES + EBB_PAGE_BYTES);
    ebb__block_become(block, BLOCK_RESIDENT);
    give(&stage, block);
    ebb__pages_trim(&stage.memory);
    assert_true(ground_held(&stage.ground) <= EBB_HUGE_BYTES);
    stage_close(&stage);
}

/* The frame of a block that ends in small pages is reused as a whole by the next block of its
 * size. */
static void a_tail_goes_to_its_like(void **state)
{
    (void)state;
    struct stage stage;
    stage_open(&stage, UINT64_MAX);
    struct memory *memory = &stage.memory;
    uint64_t bytes = EBB_HUGE_BYTES + 100 * EBB_PAGE_BYTES;
    uintptr_t frame = ebb__pages_take_frame(memory, bytes);
    assert_true(frame && is_there(&stage, frame, bytes));
    ebb__pages_give_frame(memory, frame, bytes);
    assert_int_equal(memory->frames.tail_cache_bytes, bytes);
    uint64_t moves = atomic_load(&stage.ground.core.counters->page_moves);
    assert_int_equal(ebb__pages_take_frame(memory, bytes), frame);
    assert_int_equal(atomic_load(&stage.ground.core.counters->page_moves), moves);
    assert_int_equal(memory->frames.tail_cache_bytes, 0);
    ebb__pages_give_frame(memory, frame, bytes);
    /* For any other size, the cached frame is split. */
    atomic_store(&stage.ground.ledger.budget_bytes, ground_held(&stage.ground));
    uintptr_t whole = ebb__pages_take_frame(memory, EBB_HUGE_BYTES);
    assert_true(whole && is_there(&stage, whole, EBB_HUGE_BYTES));
    assert_int_equal(memory->frames.tail_cache_bytes, 0);
    assert_int_equal(memory->page_stack_bytes, 100 * EBB_PAGE_BYTES);
    stage_close(&stage);
}

/* Pages that replace those shared with a child are not all zeros. Otherwise the kernel would
 * replace them by the shared zero page when it splits a huge page. */
static void pages_made_anew_are_not_zero(void **state)
{
    (void)state;
    struct stage stage;
    stage_open(&stage, UINT64_MAX);
    uint64_t bytes = 2 * EBB_HUGE_BYTES;
    struct block *block = take(&stage, bytes);
    assert_non_null(block);
    memset((void *)block->address, 0, bytes);
    ebb__fake_pin(&stage.ground.device, block->address, bytes, true);
    uintptr_t target = ebb__frames_take(&stage.memory.frames, bytes);
    assert_int_equal(ebb__pages_move_empty(&stage.memory, target, block->address, bytes),
                     EBB_DEVICE_OK);
    ebb__fake_pin(&stage.ground.device, 0, 0, false);
    assert_true(is_there(&stage, target, bytes));
    for (uint64_t at = bytes / 2; at < bytes; at += EBB_PAGE_BYTES)
        assert_int_not_equal(*(const char *)(target + at), 0);
    ebb__frames_keep(&stage.memory.frames, target, bytes);
    ebb__space_give(&stage.addresses, block);
    stage_close(&stage);
}

/* Pages without a block are released if the budget falls, or if another process lacks memory. */
static void idle_pages_are_given_back(void **state)
{
    (void)state;
    struct stage stage;
    stage_open(&stage, UINT64_MAX);
    struct block *kept = take(&stage, EBB_HUGE_BYTES);
    struct block *cached = take(&stage, 2 * EBB_HUGE_BYTES + EBB_PAGE_BYTES);
    struct block *given = take(&stage, EBB_HUGE_BYTES + 3 * EBB_PAGE_BYTES);
    ebb__pages_keep_cached(&stage.memory, cached);
    give(&stage, given);
    uint64_t held = ground_held(&stage.ground);
    ebb__pages_trim(&stage.memory);
    assert_int_equal(ground_held(&stage.ground), held);
    stage.memory.owed_bytes = EBB_HUGE_BYTES;
    ebb__pages_trim(&stage.memory);
    assert_true(ground_held(&stage.ground) <= held - EBB_HUGE_BYTES);
    assert_int_equal(stage.memory.owed_bytes, 0);
    atomic_store(&stage.ground.ledger.budget_bytes, 0);
    ebb__pages_trim(&stage.memory);
    assert_int_equal(ground_held(&stage.ground), EBB_HUGE_BYTES);
    assert_int_equal(idle_bytes(&stage), 0);
    assert_true(is_there(&stage, kept->address, EBB_HUGE_BYTES));
    assert_int_equal(pages_there(&stage), EBB_HUGE_BYTES);
    stage_close(&stage);
}

/* A unit of the static placement keeps its page while a block covers it. Later it is cached until
 * the page is needed. */
static void units_of_the_placement_are_shared(void **state)
{
    (void)state;
    struct stage stage;
    stage_open(&stage, 3 * EBB_HUGE_BYTES);
    struct addresses *addresses = &stage.addresses;
    struct placement *placement = &addresses->placement;
    struct block *first = ebb__placement_take(addresses, 0, EBB_HUGE_BYTES / 2, EBB_PAGE_BYTES);
    struct block *second =
        ebb__placement_take(addresses, EBB_HUGE_BYTES / 2, EBB_HUGE_BYTES, EBB_PAGE_BYTES);
    assert_int_equal(ebb__placement_lacking(&stage.memory, second), 2 * EBB_HUGE_BYTES);
    assert_true(ebb__placement_back(&stage.memory, first, false));
    assert_int_equal(ebb__placement_lacking(&stage.memory, second), EBB_HUGE_BYTES);
    assert_true(ebb__placement_back(&stage.memory, second, false));
    assert_int_equal(placement->held_bytes, 2 * EBB_HUGE_BYTES);
    assert_int_equal(ground_held(&stage.ground), 2 * EBB_HUGE_BYTES);
    assert_true(is_there(&stage, placement->base, 2 * EBB_HUGE_BYTES));
    ebb__block_become(second, BLOCK_BARE);
    ebb__space_give(addresses, second);
    assert_int_equal(placement->cached_bytes, EBB_HUGE_BYTES);
    /* This needs more than there is without the cached unit. */
    struct block *other = take(&stage, 2 * EBB_HUGE_BYTES);
    assert_non_null(other);
    assert_int_equal(placement->held_bytes, EBB_HUGE_BYTES);
    assert_int_equal(placement->cached_bytes, 0);
    assert_true(is_there(&stage, first->address, first->page_bytes));
    assert_null(take(&stage, EBB_PAGE_BYTES));
    stage_close(&stage);
}

/* In the child of a fork, only resident blocks hold pages. All other pages belong to the parent. */
static void a_child_holds_nothing(void **state)
{
    (void)state;
    struct stage stage;
    stage_open(&stage, UINT64_MAX);
    struct block *kept = take(&stage, EBB_HUGE_BYTES);
    ebb__pages_keep_cached(&stage.memory, take(&stage, 2 * EBB_HUGE_BYTES));
    give(&stage, take(&stage, EBB_PAGE_BYTES));
    stage.memory.owed_bytes = 1;
    struct ebb_ring *ring = ground_ring();
    ebb__core_forked(&stage.ground.core, &stage.ground.ledger, ring);
    ebb__block_forked(&stage.table, false);
    ebb__memory_forked(&stage.memory);
    assert_int_equal(idle_bytes(&stage), 0);
    assert_int_equal(stage.memory.owed_bytes, 0);
    assert_int_equal(atomic_load(&stage.ground.core.counters->held_bytes), 0);
    assert_true(kept->inherited && is_there(&stage, kept->address, EBB_HUGE_BYTES));
    assert_null(ebb__pages_take_cached(&stage.memory, 2 * EBB_HUGE_BYTES));
    stage_close(&stage);
    free(ring);
}

/* Before a fork cached pages leave the arena, which the child inherits. They are still held. */
static void cached_pages_are_not_inherited(void **state)
{
    (void)state;
    struct stage stage;
    stage_open(&stage, UINT64_MAX);
    struct block *kept = take(&stage, EBB_HUGE_BYTES);
    struct block *cached = take(&stage, 2 * EBB_HUGE_BYTES + EBB_PAGE_BYTES);
    uintptr_t address = cached->address;
    ebb__pages_keep_cached(&stage.memory, cached);
    uint64_t held_bytes = atomic_load(&stage.ground.core.counters->held_bytes);
    ebb__memory_before_fork(&stage.memory);
    assert_int_equal(stage.memory.cached_bytes, 0);
    for (uint64_t at = 0; at <= 2 * EBB_HUGE_BYTES; at += EBB_PAGE_BYTES)
        assert_false(ebb__fake_present(&stage.ground.device, address + at));
    assert_true(is_there(&stage, kept->address, EBB_HUGE_BYTES));
    assert_int_equal(atomic_load(&stage.ground.core.counters->held_bytes), held_bytes);
    assert_int_equal(idle_bytes(&stage), 2 * EBB_HUGE_BYTES + EBB_PAGE_BYTES);
    stage_close(&stage);
}

/* Units of the static placement that no block covers go, those that one covers stay. */
static void cached_units_are_not_inherited(void **state)
{
    (void)state;
    struct stage stage;
    stage_open(&stage, UINT64_MAX);
    struct placement *placement = &stage.addresses.placement;
    struct block *blocks[5];
    for (unsigned i = 0; i < 5; i++) {
        blocks[i] = ebb__placement_take(&stage.addresses, i * EBB_HUGE_BYTES, EBB_HUGE_BYTES, 1);
        assert_non_null(blocks[i]);
        assert_true(ebb__placement_back(&stage.memory, blocks[i], false));
    }
    for (unsigned i = 0; i < 5; i++)
        if (i != 2) {
            ebb__block_become(blocks[i], BLOCK_BARE);
            ebb__space_give(&stage.addresses, blocks[i]);
        }
    assert_int_equal(placement->cached_bytes, 4 * EBB_HUGE_BYTES);
    ebb__memory_before_fork(&stage.memory);
    assert_int_equal(placement->cached_bytes, 0);
    assert_int_equal(placement->held_bytes, EBB_HUGE_BYTES);
    for (uint64_t i = 0; i < 5; i++)
        assert_int_equal(is_there(&stage, placement->base + i * EBB_HUGE_BYTES, EBB_HUGE_BYTES),
                         i == 2);
    stage_close(&stage);
}

/* Pages that the kernel has merged cannot be moved until each is written. Those behind them can be
 * neither. */
static struct ebb_device_range merged;
static unsigned moves_tried;
static const struct ebb_device_ops *plain_ops;

static enum ebb_device_result move_unmerged(void *state, uintptr_t target, uintptr_t source,
                                            uint64_t bytes, uint64_t *moved)
{
    moves_tried++;
    uint64_t before = bytes;
    if (merged.bytes && merged.base + merged.bytes > source && merged.base < source + bytes)
        before = merged.base > source ? merged.base - source : 0;
    enum ebb_device_result result = plain_ops->move(state, target, source, before, moved);
    return result == EBB_DEVICE_OK && before < bytes ? EBB_DEVICE_BUSY : result;
}

static void write_merged(void *state, uintptr_t address, uint64_t bytes)
{
    (void)state;
    uintptr_t end = merged.base + merged.bytes;
    if (address > merged.base || merged.bytes == 0)
        return;
    merged.base = address + bytes < end ? address + bytes : end;
    merged.bytes = end - merged.base;
}

static void merged_pages_are_moved(void **state)
{
    (void)state;
    struct stage stage;
    stage_open(&stage, BUDGET);
    struct ebb_device_ops ops = *stage.ground.core.device.ops;
    plain_ops = stage.ground.core.device.ops;
    ops.move = move_unmerged;
    stage.ground.core.device.ops = &ops;
    const uint64_t bytes = 3 * EBB_HUGE_BYTES;
    uint64_t moved;
    for (int pinned = 0; pinned < 2; pinned++) {
        struct block *block = ebb__space_take(&stage.addresses, bytes);
        assert_non_null(block);
        assert_true(ebb__pages_take(&stage.memory, block->address, bytes));
        uintptr_t frame = ebb__frames_take(&stage.memory.frames, bytes);
        merged =
            (struct ebb_device_range){block->address + EBB_PAGE_BYTES, bytes - 2 * EBB_PAGE_BYTES};
        ops.unshare = pinned ? plain_ops->unshare : write_merged;
        moves_tried = 0;
        enum ebb_device_result result =
            ebb__pages_move(&stage.memory, frame, block->address, bytes, &moved);
        assert_int_equal(result, pinned ? EBB_DEVICE_BUSY : EBB_DEVICE_OK);
        assert_int_equal(moved, pinned ? EBB_PAGE_BYTES : bytes);
        assert_true(moves_tried <= (pinned ? 2 : 4));
        assert_true(is_there(&stage, frame, moved));
        merged.bytes = 0;
        ebb__pages_give_frame(&stage.memory, frame, bytes);
    }
    stage_close(&stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_are_what_the_ledger_counts),
        cmocka_unit_test(force_goes_over_the_budget_and_says_so),
        cmocka_unit_test(a_tail_goes_to_its_like),
        cmocka_unit_test(pages_made_anew_are_not_zero),
        cmocka_unit_test(idle_pages_are_given_back),
        cmocka_unit_test(units_of_the_placement_are_shared),
        cmocka_unit_test(merged_pages_are_moved),
        cmocka_unit_test(a_child_holds_nothing),
        cmocka_unit_test(cached_pages_are_not_inherited),
        cmocka_unit_test(cached_units_are_not_inherited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
