/* What the trainer's operations compute, as plain loops in double precision: outputs of the values
 * of inputs, parameters and states in `rig->value`. Finite differences of these are sharp. */
#ifndef EBB_TESTS_TRAIN_REFERENCES_H
#define EBB_TESTS_TRAIN_REFERENCES_H

#include "train_rig.h"

static inline double *value_of(const struct rig *rig, enum ebb_op_role role, uint32_t index)
{
    int at = ebb_op_find(rig->op, role, index);
    return at < 0 ? NULL : rig->value[at];
}

static inline const int64_t *dims_of(const struct rig *rig, enum ebb_op_role role, uint32_t index)
{
    return rig->op->buffers[ebb_op_find(rig->op, role, index)].desc.dims;
}

#define X (value_of(rig, EBB_OP_INPUT, 0))
#define Y (value_of(rig, EBB_OP_OUTPUT, 0))
#define X_DIMS (dims_of(rig, EBB_OP_INPUT, 0))
#define Y_DIMS (dims_of(rig, EBB_OP_OUTPUT, 0))

static inline int64_t at4(const int64_t *dims, int64_t n, int64_t c, int64_t h, int64_t w)
{
    return ((n * dims[1] + c) * dims[2] + h) * dims[3] + w;
}

static inline uint64_t count_of(const struct rig *rig, enum ebb_op_role role, uint32_t index)
{
    return ebb_op_desc_count(&rig->op->buffers[ebb_op_find(rig->op, role, index)].desc);
}

/* The sum of one window for one output channel. */
static inline double window_of(const struct rig *rig, const struct ebb_op_convolution *with,
                               const int64_t place[4])
{
    const int64_t *dims = X_DIMS;
    int64_t groups = with->groups ? with->groups : 1, inputs = dims[1] / groups;
    int64_t group = place[1] / (with->channels / groups);
    int64_t down = with->stride[0] ? with->stride[0] : 1;
    int64_t right = with->stride[1] ? with->stride[1] : 1;
    const double *weights = value_of(rig, EBB_OP_PARAMETER, 0);
    double sum = with->bias ? value_of(rig, EBB_OP_PARAMETER, 1)[place[1]] : 0;
    for (int64_t c = 0; c < inputs; c++)
        for (int64_t i = 0; i < with->kernel[0]; i++)
            for (int64_t j = 0; j < with->kernel[1]; j++) {
                int64_t h = place[2] * down + i - with->padding[0];
                int64_t w = place[3] * right + j - with->padding[1];
                if (h < 0 || w < 0 || h >= dims[2] || w >= dims[3])
                    continue;
                int64_t weight =
                    ((place[1] * inputs + c) * with->kernel[0] + i) * with->kernel[1] + j;
                sum += weights[weight] * X[at4(dims, place[0], group * inputs + c, h, w)];
            }
    return sum;
}

static inline void convolve(const struct rig *rig, const struct ebb_op_convolution *with)
{
    const int64_t *out = Y_DIMS;
    for (int64_t n = 0; n < out[0]; n++)
        for (int64_t c = 0; c < out[1]; c++)
            for (int64_t h = 0; h < out[2]; h++)
                for (int64_t w = 0; w < out[3]; w++) {
                    const int64_t place[4] = {n, c, h, w};
                    Y[at4(out, n, c, h, w)] = window_of(rig, with, place);
                }
}

static inline void normalise_batch(const struct rig *rig, bool relu, bool evaluate)
{
    const int64_t *dims = X_DIMS;
    int64_t plane = dims[2] * dims[3];
    double count = (double)(dims[0] * plane);
    for (int64_t c = 0; c < dims[1]; c++) {
        double mean = 0, square = 0;
        for (int64_t n = 0; n < dims[0]; n++)
            for (int64_t i = 0; i < plane; i++)
                mean += X[(n * dims[1] + c) * plane + i] / count;
        for (int64_t n = 0; n < dims[0]; n++)
            for (int64_t i = 0; i < plane; i++)
                square += pow(X[(n * dims[1] + c) * plane + i] - mean, 2) / count;
        if (evaluate) {
            mean = value_of(rig, EBB_OP_STATE, 0)[c];
            square = value_of(rig, EBB_OP_STATE, 1)[c];
        }
        double factor = value_of(rig, EBB_OP_PARAMETER, 0)[c] / sqrt(square + 1e-5);
        for (int64_t n = 0; n < dims[0]; n++)
            for (int64_t i = 0; i < plane; i++) {
                int64_t at = (n * dims[1] + c) * plane + i;
                double y = (X[at] - mean) * factor + value_of(rig, EBB_OP_PARAMETER, 1)[c];
                Y[at] = relu && y < 0 ? 0 : y;
            }
    }
}

static inline void pool(const struct rig *rig, const struct ebb_op_pooling *with)
{
    const int64_t *in = X_DIMS, *out = Y_DIMS;
    for (int64_t at = 0; at < out[0] * out[1] * out[2] * out[3]; at++) {
        int64_t w = at % out[3], h = at / out[3] % out[2], plane = at / (out[2] * out[3]);
        double sum = 0, highest = -HUGE_VAL, count = 0;
        for (int64_t i = 0; i < with->kernel[0]; i++)
            for (int64_t j = 0; j < with->kernel[1]; j++) {
                int64_t y = h * with->stride[0] + i - with->padding[0];
                int64_t x = w * with->stride[1] + j - with->padding[1];
                if (y < 0 || x < 0 || y >= in[2] || x >= in[3])
                    continue;
                double value = X[(plane * in[2] + y) * in[3] + x];
                sum += value;
                count++;
                highest = value > highest ? value : highest;
            }
        Y[at] = with->max ? highest : sum / count;
    }
}

