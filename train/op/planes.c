#include "train/op/planes.h"

#include "train/op/kernels.h"

enum { LANES = EBB__LANES };

uint64_t ebb__planes_channels(const struct ebb__planes *planes)
{
    return (uint64_t)(planes->groups * planes->block);
}

uint64_t ebb__planes_partials(const struct ebb__planes *planes)
{
    return 2 * (uint64_t)planes->batch * ebb__planes_channels(planes);
}

static uint64_t width_of(const struct ebb__planes *planes)
{
    return LANES % planes->block == 0 ? LANES : (uint64_t)planes->block;
}

static uint64_t plane_size(const struct ebb__planes *planes)
{
    return (uint64_t)(planes->positions * planes->block);
}

/* Elements of a plane that are computed at a time: whole vectors. */
static uint64_t piece_size(uint64_t width)
{
    return EBB__WIDTH_MAX / 2 < width ? width : EBB__WIDTH_MAX / 2 / width * width;
}

/* Repeats the coefficients of a plane's channels to the width of a vector. */
static void repeat(float *pattern, const struct ebb__planes *planes, uint64_t plane,
                   const float *channels)
{
    uint64_t block = (uint64_t)planes->block, width = width_of(planes);
    const float *first = channels + plane % (uint64_t)planes->groups * block;
    for (uint64_t i = 0; i < width; i++)
        pattern[i] = first[i % block];
}

struct lanes {
    float sum[EBB__WIDTH_MAX];
    float square[EBB__WIDTH_MAX];
    float mean[EBB__WIDTH_MAX];
};

struct coefficients {
    float mean[EBB__WIDTH_MAX];
    float factor[EBB__WIDTH_MAX];
    float offset[EBB__WIDTH_MAX];
    float slope[EBB__WIDTH_MAX];
};

#define AT EBB__AT
#define READ EBB__READ

/* Each loop is there for vectors, and for other widths and what remains. */
#define EACH_ELEMENT(from, width, count, body)                                                     \
    for (uint64_t v = (from); v < (count); v += (width)) {                                         \
        uint64_t end = (count)-v < (width) ? (count)-v : (width);                                  \
        for (uint64_t l = 0; l < end; l++)                                                         \
            body;                                                                                  \
    }

/* Four sums, since an addition waits for the one before. */
EBB_KERNEL
static void sum_lanes(struct lanes *lanes, const float *x, uint64_t count, uint64_t width)
{
    uint64_t done = 0;
    if (width == LANES) {
        ebb__vector a = READ(lanes->sum), b = {0}, c = {0}, d = {0};
        for (; done + 4 * LANES <= count; done += 4 * LANES) {
            a += READ(x + done);
            b += READ(x + done + LANES);
            c += READ(x + done + 2 * LANES);
            d += READ(x + done + 3 * LANES);
        }
        AT(lanes->sum) = (a + b) + (c + d);
    }
    EACH_ELEMENT(done, width, count, lanes->sum[l] += x[v + l])
}

EBB_KERNEL
static void spread_lanes(struct lanes *lanes, const float *x, uint64_t count, uint64_t width)
{
    uint64_t done = 0;
    if (width == LANES) {
        ebb__vector mean = READ(lanes->mean), sum = READ(lanes->sum), other = {0};
        ebb__vector square = READ(lanes->square), other_square = {0};
        for (; done + 2 * LANES <= count; done += 2 * LANES) {
            ebb__vector from = READ(x + done) - mean, next = READ(x + done + LANES) - mean;
            sum += from;
            other += next;
            square += from * from;
            other_square += next * next;
        }
        AT(lanes->sum) = sum + other;
        AT(lanes->square) = square + other_square;
    }
    EACH_ELEMENT(done, width, count, {
        float from = x[v + l] - lanes->mean[l];
        lanes->sum[l] += from;
        lanes->square[l] += from * from;
    })
}

