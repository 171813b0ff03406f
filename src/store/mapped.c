/* A mapped store: copies bytes to and from memory, without a system call and without filling the
 * CPU caches.
 *
 * It is for files that are memory already: files without a disk, perhaps on another NUMA node, and
 * files on persistent memory (DAX). Copying is twice as fast as pwrite() and pread() (`bench_store
 * memory` against `bench_store /dev/shm`). Space is allocated by fallocate() before it is written,
 * so that a full file system causes an error, not a signal. A medium that fails causes SIGBUS, as
 * any memory does. Used pages count in the program's RSS. */
#include "store/store.h"

#include "base/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define GROW_BYTES ((uint64_t)4 << 20)  /* the size of transfers */
#define REACH_BYTES ((uint64_t)1 << 40) /* of addresses if there is no limit: any large number */
#define LEAST_REACH_BYTES ((uint64_t)1 << 30) /* with less it is not mapped */

struct mapped {
    int descriptor;
    unsigned char *base;
    uint64_t reach_bytes;
    pthread_mutex_t growing;
    _Atomic uint64_t grown_bytes; /* size of the file */
};

/* Static, since the shim must not allocate. */
#define MOST_STORES (EBB_STORE_MOST * EBB_STORE_MOST_PLACES)
static struct mapped stores[MOST_STORES];
static unsigned store_count; /* entries ever used */

static int allocate(int descriptor, uint64_t from, uint64_t to)
{
    int why;
    if (!ebb__file_may_have(to))
        return ENOSPC;
    do
        why = posix_fallocate(descriptor, (off_t)from, (off_t)(to - from));
    while (why == EINTR);
    return why;
}

/* Makes the file `end` bytes long. Returns 0 or an errno. */
static int grow(struct mapped *mapped, uint64_t end)
{
    if (end <= atomic_load_explicit(&mapped->grown_bytes, memory_order_acquire))
        return 0;
    if (end > mapped->reach_bytes)
        return ENOSPC;
    pthread_mutex_lock(&mapped->growing);
    uint64_t grown = atomic_load(&mapped->grown_bytes);
    uint64_t target = (end + GROW_BYTES - 1) / GROW_BYTES * GROW_BYTES;
    if (target > mapped->reach_bytes)
        target = mapped->reach_bytes;
    int why = 0;
    if (end > grown) {
        why = allocate(mapped->descriptor, grown, target);
        if (why == ENOSPC && target > end) {
            target = end;
            why = allocate(mapped->descriptor, grown, target);
        }
        if (!why)
            atomic_store_explicit(&mapped->grown_bytes, target, memory_order_release);
    }
    pthread_mutex_unlock(&mapped->growing);
    return why;
}

/* Bypasses the CPU caches: the bytes are used much later, or are many. `bytes` is a multiple of 4
 * KiB. */
static void copy(void *to, const void *from, uint64_t bytes)
{
#ifdef __SSE2__
    __m128i *target = to;
    const __m128i *source = from;
    for (uint64_t i = 0; i < bytes / sizeof *target; i += 4) {
        __m128i a = _mm_load_si128(source + i), b = _mm_load_si128(source + i + 1);
        __m128i c = _mm_load_si128(source + i + 2), d = _mm_load_si128(source + i + 3);
        _mm_stream_si128(target + i, a);
        _mm_stream_si128(target + i + 1, b);
        _mm_stream_si128(target + i + 2, c);
        _mm_stream_si128(target + i + 3, d);
    }
    _mm_sfence();
#else
    memcpy(to, from, bytes);
#endif
}

static int mapped_write(void *state, const void *from, uint64_t bytes, uint64_t offset)
{
    struct mapped *mapped = state;
    int why = grow(mapped, offset + bytes);
    if (!why)
        copy(mapped->base + offset, from, bytes);
    return why;
}

static int mapped_read(void *state, void *to, uint64_t bytes, uint64_t offset)
{
    struct mapped *mapped = state;
    if (offset + bytes > atomic_load_explicit(&mapped->grown_bytes, memory_order_acquire))
        return EIO; /* the file is shorter than the bytes written to it */
    copy(to, mapped->base + offset, bytes);
    return 0;
}

static size_t mapped_descriptors(void *state, int *descriptors, size_t most)
{
    if (most > 0)
        descriptors[0] = ((const struct mapped *)state)->descriptor;
    return most > 0;
}

static void mapped_close(void *state)
{
    struct mapped *mapped = state;
    if (mapped->descriptor < 0)
        return;
    munmap(mapped->base, mapped->reach_bytes);
    close(mapped->descriptor);
    mapped->descriptor = -1;
    mapped->reach_bytes = 0;
    atomic_store(&mapped->grown_bytes, 0);
}

static const struct ebb_store_ops mapped_ops = {mapped_write, mapped_read, mapped_close,
                                                mapped_descriptors};

enum ebb_status ebb__store_mapped_open(int descriptor, const char *place, uint64_t limit_bytes,
                                       struct ebb_store *store, struct ebb_error *error)
{
    uint64_t reach = limit_bytes < REACH_BYTES ? limit_bytes & ~(uint64_t)4095 : REACH_BYTES;
    void *base = MAP_FAILED;
    unsigned at = 0;
    while (at < store_count && stores[at].descriptor >= 0)
        at++;
    /* Try less if address space is limited. */
    while (at < MOST_STORES && reach > 0 && base == MAP_FAILED) {
        base = mmap(NULL, reach, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor, 0);
        if (base == MAP_FAILED)
            reach = reach / 2 < LEAST_REACH_BYTES ? 0 : reach / 2 & ~(uint64_t)4095;
    }
    if (base == MAP_FAILED)
        return ebb__store_descriptor_open(descriptor, place, limit_bytes, store, error);
    madvise(base, reach, MADV_DONTDUMP);
    store_count += at == store_count;
    struct mapped *mapped = &stores[at];
    *mapped = (struct mapped){.descriptor = ebb__descriptor_high(descriptor),
                              .base = base,
                              .reach_bytes = reach,
                              .growing = PTHREAD_MUTEX_INITIALIZER};
    *store = (struct ebb_store){&mapped_ops, mapped, reach};
    return EBB_OK;
}
