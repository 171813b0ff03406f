/* A program shaped like a training: layers, forward, backward, SGD, with an allocation for each
 * activation and gradient, as frameworks make them. The result is compared, bit for bit, to a
 * serial run of the same kernels on plain host memory.
 *
 * Options: --layers=N --bytes=N --iterations=N --streams=N --async-alloc --graphs --hidden
 * --threads=N --managed --marks --serial.
 *
 * With --every=N, one in N chunks is computed, which kernels.ptx cannot do. With --room=N, a block
 * has N bytes, and the first `bytes` are used. With --no-serial, whoever starts the program
 * compares what it prints.
 *
 * To plant an error: --drop-wait, --free-early. Exit code: 0, 1 if results differ, 3 if a call
 * fails.
 */
#include "driver.h"
#include "hidden.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>

enum { CHUNK = 4096, MOST_LAYERS = 64, MOST_STREAMS = 8 };

/* --- kernels ---------------------------------------------------------------------------------- */

static size_t chunk_step = CHUNK; /* from one chunk that is computed to the next */

static size_t piece(size_t done, size_t bytes)
{
    return bytes - done < CHUNK ? bytes - done : CHUNK;
}

/* y = w * x + 0.25 * x * x, where w, x, y, bytes are the parameters */
static void forward(struct fakecuda_kernel *k)
{
    CUdeviceptr w = fakecuda_pointer(k, 0), x = fakecuda_pointer(k, 8), y = fakecuda_pointer(k, 16);
    size_t bytes = (size_t)fakecuda_pointer(k, 24);
    for (size_t done = 0; done < bytes; done += chunk_step) {
        size_t n = piece(done, bytes);
        float wx[CHUNK / 4], xx[CHUNK / 4];
        memcpy(wx, fakecuda_read(k, w + done, n), n);
        memcpy(xx, fakecuda_read(k, x + done, n), n);
        float *yy = fakecuda_write(k, y + done, n);
        for (size_t i = 0; i < n / 4; i++)
            yy[i] = wx[i] * xx[i] + 0.25f * xx[i] * xx[i];
    }
}

/* gw = gy * x; gx = gy * (w + 0.5 * x), where w, x, gy, gw, gx, bytes are the parameters */
static void backward(struct fakecuda_kernel *k)
{
    CUdeviceptr at[5];
    for (size_t i = 0; i < 5; i++)
        at[i] = fakecuda_pointer(k, 8 * i);
    size_t bytes = (size_t)fakecuda_pointer(k, 40);
    for (size_t done = 0; done < bytes; done += chunk_step) {
        size_t n = piece(done, bytes);
        float w[CHUNK / 4], x[CHUNK / 4], gy[CHUNK / 4];
        memcpy(w, fakecuda_read(k, at[0] + done, n), n);
        memcpy(x, fakecuda_read(k, at[1] + done, n), n);
        memcpy(gy, fakecuda_read(k, at[2] + done, n), n);
        float *gw = fakecuda_write(k, at[3] + done, n);
        for (size_t i = 0; i < n / 4; i++)
            gw[i] = gy[i] * x[i];
        float *gx = fakecuda_write(k, at[4] + done, n);
        for (size_t i = 0; i < n / 4; i++)
            gx[i] = gy[i] * (w[i] + 0.5f * x[i]);
    }
}

static void step(struct fakecuda_kernel *k, CUdeviceptr w, CUdeviceptr g, size_t bytes, float rate)
{
    for (size_t done = 0; done < bytes; done += chunk_step) {
        size_t n = piece(done, bytes);
        float gg[CHUNK / 4];
        memcpy(gg, fakecuda_read(k, g + done, n), n);
        float *ww = fakecuda_update(k, w + done, n);
        for (size_t i = 0; i < n / 4; i++)
            ww[i] -= rate * gg[i];
    }
}

static void sgd(struct fakecuda_kernel *k)
{
    step(k, fakecuda_pointer(k, 0), fakecuda_pointer(k, 8), (size_t)fakecuda_pointer(k, 16),
         fakecuda_float(k, 24));
}

