/* What the driver says of itself, and whether its two ways to find a function agree. */
#include "micro.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

void m_info(void)
{
    char name[96] = "", list[6000] = "";
    int version = 0;
    size_t left = 0, total = 0, at = 0;
    T(cu.cuDeviceGetName(name, sizeof name, 0));
    T(cu.cuDriverGetVersion(&version));
    T(cu.cuMemGetInfo_v2(&left, &total));
    emit("\"gpu\": \"%s\", \"version\": %d, \"free_mib\": %zu, \"total_mib\": %zu", name, version,
         left >> 20, total >> 20);
    for (int i = 1; i < 160 && at < sizeof list - 32; i++) {
        int value = 0;
        if (cu.cuDeviceGetAttribute(&value, (CUdevice_attribute)i, 0) == CUDA_SUCCESS)
            at += (size_t)snprintf(list + at, sizeof list - at, "%s\"%d\": %d", at ? ", " : "", i,
                                   value);
    }
    emit("\"attributes\": {%s}", list);
#define MISSING(function)                                                                          \
    if (!cu.function)                                                                              \
        emit("\"missing\": \"%s\"", #function);
    MICRO_OPTIONAL(MISSING)
}

static const char *const names[] = {
#define EBB_CUDA_CALL(name, parameters) #name,
#include "cuda/calls.def"
};
#define NAMES (sizeof names / sizeof *names)

/* The name without _ptsz, _ptds and the version. */
static void base_name(const char *name, char *base, size_t size)
{
    snprintf(base, size, "%s", name);
    size_t length = strlen(base);
    if (length > 5 &&
        (strcmp(base + length - 5, "_ptsz") == 0 || strcmp(base + length - 5, "_ptds") == 0))
        base[length -= 5] = 0;
    if (length > 3 && base[length - 3] == '_' && base[length - 2] == 'v')
        base[length - 3] = 0;
}

/* Which export has this address? */
static const char *export_of(void *pointer)
{
    for (size_t i = 0; i < NAMES; i++)
        if (dlsym(cu.library, names[i]) == pointer)
            return names[i];
    return NULL;
}

void m_pointers(void)
{
    if (!cu.cuGetProcAddress_v2)
        return;
    char last[128] = "", base[128], unknown[2][3000] = {"", ""};
    size_t at[2] = {0, 0};
    int count[2] = {0, 0}, found[2] = {0, 0}, same[2] = {0, 0};
    for (size_t i = 0; i < NAMES; i++) {
        base_name(names[i], base, sizeof base);
        if (strcmp(base, last) == 0)
            continue;
        strcpy(last, base);
        for (int way = 0; way < 2; way++) { /* 1: with the flag of per-thread default streams */
            void *p = NULL;
            CUdriverProcAddressQueryResult status;
            CUresult r = cu.cuGetProcAddress_v2(base, &p, 13000, way ? 2 : 0, &status);
            count[way]++;
            if (r != CUDA_SUCCESS || !p)
                continue;
            found[way]++;
            if (export_of(p))
                same[way]++;
            else if (at[way] < sizeof unknown[0] - 64)
                at[way] += (size_t)snprintf(unknown[way] + at[way], 64, "%s ", base);
        }
    }
    for (int way = 0; way < 2; way++)
        emit("\"flags\": %d, \"names\": %d, \"found\": %d, \"same_as_an_export\": %d, "
             "\"others\": \"%s\"",
             way ? 2 : 0, count[way], found[way], same[way], unknown[way]);
    void *p = cu.library;
    CUdriverProcAddressQueryResult status;
    CUresult r = cu.cuGetProcAddress_v2("", &p, 0, 0, &status);
    emit("\"empty_name\": \"%s\", \"pointer_is_null\": %d", error_text(r), p == NULL);
}
