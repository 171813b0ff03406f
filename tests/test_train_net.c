/* The networks of the trainer: parameters as published, shapes, and what does not fit. */
#include "train/net/build.h"
#include "train/net/net.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct ebb_net *made(const char *name, struct ebb_net_options options)
{
    struct ebb_net *net = NULL;
    struct ebb_error error;
    assert_int_equal(ebb__net_named(name, &options, &net, &error), EBB_OK);
    return net;
}

/* torchvision's documentation: AlexNet, VGG, ResNet, DenseNet. The figure of GoogLeNet is that of
 * Caffe's without auxiliary classifiers, the one of WRN-28-10 is 36.5 million in its paper. */
static void test_published_parameters(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint64_t parameters;
    } published[] = {
        {"alexnet", 61100840},    {"vgg-16", 138357544},    {"googlenet", 6998552},
        {"resnet-18", 11689512},  {"resnet-34", 21797672},  {"resnet-50", 25557032},
        {"resnet-101", 44549160}, {"resnet-152", 60192808}, {"densenet-121", 7978856},
        {"wrn-28-10", 36479194},
    };
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        struct ebb_net *net = made(published[i].name, (struct ebb_net_options){0});
        assert_int_equal(ebb__net_parameter_values(net), published[i].parameters);
        ebb__net_destroy(net);
    }
}

/* The blocks of GPT-2 small and its last norm have 85,056,000 parameters: 124,439,808 of the whole
 * without 50257 tokens and 1024 positions of 768 channels. */
static void test_gpt_parameters(void **state)
{
    (void)state;
    struct ebb_net *net = made("gpt-12", (struct ebb_net_options){.classes = 100, .size = 16});
    uint64_t outside = (100 + 16 + 100) * 768;
    assert_int_equal(ebb__net_parameter_values(net) - outside, 124439808 - (50257 + 1024) * 768);
    ebb__net_destroy(net);
}

static uint32_t convolutions(const struct ebb_net *net, uint32_t kernel_least)
{
    uint32_t count = 0;
    for (uint32_t l = 1; l <= net->layer_count; l++)
        count += net->layers[l].kind == EBB_LAYER_CONV && net->layers[l].kernel >= kernel_least;
    return count;
}

/* The depth counts the convolutions that are in no shortcut, and the linear layer. A bottleneck has
 * one of 3x3 among three. */
static void test_deep_resnets(void **state)
{
    (void)state;
    static const uint32_t depths[] = {137, 1001, 1202, 1517};
    for (size_t i = 0; i < sizeof depths / sizeof *depths; i++) {
        char name[32];
        snprintf(name, sizeof name, "resnet-%u", depths[i]);
        struct ebb_net *net = made(name, (struct ebb_net_options){.batch = 1});
        const uint32_t first = 1, shortcuts = 4;
        uint32_t all = convolutions(net, 1) - shortcuts;
        assert_int_equal(all + 1, depths[i]);
        assert_int_equal(3 * (convolutions(net, 2) - first), all - first);
        ebb__net_destroy(net);
    }
}

static void assert_shape(const struct ebb_net *net, uint32_t layer, const char *text)
{
    char found[48];
    assert_string_equal(ebb__shape_format(&net->layers[layer].shape, found, sizeof found), text);
}

static uint32_t last_of(const struct ebb_net *net, enum ebb_layer_kind kind)
{
    for (uint32_t l = net->layer_count; l > 0; l--)
        if (net->layers[l].kind == kind)
            return l;
    return 0;
}

static void test_shapes(void **state)
{
    (void)state;
    struct ebb_net *net = made("resnet-50", (struct ebb_net_options){.batch = 2});
    assert_shape(net, 1, "2x3x224x224");
    assert_shape(net, 2, "2x64x112x112");
    assert_shape(net, last_of(net, EBB_LAYER_CONV), "2x2048x7x7");
    assert_shape(net, net->layer_count, "2x1000");
    ebb__net_destroy(net);
    net = made("googlenet", (struct ebb_net_options){.batch = 2});
    assert_shape(net, last_of(net, EBB_LAYER_CONCAT), "2x1024x7x7");
    ebb__net_destroy(net);
    net = made("densenet-121", (struct ebb_net_options){.batch = 2, .size = 64});
    assert_shape(net, last_of(net, EBB_LAYER_CONCAT), "2x1024x2x2");
    ebb__net_destroy(net);
    net = made("gpt-2", (struct ebb_net_options){.batch = 3, .size = 16, .classes = 50});
    assert_shape(net, 1, "3x16");
    assert_shape(net, last_of(net, EBB_LAYER_ATTENTION), "3x16x128");
    assert_shape(net, net->layer_count, "3x16x50");
    ebb__net_destroy(net);
}

/* Inputs come before their layer, each output but the loss is read, and all shapes have values. */
static void test_graphs_are_whole(void **state)
{
    (void)state;
    static const char *const names[] = {"cnn",       "alexnet",   "vgg-16",       "googlenet",
                                        "resnet-18", "wrn-28-10", "densenet-121", "gpt"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct ebb_net *net = made(names[i], (struct ebb_net_options){0});
        static unsigned char read[1024];
        memset(read, 0, sizeof read);
        for (uint32_t l = 1; l <= net->layer_count; l++) {
            assert_true(ebb__shape_values(&net->layers[l].shape) > 0);
            for (uint32_t k = 0; k < net->layers[l].input_count; k++) {
                assert_true(net->layers[l].inputs[k] < l);
                read[net->layers[l].inputs[k]] = 1;
            }
        }
        for (uint32_t l = 1; l < net->layer_count; l++)
            assert_true(read[l]);
        ebb__net_destroy(net);
    }
}

