/* The script: a plan as the runtime reads it, one blob, from parent to process.
 *
 * The runtime's clock is the sequence of managed ALLOC and FREE events of one iteration, the
 * *template*. If the program has no such events, some of its accesses are the clock. Every event is
 * then an ACCESS to a persistent block or a part of one, and alloc_count is 0. Actions are attached
 * to clock positions: position p means "when clock event p has just been seen". All arrays follow
 * the header at the given byte offsets. ebb__script_valid() checks every index before use. */
#ifndef EBB_RUNTIME_SCRIPT_H
#define EBB_RUNTIME_SCRIPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EBB_SCRIPT_MAGIC 0x3174706972635345ull
#define EBB_SCRIPT_NONE UINT32_MAX
/* Threads interleave, so the order of the events varies. Only the first event is fixed: an ALLOC of
 * a size that occurs nowhere else (replay/unordered.c). */
#define EBB_SCRIPT_UNORDERED 1u
/* The program announces each use: the beginnings and ends of uses are clock events, too. The order
 * is fixed, and the program says when an iteration begins (replay/ordered.c). */
#define EBB_SCRIPT_ANNOUNCED 2u
/* The program marks where an iteration begins, and the template begins there. */
#define EBB_SCRIPT_MARKED 4u
/* Sizes of some events differ between iterations. When blocks are freed tells the position, too. */
#define EBB_SCRIPT_BY_SHAPE 8u
#define EBB_SCRIPT_ANY_SIZE 0u /* of an event whose size differs */
#define EBB_SCRIPT_NO_PLACE UINT64_MAX

struct ebb_script_event {
    uint64_t size_bytes; /* or EBB_SCRIPT_ANY_SIZE; then the block has the largest size seen */
    uint64_t time_ns;    /* since the iteration's start */
    uint32_t block;      /* index into blocks */
    uint32_t kind;       /* EBB_EVENT_ALLOC, EBB_EVENT_FREE or EBB_EVENT_ACCESS */
};

struct ebb_script_block {
    uint64_t serial;     /* if persistent; 0: allocated in the iteration */
    uint64_t size_bytes; /* size of the allocation */
    /* Its offset in the static placement in bytes, a multiple of the page. EBB_SCRIPT_NO_PLACE for
     * persistent blocks, absent ones and parts. */
    uint64_t place;
    uint32_t first_use; /* index into uses */
    uint32_t use_count;
    /* A part of a large block: units [part_first, + part_count) of EBB_HUGE_BYTES. part_count == 0:
     * a whole block. The parts of a block are adjacent and in order. The first of them stands for
     * the block in events. Its `parts` is their number, and `parts` is 0 in the others. 1: a whole
     * block. */
    uint32_t part_first, part_count;
    uint32_t parts;
    uint32_t huge_rounded; /* 1: it takes whole units of EBB_HUGE_BYTES, unless it is in the static
                         placement */
};

/* In all scripts the persistent block with serial `from` is now the one with serial `to`: a program
 * makes its model anew. Arrays of these are ordered by `from`. */
struct ebb_renaming {
    uint64_t from, to;
};

/* A use, at this time after a clock position. The time is 0 if it varies (EBB_SCRIPT_UNORDERED). */
struct ebb_script_use {
    uint32_t clock;
    uint32_t within_us;
};

/* One absence. The write back may start at out_clock + out_delay_ns, the prefetch should start at
 * in_clock + in_delay_ns. The program must not pass due_clock before the block is resident. If
 * in_within is set, it may pass it: the block is used due_delay_ns later. Delays exclude stalls. If
 * two positions are equal and the later moment has the shorter delay, a whole iteration lies
 * between. */
struct ebb_script_absence {
    uint32_t block;
    uint32_t out_clock;
    uint32_t in_clock;  /* EBB_SCRIPT_NONE: never fetched (freed while evicted) */
    uint32_t due_clock; /* as in_clock */
    uint64_t in_delay_ns;
    uint64_t out_delay_ns;
    uint64_t due_delay_ns;
    uint64_t stall_ns; /* predicted stall of the program for the block */
    uint32_t keep_copy;
    uint32_t in_within;
};

