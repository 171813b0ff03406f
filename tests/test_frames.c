/* Frames: compared with a plain list of the frames in use. With them, an absence costs two
 * moves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "runtime_rig.h"

#define UNITS (ARENA_BYTES / EBB_HUGE_BYTES)
#define MOST_TAKEN 40u

struct taken {
    uintptr_t address;
    uint64_t bytes;
};

static uint64_t units_in(uint64_t bytes)
{
    return (bytes + EBB_HUGE_BYTES - 1) / EBB_HUGE_BYTES;
}

static void mark(const struct rig *rig, uint8_t *units, uintptr_t address, uint64_t bytes,
                 uint8_t before, uint8_t after)
{
    uint64_t first = (address - rig->device.layout.staging.base) / EBB_HUGE_BYTES;
    assert_int_equal(address % EBB_HUGE_BYTES, 0);
    for (uint64_t i = 0; i < units_in(bytes); i++) {
        assert_true(first + i < UNITS);
        assert_int_equal(units[first + i], before);
        units[first + i] = after;
    }
}

static bool is_fragmented(const struct rig *rig, uint64_t unit)
{
    return rig->runtime->memory.frames.fragmented[unit];
}

/* The runs cover exactly the cached frames. Each is of one kind, and as long as possible. */
static void assert_runs(const struct rig *rig, const uint8_t *units)
{
    const struct frames *frames = &rig->runtime->memory.frames;
    uint64_t cached = 0, in_runs = 0, fragmented = 0;
    for (uint64_t i = 0; i < UNITS; i++) {
        cached += units[i] == 2;
        fragmented += units[i] == 2 && is_fragmented(rig, i);
    }
    for (uint32_t i = 0; i < frames->run_count; i++) {
        const struct frame_run *run = &frames->runs[i];
        assert_true(run->first < run->behind && run->behind <= UNITS);
        assert_true(run->first == 0 || units[run->first - 1] != 2 ||
                    is_fragmented(rig, run->first - 1) != run->is_fragmented);
        assert_true(run->behind == UNITS || units[run->behind] != 2 ||
                    is_fragmented(rig, run->behind) != run->is_fragmented);
        for (uint64_t unit = run->first; unit < run->behind; unit++) {
            assert_int_equal(units[unit], 2);
            assert_int_equal(is_fragmented(rig, unit), run->is_fragmented);
        }
        in_runs += run->behind - run->first;
    }
    assert_int_equal(in_runs, cached);
    assert_int_equal(frames->cached_bytes, cached * EBB_HUGE_BYTES);
    assert_int_equal(frames->fragmented_bytes, fragmented * EBB_HUGE_BYTES);
}

static void assert_kind(const struct rig *rig, uintptr_t address, uint64_t bytes, bool fragmented)
{
    uint64_t first = (address - rig->device.layout.staging.base) / EBB_HUGE_BYTES;
    for (uint64_t i = 0; i < bytes / EBB_HUGE_BYTES; i++)
        assert_int_equal(is_fragmented(rig, first + i), fragmented);
}

static void frames_are_found_and_lost(void **state)
{
    (void)state;
    struct rig *rig = rig_open(NO_BUDGET, false);
    struct ebb_runtime *runtime = rig->runtime;
    static uint8_t units[UNITS]; /* 0: free, 1: taken, 2: cached */
    struct taken taken[MOST_TAKEN];
    unsigned count = 0;
    uint64_t random = 7, got, claims = 0, full = 0;
    for (unsigned step = 0; step < 20000; step++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        uint64_t bytes = (1 + (random >> 33) % 5) * EBB_HUGE_BYTES - (random >> 40) % 3 * 8192;
        uint64_t whole = bytes & ~(EBB_HUGE_BYTES - 1);
        unsigned which = count ? (unsigned)(random >> 50) % count : 0;
        switch ((random >> 60) % 4) {
        case 0:
        case 1: {
            uint64_t others =
                runtime->memory.frames.cached_bytes - runtime->memory.frames.fragmented_bytes;
            uintptr_t address =
                count < MOST_TAKEN ? ebb__frames_claim(&runtime->memory.frames, bytes) : 0;
            if (address) {
                claims++;
                assert_kind(rig, address, whole, others < whole);
                mark(rig, units, address, whole, 2, 1);
                if (bytes > whole)
                    mark(rig, units, address + whole, bytes - whole, 0, 1);
            } else if (count < MOST_TAKEN) {
                address = ebb__frames_take(&runtime->memory.frames, bytes);
                full += address == 0;
                if (address)
                    mark(rig, units, address, bytes, 0, 1);
            }
            if (address)
                taken[count++] = (struct taken){address, bytes};
            break;
        }
        case 2:
            if (runtime->memory.frames.cached_bytes) {
                bool fragmented = random >> 58 & 1;
                uint64_t of_kind = fragmented ? runtime->memory.frames.fragmented_bytes
                                              : runtime->memory.frames.cached_bytes -
                                                    runtime->memory.frames.fragmented_bytes;
                uintptr_t address = ebb__frames_spend(
                    &runtime->memory.frames, units_in(bytes) * EBB_HUGE_BYTES, fragmented, &got);
                assert_true(got > 0 && got <= units_in(bytes) * EBB_HUGE_BYTES);
                assert_kind(rig, address, got, of_kind > 0 ? fragmented : !fragmented);
                mark(rig, units, address, got, 2, 0);
            }
            break;
        default:
            if (count) {
                struct taken one = taken[which];
                taken[which] = taken[--count];
                uint64_t kept = random >> 59 & 1 ? one.bytes & ~(EBB_HUGE_BYTES - 1) : 0;
                if (kept) {
                    for (uint64_t at = 0; at < kept; at += EBB_HUGE_BYTES)
                        *ebb__pages_fragmented(&runtime->memory, one.address + at) =
                            (random >> 13 ^ at >> 21) % 3 == 0;
                    ebb__frames_keep(&runtime->memory.frames, one.address, kept);
                    mark(rig, units, one.address, kept, 1, 2);
                }
                if (kept < one.bytes) {
                    ebb__frames_give(&runtime->memory.frames, one.address + kept, one.bytes - kept);
                    mark(rig, units, one.address + kept, one.bytes - kept, 1, 0);
                }
            }
        }
        assert_runs(rig, units);
    }
    assert_true(claims > 100 && full > 0);
    ebb__frames_reset(&runtime->memory.frames); /* the pages do not exist */
    rig_close(rig);
}

