/* Asks for libcuda.so.1 as programs do (or for argv[1]), and calls functions that it only forwards.
 * Prints where the library is, and each result twice: of the call that looks the function up, and
 * of the next one. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOK_UP(library, name)                                                                     \
    do {                                                                                           \
        void *address = dlsym(library, #name);                                                     \
        memcpy(&name, &address, sizeof address);                                                   \
        if (!address)                                                                              \
            return 3;                                                                              \
    } while (0)

int main(int argc, char **argv)
{
    void *library = dlopen(argc > 1 ? argv[1] : "libcuda.so.1", RTLD_LAZY);
    int (*cuInit)(unsigned), (*cuParamSetf)(void *, int, float), (*cuDriverGetVersion)(int *);
    int (*cuTensorMapEncodeTiled)(long, long, long, long, long, long, long, long, long, long, long,
                                  long);
    int (*cuMemAlloc_v2)(unsigned long long *, size_t);
    Dl_info where;
    if (!library)
        return 2;
    LOOK_UP(library, cuInit);
    LOOK_UP(library, cuParamSetf);
    LOOK_UP(library, cuTensorMapEncodeTiled);
    LOOK_UP(library, cuDriverGetVersion);
    LOOK_UP(library, cuMemAlloc_v2);
    dladdr(*(void **)(void *)&cuInit, &where);
    printf("%s\n", strrchr(where.dli_fname, '/') + 1);
    for (int i = 0; i < 2; i++) {
        int version = 0;
        unsigned long long address;
        int result = cuDriverGetVersion(&version);
        printf("init %d version %d %d vector %d many %d alloc %d\n", cuInit(0), result, version,
               cuParamSetf((void *)1000, 100, 23.0f),
               cuTensorMapEncodeTiled(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12),
               cuMemAlloc_v2(&address, 0));
    }
    fflush(stdout);
    if (fork() == 0) {
        printf("child: init %d alloc %d\n", cuInit(0), cuMemAlloc_v2(NULL, 0));
        fflush(stdout);
        _exit(0);
    }
    wait(NULL);
    return 0;
}
