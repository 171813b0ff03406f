/* How programs find the functions: cuGetProcAddress, the export tables, and the names of errors. */
#include "fake.h"

static const struct {
    const char *base, *symbol;
    int version;
} versions[] = {
#define FAKE_VERSION(base, symbol, version) {#base, #symbol, version},
#include "versions.def"
#undef FAKE_VERSION
};

enum { VERSION_COUNT = sizeof(versions) / sizeof(versions[0]), PER_THREAD_SINCE = 7000 };

static void *symbol_named(const char *name, const char *suffix)
{
    char whole[128];
    snprintf(whole, sizeof(whole), "%s%s", name, suffix);
    size_t low = 0, high = fake_symbol_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = strcmp(fake_symbols[middle].name, whole);
        if (order == 0)
            return fake_symbols[middle].address;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

#define NEWER_SINCE 13000 /* programs that ask for an older version get the known variant */

/* A variant that the list of exported names lacks, as a newer driver may have. */
static CUresult newer_launch(CUfunction function, unsigned gx, unsigned gy, unsigned gz,
                             unsigned bx, unsigned by, unsigned bz, unsigned shared,
                             CUstream stream, void **parameters, void **extra)
{
    return cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra);
}

static void *find(const char *name, int version, bool per_thread, bool *too_old)
{
    const char *best = NULL;
    int since = -1;
    for (int i = 0; i < VERSION_COUNT; i++) {
        if (strcmp(versions[i].base, name))
            continue;
        *too_old = true;
        if (versions[i].version <= version && versions[i].version > since) {
            since = versions[i].version;
            best = versions[i].symbol;
        }
    }
    if (!best)
        return NULL;
    if (fake_set.newer_variant && version >= NEWER_SINCE && !strcmp(name, "cuLaunchKernel"))
        return (void *)newer_launch;
    void *found = NULL;
    if (per_thread && version >= PER_THREAD_SINCE) {
        found = symbol_named(best, "_ptsz");
        found = found ? found : symbol_named(best, "_ptds");
    }
    return found ? found : symbol_named(best, "");
}

static CUresult get(const char *name, void **to, int version, cuuint64_t flags,
                    CUdriverProcAddressQueryResult *status)
{
    if (!name || !to || version > fake_set.driver_version ||
        flags & ~(cuuint64_t)(CU_GET_PROC_ADDRESS_LEGACY_STREAM |
                              CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM))
        DONE(CUDA_ERROR_INVALID_VALUE);
    bool too_old = false;
    *to = find(name, version, flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &too_old);
    if (status)
        *status = *to       ? CU_GET_PROC_ADDRESS_SUCCESS
                  : too_old ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                            : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return CUDA_SUCCESS;
}

API cuGetProcAddress(const char *name, void **to, int version, cuuint64_t flags)
{
    return get(name, to, version, flags, NULL);
}

API cuGetProcAddress_v2(const char *name, void **to, int version, cuuint64_t flags,
                        CUdriverProcAddressQueryResult *status)
{
    return get(name, to, version, flags, status);
}

/* The real tables are private. This one has the form of theirs: its size in bytes, then entries. */
static const void *export_table[8] = {(const void *)sizeof(export_table)};

API cuGetExportTable(const void **table, const CUuuid *id)
{
    if (!table || !id)
        DONE(CUDA_ERROR_INVALID_VALUE);
    *table = export_table;
    return CUDA_SUCCESS;
}

const char *fake_error_name(CUresult code)
{
    static const struct {
        const char *name;
        int value;
    } results[] = {
#define EBB_CUDA_RESULT(name, value) {#name, value},
#include "cuda/results.def"
#undef EBB_CUDA_RESULT
    };
    for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++)
        if (results[i].value == (int)code)
            return results[i].name;
    return NULL;
}

API cuGetErrorName(CUresult code, const char **name)
{
    if (!name)
        return CUDA_ERROR_INVALID_VALUE;
    *name = fake_error_name(code);
    return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API cuGetErrorString(CUresult code, const char **text)
{
    return cuGetErrorName(code, text);
}

API cuProfilerStart(void);
API cuProfilerStop(void);

API cuProfilerStart(void)
{
    DONE(fake_ready());
}

API cuProfilerStop(void)
{
    DONE(fake_ready());
}

CUresult fake_missing(const char *name)
{
    fake_count(COUNT_MISSING, 1);
    fprintf(stderr, "fakecuda: %s is not implemented\n", name);
    return fake_result(CUDA_ERROR_NOT_SUPPORTED);
}
