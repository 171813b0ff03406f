#include "train/data/data.h"

#include "train/base/fail.h"
#include "train/data/idx.h"
#include "train/data/random.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FASHION_FOLDER "/usr/share/datasets/fashion-mnist"
#define FASHION_PACKAGE "dataset-fashion-mnist"
#define FASHION_SIZE 28
#define FASHION_CLASSES 10
/* Mean and deviation of the training pixels, divided by 255. */
#define FASHION_MEAN 0.2860f
#define FASHION_DEVIATION 0.3530f

/* Streams of random numbers. */
enum { STREAM_ORDER, STREAM_LABEL, STREAM_PATTERN, STREAM_PIXEL, STREAM_TOKEN, STREAM_NEXT };

struct examples {
    struct ebb_idx images, labels;
    uint32_t count;
};

struct ebb_data {
    struct ebb_data_options options;
    struct examples train, test; /* of Fashion-MNIST */
    uint32_t *order;             /* of the training examples in epoch `ordered_epoch` */
    uint64_t ordered_epoch;
    bool has_order;
};

static enum ebb_status read_idx(const char *folder, const char *name, uint32_t dimensions,
                                struct ebb_idx *idx, struct ebb_error *error)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    enum ebb_status status = ebb__idx_read(path, dimensions, idx, error);
    if (status == EBB_ERR_IO)
        ebb__train_remedy(error, "install the package " FASHION_PACKAGE);
    return status;
}

static enum ebb_status read_examples(const char *folder, const char *prefix,
                                     struct examples *examples, struct ebb_error *error)
{
    char name[64];
    snprintf(name, sizeof name, "%s-images-idx3-ubyte.gz", prefix);
    enum ebb_status status = read_idx(folder, name, 3, &examples->images, error);
    if (status)
        return status;
    if (examples->images.size[1] != FASHION_SIZE || examples->images.size[2] != FASHION_SIZE)
        return ebb__train_fail(error, EBB_ERR_FORMAT, name,
                               "its images have %" PRIu32 "x%" PRIu32 " pixels, not 28x28",
                               examples->images.size[1], examples->images.size[2]);
    snprintf(name, sizeof name, "%s-labels-idx1-ubyte.gz", prefix);
    status = read_idx(folder, name, 1, &examples->labels, error);
    if (status)
        return status;
    examples->count = examples->images.size[0];
    if (examples->labels.size[0] != examples->count)
        return ebb__train_fail(error, EBB_ERR_FORMAT, name,
                               "has %" PRIu32 " labels for %" PRIu32 " images",
                               examples->labels.size[0], examples->count);
    for (uint32_t i = 0; i < examples->count; i++)
        if (examples->labels.values[i] >= FASHION_CLASSES)
            return ebb__train_fail(error, EBB_ERR_FORMAT, name, "label %" PRIu32 " is %u", i,
                                   examples->labels.values[i]);
    return EBB_OK;
}

static enum ebb_status open_fashion(struct ebb_data *data, struct ebb_error *error)
{
    const char *folder = data->options.folder ? data->options.folder : FASHION_FOLDER;
    enum ebb_status status = read_examples(folder, "train", &data->train, error);
    if (!status)
        status = read_examples(folder, "t10k", &data->test, error);
    if (status)
        return status;
    if (data->options.batch > data->train.count)
        return ebb__train_fail(error, EBB_ERR_ARGUMENT, "--batch",
                               "%" PRIu32 " exceeds the %" PRIu32 " training images",
                               data->options.batch, data->train.count);
    data->options.channels = 1;
    data->options.size = FASHION_SIZE;
    data->options.classes = FASHION_CLASSES;
    data->order = malloc(data->train.count * sizeof *data->order);
    return data->order ? EBB_OK : ebb__train_fail_memory(error, folder);
}

enum ebb_status ebb__data_open(const struct ebb_data_options *options, struct ebb_data **data,
                               struct ebb_error *error)
{
    struct ebb_data *made = calloc(1, sizeof *made);
    if (!made)
        return ebb__train_fail_memory(error, "the data");
    made->options = *options;
    enum ebb_status status = EBB_OK;
    if (options->kind == EBB_DATA_FASHION)
        status = open_fashion(made, error);
    made->options.folder = NULL; /* it is the caller's */
    if (status)
        ebb__data_close(made);
    else
        *data = made;
    return status;
}

void ebb__data_close(struct ebb_data *data)
{
    if (!data)
        return;
    ebb__idx_fini(&data->train.images);
    ebb__idx_fini(&data->train.labels);
    ebb__idx_fini(&data->test.images);
    ebb__idx_fini(&data->test.labels);
    free(data->order);
    free(data);
}

uint64_t ebb__data_epoch_batches(const struct ebb_data *data)
{
    return data->train.count / data->options.batch;
}

uint64_t ebb__data_test_batches(const struct ebb_data *data)
{
    return ((uint64_t)data->test.count + data->options.batch - 1) / data->options.batch;
}