struct ebb_script {
    uint64_t magic;
    uint64_t bytes; /* size of the whole blob */
    uint64_t iteration_ns;
    /* Blocks with lower serials belong to the initialisation and are not matched to the template.
     * 0: unknown. */
    uint64_t first_serial;
    uint64_t placement_bytes; /* the end of every placed block is at most this */
    /* Peak of the bytes that its blocks hold. A unit of the static placement counts whole. With
     * less memory nothing is placed. 0: the static placement may always be used. */
    uint64_t peak_bytes;
    uint32_t clock_count;
    uint32_t block_count;
    uint32_t use_count;
    uint32_t absence_count;
    uint32_t persistent_count; /* the first blocks, this many, ordered by serial */
    uint32_t alloc_count;      /* number of ALLOC events among the clock events */
    uint32_t flags;            /* EBB_SCRIPT_UNORDERED, _ANNOUNCED, ... */
    uint32_t reserved;
    uint64_t events_offset;   /* struct ebb_script_event[clock_count] */
    uint64_t blocks_offset;   /* struct ebb_script_block[block_count] */
    uint64_t uses_offset;     /* struct ebb_script_use[use_count]: each block's uses, in order
                               since its allocation */
    uint64_t absences_offset; /* struct ebb_script_absence[absence_count] */
    uint64_t allocs_offset;   /* uint32_t[alloc_count]: positions of ALLOC events, sorted by
                                 size, then by position */
};

static inline const struct ebb_script_event *ebb__script_events(const struct ebb_script *script)
{
    return (const struct ebb_script_event *)((const char *)script + script->events_offset);
}
static inline const struct ebb_script_block *ebb__script_blocks(const struct ebb_script *script)
{
    return (const struct ebb_script_block *)((const char *)script + script->blocks_offset);
}
static inline const struct ebb_script_use *ebb__script_uses(const struct ebb_script *script)
{
    return (const struct ebb_script_use *)((const char *)script + script->uses_offset);
}
static inline const struct ebb_script_absence *ebb__script_absences(const struct ebb_script *script)
{
    return (const struct ebb_script_absence *)((const char *)script + script->absences_offset);
}
static inline const uint32_t *ebb__script_allocs(const struct ebb_script *script)
{
    return (const uint32_t *)((const char *)script + script->allocs_offset);
}

/* True if the clock position lies in the cyclic interval [from, to]. */
static inline bool ebb__script_is_between(uint32_t position, uint32_t from, uint32_t to)
{
    return from <= to ? position >= from && position <= to : position >= from || position <= to;
}

/* As above, from `from_ns` after one position to `to_ns` after another, at most an iteration
 * later. */
static inline bool ebb__script_is_during(uint32_t position, uint32_t from, uint64_t from_ns,
                                         uint32_t to, uint64_t to_ns)
{
    return (from == to && to_ns < from_ns) || ebb__script_is_between(position, from, to);
}

/* True if `script` of `bytes` mapped bytes is complete and every index is valid. */
bool ebb__script_valid(const struct ebb_script *script, uint64_t bytes);

/* Larger scripts are refused. The limit of the format is two million times the events of a large
 * training. */
#define EBB_SCRIPT_MOST_BYTES ((uint64_t)1 << 30)
/* A private, read-only copy of the `bytes` in a file; not validated. The sender can still write or
 * truncate the file, so its contents are read only once. NULL: the size is impossible for a script,
 * the file is shorter, or memory is exhausted. Release it by munmap(). */
struct ebb_script *ebb__script_copy(int descriptor, uint64_t bytes);
/* Likewise of an array of renamings. Its order is checked. */
struct ebb_renaming *ebb__renamings_copy(int descriptor, uint64_t bytes);
/* The serial that `serial` has become. O(log count) */
uint64_t ebb__renamed(const struct ebb_renaming *renamings, size_t count, uint64_t serial);
/* The same for all persistent blocks of a script. They need not be in order afterwards. */
void ebb__script_rename(struct ebb_script *script, const struct ebb_renaming *renamings,
                        size_t count);

#endif
