/* Networks without shortcuts: a small CNN, AlexNet, VGG-16. */
#include "train/net/build.h"

static const struct ebb_window window_1x1 = {.kernel = 1, .stride = 1};
static const struct ebb_window window_3x3 = {.kernel = 3, .stride = 1, .pad = 1};
static const struct ebb_window halve_2x2 = {.kernel = 2, .stride = 2};
static const struct ebb_window halve_3x3 = {.kernel = 3, .stride = 2};

static uint32_t conv_relu(struct ebb_net *net, uint32_t at, struct ebb_window window,
                          uint32_t outputs)
{
    return ebb__net_relu(net, ebb__net_conv(net, at, window, outputs, true));
}

static uint32_t linear_relu(struct ebb_net *net, uint32_t at, uint32_t outputs)
{
    return ebb__net_relu(net, ebb__net_linear(net, at, outputs, true));
}

/* For images of 28x28. Batch norm makes it learn fast enough to be a test. Several layers of a size
 * make what one of them uses a small part of the whole. */
void ebb__net_build_cnn(struct ebb_net *net)
{
    uint32_t at = ebb__net_images(net);
    for (uint32_t channels = 16; channels <= 32; channels *= 2) {
        for (uint32_t layer = 0; layer < 3; layer++) {
            at = ebb__net_conv(net, at, window_3x3, channels, false);
            at = ebb__net_relu(net, ebb__net_batch_norm(net, at));
        }
        at = ebb__net_max_pool(net, at, halve_2x2);
    }
    at = linear_relu(net, at, 128);
    at = ebb__net_linear(net, at, net->options.classes, true);
    ebb__net_loss(net, at);
}

/* The one-column version: Krizhevsky, One weird trick for parallelizing convolutional neural
 * networks, 2014. It has no local response normalisation. 61,100,840 parameters, as
 * torchvision's. */
void ebb__net_build_alexnet(struct ebb_net *net)
{
    const struct ebb_window first = {.kernel = 11, .stride = 4, .pad = 2};
    const struct ebb_window second = {.kernel = 5, .stride = 1, .pad = 2};
    uint32_t at = conv_relu(net, ebb__net_images(net), first, 64);
    at = ebb__net_max_pool(net, at, halve_3x3);
    at = conv_relu(net, at, second, 192);
    at = ebb__net_max_pool(net, at, halve_3x3);
    at = conv_relu(net, at, window_3x3, 384);
    at = conv_relu(net, at, window_3x3, 256);
    at = conv_relu(net, at, window_3x3, 256);
    at = ebb__net_max_pool(net, at, halve_3x3);
    at = linear_relu(net, ebb__net_dropout(net, at, 0.5f), 4096);
    at = linear_relu(net, ebb__net_dropout(net, at, 0.5f), 4096);
    at = ebb__net_linear(net, at, net->options.classes, true);
    ebb__net_loss(net, at);
}

/* Simonyan, Zisserman, Very deep convolutional networks for large-scale image recognition, 2015,
 * configuration D. */
void ebb__net_build_vgg_16(struct ebb_net *net)
{
    static const uint32_t convs[] = {2, 2, 3, 3, 3};
    static const uint32_t channels[] = {64, 128, 256, 512, 512};
    uint32_t at = ebb__net_images(net);
    for (size_t stage = 0; stage < sizeof convs / sizeof *convs; stage++) {
        for (uint32_t i = 0; i < convs[stage]; i++)
            at = conv_relu(net, at, window_3x3, channels[stage]);
        at = ebb__net_max_pool(net, at, halve_2x2);
    }
    for (int i = 0; i < 2; i++)
        at = ebb__net_dropout(net, linear_relu(net, at, 4096), 0.5f);
    at = ebb__net_linear(net, at, net->options.classes, true);
    ebb__net_loss(net, at);
}

struct inception {
    uint32_t narrow;              /* the branch of 1x1 */
    uint32_t before_three, three; /* 1x1, then 3x3 */
    uint32_t before_five, five;   /* 1x1, then 5x5 */
    uint32_t after_pool;          /* 3x3 max pool, then 1x1 */
    bool halves;                  /* a pool follows */
};

static uint32_t inception(struct ebb_net *net, uint32_t at, const struct inception *widths)
{
    const struct ebb_window five = {.kernel = 5, .stride = 1, .pad = 2};
    const struct ebb_window halve = {.kernel = 3, .stride = 2, .pad = 1};
    uint32_t branches[4];
    branches[0] = conv_relu(net, at, window_1x1, widths->narrow);
    branches[1] = conv_relu(net, at, window_1x1, widths->before_three);
    branches[1] = conv_relu(net, branches[1], window_3x3, widths->three);
    branches[2] = conv_relu(net, at, window_1x1, widths->before_five);
    branches[2] = conv_relu(net, branches[2], five, widths->five);
    branches[3] = ebb__net_max_pool(net, at, window_3x3);
    branches[3] = conv_relu(net, branches[3], window_1x1, widths->after_pool);
    at = ebb__net_concat(net, branches, 4);
    return widths->halves ? ebb__net_max_pool(net, at, halve) : at;
}

/* Szegedy and others, Going deeper with convolutions, 2015, table 1. The two auxiliary classifiers
 * are left out. Pools are padded, which gives the sizes of the paper for images of 224x224. */
void ebb__net_build_googlenet(struct ebb_net *net)
{
    static const struct inception blocks[] = {
        {64, 96, 128, 16, 32, 32, false},     {128, 128, 192, 32, 96, 64, true},
        {192, 96, 208, 16, 48, 64, false},    {160, 112, 224, 24, 64, 64, false},
        {128, 128, 256, 24, 64, 64, false},   {112, 144, 288, 32, 64, 64, false},
        {256, 160, 320, 32, 128, 128, true},  {256, 160, 320, 32, 128, 128, false},
        {384, 192, 384, 48, 128, 128, false},
    };
    const struct ebb_window first = {.kernel = 7, .stride = 2, .pad = 3};
    const struct ebb_window halve = {.kernel = 3, .stride = 2, .pad = 1};
    uint32_t at = conv_relu(net, ebb__net_images(net), first, 64);
    at = ebb__net_lrn(net, ebb__net_max_pool(net, at, halve), 5);
    at = conv_relu(net, at, window_1x1, 64);
    at = conv_relu(net, at, window_3x3, 192);
    at = ebb__net_max_pool(net, ebb__net_lrn(net, at, 5), halve);
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        at = inception(net, at, &blocks[i]);
    at = ebb__net_dropout(net, ebb__net_global_pool(net, at), 0.4f);
    at = ebb__net_linear(net, at, net->options.classes, true);
    ebb__net_loss(net, at);
}
