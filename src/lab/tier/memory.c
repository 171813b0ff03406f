#include "lab/tier/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif
#define BIND 2                          /* MPOL_BIND of mbind(2) */
#define MOST_NODES 1024                 /* arbitrary */
#define SLACK_BYTES ((uint64_t)1 << 20) /* extents while they are written back: ext4 had 17 pages */

/* ---- places ---------------------------------------------------------------------------------- */

struct placed {
    uint32_t block, group, place, pages;
};

static int by_place(const void *left, const void *right)
{
    const struct placed *a = left, *b = right;
    if (a->group != b->group)
        return a->group < b->group ? -1 : 1;
    if (a->pages != b->pages)
        return a->pages < b->pages ? -1 : 1;
    if (a->place != b->place)
        return a->place < b->place ? -1 : 1;
    return (a->block > b->block) - (a->block < b->block);
}

static size_t rounded(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* Blocks of a group are adjacent, so that a run is one range. Those that share pages have no bytes
 * between them, apart from those that align words. */
static bool places_set(struct ebb_tier_memory *it, const struct ebb_operations *operations,
                       const struct ebb_tier_plan *plan, uint32_t page_bytes)
{
    uint32_t count = operations->block_count;
    struct placed *order = malloc(((size_t)count + 1) * sizeof *order);
    size_t unit = page_bytes > 4096 ? page_bytes : 4096;
    it->offset = calloc((size_t)count + 1, sizeof *it->offset);
    it->bytes = calloc((size_t)count + 1, sizeof *it->bytes);
    bool ok = order && it->offset && it->bytes;
    for (uint32_t b = 0; ok && b < count; b++)
        order[b] = (struct placed){b, plan->group[b], plan->place[b], plan->pages[b]};
    if (ok)
        qsort(order, count, sizeof *order, by_place);
    for (uint32_t i = 0; ok && i < count; i++) {
        uint32_t b = order[i].block, first = order[i].pages == EBB_NO_GROUP ? b : order[i].pages;
        size_t bytes = rounded(operations->blocks[b].size_bytes, sizeof(uint64_t));
        if (i == 0 || order[i].pages == EBB_NO_GROUP || order[i].pages != order[i - 1].pages)
            it->size = rounded(it->size, unit);
        it->offset[b] = it->size;
        it->bytes[first] += bytes;
        it->size += bytes;
    }
    for (uint32_t b = 0; ok && b < count; b++)
        it->bytes[b] = rounded(it->bytes[b], unit);
    it->size = rounded(it->size, unit);
    free(order);
    return ok;
}

/* ---- the slow tier --------------------------------------------------------------------------- */

/* True if `place` means memory. *node is -1 if it names none, and MOST_NODES if it names no node
 * that can be. */
static bool is_memory(const char *place, long *node)
{
    char *end;
    *node = -1;
    if (strncmp(place, "memory", 6) != 0 || (place[6] != 0 && place[6] != ':'))
        return false;
    if (place[6] == 0)
        return true;
    *node = strtol(place + 7, &end, 10);
    if (place[7] < '0' || place[7] > '9' || *end || *node >= MOST_NODES)
        *node = MOST_NODES;
    return true;
}

/* Binds the pages of the file, whoever makes them. */
static bool node_bind(void *memory, size_t bytes, long node)
{
    unsigned long nodes[MOST_NODES / (8 * sizeof(unsigned long))] = {0};
    size_t bits = 8 * sizeof nodes[0];
    if (node >= MOST_NODES) {
        errno = EINVAL;
        return false;
    }
    nodes[(size_t)node / bits] = 1ul << ((size_t)node % bits);
    return syscall(SYS_mbind, memory, bytes, BIND, nodes, (unsigned long)MOST_NODES, 0) == 0;
}

static enum ebb_status slow_open(struct ebb_tier_memory *it, const char *place,
                                 struct ebb_error *error)
{
    long node;
    bool memory = is_memory(place, &node);
    struct statfs about;
    size_t bytes = it->size + 4096;
    it->file = memory ? memfd_create("ebb-tier", MFD_CLOEXEC)
                      : open(place, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (it->file < 0 || ftruncate(it->file, (off_t)bytes) != 0)
        return ebb__fail(error, EBB_ERR_IO, place, "no file for the slow tier: %s",
                         strerror(errno));
    if (fstatfs(it->file, &about) != 0 || about.f_type != TMPFS_MAGIC)
        it->slack_bytes = SLACK_BYTES;
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, it->file, 0);
    if (base == MAP_FAILED)
        return ebb__fail(error, EBB_ERR_MEMORY, place, "no addresses for the slow tier");
    it->base[EBB_TIER_SLOW] = base;
    if (node >= 0 && !node_bind(base, bytes, node))
        return ebb__fail(error, EBB_ERR_IO, place, "no such node: %s", strerror(errno));
    return EBB_OK;
}

enum ebb_status ebb__tier_memory_open(struct ebb_tier_memory *memory,
                                      const struct ebb_operations *operations,
                                      const struct ebb_tier_plan *plan, uint32_t page_bytes,
                                      const char *place, struct ebb_error *error)
{
    *memory = (struct ebb_tier_memory){.file = -1};
    bool ok = places_set(memory, operations, plan, page_bytes);
    memory->present = ok ? malloc(memory->size / 4096 + 2) : NULL;
    if (!memory->present)
        return ebb__fail(error, EBB_ERR_MEMORY, "tiers", "no memory for the places of blocks");
    enum ebb_status status = slow_open(memory, place, error);
    if (status)
        return status;
    void *base = mmap(NULL, memory->size + 4096, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return ebb__fail(error, EBB_ERR_MEMORY, "tiers", "no addresses for fast memory");
    memory->base[EBB_TIER_FAST] = base;
    (void)madvise(base, memory->size + 4096, MADV_NOHUGEPAGE); /* pages are counted */
    return EBB_OK;
}

void ebb__tier_memory_close(struct ebb_tier_memory *memory)
{
    for (int tier = 0; tier < EBB_TIER_COUNT; tier++)
        if (memory->base[tier])
            munmap(memory->base[tier], memory->size + 4096);
    if (memory->file >= 0)
        close(memory->file);
    free(memory->offset);
    free(memory->bytes);
    free(memory->present);
    *memory = (struct ebb_tier_memory){.file = -1};
}

/* ---- blocks ---------------------------------------------------------------------------------- */

enum ebb_status ebb__tier_memory_take(struct ebb_tier_memory *memory, uint32_t block, int tier,
                                      struct ebb_error *error)
{
    size_t bytes = memory->bytes[block];
    if (!bytes)
        return EBB_OK;
    if (tier == EBB_TIER_SLOW) {
        if (fallocate(memory->file, FALLOC_FL_KEEP_SIZE, (off_t)memory->offset[block],
                      (off_t)bytes) != 0)
            return ebb__fail(error, EBB_ERR_IO, "the slow tier", "no room for %zu bytes: %s", bytes,
                             strerror(errno));
        return EBB_OK;
    }
    void *place = ebb__tier_place(memory, block, tier);
    if (madvise(place, bytes, MADV_POPULATE_WRITE) != 0)
        memset(place, 0, bytes); /* an older kernel */
    return EBB_OK;
}

void ebb__tier_memory_release(struct ebb_tier_memory *memory, uint32_t block, int tier)
{
    size_t bytes = memory->bytes[block];
    if (!bytes)
        return;
    if (tier == EBB_TIER_FAST)
        (void)madvise(ebb__tier_place(memory, block, tier), bytes, MADV_DONTNEED);
    else
        (void)fallocate(memory->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                        (off_t)memory->offset[block], (off_t)bytes);
}

bool ebb__tier_memory_resident(const struct ebb_tier_memory *memory, uint64_t bytes[EBB_TIER_COUNT])
{
    struct stat found;
    if (mincore(memory->base[EBB_TIER_FAST], memory->size, memory->present) != 0 ||
        fstat(memory->file, &found) != 0)
        return false;
    bytes[EBB_TIER_FAST] = 0;
    for (size_t page = 0; page < memory->size / 4096; page++)
        bytes[EBB_TIER_FAST] += memory->present[page] & 1 ? 4096 : 0;
    bytes[EBB_TIER_SLOW] = (uint64_t)found.st_blocks * 512;
    return true;
}
