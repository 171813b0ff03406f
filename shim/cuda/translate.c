/* cuGetProcAddress: the real one answers, and then its pointer is translated to our hook. So the
 * version, the flags and the status are right by construction.
 *
 * The driver may give other pointers here than to dlsym. So each variant of a hooked name has two:
 * the symbol's address, and what cuGetProcAddress gives for its name and version. The second is
 * asked if the first does not match. A pointer that is neither is a variant that this library does
 * not know: then the door gives up, since work would pass it unseen. */
#include "door.h"

#include <stdio.h>
#include <string.h>

enum { NONE, LEGACY, THREAD };

struct variant {
    const char *symbol, *base;
    int version, stream;
    void *hook; /* NULL: not hooked, the pointer stays as it is */
};

#define EBB_HOOK(symbol, base, version, stream, body, parameters, arguments)                       \
    {#symbol, #base, version, stream, (void *)&symbol},
#define EBB_HOOK_PLAIN(symbol, base, version, stream, body)                                        \
    {#symbol, #base, version, stream, (void *)&symbol},
#define EBB_ALSO(symbol, base, version) {#symbol, #base, version, NONE, (void *)&symbol},
#define EBB_PASS(symbol, base, version, stream) {#symbol, #base, version, stream, NULL},
#define EBB_USED(symbol)
static const struct variant variants[] = {
#include "hooks.def"
};
#define VARIANTS (sizeof variants / sizeof variants[0])

/* What the driver gave for a variant's name and version. NULL: not asked. */
static _Atomic(void *) given[VARIANTS];

static bool is_symbol(size_t i, const void *pointer)
{
    return ebb__real_find(variants[i].symbol) == pointer;
}

static void *ask(size_t i)
{
    const struct variant *variant = &variants[i];
    cuuint64_t flags = variant->stream == THREAD ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
                                                 : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
    void *pointer = atomic_load(&given[i]);
    if (!pointer && ebb__real_find(variant->symbol) &&
        ebb__real.cuGetProcAddress_v2(variant->base, &pointer, variant->version, flags, NULL) ==
            CUDA_SUCCESS)
        atomic_store(&given[i], pointer);
    return pointer;
}

/* A driver that lacks a variant gives the one before it: the earliest version counts. */
static bool is_given(size_t i, const void *pointer)
{
    if (ask(i) != pointer)
        return false;
    for (size_t j = 0; j < VARIANTS; j++)
        if (j != i && strcmp(variants[j].base, variants[i].base) == 0 &&
            variants[j].stream == variants[i].stream && variants[j].version < variants[i].version &&
            ask(j) == pointer)
            return false;
    return true;
}

/* The variant that `pointer` is. Where two symbols share an address, the stream's meaning
 * decides. */
static const struct variant *find(const char *base, const void *pointer, bool per_thread,
                                  bool (*is)(size_t i, const void *pointer), bool *is_hooked)
{
    const struct variant *found = NULL;
    for (size_t i = 0; i < VARIANTS; i++) {
        if (strcmp(variants[i].base, base) != 0)
            continue;
        *is_hooked = true;
        if (is(i, pointer) && (!found || (variants[i].stream == THREAD) == per_thread))
            found = &variants[i];
    }
    return found;
}

static void *translate(const char *base, cuuint64_t flags, void *pointer)
{
    bool per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, is_hooked = false;
    const struct variant *found = find(base, pointer, per_thread, is_symbol, &is_hooked);
    if (!found && is_hooked)
        found = find(base, pointer, per_thread, is_given, &is_hooked);
    if (found)
        return found->hook ? found->hook : pointer;
    if (is_hooked) {
        char text[200];
        snprintf(text, sizeof text,
                 "the driver has a variant of %s that this version of Ebb does not "
                 "know: from here on nothing is evicted, and the budget is NOT enforced",
                 base);
        ebb__door_give_up(text);
    }
    return pointer;
}

CUresult ebb__door_old_proc_address(__typeof__(cuGetProcAddress) *next, CUstream stream,
                                    const char *a, void **b, int c, cuuint64_t d)
{
    (void)stream;
    CUresult result = next(a, b, c, d);
    if (result == CUDA_SUCCESS && a && b && *b)
        *b = translate(a, d, *b);
    return result;
}

CUresult ebb__door_proc_address(__typeof__(cuGetProcAddress_v2) *next, CUstream stream,
                                const char *a, void **b, int c, cuuint64_t d,
                                CUdriverProcAddressQueryResult *e)
{
    (void)stream;
    CUresult result = next(a, b, c, d, e);
    if (result == CUDA_SUCCESS && a && b && *b)
        *b = translate(a, d, *b);
    return result;
}
