/* Calls over cuda_standin.c. argv[1]: depth: one function that calls others, inside of the driver;
 * newer: a variant that is unknown comes up after an allocation; second: the door for PyTorch. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>

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

int main(int argc, char **argv)
{
    if (argc != 2 || !named("cuInit"))
        return 2;
    return strcmp(argv[1], "depth") == 0   ? depth()
           : strcmp(argv[1], "newer") == 0 ? newer()
                                           : second();
}
