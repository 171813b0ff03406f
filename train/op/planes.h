/* Loops over images by channel, whatever the layout: what batch normalisation consists of.
 *
 * A plane is one group of channels of one image, dense in memory. A plane is walked in vectors of
 * `width` elements, and coefficients of channels are repeated to that width. With plain rows a
 * vector is 16 positions of a channel, with blocks it is whole blocks, with channels last it is all
 * channels. So one loop fits all layouts. */
#ifndef EBB_TRAIN_PLANES_H
#define EBB_TRAIN_PLANES_H

#include "train/op/build.h"

/* Most channels with channels last. Arbitrary; a piece of a plane must fit into a small array. */
enum { EBB__WIDTH_MAX = 4096 };

struct ebb__plane_pass {
    struct ebb__planes planes;
    const float *input;
    const float *gradient; /* of the output */
    const uint8_t *mask;   /* of the ReLU behind; NULL: there is none */
    float *target;
    uint8_t *target_mask;
    const float *mean; /* of each channel, including padding. Likewise those below */
    const float *factor;
    const float *offset;
    const float *slope;
    float *partial; /* two rows of `block` for each plane */
};

/* Floats that `partial` has. */
uint64_t ebb__planes_partials(const struct ebb__planes *planes);
/* Floats of an array of channels, including padding. */
uint64_t ebb__planes_channels(const struct ebb__planes *planes);

/* partial = mean of each channel of each plane, and sum of squares about it. */
void ebb__planes_moments(struct ebb__plane_pass *pass);
/* partial = sum of gradients, and of gradient * (input - mean). */
void ebb__planes_products(struct ebb__plane_pass *pass);
/* target = (input - mean) * factor + offset, with the ReLU if `relu`. `target_mask` may be NULL. */
void ebb__planes_normalise(struct ebb__plane_pass *pass, bool relu);
/* target = factor * (gradient - offset - (input - mean) * slope) */
void ebb__planes_gradient(struct ebb__plane_pass *pass);

#endif
