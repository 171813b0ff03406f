/* Zero-value compression: leaves out words of zeros, and a mask marks them.
 *
 * It follows the compressing DMA engine (cDMA: Rhu et al., HPCA 2018), which found half of the
 * words of rectified activations to be zero. Each run of 64 words of 4 bytes becomes a mask of 64
 * bits and the words that are not zero. Lossless for any bytes. Data without zeros grows by 1/32.
 * Thread-safe. */
#ifndef EBB_STORE_ZVC_H
#define EBB_STORE_ZVC_H

#include <stdbool.h>
#include <stddef.h>

#define EBB_ZVC_RUN_BYTES ((size_t)256) /* the bytes that one mask covers */

/* Compresses `bytes` (a multiple of EBB_ZVC_RUN_BYTES) into `to`, which has space for `most` bytes
 * and one more run with its mask. Returns the compressed size, or 0 if it exceeds `most`. Samples
 * some runs first, so that data without zeros costs almost nothing. */
size_t ebb__zvc_compress(const void *from, size_t bytes, void *to, size_t most);

/* Restores `bytes` into `to` from `compressed_bytes`, which may end in unused bytes. Returns false
 * if they are not the compressed form of so many bytes. Never reads or writes outside of either
 * buffer, whatever they hold. */
bool ebb__zvc_restore(const void *from, size_t compressed_bytes, void *to, size_t bytes);

#endif