EBB_KERNEL
static void product_lanes(struct lanes *lanes, const float *x, const float *gradient,
                          uint64_t count, uint64_t width)
{
    uint64_t done = 0;
    if (width == LANES) {
        ebb__vector mean = READ(lanes->mean), sum = READ(lanes->sum), product = READ(lanes->square);
        ebb__vector other = {0}, other_product = {0};
        for (; done + 2 * LANES <= count; done += 2 * LANES) {
            ebb__vector here = READ(gradient + done), next = READ(gradient + done + LANES);
            sum += here;
            other += next;
            product += here * (READ(x + done) - mean);
            other_product += next * (READ(x + done + LANES) - mean);
        }
        AT(lanes->sum) = sum + other;
        AT(lanes->square) = product + other_product;
    }
    EACH_ELEMENT(done, width, count, {
        lanes->sum[l] += gradient[v + l];
        lanes->square[l] += gradient[v + l] * (x[v + l] - lanes->mean[l]);
    })
}

EBB_KERNEL
static void normalise(float *target, const float *x, const struct coefficients *with,
                      uint64_t count, uint64_t width)
{
    uint64_t done = 0;
    if (width == LANES) {
        ebb__vector mean = READ(with->mean), factor = READ(with->factor),
                    offset = READ(with->offset);
        for (; done + LANES <= count; done += LANES)
            AT(target + done) = (READ(x + done) - mean) * factor + offset;
    }
    EACH_ELEMENT(done, width, count,
                 target[v + l] = (x[v + l] - with->mean[l]) * with->factor[l] + with->offset[l])
}

EBB_KERNEL
static void gradient_of(float *target, const float *gradient, const float *x,
                        const struct coefficients *with, uint64_t count, uint64_t width)
{
    uint64_t done = 0;
    if (width == LANES) {
        ebb__vector mean = READ(with->mean), factor = READ(with->factor);
        ebb__vector offset = READ(with->offset), slope = READ(with->slope);
        for (; done + LANES <= count; done += LANES)
            AT(target + done) =
                factor * (READ(gradient + done) - offset - (READ(x + done) - mean) * slope);
    }
    EACH_ELEMENT(done, width, count,
                 target[v + l] = with->factor[l] * (gradient[v + l] - with->offset[l] -
                                                    (x[v + l] - with->mean[l]) * with->slope[l]))
}

/* Adds lanes up to channels, in double: `target` gets the sums, scaled. */
static void fold(float *target, const float *lanes, const struct ebb__planes *planes, double scale)
{
    uint64_t block = (uint64_t)planes->block, width = width_of(planes);
    for (uint64_t i = 0; i < block; i++) {
        double sum = 0;
        for (uint64_t j = i; j < width; j += block)
            sum += (double)lanes[j];
        target[i] = (float)(sum * scale);
    }
}

/* The mean comes first, and sums are about it. The small sum that then remains corrects both: it is
 * the rounding of the mean. */
static void moments_of(const struct ebb__plane_pass *pass, struct lanes *lanes, uint64_t plane)
{
    const struct ebb__planes *planes = &pass->planes;
    uint64_t size = plane_size(planes), width = width_of(planes), block = (uint64_t)planes->block;
    const float *x = pass->input + plane * size;
    float *mean = pass->partial + plane * 2 * block, *squares = mean + block;
    double count = (double)planes->positions;
    memset(lanes->sum, 0, width * sizeof(float));
    sum_lanes(lanes, x, size, width);
    fold(mean, lanes->sum, planes, 1 / count);
    for (uint64_t i = 0; i < width; i++)
        lanes->mean[i] = mean[i % block];
    memset(lanes->sum, 0, width * sizeof(float));
    memset(lanes->square, 0, width * sizeof(float));
    spread_lanes(lanes, x, size, width);
    fold(squares, lanes->square, planes, 1);
    for (uint64_t i = 0; i < block; i++) {
        double rest = 0;
        for (uint64_t j = i; j < width; j += block)
            rest += (double)lanes->sum[j];
        mean[i] = (float)((double)mean[i] + rest / count);
        squares[i] = (float)((double)squares[i] - rest * rest / count);
    }
}

static void moments_range(void *context, uint64_t first, uint64_t last)
{
    struct lanes lanes;
    for (uint64_t plane = first; plane < last; plane++)
        moments_of(context, &lanes, plane);
}

