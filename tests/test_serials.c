/* Serials: dense ones, far ones, and both at once, against what was put in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "model/serials.h"

static void test_dense_and_far(void **state)
{
    (void)state;
    struct ebb_serials serials = {0};
    enum { COUNT = 5000 };
    size_t index;
    assert_false(ebb__serials_get(&serials, 1, &index));
    for (size_t i = 0; i < COUNT; i++) {
        uint64_t serial = i % 3 ? i + 1 : (uint64_t)1 << 40 | i;
        assert_true(ebb__serials_put(&serials, serial, i));
    }
    for (size_t i = 0; i < COUNT; i++) {
        uint64_t serial = i % 3 ? i + 1 : (uint64_t)1 << 40 | i;
        assert_true(ebb__serials_get(&serials, serial, &index));
        assert_int_equal(index, i);
        if (i % 3 == 0)
            assert_false(ebb__serials_get(&serials, i + 1, &index));
    }
    assert_true(serials.sparse.count > 0 && serials.dense.count > 0);
    assert_false(ebb__serials_get(&serials, UINT64_MAX - 1, &index));
    ebb__serials_fini(&serials);
}

/* A serial that was far at first stays where it is once the array extends beyond it. */
static void test_array_grows_past_a_far_one(void **state)
{
    (void)state;
    struct ebb_serials serials = {0};
    size_t index;
    assert_true(ebb__serials_put(&serials, 20000, 0));
    assert_int_equal(serials.sparse.count, 1);
    for (size_t i = 1; i < 8000; i++)
        assert_true(ebb__serials_put(&serials, i * 4, i));
    assert_true(serials.dense.count > 20000);
    assert_true(ebb__serials_get(&serials, 20000, &index));
    assert_int_equal(index, 5000); /* the newer entry */
    assert_true(ebb__serials_get(&serials, 4, &index));
    assert_int_equal(index, 1);
    assert_false(ebb__serials_get(&serials, 20001, &index));
    ebb__serials_fini(&serials);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dense_and_far),
        cmocka_unit_test(test_array_grows_past_a_far_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
