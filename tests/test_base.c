/* The base: sizes and percentages, the map, statuses and errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/map.h"
#include "base/order.h"
#include "base/size.h"
#include "base/status.h"
#include "base/vec.h"

#include <stdint.h>
#include <string.h>

static void sizes_in(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        {"0", 0},
        {"1", 1},
        {"4096", 4096},
        {"4096B", 4096},
        {"4K", 4096},
        {"4k", 4096},
        {"4KiB", 4096},
        {"4KB", 4000},
        {"512MiB", (uint64_t)512 << 20},
        {"4G", (uint64_t)4 << 30},
        {"4GiB", (uint64_t)4 << 30},
        {"4g", (uint64_t)4 << 30},
        {"4GB", 4000000000},
        {"1.5G", (uint64_t)3 << 29},
        {"0.5K", 512},
        {"1.", 1},
        {"2T", (uint64_t)2 << 40},
        {"1P", (uint64_t)1 << 50},
        {"007", 7},
        {"8191P", (uint64_t)8191 << 50},
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        uint64_t bytes = 99;
        if (!ebb_size_parse(good[i].text, &bytes) || bytes != good[i].bytes)
            fail_msg("%s gives %llu", good[i].text, (unsigned long long)bytes);
    }
    static const char *const bad[] = {
        "",
        " ",
        "-1",
        "+1",
        " 1",
        "1 ",
        "1 G",
        "G",
        ".5G",
        "1..5",
        "1.5.5",
        "0x10",
        "1e9",
        "4GiBB",
        "4Gi",
        "4GX",
        "4iB",
        "4b",
        "inf",
        "nan",
        "8192P",
        "1,5G",
        "4GIB",
        "99999999999999999999",
        "60%",
        "9223372036854775808",
        "1000000000000000000000000000000000000000000000",
        "4BB",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint64_t bytes = 99;
        if (ebb_size_parse(bad[i], &bytes) || bytes != 99)
            fail_msg("'%s' is taken for %llu", bad[i], (unsigned long long)bytes);
    }
}

static void percentages_in(void **state)
{
    (void)state;
    double fraction = 0;
    uint64_t ns = 7;
    assert_true(ebb_seconds_parse("0.1", &ns));
    assert_int_equal(ns, 100000000);
    assert_true(ebb_seconds_parse("0", &ns));
    assert_int_equal(ns, 0);
    static const char *const no_seconds[] = {"", "-1", "nan", "inf", "2e9", "1s", "x", " 5", "0x5"};
    for (size_t i = 0; i < sizeof no_seconds / sizeof no_seconds[0]; i++)
        assert_false(ebb_seconds_parse(no_seconds[i], &ns));
    assert_true(ebb_percent_parse("60%", &fraction));
    assert_true(fraction > 0.5999999 && fraction < 0.6000001);
    assert_true(ebb_percent_parse("12.5%", &fraction));
    assert_true(fraction > 0.1249999 && fraction < 0.1250001);
    assert_true(ebb_percent_parse("1000%", &fraction));
    assert_true(fraction > 9.999999 && fraction < 10.000001);
    assert_true(ebb_percent_parse("0.001%", &fraction));
    static const char *const bad[] = {"",      "%",    "60",   "60 %", "-5%", "0%",
                                      "1001%", "60%%", "60%G", "a%",   " 60%"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        fraction = 7;
        if (ebb_percent_parse(bad[i], &fraction) || fraction < 6.9 || fraction > 7.1)
            fail_msg("'%s' is taken for %f", bad[i], fraction);
    }
}

static void figures_out(void **state)
{
    (void)state;
    char out[32];
    static const struct {
        uint64_t bytes;
        const char *text;
    } sizes[] = {{0, "0 B"},
                 {512, "512 B"},
                 {1023, "1023 B"},
                 {1024, "1.00 KiB"},
                 {1536, "1.50 KiB"},
                 {(uint64_t)3672 << 20, "3.59 GiB"},
                 {(uint64_t)1 << 40, "1.00 TiB"},
                 {UINT64_MAX, "16.00 EiB"}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        assert_string_equal(ebb_size_format(sizes[i].bytes, out, sizeof out), sizes[i].text);
    static const struct {
        uint64_t ns;
        const char *text;
    } durations[] = {{0, "0 ns"},
                     {250, "250 ns"},
                     {999, "999 ns"},
                     {1000, "1.0 us"},
                     {3100000, "3.1 ms"},
                     {1420000000, "1.42 s"},
                     {3600000000000, "3600.00 s"}};
    for (size_t i = 0; i < sizeof durations / sizeof durations[0]; i++)
        assert_string_equal(ebb_duration_format(durations[i].ns, out, sizeof out),
                            durations[i].text);
    assert_true(strlen(ebb_duration_format(UINT64_MAX, out, sizeof out)) < 31);
    char tiny[4];
    assert_int_equal(strlen(ebb_size_format(UINT64_MAX, tiny, sizeof tiny)), 3);
    /* A formatted size can be parsed if its blank is removed. */
    uint64_t bytes;
    assert_true(ebb_size_parse("1.50KiB", &bytes) && bytes == 1536);
}

