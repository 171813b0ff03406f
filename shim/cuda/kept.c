#include "kept.h"

#include "captures.h"
#include "fork_lock.h"
#include "job.h"
#include "unions.h"

#include <pthread.h>
#include <stdlib.h>

/* A block that the program has freed. */
struct kept {
    CUdevice device;
    CUdeviceptr address;
    size_t bytes;
    struct kept *next;
};

static struct kept *all;
static atomic_size_t kept_count;
static atomic_bool is_sweep_due; /* at the next free that waits for the device anyway */
EBB_FORK_LOCK(202)               /* above those of unions and captures */

CUresult ebb__kept_alloc(struct ebb_cuda *engine, size_t bytes, CUstream stream,
                         CUdeviceptr *address)
{
    CUresult result = ebb__engines_alloc(engine, bytes, stream, address);
    if (result == CUDA_SUCCESS)
        ebb__captures_note(*address);
    return result;
}

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

CUresult ebb__kept_free(CUdevice device, CUdeviceptr address, CUstream stream)
{
    struct ebb_cuda *engine = ebb__engines_at(device);
    CUdeviceptr base;
    size_t bytes;
    if (!engine)
        return CUDA_ERROR_INVALID_VALUE;
    if ((ebb__captures_any() || ebb__unions_any() || atomic_load(&kept_count)) &&
        ebb__cuda_range(engine, address, &base, &bytes) && base == address) {
        ebb__captures_note(address);
        if (must_stay(address, bytes))
            return keep(device, address, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    if (stream == EBB_CUDA_NO_STREAM) {
        ebb__job_await_unheard();
        if (atomic_exchange(&is_sweep_due, false))
            ebb__kept_sweep();
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
        if (device >= 0 ? kept->device != device : must_stay(kept->address, kept->bytes)) {
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

/* Launches of graphs come here, and a launch must not wait for the device. */
void ebb__kept_sweep(void)
{
    if (!atomic_load(&kept_count))
        return;
    if (ebb__job_has_unheard())
        atomic_store(&is_sweep_due, true);
    else
        release(take_out(-1), true);
}

void ebb__kept_forget(CUdevice device)
{
    release(take_out(device), false);
    ebb__unions_forget(device);
}
