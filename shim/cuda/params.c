/* The layouts of kernels' parameters, and the scan.
 *
 * A launch passes an array of addresses, one for each parameter, without their number or sizes. The
 * driver tells both (cuFuncGetParamInfo, 12.4). A layout is asked once and kept, in a hash table
 * that readers enter without a lock: entries are only added. When a module is unloaded, the
 * generation changes: each layout is then asked again before its next use, and replaced if it
 * differs. A replaced layout is not freed, since a reader may have it; handles that come to mean
 * another function are rare.
 *
 * Values are compared at a stride of 4 bytes, as structs may be packed. Parameters of fewer than 8
 * bytes hold no pointer. Addresses in a tensor map (cuTensorMapEncodeTiled), which is a parameter
 * of 128 bytes, are found in the same way. */
#include "params.h"

#include <stdlib.h>
#include <string.h>

#define BUCKETS 4096u         /* more than the kernels of a framework that are used in one run */
#define MOST_PARAMETERS 4096u /* 32,764 bytes of parameters are the most of CUDA 13 */
#define NO_NAME 0

struct parameter {
    uint16_t index, bytes; /* those of at least 8 bytes only */
};

struct layout {
    uint64_t name;         /* a hash of the kernel's name */
    struct layout *before; /* the one that this replaced: a reader may have it */
    uint32_t count;
    struct parameter parameters[];
};

struct entry {
    const void *function;
    struct entry *next; /* set before the entry is published */
    _Atomic(struct layout *) layout;
    _Atomic uint64_t generation; /* when the layout was last known to be right */
    atomic_bool is_kernel;
};

static _Atomic(struct entry *) buckets[BUCKETS];
static _Atomic uint64_t generation = 1;

static _Atomic(struct entry *) *bucket_of(const void *function)
{
    uint64_t hash = (uint64_t)(uintptr_t)function * 0x9e3779b97f4a7c15u;
    return &buckets[hash >> 52];
}

static struct entry *find(const void *function)
{
    struct entry *entry = atomic_load_explicit(bucket_of(function), memory_order_acquire);
    while (entry && entry->function != function)
        entry = entry->next;
    return entry;
}

/* The entry, made if necessary. Two threads may make one for the same function: the older one is
 * found no more, which wastes it. NULL: memory is exhausted. */
static struct entry *find_or_add(const void *function)
{
    struct entry *entry = find(function);
    if (entry || !(entry = calloc(1, sizeof *entry)))
        return entry;
    _Atomic(struct entry *) *bucket = bucket_of(function);
    entry->function = function;
    entry->next = atomic_load(bucket);
    while (!atomic_compare_exchange_weak(bucket, &entry->next, entry))
        ;
    return entry;
}

/* ---- asking the driver ----------------------------------------------------------------------- */

static CUresult ask(const void *function, bool is_kernel, size_t index, size_t *offset,
                    size_t *bytes)
{
    return is_kernel
               ? ebb__real.cuKernelGetParamInfo((CUkernel)(uintptr_t)function, index, offset, bytes)
               : ebb__real.cuFuncGetParamInfo((CUfunction)(uintptr_t)function, index, offset,
                                              bytes);
}

static uint64_t ask_name(const void *function, bool is_kernel)
{
    const char *name = NULL;
    CUresult result = is_kernel ? ebb__real.cuKernelGetName(&name, (CUkernel)(uintptr_t)function)
                                : ebb__real.cuFuncGetName(&name, (CUfunction)(uintptr_t)function);
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    if (result != CUDA_SUCCESS || !name)
        return (uint64_t)(uintptr_t)function;
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return hash ? hash : 1;
}

/* NULL: memory is exhausted. A function whose layout the driver does not tell has no parameters
 * here: what it uses is not announced. */
static struct layout *ask_layout(struct entry *entry)
{
    bool is_kernel = atomic_load(&entry->is_kernel);
    size_t offset, bytes, room = 8;
    struct layout *layout = malloc(sizeof *layout + room * sizeof layout->parameters[0]);
    if (!layout)
        return NULL;
    layout->count = 0;
    layout->before = NULL;
    for (size_t i = 0; i < MOST_PARAMETERS; i++) {
        CUresult result = ask(entry->function, is_kernel, i, &offset, &bytes);
        if (result == CUDA_ERROR_INVALID_HANDLE && i == 0) {
            /* From cuLibraryGetKernel of a library that is not hooked, or a handle that was another
             * one's before. */
            is_kernel = !is_kernel;
            result = ask(entry->function, is_kernel, i, &offset, &bytes);
        }
        if (result != CUDA_SUCCESS)
            break;
        if (bytes < sizeof(CUdeviceptr) || bytes > UINT16_MAX)
            continue;
        if (layout->count == room) {
            room *= 4;
            void *more = realloc(layout, sizeof *layout + room * sizeof layout->parameters[0]);
            if (!more)
                break;
            layout = more;
        }
        layout->parameters[layout->count++] =
            (struct parameter){.index = (uint16_t)i, .bytes = (uint16_t)bytes};
    }
    layout->name = ask_name(entry->function, is_kernel);
    atomic_store(&entry->is_kernel, is_kernel);
    return layout;
}

