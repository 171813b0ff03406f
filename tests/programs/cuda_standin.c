/* A stand-in for libcuda.so.1 that only resolves names, for the resolution test. It has all names,
 * and versions.def says which variant a request means. It knows nothing of hooks.
 *
 * STANDIN_LOG: a file with a line for each request: base, version, flags, symbol (or `-`).
 * STANDIN_OTHER: cuGetProcAddress gives other pointers than dlsym. STANDIN_NEWER=base: the name has
 * a newer variant. STANDIN_VERSION: of the driver; newer variants are then missing. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *base, *symbol;
    int version;
} rows[] = {
#define FAKE_VERSION(base, symbol, version) {#base, #symbol, version},
#include "../fakecuda/versions.def"
};

static int driver_version(void)
{
    const char *text = getenv("STANDIN_VERSION");
    return text ? atoi(text) : 13000;
}

static void newer_variant(void)
{
}

/* The address of the variant for the per-thread default stream, if there is one. */
static void *look_up(const char *symbol, int per_thread, char *name, size_t bytes)
{
    static const char *const endings[] = {"_ptsz", "_ptds", ""};
    for (int i = per_thread ? 0 : 2; i < 3; i++) {
        char wanted[200];
        snprintf(name, bytes, "%s%s", symbol, endings[i]);
        snprintf(wanted, sizeof wanted, "%s%s", getenv("STANDIN_OTHER") ? "other_" : "", name);
        void *self = dlopen(getenv("EBB_CUDA_DRIVER"), RTLD_LAZY | RTLD_NOLOAD);
        void *address = self ? dlsym(self, wanted) : NULL;
        if (address)
            return address;
    }
    return NULL;
}

int cuGetProcAddress_v2(const char *base, void **function, int version, unsigned long long flags,
                        int *status)
{
    const char *newer = getenv("STANDIN_NEWER"), *symbol = NULL;
    char name[200] = "-";
    int best = -1;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].base, base) == 0 && rows[i].version <= version &&
            rows[i].version <= driver_version() && rows[i].version > best) {
            best = rows[i].version;
            symbol = rows[i].symbol;
        }
    *function = symbol ? look_up(symbol, flags & 2, name, sizeof name) : NULL;
    if (newer && strcmp(newer, base) == 0 && version >= driver_version()) {
        *function = (void *)newer_variant;
        strcpy(name, "newer");
    }
    if (status)
        *status = *function ? 0 : 1;
    if (getenv("STANDIN_LOG")) {
        FILE *log = fopen(getenv("STANDIN_LOG"), "a");
        fprintf(log, "%s %d %llu %s\n", *base ? base : "empty", version, flags,
                *function ? name : "-");
        fclose(log);
    }
    return *function ? 0 : 500;
}

int cuGetProcAddress(const char *base, void **function, int version, unsigned long long flags)
{
    return cuGetProcAddress_v2(base, function, version, flags, NULL);
}

int cuDriverGetVersion(int *version)
{
    *version = driver_version();
    return 0;
}

int cuGetExportTable(const void **table, const void *id)
{
    (void)id;
    *table = NULL;
    return 500;
}

/* STANDIN_DEVICES: how many. STANDIN_PLAIN: without concurrent managed access. */
int cuDeviceGetCount(int *count)
{
    const char *text = getenv("STANDIN_DEVICES");
    *count = text ? atoi(text) : 1;
    return 0;
}

int cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return 0;
}

int cuDeviceGetName(char *name, int bytes, int device)
{
    snprintf(name, (size_t)bytes, "Stand-in %d", device);
    return 0;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    *bytes = (size_t)(device == 0 ? 8 : 24) << 30;
    return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    (void)attribute, (void)device;
    *value = getenv("STANDIN_PLAIN") == NULL;
    return 0;
}

/* One context, on device 0, and memory of the host. */
int cuCtxGetCurrent(void **context)
{
    *context = &driver_version;
    return 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
    (void)device;
    return cuCtxGetCurrent(context);
}

int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
    (void)device;
    *flags = 0;
    *active = 1;
    return 0;
}

int cuCtxGetDevice(int *device)
{
    *device = 0;
    return 0;
}

int cuMemAllocManaged(unsigned long long *address, size_t bytes, unsigned flags)
{
    (void)flags;
    *address = (unsigned long long)(size_t)calloc(1, bytes);
    return 0;
}

/* It calls two exported functions, as a driver may: the loader binds them to the preloaded library.
 * Returns how many of them succeeded. */
int cuMemsetD8_v2(unsigned long long, unsigned char, size_t);
int cuMemcpyAsync(unsigned long long, unsigned long long, size_t, void *);
int cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t bytes)
{
    (void)to;
    return (cuMemsetD8_v2(from, 0, bytes) == 0) + (cuMemcpyAsync(from, from, bytes, NULL) == 0);
}

/* A graph is an array of nodes that the program makes, after its length. The parameters of a node
 * are those of the driver's structs. */
struct node {
    int type; /* 1: copy, 2: memset, 4: graph */
    size_t bytes;
    const void *parameters;
};

struct graph {
    size_t count;
    const struct node *nodes;
};

int cuGraphGetNodes(const struct graph *graph, const struct node **nodes, size_t *count)
{
    for (size_t i = 0; nodes && i < graph->count; i++)
        nodes[i] = &graph->nodes[i];
    *count = graph->count;
    return 0;
}

int cuGraphNodeGetType(const struct node *node, int *type)
{
    *type = node->type;
    return 0;
}

int cuGraphMemcpyNodeGetParams(const struct node *node, void *parameters)
{
    memcpy(parameters, node->parameters, node->bytes);
    return 0;
}

int cuGraphMemsetNodeGetParams(const struct node *node, void *parameters)
{
    return cuGraphMemcpyNodeGetParams(node, parameters);
}

int cuGraphChildGraphNodeGetGraph(const struct node *node, const void **graph)
{
    *graph = node->parameters;
    return 0;
}

int cuGraphInstantiateWithFlags(const void **exec, const void *graph, unsigned long long flags)
{
    (void)flags;
    *exec = graph;
    return 0;
}

/* All arguments that a function of the driver can have: in registers, on the stack, in a vector. */
int cuTensorMapEncodeTiled(long a, long b, long c, long d, long e, long f, long g, long h, long i,
                           long j, long k, long l)
{
    return (int)(a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + 9 * i + 10 * j +
                 11 * k + 12 * l);
}

int cuParamSetf(void *function, int offset, float value)
{
    return (int)(size_t)function + offset + (int)value;
}
