/* Emulated allocators: cases worked by hand from the rules in their files. A step is an allocation
 * (the block's number, its bytes) or a free (bytes 0 and FREE), and the held bytes after it. */
#include "base/vec.h"
#include "lab/peers/peer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#define KIB(n) ((uint64_t)(n) << 10)
#define MIB(n) ((uint64_t)(n) << 20)
#define FREE UINT64_MAX

struct step {
    uint64_t block, bytes, held_bytes;
};

/* Replays the first k steps for every k, so that the held bytes are checked after each step. */
static void expect_held(const char *peer, const struct step *steps, size_t count)
{
    struct ebb_event *events = calloc(count, sizeof *events);
    assert_non_null(events);
    uint64_t peak = 0;
    for (size_t i = 0; i < count; i++) {
        bool is_free = steps[i].bytes == FREE;
        uint64_t bytes = steps[i].bytes;
        for (size_t k = 0; is_free && k < i; k++)
            if (events[k].block == steps[i].block)
                bytes = events[k].size_bytes;
        events[i] = (struct ebb_event){.time_ns = i,
                                       .block = steps[i].block,
                                       .size_bytes = bytes,
                                       .kind = is_free ? EBB_EVENT_FREE : EBB_EVENT_ALLOC};
        struct ebb_footprint footprint;
        struct ebb_event_span span = {events, i + 1};
        assert_int_equal(ebb__peer_footprint(peer, span, &footprint, NULL), EBB_OK);
        if (footprint.last_held_bytes != steps[i].held_bytes)
            fail_msg("%s, step %zu: %llu bytes are held, not %llu", peer, i,
                     (unsigned long long)footprint.last_held_bytes,
                     (unsigned long long)steps[i].held_bytes);
        peak = footprint.last_held_bytes > peak ? footprint.last_held_bytes : peak;
        assert_int_equal(footprint.peak_held_bytes, peak);
    }
    free(events);
}

static void test_cnmem(void **state)
{
    (void)state;
    static const struct step steps[] = {
        {1, MIB(200), MIB(256)},       /* from the first pool */
        {2, MIB(100), MIB(356)},       /* only 56 MiB are left there: taken from the device */
        {1, FREE, MIB(356)},           /* merges with the 56 MiB */
        {3, MIB(256), MIB(356)},       /* so this fits */
        {4, 1, MIB(356) + 512},        /* granularity */
        {3, FREE, MIB(356) + 512},     /* */
        {2, FREE, MIB(356) + 512},     /* does not merge: it was taken at another time */
        {5, MIB(300), MIB(656) + 512}, /* so this does not fit */
        {6, MIB(90), MIB(656) + 512},  /* best fit: the 100 MiB, not the 256 MiB */
        {7, MIB(256), MIB(656) + 512}, /* which is still whole */
        {8, MIB(10), MIB(656) + 512},  /* from the rest of the 100 MiB */
        {9, 0, MIB(656) + 512},        /* nothing */
        {9, FREE, MIB(656) + 512},     /* */
    };
    expect_held("cnmem", steps, sizeof steps / sizeof steps[0]);
}

static void test_torch(void **state)
{
    (void)state;
    static const struct step steps[] = {
        {1, 1, MIB(2)},           /* a small segment */
        {2, MIB(1), MIB(2)},      /* the largest small size */
        {3, MIB(1), MIB(4)},      /* 1 MiB less 512 bytes is left, so another segment */
        {4, MIB(1) + 1, MIB(24)}, /* the smallest large size: 20 MiB */
        {5, MIB(9), MIB(24)},     /* split off */
        {6, MIB(10), MIB(34)},    /* 512 bytes too large for the rest: a segment of its own */
        {7, MIB(11), MIB(46)},    /* rounded to 12 MiB; 1 MiB left is not split off */
        {7, FREE, MIB(46)},       /* */
        {8, MIB(12), MIB(46)},    /* so the 12 MiB are still whole */
        {5, FREE, MIB(46)},       /* merges with the rest of its segment */
        {9, MIB(18), MIB(46)},    /* */
        {3, FREE, MIB(46)},       /* a small chunk */
        {10, MIB(2), MIB(66)},    /* cannot serve a large block */
        {11, KIB(512), MIB(66)},  /* best fit: from the segment with less left */
        {12, KIB(511), MIB(66)},  /* the rest of it has 512 bytes less */
        {13, MIB(2), MIB(66)},    /* the other segment, since both are large again */
    };
    expect_held("torch", steps, sizeof steps / sizeof steps[0]);
}