static void test_bad_names(void **state)
{
    (void)state;
    static const char *const names[] = {
        "",    "resnet", "resnet-", "resnet-51",  "resnet-0",   "resnet-5x", "resnet-999999",
        "vgg", "gpt-0",  "gpt-97",  "resnet--18", "resnet- 18", "resnet-+18"};
    struct ebb_net_options options = {0};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct ebb_net *net = NULL;
        struct ebb_error error;
        assert_int_equal(ebb__net_named(names[i], &options, &net, &error), EBB_ERR_ARGUMENT);
        assert_null(net);
        assert_non_null(strstr(error.remedy, "densenet-121"));
    }
}

static void test_image_too_small(void **state)
{
    (void)state;
    struct ebb_net_options options = {.size = 32};
    struct ebb_net *net = NULL;
    struct ebb_error error;
    assert_int_equal(ebb__net_named("alexnet", &options, &net, &error), EBB_ERR_ARGUMENT);
    assert_null(net);
    assert_non_null(strstr(error.why, "exceeds the image"));
    assert_non_null(strstr(error.remedy, "--size"));
}

typedef void (*mismatch)(struct ebb_net *net);

static void add_of_other_channels(struct ebb_net *net)
{
    struct ebb_window window = {.kernel = 1, .stride = 1};
    uint32_t at = ebb__net_images(net);
    ebb__net_add(net, at, ebb__net_conv(net, at, window, 5, true));
}

static void concat_of_other_sizes(struct ebb_net *net)
{
    struct ebb_window window = {.kernel = 2, .stride = 2};
    uint32_t at = ebb__net_images(net);
    ebb__net_concat(net, (uint32_t[]){at, ebb__net_max_pool(net, at, window)}, 2);
}

static void conv_of_vectors(struct ebb_net *net)
{
    struct ebb_window window = {.kernel = 1, .stride = 1};
    uint32_t at = ebb__net_linear(net, ebb__net_images(net), 10, true);
    ebb__net_conv(net, at, window, 4, true);
}

static void attention_of_odd_heads(struct ebb_net *net)
{
    uint32_t at = ebb__net_embedding(net, ebb__net_tokens(net), 10, 16);
    ebb__net_attention(net, at, 3);
}

static void embedding_of_images(struct ebb_net *net)
{
    ebb__net_embedding(net, ebb__net_images(net), 10, 16);
}

static void loss_of_other_classes(struct ebb_net *net)
{
    ebb__net_loss(net, ebb__net_linear(net, ebb__net_images(net), 11, true));
}

static void window_without_stride(struct ebb_net *net)
{
    ebb__net_max_pool(net, ebb__net_images(net), (struct ebb_window){.kernel = 2});
}

/* Each mismatch names its layer. Layers after it do not hide it. */
static void test_mismatches(void **state)
{
    (void)state;
    static const struct {
        mismatch build;
        const char *layer, *why;
    } cases[] = {
        {add_of_other_channels, "add-3", "its inputs differ: 2x3x8x8 and 2x5x8x8"},
        {concat_of_other_sizes, "concat-3", "its inputs differ: 2x3x8x8 and 2x3x4x4"},
        {conv_of_vectors, "conv-3", "takes images, not 2x10"},
        {attention_of_odd_heads, "attention-3", "16 channels are not three times 3 heads"},
        {embedding_of_images, "embedding-2", "takes tokens, not 2x3x8x8"},
        {loss_of_other_classes, "loss-3", "takes 10 classes, not 11"},
        {window_without_stride, "max-pool-2", "kernel 2, stride 0, pad 0 is no window"},
    };
    struct ebb_net_options options = {.batch = 2, .size = 8, .channels = 3, .classes = 10};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ebb_net *net;
        struct ebb_error error;
        assert_int_equal(ebb__net_create("wrong", &options, &net, &error), EBB_OK);
        cases[i].build(net);
        assert_int_equal(ebb__net_loss(net, 1), 0);
        assert_int_equal(ebb__net_finish(&net, &error), EBB_ERR_ARGUMENT);
        assert_null(net);
        assert_string_equal(error.what, cases[i].layer);
        assert_string_equal(error.why, cases[i].why);
    }
}

static void test_unfinished(void **state)
{
    (void)state;
    struct ebb_net_options options = {0};
    struct ebb_net *net;
    assert_int_equal(ebb__net_create("empty", &options, &net, NULL), EBB_OK);
    assert_int_equal(ebb__net_finish(&net, NULL), EBB_ERR_INTERNAL);
    assert_null(net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_parameters), cmocka_unit_test(test_gpt_parameters),
        cmocka_unit_test(test_deep_resnets),         cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_graphs_are_whole),     cmocka_unit_test(test_bad_names),
        cmocka_unit_test(test_image_too_small),      cmocka_unit_test(test_mismatches),
        cmocka_unit_test(test_unfinished),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
