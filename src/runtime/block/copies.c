/* Relatives: forked processes that read the same store, and when its space becomes free.
 *
 * A block that is evicted at a fork has one copy, in the store of the process that wrote it. Parent
 * and child both read it. The writer must not reuse that space while the child or its descendants
 * may still read it. Therefore each fork is a *generation* with a number. Suppose that generation
 * `after` was the newest when a copy was written, and `until` when it was dropped. Only the
 * generations in (after, until] can read it. Its space is free once none of these lives.
 *
 * A generation lives as long as its *line* is open in any process. A line is a file description
 * that holds a lock on one byte of a memory file; the byte's offset is the generation's number. The
 * writer opens it before the fork and closes it afterwards. The child and its own children inherit
 * it. The kernel releases the lock when the last of them has died, called exec, or closed the line.
 * A process closes it when none of its blocks has a copy in that store any more. So a child may be
 * killed at any time, pids do not matter, and `ebb` need not live. If the writer itself dies, its
 * bookkeeping ends, but then no process reuses the space either.
 *
 * A line needs a file description of its own, opened through /proc. If that fails, the generation
 * counts as living for ever. Its space is lost, but no data is. */
#include "base/limits.h"
#include "runtime/block/block.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOST_LIVING ((uint32_t)1 << 12)   /* a limit; generations beyond it count as living */
#define MOST_DEFERRED ((uint32_t)1 << 16) /* as many as extents; space beyond that is lost */

/* Limits: file locks, which tell of forked readers, are looked at so often, and for such a part of
 * the time at most. */
enum { LOOK_NS = 1000000, LOOK_DIVISOR = 100 };

static void protect(struct table *table, int descriptor, bool on)
{
    if (table->core->config.protect)
        table->core->config.protect(table->core->config.context, descriptor, on);
}

static void close_descriptor(struct table *table, int *descriptor)
{
    if (*descriptor >= 0) {
        protect(table, *descriptor, false);
        close(*descriptor);
    }
    *descriptor = -1;
}

/* Moves it to a high number, since programs may rely on low ones. */
static int keep_high(struct table *table, int descriptor)
{
    int high = descriptor < 0 ? -1 : ebb__descriptor_high(descriptor);
    if (high >= 0)
        protect(table, high, true);
    return high;
}

static struct flock byte_lock(uint64_t number)
{
    return (struct flock){
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)number, .l_len = 1};
}

bool ebb__relatives_init(struct table *table)
{
    struct relatives *relatives = &table->copies.relatives;
    *relatives = (struct relatives){.base = -1, .line = -1};
    relatives->living = ebb__core_memory(MOST_LIVING * sizeof *relatives->living);
    relatives->deferred = ebb__core_memory(MOST_DEFERRED * sizeof *relatives->deferred);
    for (unsigned i = 0; i < MAX_STORES; i++)
        table->copies.lines[i] = -1;
    return relatives->living && relatives->deferred;
}

/* None of our blocks has a copy there any more. If it is an ancestor's, it may reuse the space. */
static void close_store(struct table *table, unsigned index)
{
    struct ebb_store *store = &table->copies.stores[index];
    int descriptors[EBB_STORE_MOST_PLACES];
    size_t count = store->ops->descriptors(store->state, descriptors, EBB_STORE_MOST_PLACES);
    for (size_t i = 0; i < count; i++)
        protect(table, descriptors[i], false);
    store->ops->close(store->state);
    store->ops = NULL;
    close_descriptor(table, &table->copies.lines[index]);
}

void ebb__relatives_fini(struct table *table)
{
    struct relatives *relatives = &table->copies.relatives;
    if (table->copies.stores[table->copies.current].ops)
        close_store(table, table->copies.current);
    close_descriptor(table, &relatives->base);
    if (relatives->living)
        munmap(relatives->living, MOST_LIVING * sizeof *relatives->living);
    if (relatives->deferred)
        munmap(relatives->deferred, MOST_DEFERRED * sizeof *relatives->deferred);
}

/* Opens a separate file description of the memory file and locks its byte. -1: that failed. */
static int open_line(struct table *table, uint64_t number)
{
    struct relatives *relatives = &table->copies.relatives;
    if (relatives->base < 0)
        relatives->base = keep_high(table, memfd_create("ebb-relatives", MFD_CLOEXEC));
    if (relatives->base < 0)
        return -1;
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", relatives->base);
    int line = keep_high(table, open(path, O_RDWR | O_CLOEXEC));
    struct flock lock = byte_lock(number);
    if (line >= 0 && fcntl(line, F_OFD_SETLK, &lock) != 0)
        close_descriptor(table, &line);
    return line;
}

