/* Ranks that wait for each other within kernels, as collectives do. Each rank is a thread, with a
 * device of its own or a share of device 0. In each round all kernels must run at the same time.
 *
 * Options: --ranks=N --rounds=N --devices=N. --room=N: each buffer begins an allocation of N bytes.
 * To plant an error: --no-peer uses peers' memory without access to it.
 */
#include "words.h"
#include <pthread.h>

enum { MOST = 8, WORDS = 1500 };

static long ranks, rounds, devices, room, no_peer;
static CUdeviceptr flags, buffers[MOST];
static pthread_barrier_t barrier;

static void check_words(CUdeviceptr at, const unsigned *expected, CUstream stream)
{
    unsigned now[WORDS];
    CHECK(cuMemcpyDtoHAsync_v2(now, at, sizeof(now), stream));
    CHECK(cuStreamSynchronize(stream));
    EXPECT(!memcmp(now, expected, sizeof(now)));
}

static void *rank_body(void *argument)
{
    long rank = (long)(intptr_t)argument;
    CUstream stream;
    unsigned expected[WORDS];
    CUcontext context = words_open((int)(rank % devices));
    for (int d = 0; d < devices && !no_peer; d++) {
        CUcontext other;
        CHECK(cuDevicePrimaryCtxRetain(&other, d));
        CUresult result = d == rank % devices ? CUDA_SUCCESS : cuCtxEnablePeerAccess(other, 0);
        EXPECT(result == CUDA_SUCCESS || result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    }
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc_v2(&buffers[rank], (size_t)room));
    CHECK(fill_words(buffers[rank], WORDS, (unsigned)rank, stream));
    CHECK(cuStreamSynchronize(stream));
    pthread_barrier_wait(&barrier);
    for (unsigned i = 0; i < WORDS; i++)
        expected[i] = (unsigned)rank + i;
    /* In even rounds a rank writes its own words, in odd ones it reads those of the next rank. */
    for (unsigned round = 0; round < rounds; round++) {
        unsigned goal = (unsigned)ranks * (round + 1);
        CHECK(words_launch(WORDS_MEET, stream, (void *[]){&flags, &goal}));
        unsigned value = round;
        CHECK(mix_words(buffers[rank], buffers[rank], WORDS, value, stream));
        for (unsigned i = 0; i < WORDS; i++)
            expected[i] = words_mixed(expected[i], expected[i], value);
    }
    check_words(buffers[rank], expected, stream);
    pthread_barrier_wait(&barrier);
    long next = (rank + 1) % ranks;
    CUdeviceptr mine;
    CHECK(cuMemAlloc_v2(&mine, (size_t)room));
    CHECK(cuMemsetD32Async(mine, 0, WORDS, stream));
    CHECK(mix_words(mine, buffers[next], WORDS, 3, stream));
    CHECK(cuStreamSynchronize(stream));
    pthread_barrier_wait(&barrier);
    CHECK(cuMemFree_v2(buffers[rank]));
    CHECK(cuMemFree_v2(mine));
    return NULL;
}

int main(int count, char **arguments)
{
    pthread_t threads[MOST];
    ranks = option(count, arguments, "ranks", 2);
    rounds = option(count, arguments, "rounds", 10);
    devices = option(count, arguments, "devices", 1);
    room = option(count, arguments, "room", 4 * WORDS);
    no_peer = option(count, arguments, "no-peer", 0);
    if (ranks > MOST || room < 4 * WORDS)
        return 2;
    words_open(0);
    /* Flags that all devices may use: pinned host memory. */
    void *memory;
    CHECK(cuMemHostAlloc(&memory, 64, CU_MEMHOSTALLOC_PORTABLE));
    memset(memory, 0, 64);
    flags = (CUdeviceptr)(uintptr_t)memory;
    pthread_barrier_init(&barrier, NULL, (unsigned)ranks);
    for (long i = 0; i < ranks; i++)
        pthread_create(&threads[i], NULL, rank_body, (void *)(intptr_t)i);
    for (long i = 0; i < ranks; i++)
        pthread_join(threads[i], NULL);
    CHECK(cuMemFreeHost(memory));
    return 0;
}
