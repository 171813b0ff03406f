/* Several devices, each with a thread of its own. Each fills blocks, mixes them with those of the
 * device after it, and checks each word. A block comes from there through the host.
 *
 * Options: --blocks=N a device, --words=N a block, --rounds=N. It uses all devices that there are.
 */
#include "words.h"

#include <pthread.h>

enum { MOST_DEVICES = 8, MOST_BLOCKS = 32 };

static unsigned block_count, words, rounds;
static int device_count;
static pthread_barrier_t barrier;

static struct device {
    CUcontext context;
    CUfunction functions[WORDS_KERNELS];
    CUdeviceptr blocks[MOST_BLOCKS], guest;
    unsigned *host;
    CUstream stream;
    pthread_t thread;
} devices[MOST_DEVICES];

static void launch(struct device *d, int kernel, void **parameters)
{
    CHECK(cuLaunchKernel(d->functions[kernel], GRID_BLOCKS, 1, 1, GRID_THREADS, 1, 1, 0, d->stream,
                         parameters, NULL));
}

static void load(struct device *d)
{
    CUmodule module;
    CHECK(cuModuleLoadData(&module, program_image(&words_image)));
    for (int i = 0; i < WORDS_KERNELS; i++)
        CHECK(cuModuleGetFunction(&d->functions[i], module, words_kernels[i].name));
}

static void begin(struct device *d)
{
    unsigned number = (unsigned)(d - devices);
    CHECK(cuCtxSetCurrent(d->context));
    load(d);
    CHECK(cuStreamCreate(&d->stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc_v2(&d->guest, words * 4ull));
    for (unsigned i = 0; i < block_count; i++) {
        unsigned value = 1000 * number + i;
        CHECK(cuMemAlloc_v2(&d->blocks[i], words * 4ull));
        launch(d, WORDS_FILL, (void *[]){&d->blocks[i], &words, &value});
    }
    CHECK(cuStreamSynchronize(d->stream));
}

static void take_guest(struct device *d, struct device *from, unsigned i)
{
    size_t bytes = words * 4ull;
    CHECK(cuMemcpyDtoHAsync_v2(d->host, from->blocks[i], bytes, from->stream));
    CHECK(cuStreamSynchronize(from->stream));
    CHECK(cuMemcpyHtoDAsync_v2(d->guest, d->host, bytes, d->stream));
    CHECK(cuStreamSynchronize(d->stream));
}

/* Mixes every block with that of the neighbour, as it was after the last round. */
static void take_round(struct device *d, unsigned round)
{
    struct device *from = &devices[(d - devices + 1) % device_count];
    for (unsigned i = 0; i < block_count; i++) {
        take_guest(d, from, i);
        pthread_barrier_wait(&barrier); /* all have it: now it may change */
        launch(d, WORDS_MIX, (void *[]){&d->blocks[i], &d->guest, &words, &round});
        CHECK(cuStreamSynchronize(d->stream));
        pthread_barrier_wait(&barrier);
    }
}

/* What one word of a block of each device is, by the same steps on the host. */
static unsigned expected(unsigned device, unsigned block, unsigned word)
{
    unsigned now[MOST_DEVICES], next[MOST_DEVICES];
    for (unsigned i = 0; i < (unsigned)device_count; i++)
        now[i] = 1000 * i + block + word;
    for (unsigned round = 0; round < rounds; round++) {
        for (unsigned i = 0; i < (unsigned)device_count; i++)
            next[i] = words_mixed(now[i], now[(i + 1) % (unsigned)device_count], round);
        memcpy(now, next, sizeof now);
    }
    return now[device];
}

static void *train(void *argument)
{
    struct device *d = argument;
    unsigned *now = d->host = malloc(words * 4ull);
    begin(d);
    pthread_barrier_wait(&barrier);
    for (unsigned round = 0; round < rounds; round++)
        take_round(d, round);
    for (unsigned i = 0; i < block_count; i++) {
        CHECK(cuMemcpyDtoHAsync_v2(now, d->blocks[i], words * 4ull, d->stream));
        CHECK(cuStreamSynchronize(d->stream));
        for (unsigned word = 0; word < words; word++)
            EXPECT(now[word] == expected((unsigned)(d - devices), i, word));
        CHECK(cuMemFree_v2(d->blocks[i]));
    }
    CHECK(cuMemFree_v2(d->guest));
    free(now);
    return NULL;
}

int main(int count, char **arguments)
{
    block_count = (unsigned)option(count, arguments, "blocks", 8);
    words = (unsigned)option(count, arguments, "words", 300000);
    rounds = (unsigned)option(count, arguments, "rounds", 2);
    EXPECT(block_count <= MOST_BLOCKS);
    CHECK(cuInit(0));
    CHECK(cuDeviceGetCount(&device_count));
    EXPECT(device_count <= MOST_DEVICES);
    pthread_barrier_init(&barrier, NULL, (unsigned)device_count);
    for (int i = 0; i < device_count; i++)
        CHECK(cuDevicePrimaryCtxRetain(&devices[i].context, i));
    for (int i = 0; i < device_count; i++)
        if (pthread_create(&devices[i].thread, NULL, train, &devices[i]))
            abort();
    for (int i = 0; i < device_count; i++)
        pthread_join(devices[i].thread, NULL);
    printf("%d devices\n", device_count);
    return 0;
}
