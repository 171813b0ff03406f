/* Data: what a network is trained on, one batch after another.
 *
 *     struct ebb_data *data;
 *     if (ebb__data_open(&options, &data, &error) == EBB_OK) {
 *         ebb__data_batch(data, 0, images, labels);
 *         ...
 *         ebb__data_close(data);
 *     }
 *
 * A batch depends on the seed and its number only. So a resumed training sees what an uninterrupted
 * one would have seen, and needs no position but the number. Training examples of an epoch come in
 * an order that the seed and the epoch give. Only ebb__data_batch() changes anything, the order of
 * the epoch: not thread-safe. */
#ifndef EBB_TRAIN_DATA_H
#define EBB_TRAIN_DATA_H

#include "ebb/status.h"

#include <stdbool.h>
#include <stdint.h>

enum ebb_data_kind {
    EBB_DATA_FASHION,   /* Fashion-MNIST: 28x28 pixels, one channel, ten classes */
    EBB_DATA_SYNTHETIC, /* images of noise around a pattern of their class */
    EBB_DATA_TOKENS     /* sequences in which a token mostly follows from the one before */
};

struct ebb_data_options {
    enum ebb_data_kind kind;
    uint32_t batch;    /* examples; at least 1 */
    uint32_t channels; /* of synthetic images */
    uint32_t size;     /* height and width of synthetic images, or positions of a sequence */
    uint32_t classes;  /* of synthetic images, or the vocabulary */
    uint64_t seed;
    const char *folder; /* of Fashion-MNIST; NULL: Debian's */
};

struct ebb_data;

/* EBB_ERR_IO, EBB_ERR_FORMAT: a file of Fashion-MNIST is missing or no such file.
 * EBB_ERR_ARGUMENT: the batch exceeds the data. EBB_ERR_MEMORY. The caller closes *data. */
EBB_NODISCARD enum ebb_status ebb__data_open(const struct ebb_data_options *options,
                                             struct ebb_data **data, struct ebb_error *error);
/* NULL is allowed. */
void ebb__data_close(struct ebb_data *data);

/* Whole batches of an epoch. The rest of the examples is left out, others in each epoch. Synthetic
 * data have no epochs: 0. */
uint64_t ebb__data_epoch_batches(const struct ebb_data *data);
/* Batches with all examples for tests; 0: there are none. */
uint64_t ebb__data_test_batches(const struct ebb_data *data);
uint64_t ebb__data_test_count(const struct ebb_data *data); /* examples */

/* Fills the inputs and labels of training batch `number`, from 0. Images are floats (batch,
 * channels, height, width). Tokens are int32_t (batch, positions), and have labels as many. */
void ebb__data_batch(struct ebb_data *data, uint64_t number, void *inputs, int32_t *labels);
/* Likewise test batch `number`, below ebb__data_test_batches(). What the last one lacks has the
 * label -1. */
void ebb__data_test_batch(const struct ebb_data *data, uint64_t number, void *inputs,
                          int32_t *labels);

#endif
