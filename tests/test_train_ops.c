/* The trainer's operations: outputs against plain references, and what holds for all steps.
 *
 * A step keeps to the buffers that it declares. Its bits do not depend on addresses. It may work in
 * place where it says so. */
#include "train_cases.h"

static struct ebb_op_engine *engine;

static int set_up(void **state)
{
    (void)state;
    struct ebb_error error;
    return ebb_op_engine_create(&engine, &error) == EBB_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    ebb_op_engine_destroy(engine);
    return 0;
}

static void test_outputs(void **state)
{
    (void)state;
    for (int i = 0; i < TRAIN_CASES; i++) {
        const struct train_case *of = &train_cases[i];
        struct rig rig;
        rig_init(&rig, engine, case_create(engine, of), 0);
        rig_fill_all(&rig, CASE_CLASSES);
        for (int evaluate = 0; evaluate < 2; evaluate++) {
            if (evaluate && of->kind == DROPOUT)
                continue;
            rig_load_all(&rig);
            rig_run(&rig, evaluate ? EBB_OP_EVALUATE : EBB_OP_FORWARD);
            case_reference(&rig, of, evaluate);
            for (uint32_t k = 0; k < rig.op->buffer_count; k++) {
                if (rig.op->buffers[k].role == EBB_OP_OUTPUT)
                    rig_compare(&rig, k, rig.value[k], 3e-6, evaluate ? "evaluate" : "forward");
            }
        }
        struct ebb_op *op = rig.op;
        rig_fini(&rig);
        ebb_op_destroy(op);
    }
}

static const enum ebb_op_step training[] = {EBB_OP_FORWARD, EBB_OP_BACKWARD_WEIGHTS,
                                            EBB_OP_BACKWARD_DATA};

/* All that the steps of training write has the same bits in buffers elsewhere. */
static void test_same_bits_at_other_addresses(void **state)
{
    (void)state;
    for (int i = 0; i < TRAIN_CASES; i++) {
        struct ebb_op *op = case_create(engine, &train_cases[i]);
        struct rig rigs[2];
        for (int k = 0; k < 2; k++) {
            rig_init(&rigs[k], engine, op, k == 0 ? 0 : 64 * 7);
            rig_fill_all(&rigs[k], CASE_CLASSES);
            for (int s = 0; s < 3; s++) {
                if (ebb_op_has(op, training[s]))
                    rig_run(&rigs[k], training[s]);
            }
        }
        for (uint32_t k = 0; k < op->buffer_count; k++) {
            const struct ebb_op_buffer *buffer = &op->buffers[k];
            if (buffer->role != EBB_OP_WORKSPACE &&
                memcmp(rigs[0].address[k], rigs[1].address[k], buffer->desc.bytes) != 0)
                fail_msg("%s %s: bits of %s depend on addresses", op->kind, op->name, buffer->name);
        }
        rig_fini(&rigs[0]);
        rig_fini(&rigs[1]);
        ebb_op_destroy(op);
    }
}

static void test_recompute_gives_the_same_bits(void **state)
{
    (void)state;
    for (int i = 0; i < TRAIN_CASES; i++) {
        struct ebb_op *op = case_create(engine, &train_cases[i]);
        struct rig rigs[2];
        for (int k = 0; k < 2; k++) {
            rig_init(&rigs[k], engine, op, 0);
            rig_fill_all(&rigs[k], CASE_CLASSES);
            rig_run(&rigs[k], k == 0 ? EBB_OP_FORWARD : EBB_OP_RECOMPUTE);
        }
        for (uint32_t k = 0; k < op->buffer_count; k++) {
            const struct ebb_op_buffer *buffer = &op->buffers[k];
            if ((buffer->role == EBB_OP_OUTPUT || buffer->role == EBB_OP_SAVED) &&
                memcmp(rigs[0].address[k], rigs[1].address[k], buffer->desc.bytes) != 0)
                fail_msg("%s %s: %s differs if recomputed", op->kind, op->name, buffer->name);
            assert_false(buffer->role == EBB_OP_STATE && buffer->use[EBB_OP_RECOMPUTE]);
        }
        rig_fini(&rigs[0]);
        rig_fini(&rigs[1]);
        ebb_op_destroy(op);
    }
}