static bool is_alive(const struct relatives *relatives, uint64_t number)
{
    struct flock lock = byte_lock(number);
    return fcntl(relatives->base, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

/* Can a living generation read a copy written when `after` was the newest, dropped at `until`? */
static bool is_seen(const struct relatives *relatives, uint64_t after, uint64_t until)
{
    if (after < relatives->eternal)
        return true;
    for (uint32_t i = 0; i < relatives->living_count; i++)
        if (relatives->living[i] > after && relatives->living[i] <= until)
            return true;
    return false;
}

static void give(struct table *table, uint64_t offset, uint64_t bytes)
{
    ebb__extents_give(&table->copies.extents, offset, bytes);
    atomic_store(&table->core->counters->store_bytes, table->copies.extents.used_bytes);
}

/* Removes generations that have ended. True: there were some. */
static bool look_at_living(struct relatives *relatives)
{
    uint64_t began = ebb__now_ns();
    uint32_t kept = 0, before = relatives->living_count;
    for (uint32_t i = 0; i < before; i++)
        if (is_alive(relatives, relatives->living[i]))
            relatives->living[kept++] = relatives->living[i];
    relatives->living_count = kept;
    uint64_t now = ebb__now_ns(), pause = (now - began) * LOOK_DIVISOR;
    relatives->look_ns = now + (pause > LOOK_NS ? pause : LOOK_NS);
    return kept < before;
}

static void give_deferred(struct table *table)
{
    struct relatives *relatives = &table->copies.relatives;
    for (uint32_t i = 0; i < relatives->deferred_count;) {
        const struct deferred *item = &relatives->deferred[i];
        if (is_seen(relatives, item->after, item->until)) {
            i++;
        } else {
            give(table, item->offset, item->bytes);
            relatives->deferred[i] = relatives->deferred[--relatives->deferred_count];
        }
    }
}

void ebb__relatives_before_fork(struct table *table, bool is_read)
{
    struct relatives *relatives = &table->copies.relatives;
    relatives->line = -1;
    if (!is_read)
        return;
    if (look_at_living(relatives))
        give_deferred(table);
    uint64_t number = ++relatives->newest;
    relatives->line = relatives->living_count < MOST_LIVING ? open_line(table, number) : -1;
    if (relatives->line >= 0)
        relatives->living[relatives->living_count++] = number;
    else
        relatives->eternal = number;
}

void ebb__relatives_after_fork_parent(struct table *table)
{
    close_descriptor(table, &table->copies.relatives.line);
}

/* A free place in the table of stores. MAX_STORES, which never holds a store: none is free. */
static unsigned free_store(const struct table *table)
{
    unsigned at = 0;
    while (at < MAX_STORES && table->copies.copies[at])
        at++;
    return at;
}

void ebb__relatives_forked(struct table *table, bool parent_wrote)
{
    struct relatives *relatives = &table->copies.relatives;
    unsigned parents = table->copies.current;
    table->copies.lines[parents] = relatives->line;
    relatives->line = -1;
    close_descriptor(table, &relatives->base);
    relatives->newest = relatives->eternal = relatives->look_ns = 0;
    relatives->living_count = relatives->deferred_count = 0;
    /* Copies in the parent's own store have not been counted yet. */
    for (uint32_t i = 1; parent_wrote && i <= table->count; i++)
        if (table->blocks[i].copy.is_there && table->blocks[i].copy.store == parents)
            table->copies.copies[parents]++;
    if (parent_wrote && table->copies.copies[parents] == 0)
        close_store(table, parents);
    table->copies.current = free_store(table);
}

void ebb__relatives_count(struct table *table, const struct block *block)
{
    if (!ebb__relatives_wrote(&table->copies, block))
        table->copies.copies[block->copy.store]++;
}

void ebb__relatives_drop(struct table *table, const struct block *block)
{
    struct relatives *relatives = &table->copies.relatives;
    if (!ebb__relatives_wrote(&table->copies, block)) {
        if (--table->copies.copies[block->copy.store] == 0)
            close_store(table, block->copy.store);
        return;
    }
    uint64_t offset = block->copy.offset, bytes = block->page_bytes;
    if (!is_seen(relatives, block->copy.generation, relatives->newest))
        give(table, offset, bytes);
    else if (relatives->deferred_count < MOST_DEFERRED)
        relatives->deferred[relatives->deferred_count++] =
            (struct deferred){offset, bytes, block->copy.generation, relatives->newest};
}

void ebb__relatives_look(struct table *table, uint64_t bytes)
{
    struct relatives *relatives = &table->copies.relatives;
    if (relatives->deferred_count == 0 || ebb__extents_have(&table->copies.extents, bytes) ||
        ebb__now_ns() < relatives->look_ns)
        return;
    if (look_at_living(relatives))
        give_deferred(table);
}

void ebb__copy_drop(struct table *table, struct block *block)
{
    if (block->copy.is_there)
        ebb__relatives_drop(table, block);
    block->copy.is_there = false;
    block->copy.is_hashed = false;
}
