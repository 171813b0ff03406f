/* Networks with shortcuts: ResNet, Wide ResNet, DenseNet.
 *
 * He and others, Deep residual learning for image recognition, 2016. Zagoruyko, Komodakis, Wide
 * residual networks, 2016. Huang and others, Densely connected convolutional networks, 2017.
 *
 * Depths from 137 that the paper lacks are 3 (6 + 32 + n + 6) + 2: all further blocks are in the
 * third stage. This is the family of SuperNeurons (Wang and others, PPoPP 2018), and contains the
 * depths 1001 to 1517 of Layrub. The third stage has images of 14x14: there a block has few
 * activations, so that depth costs as little memory as it can. */
#include "train/net/build.h"

static const struct ebb_window window_1x1 = {.kernel = 1, .stride = 1};
static const struct ebb_window window_3x3 = {.kernel = 3, .stride = 1, .pad = 1};
static const struct ebb_window window_7x7 = {.kernel = 7, .stride = 2, .pad = 3};
static const struct ebb_window halve_3x3 = {.kernel = 3, .stride = 2, .pad = 1};

#define STAGES 4
struct depth {
    uint32_t depth;
    bool has_bottlenecks;
    uint32_t blocks[STAGES];
};

static bool find_depth(uint32_t depth, struct depth *found)
{
    static const struct depth known[] = {
        {18, false, {2, 2, 2, 2}},  {34, false, {3, 4, 6, 3}},  {50, true, {3, 4, 6, 3}},
        {101, true, {3, 4, 23, 3}}, {152, true, {3, 8, 36, 3}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].depth == depth) {
            *found = known[i];
            return true;
        }
    const uint32_t around = 6 + 32 + 6;
    if (depth < 3 * (around + 1) + 2 || (depth - 2) % 3)
        return false;
    *found = (struct depth){depth, true, {6, 32, (depth - 2) / 3 - around, 6}};
    return true;
}

static uint32_t conv_norm(struct ebb_net *net, uint32_t at, struct ebb_window window,
                          uint32_t stride, uint32_t outputs)
{
    window.stride = stride;
    return ebb__net_batch_norm(net, ebb__net_conv(net, at, window, outputs, false));
}

/* A bottleneck halves the image in its 3x3 convolution, as in torchvision. The paper halves it in
 * the 1x1 before. Parameters are the same. */
static uint32_t residual_block(struct ebb_net *net, uint32_t at, bool is_bottleneck,
                               uint32_t channels, uint32_t stride, bool has_projection)
{
    uint32_t outputs = is_bottleneck ? 4 * channels : channels;
    uint32_t branch = at;
    if (is_bottleneck) {
        branch = ebb__net_relu(net, conv_norm(net, branch, window_1x1, 1, channels));
        branch = ebb__net_relu(net, conv_norm(net, branch, window_3x3, stride, channels));
        branch = conv_norm(net, branch, window_1x1, 1, outputs);
    } else {
        branch = ebb__net_relu(net, conv_norm(net, branch, window_3x3, stride, channels));
        branch = conv_norm(net, branch, window_3x3, 1, outputs);
    }
    uint32_t shortcut = has_projection ? conv_norm(net, at, window_1x1, stride, outputs) : at;
    return ebb__net_relu(net, ebb__net_add(net, branch, shortcut));
}

bool ebb__net_build_resnet(struct ebb_net *net, uint32_t depth)
{
    struct depth shape;
    if (!find_depth(depth, &shape))
        return false;
    uint32_t at = ebb__net_conv(net, ebb__net_images(net), window_7x7, 64, false);
    at = ebb__net_relu(net, ebb__net_batch_norm(net, at));
    at = ebb__net_max_pool(net, at, halve_3x3);
    for (uint32_t stage = 0; stage < STAGES; stage++)
        for (uint32_t block = 0; block < shape.blocks[stage]; block++) {
            uint32_t stride = stage && !block ? 2 : 1;
            bool has_projection = !block && (stage || shape.has_bottlenecks);
            at = residual_block(net, at, shape.has_bottlenecks, 64u << stage, stride,
                                has_projection);
        }
    at = ebb__net_linear(net, ebb__net_global_pool(net, at), net->options.classes, true);
    ebb__net_loss(net, at);
    return true;
}

/* Normalised before each convolution. */
static uint32_t wide_block(struct ebb_net *net, uint32_t at, uint32_t channels, uint32_t stride,
                           bool has_projection)
{
    struct ebb_window first = window_3x3, projection = window_1x1;
    first.stride = projection.stride = stride;
    uint32_t active = ebb__net_relu(net, ebb__net_batch_norm(net, at));
    uint32_t branch = ebb__net_conv(net, active, first, channels, false);
    branch = ebb__net_relu(net, ebb__net_batch_norm(net, branch));
    branch = ebb__net_conv(net, branch, window_3x3, channels, false);
    uint32_t shortcut =
        has_projection ? ebb__net_conv(net, active, projection, channels, false) : at;
    return ebb__net_add(net, branch, shortcut);
}

void ebb__net_build_wrn(struct ebb_net *net, uint32_t depth, uint32_t width)
{
    uint32_t at = ebb__net_conv(net, ebb__net_images(net), window_3x3, 16, false);
    for (uint32_t stage = 0; stage < 3; stage++)
        for (uint32_t block = 0; block < (depth - 4) / 6; block++)
            at = wide_block(net, at, (16u << stage) * width, stage && !block ? 2 : 1, !block);
    at = ebb__net_relu(net, ebb__net_batch_norm(net, at));
    at = ebb__net_linear(net, ebb__net_global_pool(net, at), net->options.classes, true);
    ebb__net_loss(net, at);
}

static uint32_t norm_relu_conv(struct ebb_net *net, uint32_t at, struct ebb_window window,
                               uint32_t outputs)
{
    at = ebb__net_relu(net, ebb__net_batch_norm(net, at));
    return ebb__net_conv(net, at, window, outputs, false);
}

/* Each block appends 32 channels to what it reads. A join of two tensors makes the next input, so
 * that memory grows with the square of the depth, as it does in frameworks. */
void ebb__net_build_densenet_121(struct ebb_net *net)
{
    static const uint32_t blocks[] = {6, 12, 24, 16};
    const struct ebb_window halve_2x2 = {.kernel = 2, .stride = 2};
    uint32_t channels = 64;
    uint32_t at = ebb__net_conv(net, ebb__net_images(net), window_7x7, channels, false);
    at = ebb__net_relu(net, ebb__net_batch_norm(net, at));
    at = ebb__net_max_pool(net, at, halve_3x3);
    for (uint32_t stage = 0; stage < 4; stage++) {
        for (uint32_t block = 0; block < blocks[stage]; block++) {
            uint32_t grown = norm_relu_conv(net, at, window_1x1, 128);
            grown = norm_relu_conv(net, grown, window_3x3, 32);
            at = ebb__net_concat(net, (uint32_t[]){at, grown}, 2);
            channels += 32;
        }
        if (stage == 3)
            break;
        channels /= 2;
        at = ebb__net_average_pool(net, norm_relu_conv(net, at, window_1x1, channels), halve_2x2);
    }
    at = ebb__net_relu(net, ebb__net_batch_norm(net, at));
    at = ebb__net_linear(net, ebb__net_global_pool(net, at), net->options.classes, true);
    ebb__net_loss(net, at);
}
