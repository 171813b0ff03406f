/* GPT: Radford and others, Language models are unsupervised multitask learners, 2019.
 *
 * A net of n blocks has n heads and 64 n channels, so 12 blocks are those of GPT-2 small. The last
 * linear layer has weights of its own: here no parameter belongs to two layers. */
#include "train/net/build.h"

#define CHANNELS_A_HEAD 64

static uint32_t block(struct ebb_net *net, uint32_t at, uint32_t channels, uint32_t heads)
{
    uint32_t inner = ebb__net_linear(net, ebb__net_layer_norm(net, at), 3 * channels, true);
    inner = ebb__net_linear(net, ebb__net_attention(net, inner, heads), channels, true);
    at = ebb__net_add(net, at, inner);
    inner = ebb__net_linear(net, ebb__net_layer_norm(net, at), 4 * channels, true);
    inner = ebb__net_linear(net, ebb__net_gelu(net, inner), channels, true);
    return ebb__net_add(net, at, inner);
}

void ebb__net_build_gpt(struct ebb_net *net, uint32_t blocks)
{
    uint32_t channels = CHANNELS_A_HEAD * blocks;
    uint32_t at = ebb__net_embedding(net, ebb__net_tokens(net), net->options.classes, channels);
    for (uint32_t i = 0; i < blocks; i++)
        at = block(net, at, channels, blocks);
    at = ebb__net_linear(net, ebb__net_layer_norm(net, at), net->options.classes, false);
    ebb__net_loss(net, at);
}