/* Runs the steps of training, in one of them with `buffer` at the address of `other`. Results must
 * be those of `apart`. */
static void check_in_place(const struct rig *apart, uint32_t buffer, uint32_t other)
{
    struct ebb_op *op = apart->op;
    struct rig rig;
    rig_init(&rig, engine, op, 0);
    rig_fill_all(&rig, CASE_CLASSES);
    for (int s = 0; s < 3; s++) {
        enum ebb_op_step step = training[s];
        if (!ebb_op_has(op, step))
            continue;
        void *addresses[EBB_OP_BUFFERS_MAX];
        memcpy(addresses, rig.address, sizeof addresses);
        if (op->buffers[buffer].use[step] == EBB_USE_OVERWRITE)
            addresses[buffer] = addresses[other];
        assert_int_equal(ebb_op_run(op, step, addresses, &rig.call, NULL), EBB_OK);
        if (op->buffers[buffer].use[step] == EBB_USE_OVERWRITE) {
            if (memcmp(addresses[buffer], apart->address[buffer], op->buffers[buffer].desc.bytes) !=
                0)
                fail_msg("%s %s: %s at the place of %s differs", op->kind, op->name,
                         op->buffers[buffer].name, op->buffers[other].name);
            memcpy(rig.address[buffer], addresses[buffer], op->buffers[buffer].desc.bytes);
        }
    }
    for (uint32_t k = 0; k < op->buffer_count; k++) {
        if (op->buffers[k].role == EBB_OP_INPUT_GRADIENT)
            assert_memory_equal(rig.address[k], apart->address[k], op->buffers[k].desc.bytes);
    }
    rig_fini(&rig);
}

static void test_in_place(void **state)
{
    (void)state;
    int checked = 0;
    for (int i = 0; i < TRAIN_CASES; i++) {
        struct ebb_op *op = case_create(engine, &train_cases[i]);
        struct rig apart;
        rig_init(&apart, engine, op, 0);
        rig_fill_all(&apart, CASE_CLASSES);
        for (int s = 0; s < 3; s++) {
            if (ebb_op_has(op, training[s]))
                rig_run(&apart, training[s]);
        }
        for (uint32_t k = 0; k < op->buffer_count; k++) {
            for (uint32_t other = 0; other < op->buffer_count; other++) {
                if (!(op->buffers[k].may_replace >> other & 1))
                    continue;
                assert_true(op->buffers[k].desc.bytes <= op->buffers[other].desc.bytes);
                check_in_place(&apart, k, other);
                checked++;
            }
        }
        rig_fini(&apart);
        ebb_op_destroy(op);
    }
    assert_true(checked >= 20);
}

/* A mean that is large against the deviation costs no digits beyond those of the input. */
static void test_far_mean(void **state)
{
    (void)state;
    const struct train_case of = {"far", BATCH_NORM,      BLOCKED,
                                  4,     {1, 16, 96, 96}, {.batch_norm = {.relu = false}}};
    struct rig rig;
    rig_init(&rig, engine, case_create(engine, &of), 0);
    rig_fill_all(&rig, 1);
    rig_fill(&rig, EBB__X, 5, 1000.0f, 1.0f);
    rig_load_all(&rig);
    rig_run(&rig, EBB_OP_FORWARD);
    case_reference(&rig, &of, false);
    rig_compare(&rig, EBB__Y, rig.value[EBB__Y], 2e-5, "with a far mean");
    struct ebb_op *op = rig.op;
    rig_fini(&rig);
    ebb_op_destroy(op);
}