static void tails_go_to_their_like(void **state)
{
    (void)state;
    struct rig *rig = rig_open(NO_BUDGET, false);
    struct ebb_runtime *runtime = rig->runtime;
    uintptr_t first = ebb__frames_take(&runtime->memory.frames, 12288),
              second = ebb__frames_take(&runtime->memory.frames, 12288),
              other = ebb__frames_take(&runtime->memory.frames, EBB_HUGE_BYTES + 4096);
    assert_true(ebb__tail_cache_keep(&runtime->memory.frames, first, 12288));
    assert_true(ebb__tail_cache_keep(&runtime->memory.frames, second, 12288));
    assert_true(ebb__tail_cache_keep(&runtime->memory.frames, other, EBB_HUGE_BYTES + 4096));
    assert_int_equal(runtime->memory.frames.tail_cache_bytes, EBB_HUGE_BYTES + 4096 + 2 * 12288);
    assert_int_equal(ebb__tail_cache_claim(&runtime->memory.frames, 8192), 0);
    assert_int_equal(ebb__tail_cache_claim(&runtime->memory.frames, 12288), second);
    struct tail_cache_entry oldest = ebb__tail_cache_take_oldest(&runtime->memory.frames);
    assert_int_equal(oldest.address, first);
    assert_int_equal(oldest.bytes, 12288);
    assert_int_equal(ebb__tail_cache_claim(&runtime->memory.frames, EBB_HUGE_BYTES + 4096), other);
    assert_int_equal(ebb__tail_cache_take_oldest(&runtime->memory.frames).bytes, 0);
    assert_int_equal(runtime->memory.frames.tail_cache_bytes, 0);
    ebb__frames_reset(&runtime->memory.frames);
    rig_close(rig);
}

static _Atomic uint64_t moved_pages;
static const struct ebb_device_ops *counted_ops;

static enum ebb_device_result count_move(void *device, uintptr_t target, uintptr_t source,
                                         uint64_t bytes, uint64_t *moved)
{
    moved_pages += bytes / EBB_PAGE_BYTES;
    return counted_ops->move(device, target, source, bytes, moved);
}

/* Waits until no transfer is under way. */
static void wait_for_quiet(struct rig *rig)
{
    struct ebb_runtime *runtime = rig->runtime;
    for (bool quiet = false; !quiet; nap_us(100)) {
        pthread_mutex_lock(&runtime->core.lock);
        quiet = ebb__lanes_are_idle(&runtime->transfer);
        pthread_mutex_unlock(&runtime->core.lock);
    }
}

/* Blocks of one size are evicted and fetched. Each page that is written or read moves once,
 * whatever the size of a block's tail. */
static void an_absence_is_two_moves(void **state)
{
    (void)state;
    const uint64_t sizes[] = {4 * EBB_MIB, 3 * EBB_MIB + 20480, EBB_MIB + 4096};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        struct rig *rig = rig_open(4 * ebb__whole_pages(sizes[s]), false);
        struct ebb_device_ops ops = *rig->runtime->core.device.ops;
        counted_ops = rig->runtime->core.device.ops;
        ops.move = count_move;
        struct item items[4];
        for (uint64_t i = 0; i < 4; i++)
            items[i] = make(rig, sizes[s], i + 1);
        wait_for_quiet(rig);
        rig->runtime->core.device.ops = &ops;
        moved_pages = 0;
        uint64_t before = atomic_load(&rig->counters->moved_out_bytes) +
                          atomic_load(&rig->counters->moved_in_bytes);
        for (uint64_t i = 0; i < 20; i++) {
            evict_now(rig, &items[i % 4]);
            evict_now(rig, &items[(i + 1) % 4]);
            check(rig, &items[i % 4]);
            check(rig, &items[(i + 1) % 4]);
        }
        wait_for_quiet(rig);
        uint64_t bytes = atomic_load(&rig->counters->moved_out_bytes) +
                         atomic_load(&rig->counters->moved_in_bytes) - before;
        assert_int_equal(bytes, 80 * ebb__whole_pages(sizes[s]));
        assert_int_equal(moved_pages * EBB_PAGE_BYTES, bytes);
        assert_within_budget(rig);
        for (uint64_t i = 0; i < 4; i++)
            drop(rig, &items[i]);
        wait_for_quiet(rig);
        assert_int_equal(held(rig), atomic_load(&rig->counters->held_bytes));
        rig->runtime->core.device.ops = counted_ops;
        rig_close(rig);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_are_found_and_lost),
        cmocka_unit_test(tails_go_to_their_like),
        cmocka_unit_test(an_absence_is_two_moves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
