/* Marks of a program that tells where it is: the library of the C API finds this function by its
 * name (src/api/mark.c). */
#include "guard.h"
#include "shim.h"

__attribute__((visibility("default"))) void ebb_malloc_mark(unsigned mark, uint64_t value);
/* That of the library for devices, if it is preloaded as well. */
extern void ebb_cuda_mark(unsigned mark, uint64_t value)
    __attribute__((weak, visibility("default")));

void ebb_malloc_mark(unsigned mark, uint64_t value)
{
    struct ebb_runtime *runtime = ebb__shim_runtime_now();
    bool is_one = mark == EBB_MARK_ITERATION || mark == EBB_MARK_LAYER || mark == EBB_MARK_PHASE;
    if (ebb_cuda_mark)
        ebb_cuda_mark(mark, value);
    if (!runtime || !is_one || ebb__guard_is_entered())
        return;
    struct ebb_guard guard;
    ebb__guard_enter(&guard);
    ebb__runtime_mark(runtime, (enum ebb_mark)mark, value);
    ebb__guard_leave(&guard);
}
