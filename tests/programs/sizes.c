/* sizes: calls every function of the allocator with unusual sizes and alignments. Prints the result
 * of each call, so that two runs can be compared: whether there is memory, its alignment, and
 * errno. Other blocks must keep their bytes meanwhile. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEIGHBOURS 4
#define NEIGHBOUR_BYTES ((size_t)1 << 20)
#define MIB ((size_t)1 << 20)

static unsigned char *neighbours[NEIGHBOURS];
static volatile size_t opaque; /* 0: keeps the compiler from knowing a size */

static const size_t beyond[] = {
    SIZE_MAX,
    SIZE_MAX - 1,
    SIZE_MAX - 15,
    SIZE_MAX - 4094,
    SIZE_MAX - 4095, /* (size_t)-4096 */
    SIZE_MAX - 4096,
    SIZE_MAX - 2 * MIB + 2,
    SIZE_MAX - 2 * MIB + 1,
    SIZE_MAX - 2 * MIB,
    SIZE_MAX - ((size_t)1 << 40),
    (size_t)PTRDIFF_MAX + 1 + 2 * MIB,
    (size_t)PTRDIFF_MAX + 4096,
    (size_t)PTRDIFF_MAX + 2,
    (size_t)PTRDIFF_MAX + 1,
    PTRDIFF_MAX,
    (size_t)PTRDIFF_MAX - 1,
    (size_t)PTRDIFF_MAX - 4096,
    (size_t)PTRDIFF_MAX - 2 * MIB,
    (size_t)1 << 62,
};
static const size_t ordinary[] = {0, 1, 300, 9000, 131072, 200000, 3 * MIB + 1};
static const size_t alignments[] = {0,
                                    1,
                                    3,
                                    4,
                                    8,
                                    16,
                                    24,
                                    64,
                                    100,
                                    4096,
                                    5000,
                                    65536,
                                    2 * MIB,
                                    3 * MIB,
                                    4 * MIB,
                                    64 * MIB,
                                    (size_t)1 << 62,
                                    (size_t)1 << 63,
                                    SIZE_MAX};

static void say(const char *what, size_t size, size_t alignment, void *pointer, int why)
{
    size_t step = 1; /* the pointer's alignment, up to what was asked for */
    while (pointer && step < alignment && step < ((size_t)1 << 40))
        step *= 2;
    printf("%s %zx %zx: %s %s %d\n", what, size, alignment, pointer ? "memory" : "none",
           (uintptr_t)pointer % step ? "astray" : "aligned", why);
    if (pointer && size) {
        if (malloc_usable_size(pointer) < size)
            printf("too small\n");
        memset(pointer, 0xee, size);
    }
    errno = 77;
    free(pointer);
    if (errno != 77)
        printf("free has set errno to %d\n", errno);
}

#define TRY(what, size, alignment, call)                                                           \
    do {                                                                                           \
        errno = 5; /* a successful call does not change it */                                      \
        void *pointer_ = (call);                                                                   \
        say(what, size, alignment, pointer_, errno);                                               \
    } while (0)

static void *by_posix(size_t alignment, size_t size)
{
    void *pointer = (void *)8;
    int result = posix_memalign(&pointer, alignment, size);
    printf("posix_memalign %d%s\n", result,
           result && pointer != (void *)8 ? ", set all the same" : "");
    errno = result;
    return result ? NULL : pointer;
}

/* A block that cannot grow is not changed. */
static void try_realloc(const char *what, size_t had, size_t size, size_t count)
{
    unsigned char *block = malloc(had);
    memset(block, 0x5c, had);
    errno = 5;
    void *moved = count ? reallocarray(block, count, size) : realloc(block, size);
    printf("%s %zx to %zx: %s %d\n", what, had, size, moved ? "memory" : "none", errno);
    if (moved)
        exit(3);
    for (size_t at = 0; at < had; at++)
        if (block[at] != 0x5c)
            printf("byte %zx is %x\n", at, block[at]);
    free(block);
}

