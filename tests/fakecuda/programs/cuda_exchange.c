/* Two processes that train together, each on a device of its own if there are two. Their gradients
 * are added as NCCL does it through shared memory, by a segment of POSIX shared memory that both
 * have registered. A persistent kernel puts pieces of a gradient into an outbox. A proxy thread
 * takes them to the segment. The kernel of the other process waits there for them, and adds them.
 * Flags in the segment tell how far each is. In the end the weights are those of a serial run, bit
 * for bit.
 *
 * Options: --layers=N --rounds=N --room=N: bytes of each block. --copies: the outbox is device
 * memory, and the proxy copies by the driver. To plant an error: --drop-wait uses gradients before
 * they are added. --rank and --segment are for the second process.
 */
#include "words.h"
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 2, SLOTS = 2, CHUNK = 256, COUNT = 1500, MOST_LAYERS = 32 };
/* Of each rank: chunks that are in its outbox, in the segment, and added by it. */
enum { READY, SENT, TAKEN, FLAGS };
enum { FLAG_BYTES = 64, RANK_BYTES = FLAGS * FLAG_BYTES, SLOT_BYTES = 4 * CHUNK };
enum { BOX_BYTES = SLOTS * SLOT_BYTES, SEGMENT_BYTES = 8192 };
_Static_assert(RANKS *(RANK_BYTES + BOX_BYTES) <= SEGMENT_BYTES, "it fits");

/* --- the kernel ------------------------------------------------------------------------------- */

static void wait_for(struct fakecuda_kernel *k, CUdeviceptr flag, unsigned value)
{
    while ((int)(fakecuda_atomic_add(k, flag, 0) - value) < 0)
        fakecuda_yield(k);
}

/* Chunk by chunk, what the other rank has is added. Parameters: gradient, outbox, inbox, flags of
 * this rank, flags of the other one, words, number of the first chunk. */
static void exchange(struct fakecuda_kernel *k)
{
    CUdeviceptr gradient = fakecuda_pointer(k, 0), outbox = fakecuda_pointer(k, 8);
    CUdeviceptr inbox = fakecuda_pointer(k, 16), mine = fakecuda_pointer(k, 24);
    CUdeviceptr others = fakecuda_pointer(k, 32);
    unsigned count = fakecuda_word(k, 40), number = fakecuda_word(k, 44), chunk[CHUNK];
    for (unsigned i = 0; i < count; i += CHUNK, number++) {
        unsigned n = count - i < CHUNK ? count - i : CHUNK;
        CUdeviceptr slot = (CUdeviceptr)(number % SLOTS) * SLOT_BYTES;
        wait_for(k, mine + SENT * FLAG_BYTES, number + 1 - SLOTS);
        memcpy(chunk, fakecuda_read(k, gradient + 4ull * i, 4ull * n), 4ull * n);
        memcpy(fakecuda_write(k, outbox + slot, 4ull * n), chunk, 4ull * n);
        fakecuda_atomic_add(k, mine + READY * FLAG_BYTES, 1);
        wait_for(k, others + SENT * FLAG_BYTES, number + 1);
        memcpy(chunk, fakecuda_read(k, inbox + slot, 4ull * n), 4ull * n);
        unsigned *at = fakecuda_update(k, gradient + 4ull * i, 4ull * n);
        for (unsigned j = 0; j < n; j++)
            at[j] += chunk[j];
        fakecuda_atomic_add(k, mine + TAKEN * FLAG_BYTES, 1);
    }
}

static const unsigned short exchange_sizes[] = {8, 8, 8, 8, 8, 4, 4};
static const struct fakecuda_entry exchange_kernels[] = {
    {"exchange", exchange, 7, exchange_sizes},
};
static const struct fakecuda_image exchange_image = {FAKECUDA_MAGIC, 1, exchange_kernels, 0, NULL};

/* --- the two processes ------------------------------------------------------------------------ */

static struct {
    long layers, rounds, room, rank, copies, drop_wait;
} set;
static char *segment;
static CUdeviceptr segment_on_device, outbox;
static char *outbox_on_host; /* if it is pinned memory */
static CUcontext context;
static CUfunction function;
static CUstream compute, collective;
static unsigned number; /* of the next chunk */

static size_t flag_offset(long rank, int flag)
{
    return (size_t)(rank * RANK_BYTES + flag * FLAG_BYTES);
}

static size_t box_offset(long rank)
{
    return (size_t)(RANKS * RANK_BYTES + rank * BOX_BYTES);
}

