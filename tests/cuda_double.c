/* An engine that moves nothing and writes down what the door tells it. For tests of shim/cuda
 * alone.
 *
 * Blocks lie one after the other in one managed allocation for each device. Each call becomes a
 * line of the file EBB_DOUBLE_LOG. Addresses are written as `b<number of the block>+<offset>`.
 * Without the file, nothing is written.
 *
 * EBB_DOUBLE_ALONE: this process belongs to no run. EBB_DOUBLE_REFUSE: no device has a budget.
 * EBB_DOUBLE_BYTES: of the allocation; what does not fit is out of memory. */
#include "../shim/cuda/attach.h"
#include "trace/event.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_BLOCKS 4096

struct ebb_cuda {
    const struct ebb_cuda_driver *driver;
    CUdevice device;
    CUdeviceptr first;
    uint64_t bytes, used;
    unsigned count;
    struct {
        CUdeviceptr address;
        size_t bytes;    /* 0: free */
        unsigned number; /* among the blocks of all devices, from 1 */
    } blocks[MOST_BLOCKS];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static FILE *out;
static unsigned block_count;

__attribute__((format(printf, 1, 2))) static void note(const char *format, ...)
{
    va_list arguments;
    if (!out)
        return;
    va_start(arguments, format);
    pthread_mutex_lock(&lock);
    vfprintf(out, format, arguments);
    fflush(out);
    pthread_mutex_unlock(&lock);
    va_end(arguments);
}

/* ---- attach.h -------------------------------------------------------------------------------- */

bool ebb__attach_hello(void)
{
    const char *path = getenv("EBB_DOUBLE_LOG");
    if (path && !out)
        out = fopen(path, "ae");
    note("hello\n");
    return getenv("EBB_DOUBLE_ALONE") == NULL;
}

bool ebb__attach(CUdevice device, uint64_t bytes, const char *name,
                 struct ebb_cuda_attachment *attachment)
{
    note("attach %d %llu %s\n", device, (unsigned long long)bytes, name);
    *attachment = (struct ebb_cuda_attachment){.backing = EBB_CUDA_MANAGED};
    return getenv("EBB_DOUBLE_REFUSE") == NULL;
}

void ebb__attach_serve(CUdevice device, struct ebb_cuda *engine)
{
    note("serve %d%s\n", device, engine ? "" : " none");
}

void ebb__attach_leave(CUdevice device)
{
    note("leave %d\n", device);
}

void ebb__attach_warn(void *context, const char *message)
{
    (void)context;
    fprintf(stderr, "ebb: %s\n", message);
}

/* ---- engine.h -------------------------------------------------------------------------------- */

static unsigned number_of(const struct ebb_cuda *engine, unsigned block)
{
    return block ? engine->blocks[block - 1].number : 0;
}

/* The index of the block that contains `address`, from 1; 0: none. */
static unsigned find(const struct ebb_cuda *engine, CUdeviceptr address)
{
    for (unsigned i = 0; i < engine->count; i++)
        if (engine->blocks[i].bytes &&
            address - engine->blocks[i].address < engine->blocks[i].bytes)
            return i + 1;
    return 0;
}

enum ebb_status ebb__cuda_create(const struct ebb_cuda_config *config, struct ebb_cuda **engine,
                                 struct ebb_error *error)
{
    const char *bytes = getenv("EBB_DOUBLE_BYTES");
    struct ebb_cuda *made = calloc(1, sizeof *made);
    if (!made)
        return ebb__fail(error, EBB_ERR_MEMORY, "double", "no memory");
    made->driver = config->driver;
    made->device = config->device;
    made->bytes = bytes ? strtoull(bytes, NULL, 0) : 64 << 20;
    CUresult result = made->driver->cuMemAllocManaged(&made->first, made->bytes, 1);
    if (result != CUDA_SUCCESS) {
        free(made);
        return ebb__fail(error, EBB_ERR_UNSUPPORTED, "double", "%s", ebb__cuda_result_name(result));
    }
    note("create %d\n", config->device);
    *engine = made;
    return EBB_OK;
}

void ebb__cuda_is_gone(struct ebb_cuda *engine)
{
    (void)engine;
}

void ebb__cuda_capture_begins(struct ebb_cuda *engine, CUstream stream)
{
    (void)engine, (void)stream;
}

void ebb__cuda_abandon(struct ebb_cuda *engine)
{
    note("abandon %d\n", engine->device);
}

CUresult ebb__cuda_alloc(struct ebb_cuda *engine, size_t bytes, CUstream stream,
                         CUdeviceptr *address)
{
    pthread_mutex_lock(&lock);
    size_t whole = (bytes + 511) & ~(size_t)511;
    bool fits =
        whole >= bytes && whole <= engine->bytes - engine->used && engine->count < MOST_BLOCKS;
    unsigned number = 0;
    if (fits) {
        number = ++block_count;
        engine->blocks[engine->count].number = number;
        engine->blocks[engine->count].address = engine->first + engine->used;
        engine->blocks[engine->count++].bytes = bytes;
        *address = engine->first + engine->used;
        engine->used += whole;
    }
    pthread_mutex_unlock(&lock);
    note("alloc %d %zu stream %lld -> %u\n", engine->device, bytes, (long long)(intptr_t)stream,
         number);
    return fits ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

bool ebb__cuda_free(struct ebb_cuda *engine, CUdeviceptr address, CUstream stream)
{
    unsigned block = find(engine, address);
    bool found = block && engine->blocks[block - 1].address == address;
    if (found)
        engine->blocks[block - 1].bytes = 0;
    note("free %d b%u stream %lld%s\n", engine->device, number_of(engine, block),
         (long long)(intptr_t)stream, found ? "" : " wrong");
    return found;
}

bool ebb__cuda_is_shared(uint64_t bytes)
{
    (void)bytes;
    return false;
}

CUresult ebb__cuda_alloc_shared(struct ebb_cuda *engine, uint64_t bytes, CUdeviceptr *address)
{
    (void)engine, (void)bytes, (void)address;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

bool ebb__cuda_free_shared(struct ebb_cuda *engine, CUdeviceptr address, CUresult *result)
{
    (void)engine, (void)address, (void)result;
    return false;
}

bool ebb__cuda_owns(const struct ebb_cuda *engine, CUdeviceptr address)
{
    return address - engine->first < engine->bytes;
}

bool ebb__cuda_hears_all(const struct ebb_cuda *engine)
{
    (void)engine;
    return false;
}

bool ebb__cuda_is_of_stream(struct ebb_cuda *engine, CUdeviceptr address)
{
    (void)engine, (void)address;
    return false;
}

bool ebb__cuda_range(struct ebb_cuda *engine, CUdeviceptr address, CUdeviceptr *base, size_t *bytes)
{
    unsigned block = find(engine, address);
    if (!block)
        return false;
    *base = engine->blocks[block - 1].address;
    *bytes = engine->blocks[block - 1].bytes;
    return true;
}

void ebb__cuda_memory(struct ebb_cuda *engine, size_t *free_bytes, size_t *total_bytes)
{
    *total_bytes = engine->bytes;
    *free_bytes = engine->bytes - engine->used;
}

CUresult ebb__cuda_begin(struct ebb_cuda *engine, struct ebb_cuda_work *work)
{
    static const char *const kinds[] = {"kernel", "copy", "set", "graph"};
    char text[2000];
    size_t used = 0;
    text[0] = 0;
    for (size_t i = 0; out && i < work->use_count && used < sizeof text - 80; i++) {
        const struct ebb_cuda_use *use = &work->uses[i];
        unsigned block = find(engine, use->address);
        if (block)
            used += (size_t)snprintf(
                text + used, sizeof text - used, " b%u+%llu:%llu:%s%s", number_of(engine, block),
                (unsigned long long)(use->address - engine->blocks[block - 1].address),
                (unsigned long long)use->bytes, use->access & EBB_ACCESS_READ ? "r" : "",
                use->access & EBB_ACCESS_WRITE ? "w" : "");
    }
    if (out)
        note("begin %d %s stream %lld%s%s name %s:%s\n", engine->device, kinds[work->kind],
             (long long)(intptr_t)work->stream, work->is_synchronous ? " waits" : "",
             work->is_captured ? " captured" : "", work->name ? "yes" : "no", text);
    work->order = 1;
    return CUDA_SUCCESS;
}

void ebb__cuda_end(struct ebb_cuda *engine, struct ebb_cuda_work *work, bool is_queued)
{
    if (work->order != 1)
        note("end without begin\n");
    work->order = 2;
    note("end %d%s\n", engine->device, is_queued ? "" : " failed");
}

void ebb__cuda_reach(struct ebb_cuda *engine, CUdeviceptr pointer)
{
    note("reach %d b%u\n", engine->device, number_of(engine, find(engine, pointer)));
}

void ebb__cuda_keep(struct ebb_cuda *engine, CUdeviceptr address, size_t bytes)
{
    note("keep %d b%u %zu\n", engine->device, number_of(engine, find(engine, address)), bytes);
}

void ebb__cuda_stream_ends(struct ebb_cuda *engine, CUstream stream)
{
    note("stream ends %d %s\n", engine->device, stream ? "its" : "0");
}

uint64_t ebb__cuda_id(struct ebb_cuda *engine, CUdeviceptr address)
{
    (void)engine;
    return address;
}

void ebb__cuda_context_ends(struct ebb_cuda *engine, CUcontext context)
{
    (void)engine, (void)context;
}

void ebb__cuda_synchronized(struct ebb_cuda *engine, CUstream stream, bool all)
{
    note("synchronized %d %lld%s\n", engine->device,
         (uintptr_t)stream > 2 ? -1LL : (long long)(intptr_t)stream, all ? " all" : "");
}

void ebb__cuda_mark(struct ebb_cuda *engine, enum ebb_mark mark, uint64_t value)
{
    note("mark %d %d %llu\n", engine->device, (int)mark, (unsigned long long)value);
}
