/* Zero-value compression: words of zeros are left out, a mask says where they were.
 *
 * After the compressing DMA runtime (cDMA: Rhu et al., HPCA 2018), which found half of the words of
 * rectified activations to be zero. Each run of 64 words of 4 bytes becomes a mask of 64 bits and the
 * words that are not zero. Lossless for any bytes; what has no zeros grows by 1/32. Thread-safe. */
#ifndef EBB_STORE_ZVC_H
#define EBB_STORE_ZVC_H

#include <stdbool.h>
#include <stddef.h>

#define EBB_ZVC_RUN_BYTES ((size_t)256) /* what one mask stands for */

/* Compress `bytes` (a multiple of EBB_ZVC_RUN_BYTES) into `to`, which has room for `most` bytes and
 * one run with its mask more. Returns the compressed size; 0: it would be more than `most`. Some runs
 * are looked at first, so that what has no zeros costs next to nothing. */
size_t ebb__zvc_compress(const void *from, size_t bytes, void *to, size_t most);

/* Restore `bytes` into `to` from `compressed_bytes`, of which a rest may be anything; false: what is
 * there was never compressed from so many bytes. Reads and writes within both, whatever they hold. */
bool ebb__zvc_restore(const void *from, size_t compressed_bytes, void *to, size_t bytes);

#endif