static _Atomic unsigned *flag(long rank, int which)
{
    return (_Atomic unsigned *)(void *)(segment + flag_offset(rank, which));
}

/* The second process inherits the file. It has no name any more: nobody can find it, and none is
 * left if both are killed. */
static int make_segment(void)
{
    char name[64];
    snprintf(name, sizeof(name), "/cuda_exchange.%d", (int)getpid());
    shm_unlink(name);
    int file = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    EXPECT(file >= 0 && shm_unlink(name) == 0 && ftruncate(file, SEGMENT_BYTES) == 0);
    EXPECT(fcntl(file, F_SETFD, 0) == 0);
    return file;
}

static void map_segment(int file)
{
    segment = mmap(NULL, SEGMENT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    EXPECT(segment != MAP_FAILED);
    close(file);
}

static pid_t start_other(const char *program, int count, char **arguments, int file)
{
    char *all[32], rank[16] = "--rank=1", where[32];
    snprintf(where, sizeof(where), "--segment=%d", file);
    EXPECT(count < 28);
    memcpy(all, arguments, (size_t)count * sizeof(*all));
    all[count] = rank;
    all[count + 1] = where;
    all[count + 2] = NULL;
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent)
            execv(program, all);
        _exit(127);
    }
    return child;
}

/* If the other process fails, its kernel is never there. This one must not wait for it forever. */
static void *watch(void *child)
{
    int status;
    waitpid(*(pid_t *)child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fprintf(stderr, "the other process has failed\n");
        _exit(1);
    }
    return NULL;
}

static void open_device(void)
{
    CUmodule module;
    int devices;
    void *memory;
    CHECK(cuInit(0));
    CHECK(cuDeviceGetCount(&devices));
    context = words_open((int)set.rank % devices);
    CHECK(cuModuleLoadData(&module, program_image(&exchange_image)));
    CHECK(cuModuleGetFunction(&function, module, "exchange"));
    CHECK(cuStreamCreate(&compute, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&collective, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemHostRegister_v2(segment, SEGMENT_BYTES,
                               CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
    CHECK(cuMemHostGetDevicePointer_v2(&segment_on_device, segment, 0));
    if (set.copies) {
        CHECK(cuMemAlloc_v2(&outbox, (size_t)set.room));
        return;
    }
    CHECK(cuMemHostAlloc(&memory, BOX_BYTES, CU_MEMHOSTALLOC_DEVICEMAP));
    CHECK(cuMemHostGetDevicePointer_v2(&outbox, memory, 0));
    outbox_on_host = memory;
}

/* --- the proxy -------------------------------------------------------------------------------- */

static void move_chunk(size_t slot, CUstream stream, CUevent event)
{
    char *to = segment + box_offset(set.rank) + slot;
    if (!set.copies) {
        memcpy(to, outbox_on_host + slot, SLOT_BYTES);
        return;
    }
    CHECK(cuMemcpyDtoHAsync_v2(to, outbox + slot, SLOT_BYTES, stream));
    CHECK(cuEventRecord(event, stream));
    CUresult result;
    while ((result = cuEventQuery(event)) == CUDA_ERROR_NOT_READY)
        sched_yield();
    CHECK(result);
}

static void *proxy(void *total)
{
    CUstream stream = NULL;
    CUevent event = NULL;
    CHECK(cuCtxSetCurrent(context));
    if (set.copies) {
        CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    }
    for (unsigned i = 0; i < *(unsigned *)total; i++) {
        while ((int)(atomic_load(flag(set.rank, READY)) - i) <= 0 ||
               (int)(atomic_load(flag(1 - set.rank, TAKEN)) + SLOTS - i) <= 0)
            usleep(20);
        move_chunk(i % SLOTS * SLOT_BYTES, stream, event);
        atomic_fetch_add(flag(set.rank, SENT), 1);
    }
    return NULL;
}

/* --- the training ----------------------------------------------------------------------------- */

static CUdeviceptr block(void)
{
    CUdeviceptr at;
    CHECK(cuMemAlloc_v2(&at, (size_t)set.room));
    return at;
}

static void pass(CUstream from, CUstream to)
{
    CUevent event;
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventRecord(event, from));
    CHECK(cuStreamWaitEvent(to, event, 0));
    CHECK(cuEventDestroy_v2(event));
}

static void add_others(CUdeviceptr gradient)
{
    struct {
        CUdeviceptr gradient, outbox, inbox, mine, others;
        unsigned count, number;
    } p = {gradient,
           outbox,
           segment_on_device + box_offset(1 - set.rank),
           segment_on_device + flag_offset(set.rank, 0),
           segment_on_device + flag_offset(1 - set.rank, 0),
           COUNT,
           number};
    size_t bytes = sizeof(p);
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &p, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};
    CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, collective, NULL, 0};
    CHECK(cuLaunchKernelEx(&config, function, NULL, extra));
    number += (COUNT + CHUNK - 1) / CHUNK;
}

