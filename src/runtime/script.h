/* The script: a plan as the runtime reads it, one blob, from parent to process.
 *
 * The runtime's clock is the sequence of managed ALLOC and FREE events of one iteration (the
 * *template*); for a program that has none, a choice of its accesses: then every event is an ACCESS
 * to a persistent block or a part of one, and alloc_count is 0. Actions hang on clock positions:
 * position p means "when clock event p has just been seen". All arrays follow the header at the
 * given byte offsets; every index is checked by ebb__script_valid() before use. */
#ifndef EBB_RUNTIME_SCRIPT_H
#define EBB_RUNTIME_SCRIPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EBB_SCRIPT_MAGIC 0x3174706972635345ull
#define EBB_SCRIPT_NONE UINT32_MAX
/* Threads interleave: the order of the events varies. The first one is fixed: an ALLOC whose size
 * occurs nowhere else (replay/unordered.c). */
#define EBB_SCRIPT_UNORDERED 1u
#define EBB_SCRIPT_NO_PLACE UINT64_MAX

struct ebb_script_event {
    uint64_t size_bytes;
    uint64_t time_ns; /* from the iteration's start */
    uint32_t block;   /* index into blocks */
    uint32_t kind;    /* EBB_EVENT_ALLOC, EBB_EVENT_FREE or EBB_EVENT_ACCESS */
};

struct ebb_script_block {
    uint64_t serial;     /* of a persistent block; 0: allocated in the iteration */
    uint64_t size_bytes; /* of the allocation */
    uint64_t place;      /* where in the static placement it goes, bytes, a multiple of the page; or
                            EBB_SCRIPT_NO_PLACE, as for persistent blocks, absent ones and parts */
    uint32_t first_use;  /* into uses */
    uint32_t use_count;
    /* A part of a large block: units [part_first, + part_count) of EBB_HUGE_BYTES; part_count == 0:
     * a whole block. The parts of a block follow each other in order; `parts` is their number at the
     * first of them, which stands for the block in events, and 0 in the others; 1: a whole block. */
    uint32_t part_first, part_count;
    uint32_t parts;
    uint32_t
        huge_rounded; /* 1: it takes whole units of EBB_HUGE_BYTES, unless it lies in the static
                         placement */
};

/* A use, so long after a clock position; 0 where that varies (EBB_SCRIPT_UNORDERED). */
struct ebb_script_use {
    uint32_t clock;
    uint32_t within_us;
};

/* One absence. out_clock + out_delay_ns: the write back may start; in_clock + in_delay_ns: the
 * prefetch should start; due_clock: the program must not pass this position before the block is
 * resident; in_within: it may, the block is used due_delay_ns after. Delays are in the program's
 * own time, stalls left out. Where two of the positions are the same and the later moment has the
 * lesser delay a whole lap lies between. */
struct ebb_script_absence {
    uint32_t block;
    uint32_t out_clock;
    uint32_t in_clock;  /* EBB_SCRIPT_NONE: never fetched (freed while evicted) */
    uint32_t due_clock; /* likewise */
    uint64_t in_delay_ns;
    uint64_t out_delay_ns;
    uint64_t due_delay_ns;
    uint64_t stall_ns; /* that the plan expects the program to wait for the block */
    uint32_t keep_copy;
    uint32_t in_within;
};

struct ebb_script {
    uint64_t magic;
    uint64_t bytes; /* of the whole blob */
    uint64_t iteration_ns;
    uint64_t first_serial; /* blocks with lower serials belong to the initialisation: they are not
                              looked for in the template; 0: unknown */
    uint64_t placement_bytes; /* no placed block reaches beyond */
    /* Most that its blocks hold at a time, units of the static placement counted whole: with less
     * room nothing is placed. 0: whatever lies in the static placement may always. */
    uint64_t peak_bytes;
    uint32_t clock_count;
    uint32_t block_count;
    uint32_t use_count;
    uint32_t absence_count;
    uint32_t persistent_count; /* the first so many blocks, in order of serial */
    uint32_t alloc_count;      /* ALLOC events among the clock events */
    uint32_t flags;            /* EBB_SCRIPT_UNORDERED */
    uint32_t reserved;
    uint64_t events_offset; /* struct ebb_script_event[clock_count] */
    uint64_t blocks_offset; /* struct ebb_script_block[block_count] */
    uint64_t uses_offset;   /* struct ebb_script_use[use_count]: when a block is used, in the order
                                 of use since its allocation */
    uint64_t absences_offset; /* struct ebb_script_absence[absence_count] */
    uint64_t allocs_offset;   /* uint32_t[alloc_count]: positions of the ALLOC events, by size, then
                                 by position */
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

/* True where the clock position lies in the cyclic interval [from, to]. */
static inline bool ebb__script_is_between(uint32_t position, uint32_t from, uint32_t to)
{
    return from <= to ? position >= from && position <= to : position >= from || position <= to;
}

/* Likewise from `from_ns` after one position to `to_ns` after another, at most a lap later. */
static inline bool ebb__script_is_during(uint32_t position, uint32_t from, uint64_t from_ns,
                                         uint32_t to, uint64_t to_ns)
{
    return (from == to && to_ns < from_ns) || ebb__script_is_between(position, from, to);
}

/* True where `script` of `bytes` mapped bytes is whole and every index within bounds. */
bool ebb__script_valid(const struct ebb_script *script, uint64_t bytes);

/* Larger ones are refused, a limit of the format: two million times as many events as a large training
 * has. */
#define EBB_SCRIPT_MOST_BYTES ((uint64_t)1 << 30)
/* A private, read-only copy of the `bytes` in a file, to be valid or not: what its sender still can
 * write, or cut short, is never looked at twice. NULL: the size is none of a script's, the file has
 * less, or memory is lacking. Give it back by munmap(). */
struct ebb_script *ebb__script_copy(int descriptor, uint64_t bytes);

#endif
