/* Sizes of memory that several parts must agree on: each has one name. They are facts of the machine or
 * of how blocks lie, not numbers to be tuned (tuning.def has those), and limits of file formats stay
 * with the formats. */
#ifndef EBB_BASE_GEOMETRY_H
#define EBB_BASE_GEOMETRY_H

#include <stddef.h>
#include <stdint.h>

/* A page of the processor: what accesses, faults and the budget count in. */
#define EBB_PAGE_BYTES ((uint64_t)4096)

/* A huge page, and so the *unit*: of the arena, of staging's frames, of the parts of a large block (in
 * traces and scripts, too), of planned addresses, and of what the store compresses at a time. */
#define EBB_HUGE_BYTES ((uint64_t)2 << 20)

/* Blocks from here on are managed one by one unless --threshold says otherwise: what the libraries below
 * map instead of cutting it from a heap. */
#define EBB_THRESHOLD_BYTES ((uint64_t)128 << 10)

/* Small objects. Below, the next allocator's thread caches are better; above, slabs waste more. */
#define EBB_SMALL_LEAST_BYTES ((size_t)256)
#define EBB_SMALL_MOST_BYTES ((size_t)16 << 10)

/* Memory of small objects: the unit in which it is had, and evicted. Of what a framework has loaded and
 * does not use, pieces of 64 KiB catch 90 %, of 256 KiB 70 % (docs/performance.md, "What is managed"). */
#define EBB_SLAB_BYTES ((uint64_t)64 << 10)

_Static_assert(EBB_HUGE_BYTES % EBB_SLAB_BYTES == 0 && EBB_SLAB_BYTES % EBB_PAGE_BYTES == 0,
               "each lies in the next larger one");

#endif