static void sizes(void)
{
    void *library = dlopen("libstdc++.so.6", RTLD_NOW);
    void *(*nothrow_new)(size_t, const void *) = NULL;
    void *symbol = library ? dlsym(library, "_ZnwmRKSt9nothrow_t") : NULL;
    memcpy(&nothrow_new, &symbol, sizeof symbol);
    const void *nothrow = library ? dlsym(library, "_ZSt7nothrow") : NULL;
    for (size_t i = 0; i < sizeof beyond / sizeof beyond[0]; i++) {
        size_t size = beyond[i] + opaque;
        TRY("malloc", size, 0, malloc(size));
        TRY("calloc", size, 0, calloc(1, size));
        TRY("calloc", size, 0, calloc(size, 1));
        TRY("calloc", size, 0, calloc(size / 2, 3));
        TRY("realloc", size, 0, realloc(NULL, size));
        TRY("reallocarray", size, 0, reallocarray(NULL, size, 1));
        TRY("reallocarray", size, 0, reallocarray(NULL, size, size));
        TRY("memalign", size, 64, memalign(64, size));
        TRY("memalign", size, 2 * MIB, memalign(2 * MIB, size));
        TRY("aligned_alloc", size, 4096, aligned_alloc(4096, size));
        TRY("posix_memalign", size, 64, by_posix(64, size));
        TRY("posix_memalign", size, 2 * MIB, by_posix(2 * MIB, size));
        TRY("valloc", size, 4096, valloc(size));
        TRY("pvalloc", size, 4096, pvalloc(size));
        if (nothrow_new)
            TRY("new", size, 0, nothrow_new(size, nothrow));
        const size_t had[] = {100, 1000, 200000, 3 * MIB};
        for (size_t k = 0; k < sizeof had / sizeof had[0]; k++) {
            try_realloc("realloc", had[k], size, 0);
            try_realloc("reallocarray", had[k], size, 1);
            try_realloc("reallocarray", had[k], size / 2, 3);
        }
    }
}

static void alignments_of_all(void)
{
    for (size_t i = 0; i < sizeof alignments / sizeof alignments[0]; i++) {
        for (size_t k = 0; k < sizeof ordinary / sizeof ordinary[0]; k++) {
            size_t alignment = alignments[i] + opaque, size = ordinary[k];
            TRY("memalign", size, alignment, memalign(alignment, size));
            TRY("aligned_alloc", size, alignment, aligned_alloc(alignment, size));
            TRY("posix_memalign", size, alignment, by_posix(alignment, size));
        }
    }
    for (size_t k = 0; k < sizeof ordinary / sizeof ordinary[0]; k++) {
        TRY("valloc", ordinary[k], 4096, valloc(ordinary[k]));
        TRY("pvalloc", ordinary[k], 4096, pvalloc(ordinary[k]));
        TRY("malloc", ordinary[k], 16, malloc(ordinary[k]));
        void *block = malloc(ordinary[k]);
        errno = 5;
        printf("realloc %zx to 0: %s %d\n", ordinary[k], realloc(block, 0) ? "memory" : "none",
               errno);
    }
    printf("none: %zu\n", malloc_usable_size(NULL));
    free(NULL);
}

int main(void)
{
    for (int i = 0; i < NEIGHBOURS; i++) {
        neighbours[i] = malloc(NEIGHBOUR_BYTES);
        memset(neighbours[i], i + 1, NEIGHBOUR_BYTES);
    }
    sizes();
    alignments_of_all();
    for (int i = 0; i < NEIGHBOURS; i++)
        for (size_t at = 0; at < NEIGHBOUR_BYTES; at++)
            if (neighbours[i][at] != i + 1) {
                printf("byte %zx of neighbour %d is %x\n", at, i, neighbours[i][at]);
                break;
            }
    return 0;
}
