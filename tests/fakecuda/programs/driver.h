#ifndef PROGRAM_DRIVER_H
#define PROGRAM_DRIVER_H

/* What the programs of the driver API share. A failed call ends the program with exit code 3 and
 * the name of the error.
 *
 * On a card, PROGRAM_PTX names the file of the kernels (kernels.ptx). Without it, kernels are the
 * C functions of the program, for the fake driver.
 */

#include "../fakecuda.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
FAKECUDA_SANITIZER_OPTIONS
#endif

#define CHECK(call) check_result((call), #call, __LINE__)

static inline void check_result(CUresult result, const char *what, int line)
{
    if (result == CUDA_SUCCESS)
        return;
    const char *name = NULL;
    cuGetErrorName(result, &name);
    fprintf(stderr, "line %d: %.60s: %s\n", line, what, name ? name : "an unknown error");
    /* One thread ends the program: a second one could end it before the fake has judged it. */
    static atomic_flag is_ending = ATOMIC_FLAG_INIT;
    while (atomic_flag_test_and_set(&is_ending))
        pause();
    exit(3);
}

/* For cuModuleLoadData and its relatives: these C functions, or the text of PROGRAM_PTX. */
static inline const void *program_image(const struct fakecuda_image *functions)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static char text[1 << 16];
    const char *path = getenv("PROGRAM_PTX");
    if (!path)
        return functions;
    pthread_mutex_lock(&lock);
    FILE *file = text[0] ? NULL : fopen(path, "r");
    size_t bytes = file ? fread(text, 1, sizeof(text), file) : strlen(text);
    if (bytes == 0 || bytes == sizeof(text)) {
        fprintf(stderr, "%s: no kernels, or too many\n", path);
        exit(2);
    }
    if (file)
        fclose(file);
    pthread_mutex_unlock(&lock);
    return text;
}

/* Kernels of kernels.ptx take any grid. The fake driver does not look at it. */
enum { GRID_BLOCKS = 64, GRID_THREADS = 128 };

/* Any changed bit changes it: each step is one to one. Words at a time, since bytes take long. */
static inline uint64_t hash_bytes(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word = 0;
        memcpy(&word, at + i, bytes - i < 8 ? bytes - i : 8);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 32;
    }
    return hash;
}

static inline unsigned draw(uint64_t *state, unsigned most)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(*state >> 33) % most;
}

/* The value of `--name=N`, or of an option without a value: 1. */
static inline long option(int count, char **arguments, const char *name, long usual)
{
    size_t length = strlen(name);
    for (int i = 1; i < count; i++) {
        if (strncmp(arguments[i], "--", 2) || strncmp(arguments[i] + 2, name, length))
            continue;
        const char *rest = arguments[i] + 2 + length;
        if (*rest == '=')
            return atol(rest + 1);
        if (!*rest)
            return 1;
    }
    return usual;
}

#endif
