/* opened: a program that loads a library (argv[1]) while blocks are absent. With -DLIBRARY this is
 * that library. Its constructor runs under the loader's lock and reads all blocks of the program,
 * which are its first reads from the store. A thread does the same after the loader has allocated
 * its copy of a large thread-local variable. Prints the sum of the bytes read. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT 12
#define BYTES ((size_t)4 << 20)

long sum_blocks(void);

#ifdef LIBRARY

void *in_thread(void *argument);

static long in_constructor;
static __thread unsigned char large[24 << 20];

__attribute__((constructor)) static void construct(void)
{
    in_constructor = sum_blocks();
}

void *in_thread(void *argument)
{
    memset(large, 1, sizeof large);
    *(long *)argument = in_constructor + sum_blocks();
    for (size_t i = 0; i < sizeof large; i++)
        *(long *)argument += large[i];
    return NULL;
}

#else

static unsigned char *blocks[COUNT];

/* Allocates, too. Two walks over more than the budget would else be one operation, if they follow
 * each other soon. */
long sum_blocks(void)
{
    long sum = 0;
    void *volatile next = malloc(BYTES / 16);
    free(next);
    for (int i = 0; i < COUNT; i++)
        for (size_t j = 0; j < BYTES; j += 64)
            sum += blocks[i][j];
    return sum;
}

int main(int count, char **arguments)
{
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = malloc(BYTES);
        if (!blocks[i])
            return 2;
        memset(blocks[i], i + 1, BYTES);
    }
    void *library = count > 1 ? dlopen(arguments[1], RTLD_NOW) : NULL;
    void *symbol = library ? dlsym(library, "in_thread") : NULL;
    if (!symbol) {
        fprintf(stderr, "opened: %s\n", dlerror());
        return 2;
    }
    void *(*in_thread)(void *);
    memcpy(&in_thread, &symbol, sizeof in_thread);
    pthread_t thread;
    long sum = 0;
    if (pthread_create(&thread, NULL, in_thread, &sum) != 0 || pthread_join(thread, NULL) != 0)
        return 2;
    printf("sum %ld\n", sum);
    return 0;
}

#endif
