/* Small blocks: too small to be moved one by one, but counted towards the budget.
 *
 * A slab allocator. The runtime provides slabs; each holds objects of one size class. Its metadata
 * lies outside the slab, so neither an allocation nor a free touches the objects' memory. Small
 * blocks are not traced and make no events. They count towards the budget, and unused slabs are
 * evicted (reclaim/slabs.c).
 *
 * Size classes are multiples of 64 bytes, at most 12.5 % apart from 1 KiB on (source: the spacing
 * of jemalloc's classes, halved). So every object is aligned for vector code. Thread-safe: there is
 * one lock per class, and one for the kept empty slabs. */
#ifndef EBB_RUNTIME_SLABS_H
#define EBB_RUNTIME_SLABS_H

#include "base/geometry.h"
#include "runtime/runtime.h"

struct ebb_slabs;

/* EBB_ERR_MEMORY if address space is exhausted. One per runtime, for the life of the process. */
EBB_NODISCARD enum ebb_status ebb__slabs_create(struct ebb_runtime *runtime,
                                                struct ebb_slabs **slabs);
/* For tests; the runtime must be destroyed next. Frees everything, even objects in use. */
void ebb__slabs_destroy(struct ebb_slabs *slabs);

/* `bytes` in [LEAST, MOST], aligned to at least 64 and to `alignment`, a power of two. NULL if the
 * sizes are not supported or memory is exhausted. */
void *ebb__slabs_alloc(struct ebb_slabs *slabs, size_t bytes, size_t alignment);
/* As ebb__slabs_alloc(), without calling the runtime. Returns NULL also if a new slab is needed. */
void *ebb__slabs_alloc_there(struct ebb_slabs *slabs, size_t bytes, size_t alignment);
/* Does `pointer` lie in a slab? No lock. */
bool ebb__slabs_own(const struct ebb_slabs *slabs, const void *pointer);
/* False if no object in use starts at `pointer`. */
bool ebb__slabs_free(struct ebb_slabs *slabs, void *pointer);
/* As ebb__slabs_free(), without calling the runtime. *slab: the caller must pass it to
 * ebb__runtime_give_slab(); 0: none. */
bool ebb__slabs_free_there(struct ebb_slabs *slabs, void *pointer, uintptr_t *slab);
/* Usable bytes at `pointer`, at least those requested. 0 if no object starts there. */
size_t ebb__slabs_usable_bytes(struct ebb_slabs *slabs, const void *pointer);

/* Around fork(): before the runtime's own preparation, and in the parent after the runtime's. In
 * the child, call it before the runtime starts threads. It returns the bytes in use, which the
 * child's counters do not include yet. */
void ebb__slabs_before_fork(struct ebb_slabs *slabs);
void ebb__slabs_after_fork_parent(struct ebb_slabs *slabs);
uint64_t ebb__slabs_after_fork_child(struct ebb_slabs *slabs);

#endif
