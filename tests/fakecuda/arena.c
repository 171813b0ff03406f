/* The fake's address space. A device address is a host address in one large reservation that the
 * host cannot access. The same bytes, a sparse memory file, are mapped a second time for the fake
 * itself: the alias. So kernels and copies work while a host access to device memory is a SIGSEGV.
 * Managed memory is opened for the host at its own address.
 */
#include "fake.h"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST_HOLES = 4096, MOST_GONE = 256 };

/* Limits on address space and sanitizers may permit less than the most. */
static const size_t most_arena_bytes = (size_t)1 << 40, least_arena_bytes = (size_t)1 << 33;
static size_t arena_bytes;

static char *base, *alias;
static int descriptor = -1;
static size_t top; /* nothing above has been used */
static struct hole {
    size_t offset, bytes;
} holes[MOST_HOLES];
static unsigned hole_count;

static struct range **ranges; /* by address, then the larger first */
static size_t range_count, range_room;
static uint64_t range_id;

static struct gone {
    CUdeviceptr address;
    size_t bytes;
    uint64_t id;
    enum range_kind kind;
} gone[MOST_GONE];
static unsigned gone_count;

pthread_mutex_t memory_lock = PTHREAD_MUTEX_INITIALIZER;

static void *view(int protection)
{
    return mmap(NULL, arena_bytes, protection, MAP_SHARED | MAP_NORESERVE, descriptor, 0);
}

bool fake_arena_start(void)
{
    if (base)
        return true;
    descriptor = memfd_create("fakecuda", MFD_CLOEXEC);
    if (descriptor < 0 || ftruncate(descriptor, (off_t)most_arena_bytes))
        return false;
    void *a = MAP_FAILED, *b = MAP_FAILED;
    for (arena_bytes = most_arena_bytes; b == MAP_FAILED; arena_bytes /= 2) {
        if (arena_bytes < least_arena_bytes)
            return false;
        a = view(PROT_NONE);
        b = a == MAP_FAILED ? a : view(PROT_READ | PROT_WRITE);
        if (a != MAP_FAILED && b == MAP_FAILED)
            munmap(a, arena_bytes);
    }
    arena_bytes *= 2;                       /* the loop's last step */
    madvise(a, arena_bytes, MADV_DONTFORK); /* as the driver's own mappings */
    madvise(b, arena_bytes, MADV_DONTFORK);
    madvise(b, arena_bytes, MADV_DONTDUMP);
    base = a;
    alias = b;
    return true;
}