static unsigned first_value(long rank, long round, long layer)
{
    return (unsigned)(1000003 * rank + 7919 * round + 31 * layer);
}

static void train(CUdeviceptr *weights)
{
    CUdeviceptr activations[MOST_LAYERS], gradients[MOST_LAYERS];
    for (long l = 0; l < set.layers; l++) {
        weights[l] = block();
        CHECK(fill_words(weights[l], COUNT, (unsigned)l, compute));
    }
    for (long round = 0; round < set.rounds; round++) {
        for (long l = 0; l < set.layers; l++) {
            activations[l] = block();
            CHECK(fill_words(activations[l], COUNT, first_value(set.rank, round, l), compute));
            CHECK(mix_words(activations[l], weights[l], COUNT, (unsigned)round, compute));
        }
        for (long l = set.layers - 1; l >= 0; l--) {
            gradients[l] = block();
            CHECK(cuMemcpyDtoDAsync_v2(gradients[l], activations[l], 4 * COUNT, compute));
            CHECK(mix_words(gradients[l], weights[l], COUNT, (unsigned)l, compute));
            pass(compute, collective);
            add_others(gradients[l]);
        }
        if (!set.drop_wait)
            pass(collective, compute);
        for (long l = 0; l < set.layers; l++)
            CHECK(mix_words(weights[l], gradients[l], COUNT, (unsigned)round, compute));
        for (long l = 0; l < set.layers; l++) {
            CHECK(cuMemFree_v2(activations[l]));
            CHECK(cuMemFree_v2(gradients[l]));
        }
    }
}

/* The same for one word of a layer, one rank after the other. */
static unsigned expected(long layer, unsigned word)
{
    unsigned weight = (unsigned)layer + word;
    for (long round = 0; round < set.rounds; round++) {
        unsigned sum = 0;
        for (long rank = 0; rank < RANKS; rank++) {
            unsigned x =
                words_mixed(first_value(rank, round, layer) + word, weight, (unsigned)round);
            sum += words_mixed(x, weight, (unsigned)layer);
        }
        weight = words_mixed(weight, sum, (unsigned)round);
    }
    return weight;
}

int main(int count, char **arguments)
{
    CUdeviceptr weights[MOST_LAYERS];
    unsigned now[COUNT];
    pthread_t thread, watcher;
    set.layers = option(count, arguments, "layers", 5);
    set.rounds = option(count, arguments, "rounds", 4);
    set.room = option(count, arguments, "room", 4 * COUNT);
    set.copies = option(count, arguments, "copies", 0);
    set.drop_wait = option(count, arguments, "drop-wait", 0);
    set.rank = option(count, arguments, "rank", 0);
    if (set.layers > MOST_LAYERS || set.room < 4 * COUNT || set.rank >= RANKS)
        return 2;
    pid_t child = 0;
    if (set.rank) {
        map_segment((int)option(count, arguments, "segment", -1));
    } else {
        int file = make_segment();
        child = start_other("/proc/self/exe", count, arguments, file);
        map_segment(file);
        if (pthread_create(&watcher, NULL, watch, &child))
            abort();
    }
    open_device();
    unsigned total = (unsigned)(set.rounds * set.layers * ((COUNT + CHUNK - 1) / CHUNK));
    if (pthread_create(&thread, NULL, proxy, &total))
        abort();
    train(weights);
    CHECK(cuStreamSynchronize(compute));
    pthread_join(thread, NULL);
    for (long l = 0; l < set.layers; l++) {
        CHECK(cuMemcpyDtoH_v2(now, weights[l], sizeof(now)));
        for (unsigned word = 0; word < COUNT; word++)
            EXPECT(now[word] == expected(l, word));
        CHECK(cuMemFree_v2(weights[l]));
    }
    CHECK(cuMemHostUnregister(segment));
    if (child)
        pthread_join(watcher, NULL);
    if (child)
        puts("two ranks");
    return 0;
}
