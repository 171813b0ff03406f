/* Marks of a program under `ebb run`. The preloaded library takes them. */
#include "ebb/mark.h"

#include "trace/event.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

typedef void (*take_mark)(unsigned mark, uint64_t value);

/* The function of the preloaded library. NULL: there is none. */
static take_mark taker(void)
{
    static take_mark found;
    static _Atomic int looked;
    if (!looked) {
        union {
            void *object;
            take_mark function;
        } symbol = {dlsym(RTLD_DEFAULT, "ebb_malloc_mark")};
        found = symbol.function;
        looked = 1;
    }
    return found;
}

static void mark(enum ebb_mark kind, uint64_t value)
{
    take_mark take = taker();
    if (take)
        take((unsigned)kind, value);
}

bool ebb_mark_is_heard(void)
{
    return taker() != NULL;
}

void ebb_mark_iteration(void)
{
    mark(EBB_MARK_ITERATION, 0);
}

void ebb_mark_phase(enum ebb_phase phase)
{
    if (phase >= EBB_PHASE_FORWARD && phase < EBB_PHASE_COUNT)
        mark(EBB_MARK_PHASE, (uint64_t)phase);
}

void ebb_mark_layer(uint32_t layer)
{
    mark(EBB_MARK_LAYER, layer);
}
