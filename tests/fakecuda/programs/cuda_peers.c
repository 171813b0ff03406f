/* Copies between devices, in all forms: by cuMemcpyPeer, under unified addressing, as boxes and as
 * batches, and to the host by streams of other devices. One thread queues random operations in
 * streams of all devices. Events order those that use the same block. Each word is compared with
 * the same steps on the host.
 *
 * Options: --blocks=N a device, --operations=N, --seed=N, --own: one block of each device is of a
 * pool of the program. It uses all devices that there are.
 */
#include "words.h"

#include <stdbool.h>

enum { MOST_DEVICES = 4, MOST_BLOCKS = 16, STREAMS = 2 };
enum { LEAST_WORDS = 270000, MOST_WORDS = 600000 }; /* smaller blocks would never move */
enum { OWN_WORDS = 60000 };                         /* of a block of the program's pool */

static struct device {
    CUcontext context;
    CUfunction functions[WORDS_KERNELS];
    CUstream streams[STREAMS];
    CUmemoryPool pool;
} devices[MOST_DEVICES];

static struct block {
    int device;
    bool is_own; /* of the program's pool */
    CUdeviceptr address;
    unsigned words, *expected;
    CUevent last; /* behind all that uses it */
} blocks[MOST_DEVICES * MOST_BLOCKS];

static int device_count;
static unsigned block_count;
static uint64_t state;

/* ---- order ----------------------------------------------------------------------------------- */

struct place { /* where an operation is queued */
    int device;
    CUstream stream; /* NULL: it is synchronous */
};

static struct place draw_place(void)
{
    struct place place = {.device = (int)draw(&state, (unsigned)device_count)};
    place.stream = devices[place.device].streams[draw(&state, STREAMS)];
    CHECK(cuCtxSetCurrent(devices[draw(&state, (unsigned)device_count)].context));
    return place;
}

static struct place at_device(int device)
{
    CHECK(cuCtxSetCurrent(devices[device].context));
    return (struct place){device, devices[device].streams[draw(&state, STREAMS)]};
}

static void before(struct place place, const struct block *block)
{
    if (block->last && place.stream)
        CHECK(cuStreamWaitEvent(place.stream, block->last, 0));
    else if (block->last)
        CHECK(cuEventSynchronize(block->last));
}