static uint64_t chance(uint64_t *state)
{
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

#define KEYS 300

/* Keys that fall into few slots, so that runs are long and wrap around. */
static uint64_t key_of(uint64_t i, unsigned style)
{
    switch (style) {
    case 0:
        return i;
    case 1:
        return i << 58 | i;
    case 2:
        return UINT64_MAX - 1 - i;
    default:
        return i * 4096 + 0x7f0000000000;
    }
}

static void map_against_brute_force(void **state)
{
    (void)state;
    for (unsigned style = 0; style < 4; style++) {
        struct ebb_map map = {0};
        uint64_t values[KEYS], chances = style + 1;
        bool there[KEYS] = {false};
        size_t count = 0;
        for (unsigned step = 0; step < 40000; step++) {
            uint64_t i = chance(&chances) % KEYS, key = key_of(i, style), value = 5;
            bool grows = step / 4000 % 2 == 0; /* fill, then drain */
            if (chance(&chances) % 4 < (grows ? 3u : 1u)) {
                uint64_t wanted = chance(&chances);
                assert_true(ebb__map_put(&map, key, wanted));
                count += !there[i];
                there[i] = true;
                values[i] = wanted;
            } else {
                assert_int_equal(ebb__map_remove(&map, key, step % 2 ? &value : NULL), there[i]);
                assert_int_equal(value, there[i] && step % 2 ? values[i] : 5);
                count -= there[i];
                there[i] = false;
            }
            assert_int_equal(map.count, count);
            if (step % 50)
                continue;
            for (uint64_t k = 0; k < KEYS; k++) {
                value = 5;
                assert_int_equal(ebb__map_get(&map, key_of(k, style), &value), there[k]);
                assert_int_equal(value, there[k] ? values[k] : 5);
            }
        }
        ebb__map_fini(&map);
        assert_int_equal(map.count, 0);
        assert_false(ebb__map_get(&map, 1, NULL));
    }
    struct ebb_map map = {0};
    uint64_t value = 5;
    assert_false(ebb__map_put(&map, EBB_MAP_NO_KEY, 1));
    assert_false(ebb__map_remove(&map, 3, &value));
    assert_true(ebb__map_put(&map, 0, 1));
    assert_false(ebb__map_put(&map, EBB_MAP_NO_KEY, 1));
    assert_false(ebb__map_get(&map, EBB_MAP_NO_KEY, &value));
    assert_false(ebb__map_remove(&map, EBB_MAP_NO_KEY, &value));
    assert_true(ebb__map_get(&map, 0, NULL));
    assert_int_equal(value, 5);
    ebb__map_fini(&map);
}

static void statuses(void **state)
{
    (void)state;
    size_t rows = 0;
#define EBB_TEST_ROW(name, text, code)                                                             \
    assert_string_equal(ebb_status_text(EBB_##name), text);                                        \
    assert_int_equal(ebb_status_exit_code(EBB_##name), code);                                      \
    assert_int_equal(EBB_##name, rows);                                                            \
    rows++;
    EBB_STATUS_TABLE(EBB_TEST_ROW)
    assert_int_equal(EBB_OK, 0);
    assert_int_equal(ebb_status_exit_code(EBB_OK), 0);
    assert_int_equal(ebb_status_exit_code(EBB_ERR_ARGUMENT), 2);
    assert_int_equal(ebb_status_exit_code(EBB_INFEASIBLE), 3);
    assert_string_equal(ebb_status_text((enum ebb_status)rows), "unknown status");
    assert_string_equal(ebb_status_text((enum ebb_status) - 1), "unknown status");
    assert_int_equal(ebb_status_exit_code((enum ebb_status)rows), 1);
}

static void errors(void **state)
{
    (void)state;
    struct ebb_error error;
    memset(&error, 0xaa, sizeof error);
    assert_int_equal(ebb__fail(&error, EBB_ERR_IO, "file", "%s at %d", "broken", 7), EBB_ERR_IO);
    assert_int_equal(error.status, EBB_ERR_IO);
    assert_string_equal(error.what, "file");
    assert_string_equal(error.why, "broken at 7");
    assert_string_equal(error.remedy, "");
    ebb__error_set_remedy(&error, "mend %s", "it");
    assert_string_equal(error.remedy, "mend it");
    assert_string_equal(error.why, "broken at 7");
    char longer[1000];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    assert_int_equal(ebb__fail(&error, EBB_ERR_LIMIT, longer, "%s", longer), EBB_ERR_LIMIT);
    ebb__error_set_remedy(&error, "%s", longer);
    assert_int_equal(strlen(error.what), sizeof error.what - 1);
    assert_int_equal(strlen(error.why), sizeof error.why - 1);
    assert_int_equal(strlen(error.remedy), sizeof error.remedy - 1);
    assert_int_equal(ebb__fail(NULL, EBB_ERR_MEMORY, "x", "y"), EBB_ERR_MEMORY);
    ebb__error_set_remedy(NULL, "nothing");
}

static void vectors(void **state)
{
    (void)state;
    EBB_VEC(uint32_t) numbers = {0};
    for (uint32_t i = 0; i < 10000; i++)
        assert_true(ebb_vec_push(&numbers, i));
    assert_int_equal(numbers.count, 10000);
    for (uint32_t i = 0; i < 10000; i++)
        assert_int_equal(numbers.items[i], i);
    assert_false(ebb_vec_reserve(&numbers, SIZE_MAX / 2));
    assert_int_equal(numbers.items[9999], 9999);
    ebb_vec_free(&numbers);
    assert_null(numbers.items);
    assert_int_equal(numbers.capacity, 0);
}

static void medians(void **state)
{
    (void)state;
    uint64_t values[] = {9, UINT64_MAX, 3, 7, UINT64_MAX - 4};
    assert_int_equal(ebb__median_u64(values, 0), 0);
    assert_int_equal(ebb__median_u64(values, 1), 9);
    assert_int_equal(ebb__median_u64(values, 5), 9);
    for (size_t i = 1; i < 5; i++)
        assert_true(values[i - 1] < values[i]);
    assert_int_equal(ebb__median_u64(values, 2), 5);
    assert_int_equal(ebb__median_u64(values + 3, 2), UINT64_MAX - 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_in),    cmocka_unit_test(percentages_in),
        cmocka_unit_test(figures_out), cmocka_unit_test(map_against_brute_force),
        cmocka_unit_test(statuses),    cmocka_unit_test(errors),
        cmocka_unit_test(vectors),     cmocka_unit_test(medians),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
