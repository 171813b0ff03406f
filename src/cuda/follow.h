/* Following the script: where in the planned iteration the launch order is, and what is due there.
 *
 * The clock of a script for a device has three kinds of events. ALLOC and FREE of blocks, and the
 * announced ACCESS of each block of a work, at its begin (EBB_SCRIPT_ANNOUNCED). Blocks that no
 * plan moves have no events. The program says nowhere that an iteration begins, so the position is
 * found by the newest events. A departure ends the following. It begins again where the newest
 * events occur once in a known script.
 *
 * Pure logic: no driver call, no lock of its own, no wait. The engine calls it under its lock. */
#ifndef EBB_CUDA_FOLLOW_H
#define EBB_CUDA_FOLLOW_H

#include "base/status.h"
#include "cuda/core.h"
#include "runtime/script.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ebb_cuda_follow;

/* What is due after an event, in the order in which to do it. A block that is evicted may be one of
 * the work whose uses are the newest events: it leaves when that work is over. An EVICT of a block
 * that is not resident, and a PREFETCH of one that is, are to be ignored. */
enum cuda_action_kind { CUDA_ACTION_EVICT, CUDA_ACTION_PREFETCH };
struct cuda_action {
    enum cuda_action_kind kind;
    uint32_t block; /* index into the engine's table */
};

/* An event in launch order, as the engine has it. */
struct cuda_event {
    uint8_t kind;   /* EBB_EVENT_ALLOC, EBB_EVENT_FREE or EBB_EVENT_ACCESS */
    uint32_t block; /* index into the engine's table, below `most_blocks` */
    uint64_t serial, bytes;
};

/* most_blocks: the engine's table has no more. NULL: memory is exhausted. */
struct ebb_cuda_follow *ebb__follow_create(uint32_t most_blocks);
void ebb__follow_destroy(struct ebb_cuda_follow *follow);

/* As ebb__runtime_set_script(): by reference, must stay mapped. EBB_ERR_FORMAT: it is damaged.
 * EBB_ERR_UNSUPPORTED: it has no uses among its events, or no fixed order. */
EBB_NODISCARD enum ebb_status ebb__follow_set_script(struct ebb_cuda_follow *follow,
                                                     const struct ebb_script *script,
                                                     uint64_t bytes);
void ebb__follow_forget(struct ebb_cuda_follow *follow);
void ebb__follow_rename(struct ebb_cuda_follow *follow, const struct ebb_renaming *renamings,
                        size_t count);
/* An event has happened. Returns how many actions are due, which are in *actions until the next
 * call. */
size_t ebb__follow_step(struct ebb_cuda_follow *follow, const struct cuda_event *event,
                        const struct cuda_action **actions);
/* Is a script followed at present? */
bool ebb__follow_is_planned(const struct ebb_cuda_follow *follow);
#define CUDA_UNKNOWN_USE UINT64_MAX
#define CUDA_FREED_BEFORE (UINT64_MAX - 1)
/* Positions until the next use of the block, or one of these. O(log uses) */
uint64_t ebb__follow_next_use(const struct ebb_cuda_follow *follow, uint32_t block);
/* What the next ALLOCs and FREEs of the script do to free ranges of each size, in units of 2 MiB.
 * All larger sizes count as the last. */
#define CUDA_AHEAD_CHUNKS 4096u
struct cuda_ahead {
    uint32_t chunks[CUDA_AHEAD_CHUNKS]; /* of the static placement: when the next block is there */
    uint32_t free_runs[CUDA_RUN_SIZES]; /* that are left at the end */
    uint32_t needed[CUDA_RUN_SIZES]; /* when none is left for the first time; UINT32_MAX: never */
    uint32_t lacking; /* the size of the first ALLOC that finds none; 0: there is no such */
};
struct cuda_place { /* units of the static placement */
    uint32_t first, count;
};
/* The places of those among the next `turns` ALLOCs and FREEs that have one, in their order.
 * Returns how many, `turns` at most. */
uint32_t ebb__follow_places(const struct ebb_cuda_follow *follow, uint32_t turns,
                            struct cuda_place *places);
/* free_runs: how many of each size there are now. `turns`: so many ALLOCs and FREEs at most. */
void ebb__follow_ahead(const struct ebb_cuda_follow *follow, const uint32_t *free_runs,
                       uint32_t chunk_units, uint32_t turns, struct cuda_ahead *ahead);
/* The offset that the script plans for the ALLOC of `bytes` that comes next, in the static
 * placement. EBB_SCRIPT_NO_PLACE: none. *placement_bytes: the size of the static placement. */
uint64_t ebb__follow_place(const struct ebb_cuda_follow *follow, uint64_t bytes,
                           uint64_t *placement_bytes);
/* Counters for the summary: laps, mismatches, resyncs. */
struct cuda_follow_counts {
    uint64_t laps, mismatches, resyncs;
};
struct cuda_follow_counts ebb__follow_counts(const struct ebb_cuda_follow *follow);

#endif