static void after(struct place place, struct block *block)
{
    CUcontext popped;
    if (block->last)
        CHECK(cuEventDestroy_v2(block->last));
    block->last = NULL;
    if (!place.stream)
        return;
    CHECK(cuCtxPushCurrent_v2(devices[place.device].context));
    CHECK(cuEventCreate(&block->last, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventRecord(block->last, place.stream));
    CHECK(cuCtxPopCurrent_v2(&popped));
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static struct block *draw_block(void)
{
    return &blocks[draw(&state, block_count * (unsigned)device_count)];
}

static void fill(struct block *block)
{
    struct place place = at_device(block->device);
    unsigned value = draw(&state, 1u << 30);
    before(place, block);
    CHECK(cuLaunchKernel(devices[block->device].functions[WORDS_FILL], 1, 1, 1, 32, 1, 1, 0,
                         place.stream, (void *[]){&block->address, &block->words, &value}, NULL));
    after(place, block);
    for (unsigned i = 0; i < block->words; i++)
        block->expected[i] = value + i;
}

static void mix(void)
{
    struct block *x = draw_block(), *y = draw_block();
    struct place place = at_device(x->device);
    unsigned value = draw(&state, 1u << 30), count = x->words < y->words ? x->words : y->words;
    if (x->device != y->device || x == y)
        return;
    before(place, x);
    before(place, y);
    CHECK(cuLaunchKernel(devices[x->device].functions[WORDS_MIX], 1, 1, 1, 32, 1, 1, 0,
                         place.stream, (void *[]){&x->address, &y->address, &count, &value}, NULL));
    after(place, x);
    after(place, y);
    for (unsigned i = 0; i < count; i++)
        x->expected[i] = words_mixed(x->expected[i], y->expected[i], value);
}

static void allocate(struct block *block)
{
    struct place place = at_device(block->device);
    block->words = LEAST_WORDS + draw(&state, MOST_WORDS - LEAST_WORDS);
    if (block->is_own)
        block->words = OWN_WORDS;
    block->expected = malloc(4ull * block->words);
    if (block->is_own)
        CHECK(cuMemAllocFromPoolAsync(&block->address, 4ull * block->words,
                                      devices[block->device].pool, place.stream));
    else
        CHECK(cuMemAllocAsync(&block->address, 4ull * block->words, place.stream));
    after(place, block);
    fill(block);
}

static void release(struct block *block)
{
    struct place place = at_device(block->device);
    before(place, block);
    CHECK(cuMemFreeAsync(block->address, place.stream));
    after(place, block);
    free(block->expected);
}

static void check(struct block *block)
{
    struct place place = draw_place();
    unsigned *now = malloc(4ull * block->words);
    before(place, block);
    CHECK(cuMemcpyDtoHAsync_v2(now, block->address, 4ull * block->words, place.stream));
    CHECK(cuStreamSynchronize(place.stream));
    for (unsigned i = 0; i < block->words; i++)
        EXPECT(now[i] == block->expected[i]);
    after(place, block);
    free(now);
}

/* ---- copies ---------------------------------------------------------------------------------- */

static void line(struct place place, unsigned kind, CUdeviceptr to, CUcontext there,
                 CUdeviceptr from, CUcontext here, size_t bytes)
{
    CUdeviceptr halves_to[] = {to, to + bytes / 2}, halves_from[] = {from, from + bytes / 2};
    size_t halves[] = {bytes / 2, bytes - bytes / 2}, first = 0;
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    if (kind == 0 && place.stream)
        CHECK(cuMemcpyPeerAsync(to, there, from, here, bytes, place.stream));
    else if (kind == 1 && place.stream)
        CHECK(cuMemcpyAsync(to, from, bytes, place.stream));
    else if (kind == 2 && place.stream)
        CHECK(cuMemcpyBatchAsync_v2(halves_to, halves_from, halves, 2, &attributes, &first, 1,
                                    place.stream));
    else if (place.stream)
        CHECK(cuMemcpyDtoDAsync_v2(to, from, bytes, place.stream));
    else if (kind < 2)
        CHECK(cuMemcpyPeer(to, there, from, here, bytes));
    else
        CHECK(kind == 2 ? cuMemcpy(to, from, bytes) : cuMemcpyDtoD_v2(to, from, bytes));
}

static void copy_line(void)
{
    struct block *to = draw_block(), *from = draw_block();
    struct place place = draw_place();
    unsigned most = to->words < from->words ? to->words : from->words;
    unsigned count = 1 + draw(&state, most);
    unsigned to_first = draw(&state, to->words - count + 1);
    unsigned from_first = draw(&state, from->words - count + 1);
    if (to == from)
        return;
    if (draw(&state, 3) == 0)
        place.stream = NULL;
    before(place, to);
    before(place, from);
    line(place, draw(&state, 4), to->address + 4ull * to_first, devices[to->device].context,
         from->address + 4ull * from_first, devices[from->device].context, 4ull * count);
    after(place, to);
    after(place, from);
    memcpy(to->expected + to_first, from->expected + from_first, 4ull * count);
}

static void box(struct place place, bool is_flat, const CUDA_MEMCPY3D_PEER *c)
{
    const CUDA_MEMCPY2D flat = {.srcXInBytes = c->srcXInBytes,
                                .srcY = c->srcY,
                                .srcMemoryType = c->srcMemoryType,
                                .srcDevice = c->srcDevice,
                                .srcPitch = c->srcPitch,
                                .dstXInBytes = c->dstXInBytes,
                                .dstY = c->dstY,
                                .dstMemoryType = c->dstMemoryType,
                                .dstDevice = c->dstDevice,
                                .dstPitch = c->dstPitch,
                                .WidthInBytes = c->WidthInBytes,
                                .Height = c->Height};
    if (is_flat)
        CHECK(place.stream ? cuMemcpy2DAsync_v2(&flat, place.stream) : cuMemcpy2D_v2(&flat));
    else
        CHECK(place.stream ? cuMemcpy3DPeerAsync(c, place.stream) : cuMemcpy3DPeer(c));
}

/* Rows and slices of the words that both have. */
static void copy_box(void)
{
    struct block *to = draw_block(), *from = draw_block();
    struct place place = draw_place();
    unsigned width = 1 + draw(&state, 3000), height = 1 + draw(&state, 6), depth = 2;
    unsigned x = draw(&state, 100), pitch = width + x + draw(&state, 50);
    bool is_flat = draw(&state, 2) == 0;
    if (to == from || pitch * height * depth + x > OWN_WORDS)
        return;
    depth = is_flat ? 1 : depth;
    if (draw(&state, 3) == 0)
        place.stream = NULL;
    CUDA_MEMCPY3D_PEER copy = {.srcXInBytes = 4 * x,
                               .srcMemoryType = CU_MEMORYTYPE_DEVICE,
                               .srcDevice = from->address,
                               .srcContext = devices[from->device].context,
                               .srcPitch = 4 * pitch,
                               .srcHeight = height,
                               .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                               .dstDevice = to->address,
                               .dstContext = devices[to->device].context,
                               .dstPitch = 4 * width,
                               .dstHeight = height,
                               .WidthInBytes = 4 * width,
                               .Height = height,
                               .Depth = depth};
    before(place, to);
    before(place, from);
    box(place, is_flat, &copy);
    after(place, to);
    after(place, from);
    for (unsigned row = 0; row < height * depth; row++)
        memcpy(to->expected + row * width, from->expected + row * pitch + x, 4ull * width);
}

/* From memory of the host that goes at once, by a stream of any device. */
static void copy_in(void)
{
    struct block *to = draw_block();
    struct place place = draw_place();
    unsigned count = 1 + draw(&state, OWN_WORDS), value = draw(&state, 1u << 30);
    unsigned *words = malloc(4ull * count);
    for (unsigned i = 0; i < count; i++)
        words[i] = value - i;
    if (draw(&state, 2))
        place.stream = NULL;
    before(place, to);
    if (place.stream)
        CHECK(cuMemcpyHtoDAsync_v2(to->address, words, 4ull * count, place.stream));
    else
        CHECK(cuMemcpyHtoD_v2(to->address, words, 4ull * count));
    after(place, to);
    memcpy(to->expected, words, 4ull * count);
    free(words);
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* For the copies that name no contexts. */
static void share(CUmemoryPool pool, int owner)
{
    for (int i = 0; i < device_count; i++) {
        const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, i},
                                        CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        if (i != owner)
            CHECK(cuMemPoolSetAccess(pool, &access, 1));
    }
}

static void open_device(int i)
{
    CUmemoryPool usual;
    const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = {CU_MEM_LOCATION_TYPE_DEVICE, i}};
    CUmodule module;
    CHECK(cuDevicePrimaryCtxRetain(&devices[i].context, i));
    CHECK(cuCtxSetCurrent(devices[i].context));
    CHECK(cuModuleLoadData(&module, &words_image));
    for (int j = 0; j < WORDS_KERNELS; j++)
        CHECK(cuModuleGetFunction(&devices[i].functions[j], module, words_kernels[j].name));
    for (int j = 0; j < STREAMS; j++)
        CHECK(cuStreamCreate(&devices[i].streams[j], CU_STREAM_NON_BLOCKING));
    CHECK(cuMemPoolCreate(&devices[i].pool, &properties));
    share(devices[i].pool, i);
    CHECK(cuDeviceGetDefaultMemPool(&usual, i));
    share(usual, i);
}

static void step(void)
{
    unsigned kind = draw(&state, 10);
    if (kind < 4)
        copy_line();
    else if (kind < 6)
        copy_box();
    else if (kind < 7)
        copy_in();
    else if (kind < 8)
        check(draw_block());
    else if (kind < 9)
        mix();
    else {
        struct block *block = draw_block();
        release(block);
        allocate(block);
    }
}

int main(int count, char **arguments)
{
    long operations = option(count, arguments, "operations", 60);
    bool has_own = option(count, arguments, "own", 0) != 0;
    block_count = (unsigned)option(count, arguments, "blocks", 6);
    state = (uint64_t)option(count, arguments, "seed", 1);
    EXPECT(block_count <= MOST_BLOCKS);
    CHECK(cuInit(0));
    CHECK(cuDeviceGetCount(&device_count));
    EXPECT(device_count <= MOST_DEVICES);
    for (int i = 0; i < device_count; i++)
        open_device(i);
    for (unsigned i = 0; i < block_count * (unsigned)device_count; i++) {
        blocks[i].device = (int)(i % (unsigned)device_count);
        blocks[i].is_own = has_own && i < (unsigned)device_count;
        allocate(&blocks[i]);
    }
    for (long i = 0; i < operations; i++)
        step();
    for (unsigned i = 0; i < block_count * (unsigned)device_count; i++) {
        check(&blocks[i]);
        release(&blocks[i]);
    }
    for (int i = 0; i < device_count; i++) {
        CHECK(cuCtxSetCurrent(devices[i].context));
        CHECK(cuCtxSynchronize());
    }
    printf("%d devices\n", device_count);
    return 0;
}
