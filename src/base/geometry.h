/* Memory sizes that several parts must agree on, each under one name. They are facts of the machine
 * or of the block layout. Numbers to tune are in tuning.def; limits of file formats are with the
 * formats. */
#ifndef EBB_BASE_GEOMETRY_H
#define EBB_BASE_GEOMETRY_H

#include <stddef.h>
#include <stdint.h>

/* A page of the processor. Accesses, page faults and the budget are counted in pages. */
#define EBB_PAGE_BYTES ((uint64_t)4096)

/* A huge page, and so the *unit* of several things: of the arena, of staging frames, of planned
 * addresses. Also of the parts of a large block (in traces and scripts, too), and of compression in
 * the store. */
#define EBB_HUGE_BYTES ((uint64_t)2 << 20)

/* Blocks of this size and more are managed individually, unless --threshold says otherwise. The
 * libraries below map such blocks instead of allocating them from a heap. */
#define EBB_THRESHOLD_BYTES ((uint64_t)128 << 10)

/* Sizes of small objects. Below them, the next allocator's thread caches are better; above them,
 * slabs waste more. */
#define EBB_SMALL_LEAST_BYTES ((size_t)256)
#define EBB_SMALL_MOST_BYTES ((size_t)16 << 10)

/* The unit in which memory of small objects is allocated and evicted. Of loaded but unused
 * framework data, units of 64 KiB cover 90 %, units of 256 KiB 70 % (docs/performance.md, "What is
 * managed"). */
#define EBB_SLAB_BYTES ((uint64_t)64 << 10)

_Static_assert(EBB_HUGE_BYTES % EBB_SLAB_BYTES == 0 && EBB_SLAB_BYTES % EBB_PAGE_BYTES == 0,
               "each lies in the next larger one");

#endif