/* The moments of a batch move the running ones by the momentum. */
static void test_running_statistics(void **state)
{
    (void)state;
    const int64_t dims[4] = {2, 1, 1, 2};
    const float x[4] = {1, 2, 3, 6};
    struct ebb_op_desc input;
    struct ebb_op *op;
    struct ebb_op_batch_norm options = {.momentum = 0.25f};
    assert_int_equal(ebb_op_desc_floats(4, dims, &input, NULL), EBB_OK);
    assert_int_equal(ebb_op_batch_norm_create(engine, "b", &options, &input, &op, NULL), EBB_OK);
    struct rig rig;
    rig_init(&rig, engine, op, 0);
    rig_fill_all(&rig, 1);
    memcpy(rig.address[ebb_op_find(op, EBB_OP_INPUT, 0)], x, sizeof x);
    float *mean = rig.address[ebb_op_find(op, EBB_OP_STATE, 0)];
    float *variance = rig.address[ebb_op_find(op, EBB_OP_STATE, 1)];
    *mean = 1;
    *variance = 2;
    rig_run(&rig, EBB_OP_FORWARD);
    assert_near(*mean, 0.75 * 1 + 0.25 * 3, 1e-6);
    assert_near(*variance, 0.75 * 2 + 0.25 * 14.0 / 3, 1e-6);
    rig_fini(&rig);
    ebb_op_destroy(op);
}

static void test_dropout(void **state)
{
    (void)state;
    const int64_t count = 100000;
    struct ebb_op_desc input;
    struct ebb_op *op;
    struct ebb_op_dropout options = {.probability = 0.3f};
    assert_int_equal(ebb_op_desc_floats(1, &count, &input, NULL), EBB_OK);
    assert_int_equal(ebb_op_dropout_create(engine, "d", &options, &input, &op, NULL), EBB_OK);
    struct rig rig;
    rig_init(&rig, engine, op, 0);
    rig_fill_all(&rig, 1);
    const float *y = rig.address[EBB__Y], *x = rig.address[EBB__X];
    uint8_t *mask = rig.address[ebb_op_find(op, EBB_OP_SAVED, 0)], before[64];
    rig_run(&rig, EBB_OP_FORWARD);
    int zeros = 0;
    for (int64_t i = 0; i < count; i++)
        zeros += y[i] == 0.0f;
    assert_in_range(zeros, 29300, 30700); /* 5 standard deviations of 145 */
    memcpy(before, mask, sizeof before);
    rig.call.seed++;
    rig_run(&rig, EBB_OP_FORWARD);
    assert_memory_not_equal(before, mask, sizeof before);
    rig_run(&rig, EBB_OP_EVALUATE);
    assert_memory_equal(x, y, (size_t)count * sizeof *x);
    rig_fini(&rig);
    ebb_op_destroy(op);
}

/* Labels below 0 are left out; a label or token beyond the last is an error that names it. */
static void test_labels(void **state)
{
    (void)state;
    const struct train_case of = {"l", CROSS_ENTROPY, PLAIN, 2, {4, 7}, {.heads = 0}};
    struct ebb_op *op = case_create(engine, &of);
    struct rig rig;
    rig_init(&rig, engine, op, 0);
    rig_fill_all(&rig, CASE_CLASSES);
    int32_t *labels = rig.address[ebb_op_find(op, EBB_OP_INPUT, 1)];
    labels[2] = -1;
    rig_load_all(&rig);
    rig_run(&rig, EBB_OP_FORWARD);
    case_reference(&rig, &of, false);
    rig_compare(&rig, 2, rig.value[2], 1e-6, "with a label left out");
    rig_compare(&rig, 3, rig.value[3], 0, "with a label left out");
    rig_run(&rig, EBB_OP_BACKWARD_DATA);
    for (uint64_t i = 0; i < 7; i++)
        assert_true(rig_element(&rig, 4, 2 * 7 + i) == 0);
    struct ebb_error error;
    labels[1] = 7;
    assert_int_equal(ebb_op_run(op, EBB_OP_FORWARD, rig.address, NULL, &error), EBB_ERR_ARGUMENT);
    assert_string_equal(error.what, "cross entropy l");
    assert_string_equal(error.why, "label 1 is 7, but there are 7 classes");
    rig_fini(&rig);
    ebb_op_destroy(op);
}

