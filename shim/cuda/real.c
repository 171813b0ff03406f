/* The real driver's functions: those that hooks need, in a table; all others by trampolines, which
 * look theirs up when they are first called (trampolines.S). */
#include "door.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ebb_real ebb__real;

static _Atomic(void *) driver; /* the real one's handle, never closed */

/* The results of functions that cannot be called. */
static CUresult not_yet(void)
{
    return CUDA_ERROR_NOT_INITIALIZED;
}

static CUresult lacking(void)
{
    return CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER;
}

static CUresult no_driver(void)
{
    return CUDA_ERROR_NO_DEVICE;
}

static void *address_of(CUresult (*function)(void))
{
    void *address;
    memcpy(&address, &function, sizeof address);
    return address;
}

static const struct {
    const char *symbol;
    size_t offset;
} rows[] = {
#define EBB_HOOK(symbol, base, version, stream, body, parameters, arguments)                       \
    {#symbol, offsetof(struct ebb_real, symbol)},
#define EBB_HOOK_PLAIN(symbol, base, version, stream, body)                                        \
    {#symbol, offsetof(struct ebb_real, symbol)},
#define EBB_USED(symbol) {#symbol, offsetof(struct ebb_real, symbol)},
#define EBB_PASS(symbol, base, version, stream)
#define EBB_ALSO(symbol, base, version)
#include "hooks.def"
};
#define ROWS (sizeof rows / sizeof rows[0])

/* Threads that open the driver at the same time write equal values. */
static void set_row(size_t row, void *function)
{
    _Atomic(void *) *slot = (_Atomic(void *) *)(void *)((char *)&ebb__real + rows[row].offset);
    atomic_store_explicit(slot, function, memory_order_relaxed);
}

/* The constructor of another library may have called the driver already. */
__attribute__((constructor(101))) static void begin(void)
{
    bool is_filled = ebb__real.cuGetProcAddress != NULL;
    for (size_t i = 0; !is_filled && i < ROWS; i++)
        set_row(i, address_of(not_yet));
}

void *ebb__real_find(const char *symbol)
{
    void *handle = atomic_load(&driver);
    return handle ? dlsym(handle, symbol) : NULL;
}

bool ebb__real_has(const void *function)
{
    return function != address_of(lacking) && function != address_of(not_yet) &&
           function != address_of(no_driver);
}

/* ---- what the real library has and this one lacks, and the reverse --------------------------- */

static bool is_known(const char *name)
{
    for (const char *const *known = ebb__door_names; *known; known++)
        if (strcmp(*known, name) == 0)
            return true;
    return false;
}

/* The number of symbols in a table that has a GNU hash: one more than the last of a chain. */
static uint32_t count_symbols(const uint32_t *hash)
{
    uint32_t bucket_count = hash[0], first = hash[1], filter_words = hash[2], last = 0;
    const uint32_t *buckets = hash + 4 + filter_words * (sizeof(ElfW(Addr)) / 4);
    const uint32_t *chains = buckets + bucket_count;
    for (uint32_t i = 0; i < bucket_count; i++)
        last = buckets[i] > last ? buckets[i] : last;
    if (last < first)
        return first;
    while (!(chains[last - first] & 1))
        last++;
    return last + 1;
}

/* Counts the driver's exported names that programs cannot find here. Writes some of them. */
static unsigned count_unknown(void *handle, char *some, size_t bytes)
{
    struct link_map *map;
    const ElfW(Sym) *symbols = NULL;
    const char *strings = NULL;
    const uint32_t *hash = NULL;
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0)
        return 0;
    for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
        const void *at =
            (const void *)(uintptr_t)entry->d_un.d_ptr; /* the loader has relocated it */
        if (entry->d_tag == DT_SYMTAB)
            symbols = at;
        else if (entry->d_tag == DT_STRTAB)
            strings = at;
        else if (entry->d_tag == DT_GNU_HASH)
            hash = at;
    }
    unsigned unknown = 0;
    size_t used = 0;
    uint32_t count = symbols && strings && hash ? count_symbols(hash) : 0;
    for (uint32_t i = 0; i < count; i++) {
        const char *name = strings + symbols[i].st_name;
        if (symbols[i].st_shndx == SHN_UNDEF || ELF64_ST_TYPE(symbols[i].st_info) != STT_FUNC ||
            strncmp(name, "cu", 2) != 0 || is_known(name))
            continue;
        int wrote = unknown++ < 4 ? snprintf(some + used, bytes - used, " %s", name) : 0;
        used += wrote > 0 && (size_t)wrote < bytes - used ? (size_t)wrote : 0;
    }
    return unknown;
}

static void compare(void *handle)
{
    char some[400] = "";
    unsigned lacks = 0, unknown = count_unknown(handle, some, sizeof some);
    for (const char *const *name = ebb__door_names; *name; name++)
        lacks += dlsym(handle, *name) == NULL;
    if (lacks || unknown)
        fprintf(stderr, "ebb: debug: the driver lacks %u names of CUDA 13.0, and has %u more%s%s\n",
                lacks, unknown, unknown ? ":" : "", some);
}

/* ---------------------------------------------------------------------------------------------- */

bool ebb__real_open(void)
{
    void *handle = ebb__driver_open(), *before = NULL;
    if (handle && atomic_compare_exchange_strong(&driver, &before, handle) &&
        getenv("EBB_CUDA_DEBUG"))
        compare(handle);
    for (size_t i = 0; i < ROWS; i++) {
        void *function = handle ? dlsym(handle, rows[i].symbol) : address_of(no_driver);
        set_row(i, function ? function : address_of(lacking));
    }
    return handle != NULL;
}

void *ebb__real_or_refusal(const char *symbol)
{
    void *handle = atomic_load(&driver), *function = handle ? dlsym(handle, symbol) : NULL;
    return function ? function : address_of(handle ? lacking : no_driver);
}