static bool is_equal(const struct layout *a, const struct layout *b)
{
    return a && a->name == b->name && a->count == b->count &&
           memcmp(a->parameters, b->parameters, a->count * sizeof a->parameters[0]) == 0;
}

__attribute__((noinline)) static const struct layout *renew(const void *function)
{
    uint64_t now = atomic_load(&generation);
    struct entry *entry = find_or_add(function);
    struct layout *fresh = entry ? ask_layout(entry) : NULL;
    if (!fresh)
        return NULL;
    struct layout *known = atomic_load(&entry->layout);
    if (is_equal(known, fresh)) {
        free(fresh);
        fresh = known;
    } else {
        fresh->before = known;
        atomic_store(&entry->layout, fresh);
    }
    atomic_store(&entry->generation, now);
    return fresh;
}

static const struct layout *layout_of(const void *function)
{
    const struct entry *entry = find(function);
    if (entry && atomic_load_explicit(&entry->generation, memory_order_acquire) ==
                     atomic_load_explicit(&generation, memory_order_relaxed))
        return atomic_load_explicit(&entry->layout, memory_order_acquire);
    return renew(function);
}

void ebb__params_know_kernel(CUkernel kernel)
{
    struct entry *entry = find_or_add(kernel);
    if (entry && !atomic_exchange(&entry->is_kernel, true))
        atomic_store(&entry->generation, 0);
}

void ebb__params_forget(void)
{
    atomic_fetch_add(&generation, 1);
}

/* ---- the scan -------------------------------------------------------------------------------- */

/* Where blocks are, read once for a launch. */
struct bounds {
    CUdeviceptr first;
    uint64_t bytes;
    int only;
};

static struct bounds look(void)
{
    return (struct bounds){atomic_load_explicit(&ebb__blocks_first, memory_order_relaxed),
                           atomic_load_explicit(&ebb__blocks_bytes, memory_order_relaxed),
                           atomic_load_explicit(&ebb__engines_only, memory_order_relaxed)};
}

static inline void scan_word(struct door_job *job, const struct bounds *bounds, const char *at)
{
    CUdeviceptr value;
    memcpy(&value, at, sizeof value);
    if (value - bounds->first < bounds->bytes)
        ebb__job_use_likely(job, bounds->only, value, 0, DOOR_READ_WRITE);
}

static void scan(struct door_job *job, const struct bounds *bounds, const char *at, size_t bytes)
{
    for (size_t i = 0; i + sizeof(CUdeviceptr) <= bytes; i += 4)
        scan_word(job, bounds, at + i);
}

/* `extra` is a list of keys and values that ends with a key: a buffer that holds all parameters. */
static void scan_extra(struct door_job *job, const struct bounds *bounds, void *const *extra)
{
    const char *buffer = NULL;
    size_t bytes = 0;
    for (size_t i = 0; i < 8 && extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
        if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = extra[i + 1];
        else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE)
            bytes = *(const size_t *)extra[i + 1];
    }
    if (buffer)
        scan(job, bounds, buffer, bytes);
}

uint64_t ebb__params_scan(struct door_job *job, CUfunction function, void *const *parameters,
                          void *const *extra)
{
    const struct bounds bounds = look();
    if (!bounds.bytes)
        return NO_NAME; /* no block so far */
    const struct layout *layout = layout_of(function);
    if (!layout)
        return NO_NAME;
    for (uint32_t i = 0; parameters && i < layout->count; i++) {
        const struct parameter parameter = layout->parameters[i];
        if (parameter.bytes == sizeof(CUdeviceptr))
            scan_word(job, &bounds, parameters[parameter.index]);
        else
            scan(job, &bounds, parameters[parameter.index], parameter.bytes);
    }
    if (!parameters && extra)
        scan_extra(job, &bounds, extra);
    return layout->name;
}
