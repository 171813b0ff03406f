/* Memory and events of other processes. A handle names the process, the descriptor of its arena and
 * the place in it. The other process maps the same file. Its own handles a process cannot open.
 */
#include "fake.h"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct memory_name {
    char magic[8];
    int process, descriptor, device;
    size_t offset, bytes, inside;
};

_Static_assert(sizeof(struct memory_name) <= sizeof(CUipcMemHandle), "fits");

API cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address)
{
    CUcontext context;
    TRY(fake_usable(&context));
    struct range range;
    if (!handle || !fake_is_known((const void *)(uintptr_t)address, &range) ||
        range.kind != RANGE_PLAIN)
        DONE(CUDA_ERROR_INVALID_VALUE); /* managed and mapped memory cannot be exported so */
    struct memory_name name = {"fakeipc",
                               (int)getpid(),
                               fake_arena_descriptor(),
                               range.device,
                               fake_arena_offset(range.address),
                               range.bytes,
                               (size_t)(address - range.address)};
    memset(handle, 0, sizeof(*handle));
    memcpy(handle, &name, sizeof(name));
    return CUDA_SUCCESS;
}

API cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle handle, unsigned flags)
{
    CUcontext context;
    TRY(fake_usable(&context));
    struct memory_name name;
    memcpy(&name, &handle, sizeof(name));
    if (!address || flags > 1 || memcmp(name.magic, "fakeipc", 8))
        DONE(CUDA_ERROR_INVALID_VALUE);
    if (name.process == (int)getpid())
        DONE(CUDA_ERROR_INVALID_CONTEXT);
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", name.process, name.descriptor);
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        DONE(CUDA_ERROR_MAP_FAILED);
    void *alias =
        mmap(NULL, name.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, (off_t)name.offset);
    close(file);
    if (alias == MAP_FAILED)
        DONE(CUDA_ERROR_MAP_FAILED);
    pthread_mutex_lock(&memory_lock);
    CUdeviceptr at = fake_arena_take(name.bytes, 4096);
    struct range *range = at ? fake_range_add(at, name.bytes, RANGE_IMPORTED) : NULL;
    if (range) {
        range->alias = alias;
        range->device = name.device;
        range->context = context;
        *address = at + name.inside;
    }
    pthread_mutex_unlock(&memory_lock);
    DONE(range ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

API cuIpcCloseMemHandle(CUdeviceptr address)
{
    CUcontext context;
    TRY(fake_usable(&context));
    fake_wait_context(context);
    pthread_mutex_lock(&memory_lock);
    struct range *range = fake_range_find(address);
    bool imported = range && range->kind == RANGE_IMPORTED;
    if (imported) {
        size_t bytes = range->bytes;
        CUdeviceptr at = range->address;
        munmap(range->alias, bytes);
        fake_range_remove(range);
        fake_arena_give(at, bytes);
    }
    pthread_mutex_unlock(&memory_lock);
    DONE(imported ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}