static inline void transform(const struct rig *rig)
{
    int64_t features = dims_of(rig, EBB_OP_PARAMETER, 0)[0];
    int64_t inputs = (int64_t)count_of(rig, EBB_OP_PARAMETER, 0) / features;
    int64_t rows = (int64_t)count_of(rig, EBB_OP_INPUT, 0) / inputs;
    const double *bias = value_of(rig, EBB_OP_PARAMETER, 1);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t f = 0; f < features; f++) {
            double sum = bias ? bias[f] : 0;
            for (int64_t i = 0; i < inputs; i++)
                sum += value_of(rig, EBB_OP_PARAMETER, 0)[f * inputs + i] * X[r * inputs + i];
            Y[r * features + f] = sum;
        }
}

static inline void concatenate(const struct rig *rig)
{
    const int64_t *out = Y_DIMS;
    int64_t plane = out[2] * out[3], first = 0;
    for (uint32_t k = 0; k < ebb_op_count(rig->op, EBB_OP_INPUT); k++) {
        int64_t channels = dims_of(rig, EBB_OP_INPUT, k)[1];
        for (int64_t i = 0; i < out[0] * channels * plane; i++) {
            int64_t n = i / (channels * plane), rest = i % (channels * plane);
            Y[(n * out[1] + first) * plane + rest] = value_of(rig, EBB_OP_INPUT, k)[i];
        }
        first += channels;
    }
}

static inline void lose(const struct rig *rig)
{
    int64_t rows = (int64_t)count_of(rig, EBB_OP_INPUT, 1);
    int64_t classes = (int64_t)count_of(rig, EBB_OP_INPUT, 0) / rows;
    double loss = 0, count = 0, correct = 0;
    for (int64_t r = 0; r < rows; r++) {
        const double *row = X + r * classes;
        int64_t label = (int64_t)value_of(rig, EBB_OP_INPUT, 1)[r], best = 0;
        double sum = 0;
        for (int64_t i = 0; i < classes; i++) {
            sum += exp(row[i]);
            best = row[i] > row[best] ? i : best;
        }
        if (label < 0)
            continue;
        loss += log(sum) - row[label];
        correct += label == best;
        count++;
    }
    Y[0] = loss / count;
    value_of(rig, EBB_OP_OUTPUT, 1)[0] = correct;
}

static inline void normalise_rows(const struct rig *rig)
{
    int64_t columns = dims_of(rig, EBB_OP_PARAMETER, 0)[0];
    int64_t rows = (int64_t)count_of(rig, EBB_OP_INPUT, 0) / columns;
    for (int64_t r = 0; r < rows; r++) {
        double mean = 0, square = 0;
        for (int64_t i = 0; i < columns; i++)
            mean += X[r * columns + i] / (double)columns;
        for (int64_t i = 0; i < columns; i++)
            square += pow(X[r * columns + i] - mean, 2) / (double)columns;
        for (int64_t i = 0; i < columns; i++)
            Y[r * columns + i] = (X[r * columns + i] - mean) / sqrt(square + 1e-5) *
                                     value_of(rig, EBB_OP_PARAMETER, 0)[i] +
                                 value_of(rig, EBB_OP_PARAMETER, 1)[i];
    }
}

/* One row of one head: the output at time `t`. */
static inline void attend_row(const struct rig *rig, int64_t n, int64_t head, int64_t size,
                              int64_t t)
{
    int64_t time = X_DIMS[1], row = X_DIMS[2], features = row / 3;
    const double *query = X + (n * time + t) * row + head * size;
    double *out = Y + (n * time + t) * features + head * size;
    double sum = 0;
    memset(out, 0, (size_t)size * sizeof *out);
    for (int64_t s = 0; s <= t; s++) {
        const double *key = X + (n * time + s) * row + features + head * size;
        double score = 0;
        for (int64_t i = 0; i < size; i++)
            score += query[i] * key[i];
        double weight = exp(score / sqrt((double)size));
        sum += weight;
        for (int64_t i = 0; i < size; i++)
            out[i] += weight * key[features + i];
    }
    for (int64_t i = 0; i < size; i++)
        out[i] /= sum;
}

static inline void attend(const struct rig *rig, int64_t heads)
{
    for (int64_t n = 0; n < X_DIMS[0]; n++)
        for (int64_t head = 0; head < heads; head++)
            for (int64_t t = 0; t < X_DIMS[1]; t++)
                attend_row(rig, n, head, X_DIMS[2] / 3 / heads, t);
}

static inline void embed(const struct rig *rig)
{
    int64_t time = X_DIMS[1], features = Y_DIMS[2];
    for (int64_t i = 0; i < X_DIMS[0] * time; i++)
        for (int64_t f = 0; f < features; f++)
            Y[i * features + f] = value_of(rig, EBB_OP_PARAMETER, 0)[(int64_t)X[i] * features + f] +
                                  value_of(rig, EBB_OP_PARAMETER, 1)[i % time * features + f];
}

static inline void respond(const struct rig *rig, const struct ebb_op_lrn *with)
{
    const int64_t *dims = X_DIMS;
    int64_t plane = dims[2] * dims[3];
    for (int64_t at = 0; at < dims[0] * dims[1] * plane; at++) {
        int64_t c = at / plane % dims[1], first = at - c * plane;
        double sum = 0;
        for (int64_t k = c - with->size / 2; k <= c + with->size / 2; k++)
            sum += k < 0 || k >= dims[1] ? 0 : pow(X[first + k * plane], 2);
        Y[at] = X[at] * pow((double)with->k + (double)with->alpha / (double)with->size * sum,
                            -(double)with->beta);
    }
}

#endif