static void test_bfc(void **state)
{
    (void)state;
    static const struct step steps[] = {
        {1, 1, MIB(2)},        /* the first region; the next will have 4 MiB */
        {2, MIB(3), MIB(6)},   /* less than twice its size, so it gets all 4 MiB */
        {3, MIB(1), MIB(6)},   /* 2 MiB less 256 bytes are left: it gets all of it */
        {4, MIB(20), MIB(38)}, /* 8 MiB is doubled to 32 MiB, and it gets all of it */
        {5, MIB(1), MIB(70)},  /* the next region has 32 MiB again; split */
        {6, MIB(15), MIB(70)}, /* 31 MiB are left: split */
        {6, FREE, MIB(70)},    /* merges */
        {7, MIB(31), MIB(70)}, /* */
        {2, FREE, MIB(70)},    /* */
        {8, MIB(4), MIB(70)},  /* gets the 4 MiB of the freed block */
        {9, 1, MIB(134)},      /* 64 MiB */
    };
    expect_held("bfc", steps, sizeof steps / sizeof steps[0]);
    static const struct step waste[] = {
        {1, MIB(256), MIB(256)}, {1, FREE, MIB(256)},
        {2, MIB(129), MIB(256)}, /* up to 127 MiB of waste are allowed */
        {3, MIB(128), MIB(512)}, /* so nothing is left; again 256 MiB */
        {4, MIB(128), MIB(512)}, /* a chunk of twice the size is split */
    };
    expect_held("bfc", waste, sizeof waste / sizeof waste[0]);
}

static void test_glibc(void **state)
{
    (void)state;
    static const struct step steps[] = {
        {1, 1000, 135168},     /* 1008 bytes + 128 KiB + 32, in pages */
        {2, KIB(200), 344064}, /* a mapping of 51 pages */
        {2, FREE, 135168},     /* unmapped; the threshold is 208,896 from here on */
        {3, KIB(200), 339968}, /* 204,816 are below it: the heap grows by 50 pages */
        {3, FREE, 339968},     /* the top is smaller than twice the threshold */
        {4, KIB(500), 856064}, /* a mapping of 126 pages */
        {4, FREE, 339968},     /* */
        {5, KIB(330), 339968}, /* from the top: 338,960 */
        {6, 500, 339968},      /* */
        {7, 24, 339968},       /* */
        {1, FREE, 339968},     /* 1,008 bytes below the top */
        {8, 900, 339968},      /* are reused, 96 are left */
        {9, 88, 339968},       /* which are reused, too */
    };
    expect_held("glibc", steps, sizeof steps / sizeof steps[0]);
    static const struct step trimmed[] = {
        {1, 120000, 253952}, /* 62 pages */
        {2, 120000, 253952}, /* */
        {3, 120000, 491520}, /* 58 more pages */
        {1, FREE, 491520},   /* it is not at the top */
        {2, FREE, 491520},   /* */
        {3, FREE, 135168},   /* everything is top, which shrinks by 87 pages */
    };
    expect_held("glibc", trimmed, sizeof trimmed / sizeof trimmed[0]);
}