static size_t rounded(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

/* Half of the time an old address is used again, as drivers do. Otherwise addresses are new, so
 * that a use after free cannot hide. */
CUdeviceptr fake_arena_take(size_t bytes, size_t alignment)
{
    bytes = rounded(bytes, 4096);
    if (alignment < 4096)
        alignment = 4096;
    unsigned at = hole_count && fake_random(2) ? fake_random(hole_count) : hole_count;
    for (unsigned i = at; i < hole_count && i < at + 64; i++) {
        struct hole *hole = &holes[i];
        if (hole->bytes == bytes && ((uintptr_t)base + hole->offset) % alignment == 0) {
            CUdeviceptr address = (CUdeviceptr)(uintptr_t)(base + hole->offset);
            *hole = holes[--hole_count];
            return address;
        }
    }
    size_t offset = rounded((uintptr_t)base + top, alignment) - (uintptr_t)base;
    if (offset + bytes + 4096 > arena_bytes)
        return 0;
    top = offset + bytes + 4096; /* a page that belongs to nobody */
    return (CUdeviceptr)(uintptr_t)(base + offset);
}

void fake_arena_give(CUdeviceptr address, size_t bytes)
{
    bytes = rounded(bytes, 4096);
    fake_arena_open(address, bytes, PROT_NONE);
    fake_arena_punch(address, bytes);
    if (hole_count < MOST_HOLES)
        holes[hole_count++] = (struct hole){fake_arena_offset(address), bytes};
}

bool fake_arena_owns(CUdeviceptr address)
{
    return base && address >= (CUdeviceptr)(uintptr_t)base &&
           address < (CUdeviceptr)(uintptr_t)base + arena_bytes;
}

size_t fake_arena_offset(CUdeviceptr address)
{
    return (size_t)(address - (CUdeviceptr)(uintptr_t)base);
}

char *fake_arena_alias(CUdeviceptr address)
{
    return alias + fake_arena_offset(address);
}

int fake_arena_descriptor(void)
{
    return descriptor;
}

void fake_arena_open(CUdeviceptr address, size_t bytes, int protection)
{
    mprotect((void *)(uintptr_t)address, rounded(bytes, 4096), protection);
}

void fake_arena_punch(CUdeviceptr address, size_t bytes)
{
    fallocate(descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              (off_t)fake_arena_offset(address), (off_t)rounded(bytes, 4096));
}

bool fake_arena_next(CUdeviceptr place, size_t bytes, size_t *hole, size_t *data)
{
    off_t first = (off_t)fake_arena_offset(place), end = first + (off_t)bytes;
    off_t from = lseek(descriptor, first, SEEK_DATA);
    if (from < 0 || from >= end)
        return false;
    off_t to = lseek(descriptor, from, SEEK_HOLE);
    *hole = (size_t)(from - first);
    *data = (size_t)((to < 0 || to > end ? end : to) - from);
    return true;
}

/* --- ranges ---------------------------------------------------------------------------------- */

/* The number of ranges that begin at or before the address. */
static size_t ranges_until(CUdeviceptr address)
{
    size_t low = 0, high = range_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (ranges[middle]->address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct range *fake_range_add(CUdeviceptr address, size_t bytes, enum range_kind kind)
{
    struct range *range = calloc(1, sizeof(*range));
    if (!range)
        return NULL;
    if (range_count == range_room) {
        range_room = range_room ? 2 * range_room : 256;
        struct range **more = realloc(ranges, range_room * sizeof(*ranges));
        if (!more)
            abort();
        ranges = more;
    }
    range->address = range->place = address;
    range->bytes = range->held_bytes = bytes;
    range->kind = kind;
    range->live = true;
    range->id = ++range_id;
    range->alias =
        fake_arena_owns(address) ? fake_arena_alias(address) : (char *)(uintptr_t)address;
    size_t at = ranges_until(address);
    memmove(ranges + at + 1, ranges + at, (range_count - at) * sizeof(*ranges));
    ranges[at] = range;
    range_count++;
    return range;
}

void fake_range_remove(struct range *range)
{
    size_t at = ranges_until(range->address);
    while (at > 0 && ranges[at - 1] != range)
        at--;
    if (at == 0)
        abort();
    gone[gone_count++ % MOST_GONE] =
        (struct gone){range->address, range->bytes, range->id, range->kind};
    memmove(ranges + at - 1, ranges + at, (range_count - at) * sizeof(*ranges));
    range_count--;
    fake_race_forget(range);
    free(range->pages);
    free(range);
}

/* Only a reservation holds other ranges. They begin in it, so a few steps back are enough. */
struct range *fake_range_find(CUdeviceptr address)
{
    for (size_t at = ranges_until(address); at > 0; at--) {
        struct range *range = ranges[at - 1];
        if (address - range->address < range->bytes)
            return range;
        if (range->kind == RANGE_RESERVED)
            return NULL;
    }
    return NULL;
}

CUdeviceptr fake_range_place(CUdeviceptr address, size_t bytes)
{
    pthread_mutex_lock(&memory_lock);
    const struct range *range = fake_range_find(address);
    bool is_in = range && fake_arena_owns(range->place) && range->kind != RANGE_IMPORTED &&
                 bytes <= range->bytes - (address - range->address);
    CUdeviceptr place = is_in ? range->place + (address - range->address) : 0;
    pthread_mutex_unlock(&memory_lock);
    return place;
}

struct range *fake_range_at(size_t index)
{
    return index < range_count ? ranges[index] : NULL;
}

const char *fake_range_history(CUdeviceptr address)
{
    static const char *const names[] = {"an allocation", "a pool's block", "managed memory",
                                        "a mapping",     "a reservation",  "host memory",
                                        "host memory",   "imported memory"};
    static _Thread_local char text[96];
    for (unsigned i = 0; i < gone_count && i < MOST_GONE; i++) {
        const struct gone *one = &gone[(gone_count - 1 - i) % MOST_GONE];
        if (address - one->address < one->bytes) {
            snprintf(text, sizeof(text), "it was in %s of %zu bytes (number %llu), now released",
                     names[one->kind], one->bytes, (unsigned long long)one->id);
            return text;
        }
    }
    return "no allocation ever was there";
}
