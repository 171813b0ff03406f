#include "kept.h"

#include "captures.h"
#include "fork_lock.h"
#include "unheard.h"
#include "unions.h"

#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* A block that the program has freed. */
struct kept {
    CUdevice device;
    CUdeviceptr address;
    size_t bytes;
    struct kept *next;
};

static struct kept *all;
static atomic_size_t kept_count;
static atomic_bool is_sweep_due; /* some blocks stayed only because of unheard work */
EBB_FORK_LOCK(202)               /* above those of unions and captures */

static bool is_kept(CUdevice device, CUdeviceptr address)
{
    const struct kept *kept = all;
    while (kept && (kept->device != device || kept->address != address))
        kept = kept->next;
    return kept != NULL;
}

/* False: it has been freed before. Without memory for its entry the block stays for ever. */
static bool keep(CUdevice device, CUdeviceptr address, size_t bytes)
{
    struct kept *kept = malloc(sizeof *kept);
    pthread_mutex_lock(&lock);
    bool is_new = !is_kept(device, address);
    if (is_new && kept) {
        *kept = (struct kept){device, address, bytes, all};
        all = kept;
        atomic_fetch_add(&kept_count, 1);
        kept = NULL;
    }
    pthread_mutex_unlock(&lock);
    free(kept);
    return is_new;
}

static bool must_stay(CUdeviceptr address, size_t bytes)
{
    return ebb__captures_any() || ebb__unions_name(address, bytes);
}

/* Frameworks whose cache `ebb run` turns off, by this variable, and a library of theirs. */
static const struct {
    const char *variable, *library;
} frameworks[] = {{"PYTORCH_NO_CUDA_MEMORY_CACHING", "/libc10_cuda.so"},
                  {"XLA_PYTHON_CLIENT_ALLOCATOR", "/xla_cuda_plugin.so"},
                  {"XLA_PYTHON_CLIENT_ALLOCATOR", "/xla_extension.so"}};

static int find_framework(struct dl_phdr_info *info, size_t bytes, void *found)
{
    (void)bytes;
    for (size_t i = 0; i < sizeof frameworks / sizeof *frameworks; i++)
        *(bool *)found |=
            strstr(info->dlpi_name, frameworks[i].library) && getenv(frameworks[i].variable);
    return *(bool *)found;
}

/* Are there more frees than the program asked for? Without a cache, each tensor ends by cuMemFree.
 * With its cache the framework would wait for none of them. */
static bool is_cache_off(void)
{
    static atomic_bool is_found;
    bool found = atomic_load_explicit(&is_found, memory_order_relaxed);
    if (!found)
        dl_iterate_phdr(find_framework, &found);
    if (found)
        atomic_store_explicit(&is_found, true, memory_order_relaxed);
    return found;
}

/* A block that came in a stream is freed by the driver without a wait, whatever the call. */
static bool waits(struct ebb_cuda *engine, CUdevice device, CUdeviceptr address, CUstream stream)
{
    return stream == EBB_CUDA_NO_STREAM && (ebb__unheard_any(device) || !is_cache_off()) &&
           !ebb__captures_any() && !ebb__cuda_is_of_stream(engine, address);
}

CUresult ebb__kept_free(CUdevice device, CUdeviceptr address, CUstream stream)
{
    struct ebb_cuda *engine = ebb__engines_at(device);
    CUdeviceptr base;
    size_t bytes;
    if (!engine)
        return CUDA_ERROR_INVALID_VALUE;
    bool is_late = waits(engine, device, address, stream) && !ebb__unheard_await(device);
    ebb__kept_sweep_late();
    if ((is_late || ebb__captures_any() || ebb__unions_any() || atomic_load(&kept_count)) &&
        ebb__cuda_range(engine, address, &base, &bytes) && base == address) {
        ebb__captures_note(address);
        if (is_late)
            atomic_store(&is_sweep_due, true);
        if (is_late || must_stay(address, bytes))
            return keep(device, address, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    return ebb__cuda_free(engine, address, stream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Takes those out that no graph uses any more, or those of a device. The caller frees the list. */
static struct kept *take_out(CUdevice device)
{
    struct kept *gone = NULL;
    pthread_mutex_lock(&lock);
    for (struct kept **at = &all; *at;) {
        struct kept *kept = *at;
        bool is_unheard = device < 0 && ebb__unheard_any(kept->device);
        if (is_unheard)
            atomic_store(&is_sweep_due, true);
        if (device >= 0 ? kept->device != device
                        : is_unheard || must_stay(kept->address, kept->bytes)) {
            at = &kept->next;
            continue;
        }
        *at = kept->next;
        kept->next = gone;
        gone = kept;
        atomic_fetch_sub(&kept_count, 1);
    }
    pthread_mutex_unlock(&lock);
    return gone;
}

/* Work of any stream may have used them since the program freed them. */
static void release(struct kept *gone, bool is_there)
{
    while (gone) {
        struct kept *next = gone->next;
        struct ebb_cuda *engine = is_there ? ebb__engines_at(gone->device) : NULL;
        if (engine)
            ebb__cuda_free(engine, gone->address, EBB_CUDA_NO_STREAM);
        free(gone);
        gone = next;
    }
}

/* Launches of graphs come here, and a launch must not wait for the device. What unheard work may
 * use stays for a later sweep. */
void ebb__kept_sweep(void)
{
    if (atomic_load(&kept_count))
        release(take_out(-1), true);
}

void ebb__kept_sweep_late(void)
{
    if (atomic_load_explicit(&is_sweep_due, memory_order_relaxed) &&
        atomic_exchange(&is_sweep_due, false))
        ebb__kept_sweep();
}

/* There is no memory, but some that only waits for unheard work. */
static bool sweep_late(const struct ebb_cuda *engine)
{
    CUdevice device = 0;
    if (!atomic_load(&is_sweep_due) || ebb__captures_any())
        return false;
    while (device < EBB_DOOR_DEVICES && ebb__engines_at(device) != engine)
        device++;
    if (device == EBB_DOOR_DEVICES || !ebb__unheard_await(device))
        return false;
    ebb__kept_sweep_late();
    return true;
}

CUresult ebb__kept_alloc(struct ebb_cuda *engine, size_t bytes, CUstream stream,
                         CUdeviceptr *address)
{
    CUresult result = ebb__engines_alloc(engine, bytes, stream, address);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && sweep_late(engine))
        result = ebb__engines_alloc(engine, bytes, stream, address);
    if (result == CUDA_SUCCESS)
        ebb__captures_note(*address);
    return result;
}

void ebb__kept_forget(CUdevice device)
{
    release(take_out(device), false);
    ebb__unions_forget(device);
}
