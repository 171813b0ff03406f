/* Calls over cuda_standin.c, by argv[1]:
 *
 *     depth   one function that calls others, inside of the driver
 *     newer   an unknown variant comes up after an allocation
 *     second  the door for PyTorch
 *     graph   nodes of graphs */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>

#include "cuda/abi.h"

typedef unsigned long long address_t;

static void *named(const char *name)
{
    static void *library;
    if (!library)
        library = dlopen("libcuda.so.1", RTLD_NOW);
    return library ? dlsym(library, name) : NULL;
}

static int depth(void)
{
    int (*copy)(void *, address_t, size_t) = named("cuMemcpyDtoH_v2");
    int (*alloc)(address_t *, size_t) = named("cuMemAlloc_v2");
    address_t address;
    char host[100];
    if (alloc(&address, 4096) != 0)
        return 3;
    printf("inner %d\n", copy(host, address, 100));
    return 0;
}

static int newer(void)
{
    int (*alloc)(address_t *, size_t) = named("cuMemAlloc_v2"),
                              (*release)(address_t) = named("cuMemFree_v2");
    int (*find)(const char *, void **, int, unsigned long long, int *) =
        named("cuGetProcAddress_v2");
    address_t first, second = 1;
    void *launch;
    int status;
    if (alloc(&first, 4096) != 0 || find("cuLaunchKernel", &launch, 13000, 1, &status) != 0 ||
        alloc(&second, 5000) != 0)
        return 3;
    printf("native %llu\n", second); /* the stand-in writes nothing */
    return release(first);
}

static int second(void)
{
    void *(*allocate)(ssize_t, int, void *) = named("ebb_malloc");
    void (*release)(void *, ssize_t, int, void *) = named("ebb_free");
    void *first = allocate(1000, 0, NULL), *other = allocate(2000, 0, (void *)2);
    if (allocate(0, 0, NULL) || allocate((ssize_t)1 << 60, 0, NULL))
        return 3;
    release(first, 1000, 0, NULL);
    release(other, 2000, 0, (void *)2);
    release(NULL, 0, 0, NULL);
    return 0;
}

/* As in cuda_standin.c. */
struct node {
    int type;
    size_t bytes;
    const void *parameters;
};

struct graph {
    size_t count;
    const struct node *nodes;
};

static CUDA_MEMCPY3D line(address_t to, address_t from, size_t bytes)
{
    return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = from,
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstDevice = to,
                           .WidthInBytes = bytes,
                           .Height = 1,
                           .Depth = 1};
}

static int graph(void)
{
    int (*alloc)(address_t *, size_t) = named("cuMemAlloc_v2");
    __typeof__(cuGraphInstantiateWithFlags) *instantiate = named("cuGraphInstantiateWithFlags");
    __typeof__(cuGraphLaunch) *launch = named("cuGraphLaunch");
    __typeof__(cuGraphExecMemcpyNodeSetParams) *set_copy = named("cuGraphExecMemcpyNodeSetParams");
    __typeof__(cuGraphExecMemsetNodeSetParams) *set_set = named("cuGraphExecMemsetNodeSetParams");
    __typeof__(cuGraphExecNodeSetParams) *set_node = named("cuGraphExecNodeSetParams");
    address_t blocks[4];
    for (int i = 0; i < 4; i++)
        if (alloc(&blocks[i], 4096) != 0)
            return 3;
    CUDA_MEMSET_NODE_PARAMS fill = {blocks[0], 256, 0, 4, 10, 2};
    const CUDA_MEMCPY3D copy = line(blocks[0] + 100, blocks[1] + 7, 50);
    const struct node inner = {1, sizeof copy, &copy};
    const struct graph child = {1, &inner};
    const struct node nodes[] = {{2, sizeof fill, &fill}, {4, 0, &child}};
    const struct graph whole = {2, nodes};
    CUgraphExec exec;
    if (instantiate(&exec, (CUgraph)(size_t)&whole, 0) != 0 || launch(exec, NULL) != 0)
        return 3;
    const CUDA_MEMCPY3D other = line(blocks[2] + 100, blocks[2] + 1, 20);
    CUgraphNodeParams any = {.type = CU_GRAPH_NODE_TYPE_MEMSET,
                             .memset = {blocks[1], 0, 0, 1, 10, 1, NULL}};
    fill.dst = blocks[3];
    return set_copy(exec, NULL, &other, NULL) || set_set(exec, NULL, &fill, NULL) ||
           set_node(exec, NULL, &any) || launch(exec, NULL);
}

int main(int argc, char **argv)
{
    if (argc != 2 || !named("cuInit"))
        return 2;
    static const struct {
        const char *name;
        int (*function)(void);
    } groups[] = {{"depth", depth}, {"newer", newer}, {"second", second}, {"graph", graph}};
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++)
        if (strcmp(argv[1], groups[i].name) == 0)
            return groups[i].function();
    return 2;
}