/* Pointers of weights and gradients are in a table in device memory: table, count, bytes, rate. */
static void sgd_table(struct fakecuda_kernel *k)
{
    unsigned count = fakecuda_word(k, 8);
    for (unsigned i = 0; i < count; i++) {
        CUdeviceptr pair[2];
        memcpy(pair, fakecuda_read(k, fakecuda_pointer(k, 0) + 16 * i, 16), 16);
        step(k, pair[0], pair[1], (size_t)fakecuda_pointer(k, 16), fakecuda_float(k, 24));
    }
}

static void scale_hidden(struct fakecuda_kernel *k)
{
    CUdeviceptr pointer = hidden_pointer(k);
    size_t bytes = (size_t)fakecuda_pointer(k, 0);
    for (size_t done = 0; done < bytes; done += chunk_step) {
        float *x = fakecuda_update(k, pointer + done, piece(done, bytes));
        for (size_t i = 0; i < piece(done, bytes) / 4; i++)
            x[i] *= 0.875f;
    }
}

static const unsigned short eights[] = {8, 8, 8, 8, 8, 8}, sgd_sizes[] = {8, 8, 8, 4},
                            table_sizes[] = {8, 4, 8, 4};
enum { FORWARD, BACKWARD, SGD, SGD_TABLE, HIDE, SCALE_HIDDEN, KERNELS };
static const struct fakecuda_entry kernels[KERNELS] = {
    {"forward", forward, 4, eights},   {"backward", backward, 6, eights},
    {"sgd", sgd, 4, sgd_sizes},        {"sgd_table", sgd_table, 4, table_sizes},
    {"hide", hidden_store, 2, eights}, {"scale_hidden", scale_hidden, 1, eights},
};
static const struct fakecuda_image image = {FAKECUDA_MAGIC, KERNELS, kernels, 1, hidden_globals};

/* --- a device: the driver's, or plain host memory -------------------------------------------- */

static struct {
    long layers, bytes, room, iterations, streams, threads;
    bool async, graphs, hidden, managed, marks, drop_wait, free_early;
} set;

struct machine {
    bool serial;
    CUcontext context;
    CUmodule module;
    CUfunction functions[KERNELS];
    CUstream streams[MOST_STREAMS], now;
    CUevent event;
    CUgraphExec exec;
    uint64_t host_cell; /* the global, in a serial run */
};

struct net {
    CUdeviceptr weights[MOST_LAYERS], gradients[MOST_LAYERS], kept[MOST_LAYERS];
    CUdeviceptr activations[MOST_LAYERS + 1], table, cell;
    size_t bytes;
};

static void *host_access(struct fakecuda_kernel *k, CUdeviceptr at, size_t bytes, int mode)
{
    (void)k;
    (void)bytes;
    (void)mode;
    return (void *)(uintptr_t)at;
}

static _Thread_local struct machine *serial_machine;

static CUdeviceptr host_global(struct fakecuda_kernel *k, const char *name)
{
    (void)k;
    (void)name;
    return (CUdeviceptr)(uintptr_t)&serial_machine->host_cell;
}

static const struct fakecuda_calls host_calls = {host_access, NULL, NULL, host_global};

static CUdeviceptr allocate(struct machine *m, size_t bytes)
{
    CUdeviceptr at = 0;
    if (m->serial)
        at = (CUdeviceptr)(uintptr_t)malloc(bytes);
    else if (set.async)
        CHECK(cuMemAllocAsync(&at, bytes, m->now));
    else if (set.managed)
        CHECK(cuMemAllocManaged(&at, bytes, CU_MEM_ATTACH_GLOBAL));
    else
        CHECK(cuMemAlloc_v2(&at, bytes));
    return at;
}

static CUdeviceptr allocate_block(struct machine *m, const struct net *net)
{
    return allocate(m, net->bytes > (size_t)set.room ? net->bytes : (size_t)set.room);
}

static void release(struct machine *m, CUdeviceptr at)
{
    if (m->serial)
        free((void *)(uintptr_t)at);
    else if (set.async)
        CHECK(cuMemFreeAsync(at, m->now));
    else
        CHECK(cuMemFree_v2(at));
}

