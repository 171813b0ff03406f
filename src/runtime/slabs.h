/* Small blocks: too small to be moved one by one, yet part of what the budget covers.
 *
 * A slab allocator. A slab, which the runtime gives, holds objects of one size class. What is known
 * of it lies outside of it, so that neither an allocation nor a free touches the objects' memory.
 * Small blocks are not traced and are no events; they count, and a slab that nobody uses is evicted
 * (reclaim/slabs.c).
 *
 * Size classes are multiples of 64 bytes, at most 12.5 % apart from 1 KiB on (source: the spacing
 * of jemalloc's classes, halved), so every object is aligned for vector code. Thread-safe: one lock
 * a class, one for the chunks. */
#ifndef EBB_RUNTIME_SLABS_H
#define EBB_RUNTIME_SLABS_H

#include "base/geometry.h"
#include "runtime/runtime.h"

struct ebb_slabs;

/* EBB_ERR_MEMORY where address space is lacking. One for an runtime, for the life of the process. */
EBB_NODISCARD enum ebb_status ebb__slabs_create(struct ebb_runtime *runtime,
                                                struct ebb_slabs **slabs);
/* For tests, the runtime goes next: everything goes, whether in use or not. */
void ebb__slabs_destroy(struct ebb_slabs *slabs);

/* `bytes` in [LEAST, MOST], aligned to at least 64 and to `alignment` (a power of two). NULL where
 * the sizes do not suit or memory is out. */
void *ebb__slabs_alloc(struct ebb_slabs *slabs, size_t bytes, size_t alignment);
/* Likewise, without the runtime: NULL also where it would have to be asked for a slab. */
void *ebb__slabs_alloc_there(struct ebb_slabs *slabs, size_t bytes, size_t alignment);
/* No lock. */
bool ebb__slabs_own(const struct ebb_slabs *slabs, const void *pointer);
/* False where no object in use starts there. */
bool ebb__slabs_free(struct ebb_slabs *slabs, void *pointer);
/* Likewise, without the runtime. *slab: to be given back to it by ebb__runtime_give_slab(); 0: none. */
bool ebb__slabs_free_there(struct ebb_slabs *slabs, void *pointer, uintptr_t *slab);
/* Bytes that may be used at `pointer`, at least those asked for; 0 where no object starts there. */
size_t ebb__slabs_usable_bytes(struct ebb_slabs *slabs, const void *pointer);

/* Around fork(): before the runtime's own preparation, and in the parent after the runtime. In the child
 * before the runtime starts threads; returns the bytes in use, which the child's counters do not know
 * yet. */
void ebb__slabs_before_fork(struct ebb_slabs *slabs);
void ebb__slabs_after_fork_parent(struct ebb_slabs *slabs);
uint64_t ebb__slabs_after_fork_child(struct ebb_slabs *slabs);

#endif
