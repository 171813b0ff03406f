/* Storage of the engine: from the system, never from the heap of the program. */
#ifndef EBB_CUDA_MEMORY_H
#define EBB_CUDA_MEMORY_H

#include <stddef.h>
#include <sys/mman.h>

/* `bytes` of zeros. Pages are taken when they are touched. NULL: exhausted. */
static inline void *ebb__cuda_reserve(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static inline void ebb__cuda_unreserve(void *memory, size_t bytes)
{
    if (memory)
        munmap(memory, bytes);
}

#endif