/* Blocks that are older than the trace exist at its start, in the order in which they occur. */
static void test_existing(void **state)
{
    (void)state;
    static const struct ebb_event events[] = {{0, 7, MIB(1), EBB_EVENT_ALLOC, 0, 0, 0, 0},
                                              {1, 1, MIB(200), EBB_EVENT_ACCESS, 0, 0, 0, 0},
                                              {2, 7, MIB(1), EBB_EVENT_FREE, 0, 0, 0, 0},
                                              {3, 2, MIB(60), EBB_EVENT_FREE, 0, 0, 0, 0},
                                              {4, 1, MIB(200), EBB_EVENT_FREE, 0, 0, 0, 0}};
    struct ebb_footprint footprint;
    struct ebb_event_span span = {events, 5};
    assert_int_equal(ebb__peer_footprint("cnmem", span, &footprint, NULL), EBB_OK);
    assert_int_equal(footprint.peak_held_bytes, MIB(316)); /* 256 + 60: 1 fits in the first */
    assert_int_equal(footprint.last_held_bytes, MIB(316));
    assert_int_equal(footprint.peak_load_bytes, MIB(261));
}

static void test_bad(void **state)
{
    (void)state;
    struct ebb_footprint footprint;
    struct ebb_error error;
    static const struct ebb_event twice[] = {{0, 1, 8, EBB_EVENT_ALLOC, 0, 0, 0, 0},
                                             {1, 1, 8, EBB_EVENT_FREE, 0, 0, 0, 0},
                                             {2, 1, 8, EBB_EVENT_FREE, 0, 0, 0, 0}};
    static const struct ebb_event huge[] = {{0, 1, UINT64_MAX, EBB_EVENT_ALLOC, 0, 0, 0, 0}};
    for (size_t i = 0; ebb__peer_name(i); i++) {
        const char *peer = ebb__peer_name(i);
        assert_int_equal(
            ebb__peer_footprint(peer, (struct ebb_event_span){twice, 3}, &footprint, &error),
            EBB_ERR_FORMAT);
        assert_string_equal(error.why, "event 2: its block is freed twice");
        assert_int_equal(
            ebb__peer_footprint(peer, (struct ebb_event_span){huge, 1}, &footprint, &error),
            EBB_ERR_LIMIT);
        assert_int_equal(
            ebb__peer_footprint(peer, (struct ebb_event_span){NULL, 0}, &footprint, &error),
            EBB_OK);
        assert_int_equal(footprint.peak_load_bytes, 0);
    }
    assert_int_equal(
        ebb__peer_footprint("nobody", (struct ebb_event_span){NULL, 0}, &footprint, &error),
        EBB_ERR_ARGUMENT);
}

/* For any input, the held bytes are never below the load, and two replays agree. */
static void test_random(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (size_t round = 0; round < 40; round++) {
        EBB_VEC(struct ebb_event) events = {0};
        EBB_VEC(struct ebb_event) live = {0};
        for (size_t i = 0; i < 2000; i++) {
            seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
            uint64_t random = seed >> 33;
            struct ebb_event event = {.time_ns = i};
            if (live.count && random % 100 < 48) {
                size_t k = (size_t)(random / 100) % live.count;
                event.block = live.items[k].block;
                event.size_bytes = live.items[k].size_bytes;
                event.kind = EBB_EVENT_FREE;
                live.items[k] = live.items[--live.count];
            } else {
                event.block = i + 1;
                event.size_bytes = (random / 100 % 4096) << (random % 13);
                event.kind = EBB_EVENT_ALLOC;
                assert_true(ebb_vec_push(&live, event));
            }
            assert_true(ebb_vec_push(&events, event));
        }
        for (size_t i = 0; ebb__peer_name(i); i++) {
            struct ebb_footprint one, two;
            struct ebb_event_span span = {events.items, events.count};
            assert_int_equal(ebb__peer_footprint(ebb__peer_name(i), span, &one, NULL), EBB_OK);
            assert_int_equal(ebb__peer_footprint(ebb__peer_name(i), span, &two, NULL), EBB_OK);
            assert_memory_equal(&one, &two, sizeof one);
            assert_true(one.peak_held_bytes >= one.peak_load_bytes);
            assert_true(one.peak_held_bytes >= one.last_held_bytes);
        }
        ebb_vec_free(&events);
        ebb_vec_free(&live);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cnmem),  cmocka_unit_test(test_torch),    cmocka_unit_test(test_bfc),
        cmocka_unit_test(test_glibc),  cmocka_unit_test(test_existing), cmocka_unit_test(test_bad),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
