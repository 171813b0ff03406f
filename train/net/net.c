/* Networks by their names, and what can be asked of a network. */
#include "train/net/net.h"

#include "train/base/fail.h"
#include "train/base/size.h"
#include "train/net/build.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A longer ResNet would need more layers than a trace can number with reason. Arbitrary. */
#define RESNET_DEPTH_MOST 30002
#define GPT_BLOCKS_MOST 96 /* of GPT-3 */

enum family { CNN, ALEXNET, VGG, GOOGLENET, RESNET, WRN, DENSENET, GPT, GPT_BLOCKS };

/* A name that ends with '-' is followed by a number. Sizes that are 0 cannot be chosen. */
struct row {
    const char *name;
    enum family family;
    struct ebb_net_options defaults;
};

static const struct row rows[] = {
    {"cnn", CNN, {.batch = 64, .size = 28, .channels = 1, .classes = 10}},
    {"alexnet", ALEXNET, {.batch = 64, .size = 224, .channels = 3, .classes = 1000}},
    {"vgg-16", VGG, {.batch = 32, .size = 224, .channels = 3, .classes = 1000}},
    {"googlenet", GOOGLENET, {.batch = 32, .size = 224, .channels = 3, .classes = 1000}},
    {"resnet-", RESNET, {.batch = 32, .size = 224, .channels = 3, .classes = 1000}},
    {"wrn-28-10", WRN, {.batch = 32, .size = 32, .channels = 3, .classes = 10}},
    {"densenet-121", DENSENET, {.batch = 32, .size = 224, .channels = 3, .classes = 1000}},
    {"gpt", GPT, {.batch = 8, .size = 256, .channels = 1, .classes = 4096}},
    {"gpt-", GPT_BLOCKS, {.batch = 8, .size = 256, .channels = 1, .classes = 4096}},
};

const char *ebb__net_names(void)
{
    return "cnn, alexnet, vgg-16, googlenet, resnet-18, -34, -50, -101, -152, or from 137 on\n"
           "any 3 n + 2, wrn-28-10, densenet-121, gpt, gpt-BLOCKS";
}

/* The row of a name, and the number that follows. NULL: there is none. */
static const struct row *find_row(const char *name, uint32_t *number)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t length = strlen(rows[i].name);
        uint64_t value = 0;
        if (rows[i].name[length - 1] != '-') {
            if (strcmp(name, rows[i].name) == 0)
                return &rows[i];
        } else if (strncmp(name, rows[i].name, length) == 0) {
            uint32_t most = rows[i].family == RESNET ? RESNET_DEPTH_MOST : GPT_BLOCKS_MOST;
            if (!ebb__train_number_parse(name + length, 1, most, &value))
                return NULL;
            *number = (uint32_t)value;
            return &rows[i];
        }
    }
    return NULL;
}

/* False: there is no net with this number. */
static bool build(struct ebb_net *net, enum family family, uint32_t number)
{
    switch (family) {
    case CNN:
        ebb__net_build_cnn(net);
        return true;
    case ALEXNET:
        ebb__net_build_alexnet(net);
        return true;
    case VGG:
        ebb__net_build_vgg_16(net);
        return true;
    case GOOGLENET:
        ebb__net_build_googlenet(net);
        return true;
    case RESNET:
        return ebb__net_build_resnet(net, number);
    case WRN:
        ebb__net_build_wrn(net, 28, 10);
        return true;
    case DENSENET:
        ebb__net_build_densenet_121(net);
        return true;
    case GPT:
        ebb__net_build_gpt(net, 6);
        return true;
    case GPT_BLOCKS:
        ebb__net_build_gpt(net, number);
        return true;
    }
    return false;
}

static enum ebb_status fail_name(const char *name, struct ebb_error *error)
{
    enum ebb_status status =
        ebb__train_fail(error, EBB_ERR_ARGUMENT, name, "there is no such network");
    ebb__train_remedy(error, "choose one of: %s", ebb__net_names());
    return status;
}

enum ebb_status ebb__net_named(const char *name, const struct ebb_net_options *options,
                               struct ebb_net **net, struct ebb_error *error)
{
    uint32_t number = 0;
    const struct row *row = find_row(name, &number);
    if (!row)
        return fail_name(name, error);
    struct ebb_net_options chosen = row->defaults;
    if (options->batch)
        chosen.batch = options->batch;
    if (options->size)
        chosen.size = options->size;
    if (options->channels)
        chosen.channels = options->channels;
    if (options->classes)
        chosen.classes = options->classes;
    struct ebb_net *made = NULL;
    enum ebb_status status = ebb__net_create(name, &chosen, &made, error);
    if (status)
        return status;
    if (!build(made, row->family, number)) {
        ebb__net_destroy(made);
        return fail_name(name, error);
    }
    status = ebb__net_finish(&made, error);
    if (!status)
        *net = made;
    return status;
}

const char *ebb__layer_kind_text(enum ebb_layer_kind kind)
{
    static const char *const texts[] = {
#define EBB_LAYER_TEXT(name, text) [EBB_LAYER_##name] = text,
        EBB_LAYER_TABLE(EBB_LAYER_TEXT)
#undef EBB_LAYER_TEXT
    };
    return kind < EBB_LAYER_KIND_COUNT ? texts[kind] : "unknown";
}

uint64_t ebb__layer_parameter_values(const struct ebb_layer *layer)
{
    uint64_t values = 0;
    for (uint32_t i = 0; i < layer->parameter_count; i++)
        values += ebb__shape_values(&layer->parameters[i]);
    return values;
}

uint64_t ebb__net_parameter_values(const struct ebb_net *net)
{
    uint64_t values = 0;
    for (uint32_t l = 1; l <= net->layer_count; l++)
        values += ebb__layer_parameter_values(&net->layers[l]);
    return values;
}
