/* Measures the speed of a store through its function table. One thread transfers pieces of the
 * runtime's size from and to huge pages. Prints one JSON object with medians in bytes per second.
 *
 *     bench_store PLACES [--bytes N] [--rounds N]
 *
 * PLACES are values of `ebb run --store`, separated by commas: a directory, memory, or memory:NODE.
 * The directory /dev/shm is the same memory as `memory`, but accessed by system calls. */
#include "store/store.h"
#include "base/clock.h"
#include "base/order.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PIECE_BYTES ((uint64_t)4 << 20)
#define MOST_ROUNDS 99

static int transfer(const struct ebb_store *store, bool out, char *memory, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += PIECE_BYTES) {
        int why = out ? store->ops->write(store->state, memory + at, PIECE_BYTES, at)
                      : store->ops->read(store->state, memory + at, PIECE_BYTES, at);
        if (why) {
            fprintf(stderr, "bench_store: %s: %s\n", out ? "write" : "read", strerror(why));
            return 1;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    uint64_t bytes = (uint64_t)512 << 20;
    unsigned long rounds = 5;
    const char *given = argc % 2 == 0 ? argv[1] : NULL;
    for (int i = 2; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--bytes") == 0)
            bytes = strtoull(argv[i + 1], NULL, 10) / PIECE_BYTES * PIECE_BYTES;
        else if (strcmp(argv[i], "--rounds") == 0)
            rounds = strtoul(argv[i + 1], NULL, 10);
        else
            given = NULL;
    }
    if (!given || bytes == 0 || rounds == 0 || rounds > MOST_ROUNDS || strlen(given) >= PATH_MAX) {
        fputs("usage: bench_store PLACES [--bytes N] [--rounds N (1 to 99)]\n", stderr);
        return 2;
    }
    char places[PATH_MAX];
    strcpy(places, given);
    for (char *comma = places; (comma = strchr(comma, ','));)
        *comma = '\n';
    struct ebb_store store;
    struct ebb_error error;
    if (ebb__store_open(places, UINT64_MAX, &store, &error) != EBB_OK) {
        fprintf(stderr, "bench_store: %s: %s\n", error.what, error.why);
        return 1;
    }
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        perror("bench_store: mmap");
        return 1;
    }
    madvise(memory, bytes, MADV_HUGEPAGE);
    for (uint64_t i = 0; i < bytes / 8; i++)
        ((uint64_t *)(void *)memory)[i] = i * 0x9E3779B97F4A7C15u; /* incompressible */
    uint64_t out_ns[MOST_ROUNDS], in_ns[MOST_ROUNDS];
    if (transfer(&store, true, memory, bytes)) /* allocates the store's space */
        return 1;
    for (unsigned long round = 0; round < rounds; round++) {
        uint64_t before = ebb__now_ns();
        if (transfer(&store, true, memory, bytes))
            return 1;
        uint64_t between = ebb__now_ns();
        if (transfer(&store, false, memory, bytes))
            return 1;
        out_ns[round] = between - before;
        in_ns[round] = ebb__now_ns() - between;
    }
    printf("{\"places\": \"%s\", \"bytes\": %llu, \"out_bytes_per_s\": %.0f, "
           "\"in_bytes_per_s\": %.0f}\n",
           given, (unsigned long long)bytes,
           (double)bytes * 1e9 / (double)ebb__median_u64(out_ns, rounds),
           (double)bytes * 1e9 / (double)ebb__median_u64(in_ns, rounds));
    store.ops->close(store.state);
    return 0;
}