/* From here on, work goes to this stream, after all that was given to the one before. */
static void go_to(struct machine *m, long which)
{
    CUstream next = m->streams[which % set.streams];
    if (m->serial || next == m->now)
        return;
    if (!set.drop_wait) {
        CHECK(cuEventRecord(m->event, m->now));
        CHECK(cuStreamWaitEvent(next, m->event, 0));
    }
    m->now = next;
}

static void run(struct machine *m, int kernel, const void *parameters, bool packed)
{
    if (m->serial) {
        struct fakecuda_kernel k = {&host_calls, parameters, {1, 1, 1}, {1, 1, 1}, 0};
        serial_machine = m;
        kernels[kernel].function(&k);
        return;
    }
    void *pointers[8];
    size_t at = 0; /* in the end, the bytes of all parameters */
    for (unsigned i = 0; i < kernels[kernel].parameter_count; i++) {
        size_t size = kernels[kernel].parameter_bytes[i];
        at = (at + size - 1) / size * size;
        pointers[i] = (void *)((uintptr_t)parameters + at);
        at += size;
    }
    if (packed) {
        void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, (void *)(uintptr_t)parameters,
                         CU_LAUNCH_PARAM_BUFFER_SIZE, &at, CU_LAUNCH_PARAM_END};
        CUlaunchConfig config = {GRID_BLOCKS, 1, 1, GRID_THREADS, 1, 1, 0, m->now, NULL, 0};
        CHECK(cuLaunchKernelEx(&config, m->functions[kernel], NULL, extra));
        return;
    }
    CHECK(cuLaunchKernel(m->functions[kernel], GRID_BLOCKS, 1, 1, GRID_THREADS, 1, 1, 0, m->now,
                         pointers, NULL));
}

static void to_device(struct machine *m, CUdeviceptr to, const void *from, size_t bytes)
{
    if (m->serial)
        memcpy((void *)(uintptr_t)to, from, bytes);
    else
        CHECK(cuMemcpyHtoDAsync_v2(to, from, bytes, m->now));
}

static void to_host(struct machine *m, void *to, CUdeviceptr from, size_t bytes)
{
    if (m->serial) {
        memcpy(to, (void *)(uintptr_t)from, bytes);
        return;
    }
    CHECK(cuMemcpyDtoHAsync_v2(to, from, bytes, m->now));
    CHECK(cuStreamSynchronize(m->now));
}

/* --- the training ---------------------------------------------------------------------------- */

struct sgd_parameters {
    CUdeviceptr w, g;
    uint64_t bytes;
    float rate;
};

