/* Marks of a program that tells where it is: the library of the C API finds this function by its
 * name (src/api/mark.c). Each device of the process gets them. */
#include "door.h"
#include "engines.h"

__attribute__((visibility("default"))) void ebb_malloc_mark(unsigned mark, uint64_t value);
/* The library for host memory, if it is preloaded as well, is found first, and calls this. */
__attribute__((visibility("default"))) void ebb_cuda_mark(unsigned mark, uint64_t value);

void ebb_malloc_mark(unsigned mark, uint64_t value)
{
    ebb_cuda_mark(mark, value);
}

void ebb_cuda_mark(unsigned mark, uint64_t value)
{
    bool is_one = mark == EBB_MARK_ITERATION || mark == EBB_MARK_LAYER || mark == EBB_MARK_PHASE;
    if (!is_one || !ebb__door_enter())
        return;
    for (int i = 0; i < EBB_DOOR_DEVICES; i++) {
        struct ebb_cuda *engine = ebb__engines_at(i);
        if (engine)
            ebb__cuda_mark(engine, (enum ebb_mark)mark, value);
    }
    ebb__door_leave();
}