static void test_errors(void **state)
{
    (void)state;
    const int64_t dims[2][4] = {{2, 16, 5, 5}, {2, 16, 5, 6}};
    struct ebb_op_desc a, b;
    assert_int_equal(ebb_op_desc_floats(4, dims[0], &a, NULL), EBB_OK);
    assert_int_equal(ebb_op_desc_floats(4, dims[1], &b, NULL), EBB_OK);
    const struct ebb_op_desc *inputs[2] = {&a, &b};
    struct ebb_op *op = NULL;
    struct ebb_error error;
    struct ebb_op_add add = {0};
    assert_int_equal(ebb_op_add_create(engine, "sum", &add, inputs, &op, &error), EBB_ERR_ARGUMENT);
    assert_string_equal(error.what, "add sum");
    assert_string_equal(error.why, "the inputs 2x16x5x5 and 2x16x5x6 have different shapes");
    assert_int_equal(ebb_op_concat_create(engine, "c", 2, inputs, &op, &error), EBB_ERR_ARGUMENT);
    struct ebb_op_convolution large = {.channels = 4, .kernel = {6, 3}};
    assert_int_equal(ebb_op_convolution_create(engine, "c", &large, &a, &op, &error),
                     EBB_ERR_ARGUMENT);
    struct ebb_op_convolution groups = {.channels = 4, .kernel = {3, 3}, .groups = 3};
    assert_int_equal(ebb_op_convolution_create(engine, "c", &groups, &a, &op, &error),
                     EBB_ERR_ARGUMENT);
    assert_null(op);
    const int64_t huge[2] = {INT64_C(1) << 40, 1 << 10};
    assert_int_equal(ebb_op_desc_floats(2, huge, &b, &error), EBB_ERR_ARGUMENT);

    assert_int_equal(ebb_op_relu_create(engine, "r", &a, &op, &error), EBB_OK);
    void *none[EBB_OP_BUFFERS_MAX] = {0};
    assert_int_equal(ebb_op_run(op, EBB_OP_FORWARD, none, NULL, &error), EBB_ERR_ARGUMENT);
    assert_int_equal(ebb_op_run(op, EBB_OP_BACKWARD_WEIGHTS, none, NULL, &error), EBB_ERR_ARGUMENT);
    assert_string_equal(error.why, "there is no step \"backward weights\"");
    ebb_op_destroy(op);
}

/* First contents depend on names and seed, and have the spread that is asked for. */
static void test_fill(void **state)
{
    (void)state;
    const struct train_case of = {
        "f", CONVOLUTION,   BLOCKED,
        4,   {1, 64, 5, 5}, {.convolution = {.channels = 64, .kernel = {3, 3}}}};
    struct rig rigs[2];
    double square = 0;
    uint32_t at = 0;
    for (int k = 0; k < 2; k++) {
        rig_init(&rigs[k], engine, case_create(engine, &of), 0);
        at = (uint32_t)ebb_op_find(rigs[k].op, EBB_OP_PARAMETER, 0);
        ebb_op_fill(rigs[k].op, at, 3, rigs[k].address[at]);
    }
    uint64_t count = ebb_op_desc_count(&rigs[0].op->buffers[at].desc);
    assert_memory_equal(rigs[0].address[at], rigs[1].address[at], count * sizeof(float));
    for (uint64_t i = 0; i < count; i++)
        square += pow(rig_element(&rigs[0], at, i), 2) / (double)count;
    assert_near(sqrt(square), sqrt(2.0 / (64 * 9)), 0.02 * sqrt(2.0 / (64 * 9)));
    ebb_op_fill(rigs[1].op, at, 4, rigs[1].address[at]);
    assert_memory_not_equal(rigs[0].address[at], rigs[1].address[at], 64);
    for (int k = 0; k < 2; k++) {
        struct ebb_op *op = rigs[k].op;
        rig_fini(&rigs[k]);
        ebb_op_destroy(op);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_outputs),
        cmocka_unit_test(test_same_bits_at_other_addresses),
        cmocka_unit_test(test_recompute_gives_the_same_bits),
        cmocka_unit_test(test_in_place),
        cmocka_unit_test(test_running_statistics),
        cmocka_unit_test(test_far_mean),
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_labels),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_fill),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