/* All steps in one graph, which is launched with the rate of the iteration. */
static void step_by_graph(struct machine *m, struct net *net, float rate)
{
    if (!m->exec) {
        CUgraph graph;
        CHECK(cuStreamBeginCapture_v2(m->now, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        for (long l = 0; l < set.layers; l++) {
            struct sgd_parameters p = {net->weights[l], net->gradients[l], net->bytes, rate};
            run(m, SGD, &p, false);
        }
        CHECK(cuStreamEndCapture(m->now, &graph));
        CHECK(cuGraphInstantiateWithFlags(&m->exec, graph, 0));
        CHECK(cuGraphDestroy(graph));
    } else {
        CUgraph graph;
        CUgraphExecUpdateResultInfo result;
        CHECK(cuStreamBeginCapture_v2(m->now, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        for (long l = 0; l < set.layers; l++) {
            struct sgd_parameters p = {net->weights[l], net->gradients[l], net->bytes, rate};
            run(m, SGD, &p, l % 2);
        }
        CHECK(cuStreamEndCapture(m->now, &graph));
        CHECK(cuGraphExecUpdate_v2(m->exec, graph, &result));
        CHECK(cuGraphDestroy(graph));
    }
    CHECK(cuGraphLaunch(m->exec, m->now));
}

static void step_by_table(struct machine *m, struct net *net, float rate)
{
    CUdeviceptr pairs[2 * MOST_LAYERS];
    for (long l = 0; l < set.layers; l++) {
        pairs[2 * l] = net->weights[l];
        pairs[2 * l + 1] = net->gradients[l];
    }
    to_device(m, net->table, pairs, 16 * (size_t)set.layers);
    struct {
        CUdeviceptr table;
        uint32_t count;
        uint64_t bytes;
        float rate;
    } p = {net->table, (uint32_t)set.layers, net->bytes, rate};
    run(m, SGD_TABLE, &p, true);
}

static void steps(struct machine *m, struct net *net, float rate)
{
    if (set.graphs && !m->serial) {
        step_by_graph(m, net, rate);
    } else if (set.hidden) {
        step_by_table(m, net, rate);
    } else {
        for (long l = 0; l < set.layers; l++) {
            struct sgd_parameters p = {net->weights[l], net->gradients[l], net->bytes, rate};
            go_to(m, l);
            run(m, SGD, &p, l % 2);
        }
    }
}

static void scale_by_hidden_pointer(struct machine *m, struct net *net, CUdeviceptr x)
{
    struct {
        CUdeviceptr pointer, cell;
    } p = {x, net->cell};
    run(m, HIDE, &p, false);
    uint64_t bytes = net->bytes;
    run(m, SCALE_HIDDEN, &bytes, true);
}

static CUdeviceptr pass_back(struct machine *m, struct net *net, long l, CUdeviceptr gy)
{
    CUdeviceptr gx = allocate_block(m, net);
    net->gradients[l] = set.graphs ? net->kept[l] : allocate_block(m, net);
    if (set.free_early && l == 0)
        release(m, net->activations[l]);
    CUdeviceptr p[6] = {net->weights[l], net->activations[l], gy, net->gradients[l], gx,
                        net->bytes};
    run(m, BACKWARD, p, true);
    if (!set.free_early || l != 0)
        release(m, net->activations[l]);
    release(m, gy);
    return gx;
}

/* As ebb_mark_iteration() does, without the library. */
static void mark_iteration(void)
{
    union {
        void *object;
        void (*function)(unsigned mark, uint64_t value);
    } found = {dlsym(RTLD_DEFAULT, "ebb_malloc_mark")};
    if (found.function)
        found.function(1, 0);
}

static uint64_t iterate(struct machine *m, struct net *net, float *data, long iteration,
                        uint64_t hash)
{
    if (set.marks && !m->serial)
        mark_iteration();
    for (size_t i = 0; i < net->bytes / 4; i++)
        data[i] = (float)((i * 7 + (size_t)iteration * 13) % 97) / 97.0f;
    net->activations[0] = allocate_block(m, net);
    to_device(m, net->activations[0], data, net->bytes);
    for (long l = 0; l < set.layers; l++) {
        go_to(m, l);
        net->activations[l + 1] = allocate_block(m, net);
        CUdeviceptr p[4] = {net->weights[l], net->activations[l], net->activations[l + 1],
                            net->bytes};
        run(m, FORWARD, p, false);
    }
    if (set.hidden)
        scale_by_hidden_pointer(m, net, net->activations[set.layers]);
    to_host(m, data, net->activations[set.layers], net->bytes);
    for (size_t done = 0; done < net->bytes; done += chunk_step) /* nobody wrote the others */
        hash = hash_bytes(hash, (char *)data + done, piece(done, net->bytes));
    CUdeviceptr gradient = net->activations[set.layers];
    for (long l = set.layers - 1; l >= 0; l--) {
        go_to(m, l);
        gradient = pass_back(m, net, l, gradient);
    }
    release(m, gradient);
    steps(m, net, 0.01f / (float)(1 + iteration));
    for (long l = 0; l < set.layers && !set.graphs; l++)
        release(m, net->gradients[l]);
    return hash;
}

static uint64_t train(struct machine *m, long replica)
{
    struct net net = {.bytes = (size_t)set.bytes / 4 * 4};
    float *data = malloc(net.bytes);
    uint64_t hash = 0xcbf29ce484222325u;
    net.table = allocate(m, 16 * MOST_LAYERS);
    net.cell = allocate(m, 8);
    for (long l = 0; l < set.layers; l++) {
        net.weights[l] = allocate_block(m, &net);
        net.kept[l] = set.graphs ? allocate_block(m, &net) : 0;
        for (size_t i = 0; i < net.bytes / 4; i++)
            data[i] = 0.5f + (float)((i + (size_t)(l + 3 * replica)) % 11) / 23.0f;
        to_device(m, net.weights[l], data, net.bytes);
    }
    for (long i = 0; i < set.iterations; i++)
        hash = iterate(m, &net, data, i, hash);
    go_to(m, 0);
    for (long l = 0; l < set.layers; l++) {
        to_host(m, data, net.weights[l], net.bytes);
        hash = hash_bytes(hash, data, net.bytes);
        release(m, net.weights[l]);
        if (net.kept[l])
            release(m, net.kept[l]);
    }
    release(m, net.table);
    release(m, net.cell);
    free(data);
    return hash;
}

static void open_machine(struct machine *m, CUcontext context)
{
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoadData(&m->module, program_image(&image)));
    for (int i = 0; i < KERNELS; i++)
        CHECK(cuModuleGetFunction(&m->functions[i], m->module, kernels[i].name));
    for (long i = 0; i < set.streams; i++)
        CHECK(cuStreamCreate(&m->streams[i], CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&m->event, CU_EVENT_DISABLE_TIMING));
    m->now = m->streams[0];
}

static void close_machine(struct machine *m)
{
    CHECK(cuStreamSynchronize(m->now));
    if (m->exec)
        CHECK(cuGraphExecDestroy(m->exec));
    for (long i = 0; i < set.streams; i++)
        CHECK(cuStreamDestroy_v2(m->streams[i]));
    CHECK(cuEventDestroy_v2(m->event));
    CHECK(cuModuleUnload(m->module));
}

struct replica {
    long number;
    CUcontext context;
    uint64_t hash;
};

static void *replica_body(void *argument)
{
    struct replica *replica = argument;
    struct machine machine = {0};
    open_machine(&machine, replica->context);
    replica->hash = train(&machine, replica->number);
    close_machine(&machine);
    return NULL;
}

static uint64_t train_all(void)
{
    struct replica replicas[16];
    pthread_t threads[16];
    CUcontext context;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    for (long i = 0; i < set.threads; i++) {
        replicas[i] = (struct replica){i, context, 0};
        pthread_create(&threads[i], NULL, replica_body, &replicas[i]);
    }
    uint64_t hash = 0;
    for (long i = 0; i < set.threads; i++) {
        pthread_join(threads[i], NULL);
        hash = hash_bytes(hash, &replicas[i].hash, sizeof(hash));
    }
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    return hash;
}

static uint64_t train_serially(void)
{
    uint64_t hash = 0;
    for (long i = 0; i < set.threads; i++) {
        struct machine machine = {.serial = true};
        uint64_t one = train(&machine, i);
        hash = hash_bytes(hash, &one, sizeof(one));
    }
    return hash;
}

static bool asked(int count, char **arguments, const char *name)
{
    return option(count, arguments, name, 0) != 0;
}

int main(int count, char **arguments)
{
    set.layers = option(count, arguments, "layers", 6);
    set.bytes = option(count, arguments, "bytes", 65536);
    set.room = option(count, arguments, "room", 0);
    set.iterations = option(count, arguments, "iterations", 4);
    set.streams = option(count, arguments, "streams", 1);
    set.threads = option(count, arguments, "threads", 1);
    chunk_step = CHUNK * (size_t)option(count, arguments, "every", 1);
    if (chunk_step > CHUNK && getenv("PROGRAM_PTX"))
        return 2;
    if (chunk_step == 0 || set.layers > MOST_LAYERS || set.streams > MOST_STREAMS ||
        set.threads > 16)
        return 2;
    set.async = asked(count, arguments, "async-alloc");
    set.graphs = asked(count, arguments, "graphs");
    set.hidden = asked(count, arguments, "hidden");
    set.managed = asked(count, arguments, "managed");
    set.marks = asked(count, arguments, "marks");
    bool is_compared = !asked(count, arguments, "no-serial");
    uint64_t expected = is_compared ? train_serially() : 0;
    if (asked(count, arguments, "serial")) {
        printf("%016llx\n", (unsigned long long)expected);
        return 0;
    }
    set.drop_wait = asked(count, arguments, "drop-wait");
    set.free_early = asked(count, arguments, "free-early");
    uint64_t hash = train_all();
    printf("%016llx\n", (unsigned long long)hash);
    if (!is_compared || hash == expected)
        return 0;
    fprintf(stderr, "the results differ: %016llx was expected\n", (unsigned long long)expected);
    return 1;
}