uint64_t ebb__data_test_count(const struct ebb_data *data)
{
    return data->test.count;
}

/* Fisher and Yates: each order is equally likely. */
static void put_in_order(struct ebb_data *data, uint64_t epoch)
{
    if (data->has_order && data->ordered_epoch == epoch)
        return;
    for (uint32_t i = 0; i < data->train.count; i++)
        data->order[i] = i;
    uint64_t seed = ebb__random_at(data->options.seed, STREAM_ORDER, epoch);
    for (uint32_t i = data->train.count - 1; i > 0; i--) {
        uint32_t other = ebb__random_below(ebb__random_at(seed, STREAM_ORDER, i), i + 1);
        uint32_t moved = data->order[i];
        data->order[i] = data->order[other];
        data->order[other] = moved;
    }
    data->ordered_epoch = epoch;
    data->has_order = true;
}

static void copy_example(const struct examples *examples, uint32_t from, float *image,
                         int32_t *label)
{
    const uint32_t pixels = FASHION_SIZE * FASHION_SIZE;
    const uint8_t *source = examples->images.values + (size_t)from * pixels;
    for (uint32_t i = 0; i < pixels; i++)
        image[i] = ((float)source[i] / 255.0f - FASHION_MEAN) / FASHION_DEVIATION;
    *label = examples->labels.values[from];
}

/* An image is noise around the pattern of its class, so a network can learn to tell them apart. The
 * pattern is coarse: 8x8 fields, that small images have, too. */
static void synthetic_image(const struct ebb_data_options *options, uint64_t number, float *image,
                            int32_t *label)
{
    uint32_t class =
        ebb__random_below(ebb__random_at(options->seed, STREAM_LABEL, number), options->classes);
    uint64_t seed = ebb__random_at(options->seed, STREAM_PIXEL, number);
    uint64_t at = 0;
    for (uint32_t c = 0; c < options->channels; c++)
        for (uint32_t y = 0; y < options->size; y++)
            for (uint32_t x = 0; x < options->size; x++, at++) {
                uint64_t field = ((uint64_t) class << 32) + c * 64 + y % 8 * 8 + x % 8;
                image[at] =
                    ebb__random_symmetric(ebb__random_at(options->seed, STREAM_PATTERN, field)) +
                    ebb__random_symmetric(ebb__random_at(seed, STREAM_PIXEL, at));
            }
    *label = (int32_t) class;
}

/* Three of four tokens follow from the one before by a fixed table, the others are random. */
static int32_t next_token(const struct ebb_data_options *options, uint64_t seed, int32_t token,
                          uint32_t position)
{
    uint64_t chance = ebb__random_at(seed, STREAM_TOKEN, position);
    if (chance % 4 == 0)
        return (int32_t)ebb__random_below(ebb__random_mix(chance), options->classes);
    return (int32_t)ebb__random_below(ebb__random_at(options->seed, STREAM_NEXT, (uint64_t)token),
                                      options->classes);
}

static void synthetic_sequence(const struct ebb_data_options *options, uint64_t number,
                               int32_t *tokens, int32_t *labels)
{
    uint64_t seed = ebb__random_at(options->seed, STREAM_LABEL, number);
    int32_t token = (int32_t)ebb__random_below(seed, options->classes);
    for (uint32_t i = 0; i < options->size; i++) {
        tokens[i] = token;
        token = next_token(options, seed, token, i);
        labels[i] = token;
    }
}

void ebb__data_batch(struct ebb_data *data, uint64_t number, void *inputs, int32_t *labels)
{
    const struct ebb_data_options *options = &data->options;
    uint64_t batches = ebb__data_epoch_batches(data);
    if (options->kind == EBB_DATA_FASHION)
        put_in_order(data, number / batches);
    size_t pixels = (size_t)options->channels * options->size * options->size;
    for (uint32_t i = 0; i < options->batch; i++) {
        uint64_t example = number * options->batch + i;
        switch (options->kind) {
        case EBB_DATA_FASHION:
            copy_example(&data->train, data->order[number % batches * options->batch + i],
                         (float *)inputs + i * pixels, labels + i);
            break;
        case EBB_DATA_SYNTHETIC:
            synthetic_image(options, example, (float *)inputs + i * pixels, labels + i);
            break;
        case EBB_DATA_TOKENS:
            synthetic_sequence(options, example, (int32_t *)inputs + (size_t)i * options->size,
                               labels + (size_t)i * options->size);
            break;
        }
    }
}

void ebb__data_test_batch(const struct ebb_data *data, uint64_t number, void *inputs,
                          int32_t *labels)
{
    size_t pixels = (size_t)FASHION_SIZE * FASHION_SIZE;
    for (uint32_t i = 0; i < data->options.batch; i++) {
        uint64_t example = number * data->options.batch + i;
        bool is_there = example < data->test.count;
        copy_example(&data->test, is_there ? (uint32_t)example : 0, (float *)inputs + i * pixels,
                     labels + i);
        if (!is_there)
            labels[i] = -1;
    }
}