static void products_range(void *context, uint64_t first, uint64_t last)
{
    const struct ebb__plane_pass *pass = context;
    const struct ebb__planes *planes = &pass->planes;
    uint64_t size = plane_size(planes), width = width_of(planes), block = (uint64_t)planes->block;
    uint64_t piece = piece_size(width);
    struct lanes lanes;
    float masked[EBB__WIDTH_MAX];
    for (uint64_t plane = first; plane < last; plane++) {
        memset(lanes.sum, 0, width * sizeof(float));
        memset(lanes.square, 0, width * sizeof(float));
        repeat(lanes.mean, planes, plane, pass->mean);
        for (uint64_t at = 0; at < size; at += piece) {
            uint64_t count = size - at < piece ? size - at : piece, from = plane * size + at;
            const float *gradient = pass->gradient + from;
            if (pass->mask) {
                ebb__mask_range(masked, gradient, pass->mask, from, count, 1.0f);
                gradient = masked;
            }
            product_lanes(&lanes, pass->input + from, gradient, count, width);
        }
        fold(pass->partial + plane * 2 * block, lanes.sum, planes, 1);
        fold(pass->partial + (plane * 2 + 1) * block, lanes.square, planes, 1);
    }
}

static void set_coefficients(struct coefficients *with, const struct ebb__plane_pass *pass,
                             uint64_t plane)
{
    repeat(with->mean, &pass->planes, plane, pass->mean);
    repeat(with->factor, &pass->planes, plane, pass->factor);
    repeat(with->offset, &pass->planes, plane, pass->offset);
    if (pass->slope)
        repeat(with->slope, &pass->planes, plane, pass->slope);
}

struct normalise_pass {
    const struct ebb__plane_pass *pass;
    bool relu; /* within the pass */
};

static void normalise_range(void *context, uint64_t first, uint64_t last)
{
    const struct normalise_pass *of = context;
    const struct ebb__plane_pass *pass = of->pass;
    uint64_t size = plane_size(&pass->planes), width = width_of(&pass->planes);
    uint64_t piece = piece_size(width);
    struct coefficients with;
    for (uint64_t plane = first; plane < last; plane++) {
        set_coefficients(&with, pass, plane);
        for (uint64_t at = 0; at < size; at += piece) {
            uint64_t count = size - at < piece ? size - at : piece, from = plane * size + at;
            normalise(pass->target + from, pass->input + from, &with, count, width);
            if (of->relu)
                ebb__relu_range(pass->target + from, pass->target + from,
                                pass->target_mask ? pass->target_mask + from / 8 : NULL, count);
        }
    }
}

static void gradient_range(void *context, uint64_t first, uint64_t last)
{
    const struct ebb__plane_pass *pass = context;
    uint64_t size = plane_size(&pass->planes), width = width_of(&pass->planes);
    uint64_t piece = piece_size(width);
    struct coefficients with;
    float masked[EBB__WIDTH_MAX];
    for (uint64_t plane = first; plane < last; plane++) {
        set_coefficients(&with, pass, plane);
        for (uint64_t at = 0; at < size; at += piece) {
            uint64_t count = size - at < piece ? size - at : piece, from = plane * size + at;
            const float *gradient = pass->gradient + from;
            if (pass->mask) {
                ebb__mask_range(masked, gradient, pass->mask, from, count, 1.0f);
                gradient = masked;
            }
            gradient_of(pass->target + from, gradient, pass->input + from, &with, count, width);
        }
    }
}

static uint64_t plane_count(const struct ebb__planes *planes)
{
    return (uint64_t)(planes->batch * planes->groups);
}

void ebb__planes_moments(struct ebb__plane_pass *pass)
{
    ebb__range_each(plane_count(&pass->planes), 1, moments_range, pass);
}

void ebb__planes_products(struct ebb__plane_pass *pass)
{
    ebb__range_each(plane_count(&pass->planes), 1, products_range, pass);
}

void ebb__planes_normalise(struct ebb__plane_pass *pass, bool relu)
{
    /* A byte of the mask must not belong to two planes, or two pieces. */
    uint64_t size = plane_size(&pass->planes), count = size * plane_count(&pass->planes);
    bool within = size % 8 == 0 && piece_size(width_of(&pass->planes)) % 8 == 0;
    struct normalise_pass of = {.pass = pass, .relu = relu && within};
    ebb__range_each(plane_count(&pass->planes), 1, normalise_range, &of);
    if (relu && !within)
        ebb__relu(pass->target, pass->target, pass->target_mask, count);
    else if (relu && pass->target_mask)
        memset(pass->target_mask + count / 8, 0, ebb__mask_bytes(count) - count / 8);
}

void ebb__planes_gradient(struct ebb__plane_pass *pass)
{
    ebb__range_each(plane_count(&pass->planes), 1, gradient_range, pass);
}
