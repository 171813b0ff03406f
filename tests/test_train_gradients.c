/* Gradients of the trainer's operations against finite differences of references in double
 * precision, and optimizers against their formulas.
 *
 * The loss is the sum of the outputs, each times its output gradient. These are numbers by chance,
 * or almost the outputs themselves. In the second case the terms of a normalisation's gradient
 * nearly cancel each other. An error in one of them is large beside their sum. */
#include "train_cases.h"

#include "train/op/kernels.h"
#include "train/op/optimizer.h"

/* Of inputs and parameters, relative to the spread of inputs. Truncation is of the order of its
 * square, cancellation of 1e-16 divided by it. */
static const double difference = 1e-5;

/* How inputs and output gradients are filled. Inputs of a small spread have a variance that is
 * about the epsilon of normalisations. */
struct filling {
    const char *name;
    float spread;
    bool is_correlated;
    bool norms_only;
};

static const struct filling fillings[] = {{"by chance", 1.0f, false, false},
                                          {"correlated", 1.0f, true, false},
                                          {"narrow", 0.003f, true, true}};
enum { FILLINGS = sizeof fillings / sizeof fillings[0] };

/* Most elements of a buffer that are checked: those that are left out are spread evenly. */
enum { ELEMENTS_MAX = 60 };

static double loss_of(const struct rig *rig, const struct train_case *of)
{
    case_reference(rig, of, false);
    int gradient = ebb_op_find(rig->op, EBB_OP_OUTPUT_GRADIENT, 0);
    if (gradient < 0)
        return Y[0] * (of->of.cross_entropy.weight > 0 ? (double)of->of.cross_entropy.weight : 1);
    double sum = 0;
    for (uint64_t i = 0; i < count_of(rig, EBB_OP_OUTPUT, 0); i++)
        sum += Y[i] * rig_element(rig, (uint32_t)gradient, i);
    return sum;
}

/* The elements that are checked are others for each filling, `first` is the first of them. */
static void check_gradient(const struct rig *rig, const struct train_case *of, uint32_t gradient,
                           const struct filling *filling, uint64_t first)
{
    const struct ebb_op_buffer *buffer = &rig->op->buffers[gradient];
    bool input = buffer->role == EBB_OP_INPUT_GRADIENT;
    double *value = value_of(rig, input ? EBB_OP_INPUT : EBB_OP_PARAMETER, buffer->index);
    uint64_t count = ebb_op_desc_count(&buffer->desc), stride = count / ELEMENTS_MAX + 1;
    double largest = 1e-3, step = difference * (input ? (double)filling->spread : 1);
    for (uint64_t i = 0; i < count; i++)
        largest = fmax(largest, fabs(rig_element(rig, gradient, i)));
    for (uint64_t i = first % stride; i < count; i += stride) {
        double before = value[i];
        value[i] = before + step;
        double above = loss_of(rig, of);
        value[i] = before - step;
        double below = loss_of(rig, of);
        value[i] = before;
        double expected = (above - below) / (2 * step);
        double got = rig_element(rig, gradient, i);
        if (!(fabs(got - expected) <= 1e-5 * largest))
            fail_msg("%s %s, %s: gradient %llu of %s %s is %.9g, not %.9g", rig->op->kind,
                     rig->op->name, filling->name, (unsigned long long)i,
                     input ? "input" : "parameter", buffer->name, got, expected);
    }
}

static bool is_filled(const struct train_case *of, const struct filling *filling)
{
    return !filling->norms_only || of->kind == BATCH_NORM || of->kind == LAYER_NORM;
}

/* Output gradients become the outputs, and a tenth of numbers by chance. */
static void correlate(struct rig *rig)
{
    for (uint32_t k = 0; k < rig->op->buffer_count; k++) {
        const struct ebb_op_buffer *buffer = &rig->op->buffers[k];
        int output = ebb_op_find(rig->op, EBB_OP_OUTPUT, buffer->index);
        if (buffer->role != EBB_OP_OUTPUT_GRADIENT || output < 0)
            continue;
        for (uint64_t i = 0; i < ebb_op_desc_count(&buffer->desc); i++)
            ((float *)rig->address[k])[ebb_op_desc_offset(&buffer->desc, i)] =
                (float)rig_element(rig, (uint32_t)output, i) + 0.1f * rig_number(3, i);
    }
}

