/* Computes the expected bytes of a block from seed, block, offset and version. A page that is
 * stale, torn, swapped, shifted or zeroed is detected. */
#include "legal.h"

#include <string.h>

static uint64_t key_of(const struct block *block, uint32_t version)
{
    uint64_t key = settings.seed * 0x9E3779B97F4A7C15u + block->id * 0xD1B54A32D192ED03u +
                   (uint64_t)version * 0x8CB92BA72F3D8DD7u;
    key ^= key >> 29;
    return key * 0xBF58476D1CE4E5B9u | 1;
}

static inline uint64_t word_of(uint64_t key, size_t index)
{
    uint64_t word = (key + index) * 0x9E3779B97F4A7C15u;
    return word ^ word >> 31;
}

static unsigned char byte_of(uint64_t key, size_t offset)
{
    return (unsigned char)(word_of(key, offset / 8) >> offset % 8 * 8);
}

void pattern_make(const struct block *block, size_t offset, size_t bytes, uint32_t version,
                  unsigned char *to)
{
    if (version == 0) {
        memset(to, 0, bytes);
        return;
    }
    uint64_t key = key_of(block, version);
    size_t i = 0;
    for (; i < bytes && (offset + i) % 8; i++)
        to[i] = byte_of(key, offset + i);
    for (; i + 8 <= bytes; i += 8) {
        uint64_t word = word_of(key, (offset + i) / 8);
        memcpy(to + i, &word, 8);
    }
    for (; i < bytes; i++)
        to[i] = byte_of(key, offset + i);
}

/* Returns the first offset whose byte differs from the version, or `bytes`. */
static size_t first_wrong(const struct block *block, size_t offset, size_t bytes, uint32_t version,
                          const unsigned char *from)
{
    uint64_t key = version ? key_of(block, version) : 0;
    size_t i = 0;
    while (i < bytes) {
        size_t at = offset + i;
        if (at % 8 == 0 && bytes - i >= 8) {
            uint64_t word, right = version ? word_of(key, at / 8) : 0;
            memcpy(&word, from + i, 8);
            if (word == right) {
                i += 8;
                continue;
            }
        }
        if (from[i] != (version ? byte_of(key, at) : 0))
            return i;
        i++;
    }
    return bytes;
}

/* Returns the version that the page really has, for the report, or -1. */
static long version_there(const struct block *block, size_t offset, size_t bytes, uint32_t version,
                          const unsigned char *from)
{
    for (uint32_t other = version + 64; other-- > 0 && other + 4096 > version;)
        if (bytes >= 8 && first_wrong(block, offset, bytes, other, from) == bytes)
            return (long)other;
    return -1;
}

void pattern_check(struct actor *actor, const struct block *block, size_t offset, size_t bytes,
                   const unsigned char *from, const char *what)
{
    size_t before = (size_t)((uintptr_t)block->start % PAGE);
    for (size_t i = 0; i < bytes;) {
        size_t at = offset + i, number = (at + before) / PAGE;
        size_t part = (number + 1) * PAGE - before - at;
        if (part > bytes - i)
            part = bytes - i;
        const struct page *page = &block->page[number];
        size_t wrong = first_wrong(block, at, part, page->version, from + i);
        /* A lazily freed page may be zeroed at any moment, and then stays so. */
        if (wrong < part && page->flags & LAZY)
            wrong = first_wrong(block, at, part, 0, from + i);
        if (wrong < part) {
            long there = version_there(block, at, part, page->version, from + i);
            size_t count = 0;
            for (size_t k = 0; k < part; k++) {
                unsigned char right;
                pattern_make(block, at + k, 1, page->version, &right);
                count += from[i + k] != right;
            }
            fail(
                actor,
                "%s: block %llu of %zu bytes at %p: wrong byte at offset %zu (page %zu of %zu, flags "
                "%#x): %#x; %zu of %zu bytes of the page are wrong; version %u is due, there is %ld "
                "(0: zeros, -1: none)",
                what, (unsigned long long)block->id, block->bytes, (void *)block->start, at + wrong,
                number, block->pages, page->flags, from[i + wrong], count, part, page->version,
                there);
        }
        i += part;
    }
}

void run_check(struct actor *actor, const struct run *run, const char *what)
{
    const struct block *block = run->block;
    for (size_t i = run->first; i < run->first + run->count; i++) {
        if (block->page[i].flags & UNREADABLE)
            continue;
        struct run one = {run->block, i, 1};
        pattern_check(actor, block, run_offset(&one), run_bytes(&one), run_start(&one), what);
    }
}

void block_check(struct actor *actor, struct block *block)
{
    run_check(actor, &(struct run){block, 0, block->pages}, "block");
}

void actor_check(struct actor *actor)
{
    for (size_t i = 0; i < actor->block_count; i++)
        block_check(actor, actor->blocks[i]);
}

void pressure_beside(struct actor *actor, const struct block *left_out)
{
    for (size_t i = 0; i < actor->block_count; i++) {
        struct block *block = actor->blocks[i];
        if (block == left_out || one_in(actor, 3))
            continue;
        struct run run = {block, (size_t)chance(actor, block->pages), 0};
        run.count = 1 + (size_t)chance(actor, block->pages - run.first);
        run_check(actor, &run, "block under pressure");
    }
}

void pressure(struct actor *actor)
{
    pressure_beside(actor, NULL);
}

void run_set(const struct run *run, uint32_t version)
{
    for (size_t i = run->first; i < run->first + run->count; i++) {
        run->block->page[i].version = version;
        run->block->page[i].flags &= ~(unsigned)LAZY;
    }
}

void run_flag(const struct run *run, unsigned set, unsigned clear)
{
    for (size_t i = run->first; i < run->first + run->count; i++)
        run->block->page[i].flags = (run->block->page[i].flags & ~clear) | set;
}

void run_fill(struct actor *actor, const struct run *run)
{
    uint32_t version = ++actor->version;
    pattern_make(run->block, run_offset(run), run_bytes(run), version, run_start(run));
    run_set(run, version);
}

static bool pick(struct actor *actor, struct run *run, unsigned without, size_t most_bytes,
                 bool inner)
{
    if (actor->block_count == 0)
        return false;
    for (int tries = 0; tries < 8; tries++) {
        struct block *block = actor->blocks[chance(actor, actor->block_count)];
        size_t first = 0, end = block->pages;
        if (inner) {
            first = (uintptr_t)block->start % PAGE != 0;
            if (((uintptr_t)block->start + block->bytes) % PAGE)
                end--;
        }
        if (first >= end || end > MAX_PAGES)
            continue;
        size_t most = most_bytes / PAGE;
        size_t begin = one_in(actor, 3) ? first : first + (size_t)chance(actor, end - first);
        size_t count = one_in(actor, 3) ? end - begin : 1 + (size_t)chance(actor, end - begin);
        if (count > most)
            count = most;
        size_t good = 0;
        while (good < count && !(block->page[begin + good].flags & without))
            good++;
        if (good) {
            *run = (struct run){block, begin, good};
            return true;
        }
    }
    return false;
}

bool run_pick(struct actor *actor, struct run *run, unsigned without, size_t most_bytes)
{
    return pick(actor, run, without, most_bytes, false);
}

bool run_pick_inner(struct actor *actor, struct run *run, unsigned without, size_t most_bytes)
{
    return pick(actor, run, without, most_bytes, true);
}
