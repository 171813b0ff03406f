/* Measures size and speed of zero-value compression on a file, in frames of 2 MiB like the
 * runtime's. A frame that does not shrink by at least an eighth is kept uncompressed. Prints one
 * JSON object.
 *
 *     bench_zvc FILE [--rounds N] */
#include "store/zvc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/geometry.h"
#include "base/order.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_ROUNDS 99

int main(int argc, char **argv)
{
    unsigned long rounds =
        argc == 4 && strcmp(argv[2], "--rounds") == 0 ? strtoul(argv[3], NULL, 10) : 5;
    if ((argc != 2 && argc != 4) || rounds == 0 || rounds > MOST_ROUNDS) {
        fprintf(stderr, "usage: bench_zvc FILE [--rounds N], N of 1 to %d\n", MOST_ROUNDS);
        return 2;
    }
    struct ebb_file_content content;
    struct ebb_error error;
    if (ebb__file_read(argv[1], "a file of tensors", 0, NULL, &content, &error) != EBB_OK) {
        fprintf(stderr, "bench_zvc: %s: %s\n", error.what, error.why);
        return 1;
    }
    size_t size = content.size - content.size % EBB_ZVC_RUN_BYTES;
    unsigned char *to = malloc(EBB_HUGE_BYTES + EBB_PAGE_BYTES), *back = malloc(EBB_HUGE_BYTES);
    uint64_t out_ns[MOST_ROUNDS], in_ns[MOST_ROUNDS], kept = 0, restored = 0;
    for (unsigned long round = 0; round < rounds && to && back; round++) {
        kept = restored = out_ns[round] = in_ns[round] = 0;
        for (size_t at = 0; at < size; at += EBB_HUGE_BYTES) {
            size_t frame = size - at < EBB_HUGE_BYTES ? size - at : EBB_HUGE_BYTES;
            const unsigned char *from = content.bytes + at;
            uint64_t before = ebb__now_ns();
            size_t small = ebb__zvc_compress(from, frame, to, frame - frame / 8);
            uint64_t between = ebb__now_ns();
            out_ns[round] += between - before;
            kept += small ? small : frame;
            if (!small)
                continue;
            between = ebb__now_ns();
            bool good = ebb__zvc_restore(to, small, back, frame);
            in_ns[round] += ebb__now_ns() - between;
            if (!good || memcmp(from, back, frame) != 0)
                abort();
            restored += frame;
        }
    }
    double in = (double)ebb__median_u64(in_ns, rounds),
           out = (double)ebb__median_u64(out_ns, rounds);
    printf("{\"bytes\": %zu, \"compressed_bytes\": %llu, \"compress_bytes_per_s\": %.0f, "
           "\"restore_bytes_per_s\": %.0f}\n",
           size, (unsigned long long)kept, (double)size * 1e9 / out,
           in > 0 ? (double)restored * 1e9 / in : 0);
    free(content.bytes);
    free(to);
    free(back);
    return 0;
}