/* Returns how many gradients were checked. */
static int check_filling(struct ebb_op_engine *engine, const struct train_case *of, int number)
{
    const struct filling *filling = &fillings[number];
    struct ebb_op *op = case_create(engine, of);
    struct rig rig;
    int checked = 0;
    rig_init(&rig, engine, op, 64);
    rig_fill_all(&rig, CASE_CLASSES);
    if (filling->norms_only)
        rig_fill(&rig, EBB__X, 5, 0.0f, filling->spread);
    rig_load_all(&rig);
    rig_run(&rig, EBB_OP_FORWARD);
    if (filling->is_correlated)
        correlate(&rig);
    if (ebb_op_has(op, EBB_OP_BACKWARD_WEIGHTS))
        rig_run(&rig, EBB_OP_BACKWARD_WEIGHTS);
    if (ebb_op_has(op, EBB_OP_BACKWARD_DATA))
        rig_run(&rig, EBB_OP_BACKWARD_DATA);
    for (uint32_t k = 0; k < op->buffer_count; k++) {
        if (op->buffers[k].role == EBB_OP_INPUT_GRADIENT ||
            op->buffers[k].role == EBB_OP_PARAMETER_GRADIENT) {
            check_gradient(&rig, of, k, filling, (uint64_t)number);
            checked++;
        }
    }
    rig_fini(&rig);
    ebb_op_destroy(op);
    return checked;
}

static void test_gradients(void **state)
{
    (void)state;
    struct ebb_op_engine *engine;
    assert_int_equal(ebb_op_engine_create(&engine, NULL), EBB_OK);
    int checked = 0;
    for (int i = 0; i < TRAIN_CASES; i++)
        for (int k = 0; k < FILLINGS; k++)
            if (is_filled(&train_cases[i], &fillings[k]))
                checked += check_filling(engine, &train_cases[i], k);
    assert_true(checked > 2 * TRAIN_CASES);
    ebb_op_engine_destroy(engine);
}

enum { COUNT = 5003 };

struct flat {
    float parameter[COUNT];
    float gradient[COUNT];
    float first[COUNT];
    float second[COUNT];
};

static void fill_flat(struct flat *flat)
{
    memset(flat, 0, sizeof *flat);
    for (uint64_t i = 0; i < COUNT; i++) {
        flat->parameter[i] = rig_number(1, i);
        flat->gradient[i] = rig_number(2, i);
    }
}

static void test_sgd(void **state)
{
    (void)state;
    static struct flat flat;
    fill_flat(&flat);
    const struct ebb_sgd sgd = {.rate = 0.1f, .momentum = 0.9f, .decay = 0.01f};
    double parameter = (double)flat.parameter[COUNT - 1], velocity = 0;
    double gradient = (double)flat.gradient[COUNT - 1];
    for (int step = 0; step < 5; step++) {
        ebb_sgd_step(&sgd, COUNT, flat.parameter, flat.gradient, flat.first);
        velocity = 0.9 * velocity + gradient + 0.01 * parameter;
        parameter -= 0.1 * velocity;
    }
    assert_near(flat.parameter[COUNT - 1], parameter, 1e-6);
    const struct ebb_sgd plain = {.rate = 0.5f};
    float before = flat.parameter[3];
    ebb_sgd_step(&plain, COUNT, flat.parameter, flat.gradient, NULL);
    assert_near(flat.parameter[3], (double)(before - 0.5f * flat.gradient[3]), 1e-6);
}

static void test_adam(void **state)
{
    (void)state;
    static struct flat flat;
    fill_flat(&flat);
    const struct ebb_adam adam = {
        .rate = 0.1f, .beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-8f, .decay = 0.01f};
    double parameter = (double)flat.parameter[COUNT - 1], mean = 0, square = 0;
    double gradient = (double)flat.gradient[COUNT - 1];
    for (int step = 1; step <= 5; step++) {
        ebb_adam_step(&adam, (uint64_t)step, COUNT, flat.parameter, flat.gradient, flat.first,
                      flat.second);
        mean = 0.9 * mean + 0.1 * gradient;
        square = 0.999 * square + 0.001 * gradient * gradient;
        parameter -= 0.1 * 0.01 * parameter;
        parameter -=
            0.1 * mean / (1 - pow(0.9, step)) / (sqrt(square / (1 - pow(0.999, step))) + 1e-8);
    }
    assert_near(flat.parameter[COUNT - 1], parameter, 2e-6);
}

/* Gradients of a value that two operations read are added up. */
static void test_accumulate(void **state)
{
    (void)state;
    static struct flat flat;
    fill_flat(&flat);
    float expected = flat.parameter[COUNT - 1] + flat.gradient[COUNT - 1];
    ebb_op_accumulate(sizeof flat.parameter, flat.parameter, flat.gradient);
    assert_true(flat.parameter[COUNT - 1] == expected);
}

static void test_exponential(void **state)
{
    (void)state;
    for (float x = -87.0f; x <= 88.0f; x += 0.0137f) {
        double expected = exp((double)x);
        assert_true(fabs((double)ebb__exp(x) - expected) <= 2e-7 * expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients),   cmocka_unit_test(test_sgd),
        cmocka_unit_test(test_adam),        cmocka_unit_test(test_accumulate),
        cmocka_unit_test(test_exponential),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
