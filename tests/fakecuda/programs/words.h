#ifndef PROGRAM_WORDS_H
#define PROGRAM_WORDS_H

/* Kernels on arrays of 32-bit words, for programs that check each word. */

#include "driver.h"

enum { WORDS_CHUNK = 4096 };

/* x[i] = value + i: x, count, value */
static void words_fill(struct fakecuda_kernel *k)
{
    CUdeviceptr x = fakecuda_pointer(k, 0);
    unsigned count = fakecuda_word(k, 8), value = fakecuda_word(k, 12);
    for (unsigned i = 0; i < count; i += WORDS_CHUNK) {
        unsigned n = count - i < WORDS_CHUNK ? count - i : WORDS_CHUNK;
        unsigned *at = fakecuda_write(k, x + 4ull * i, 4ull * n);
        for (unsigned j = 0; j < n; j++)
            at[j] = value + i + j;
    }
}

static unsigned words_mixed(unsigned x, unsigned y, unsigned value)
{
    return x * 31 + (y ^ value);
}

/* x[i] = mixed(x[i], y[i], value): x, y, count, value */
static void words_mix(struct fakecuda_kernel *k)
{
    CUdeviceptr x = fakecuda_pointer(k, 0), y = fakecuda_pointer(k, 8);
    unsigned count = fakecuda_word(k, 16), value = fakecuda_word(k, 20);
    for (unsigned i = 0; i < count; i += WORDS_CHUNK) {
        unsigned n = count - i < WORDS_CHUNK ? count - i : WORDS_CHUNK, other[WORDS_CHUNK];
        memcpy(other, fakecuda_read(k, y + 4ull * i, 4ull * n), 4ull * n);
        unsigned *at = fakecuda_update(k, x + 4ull * i, 4ull * n);
        for (unsigned j = 0; j < n; j++)
            at[j] = words_mixed(at[j], other[j], value);
    }
}

/* Adds 1 to a flag, then waits until it is `count`: flag, count. As collectives do. */
static void words_meet(struct fakecuda_kernel *k)
{
    CUdeviceptr flag = fakecuda_pointer(k, 0);
    unsigned count = fakecuda_word(k, 8);
    fakecuda_atomic_add(k, flag, 1);
    while (fakecuda_atomic_add(k, flag, 0) < count)
        fakecuda_yield(k);
}

enum { WORDS_FILL, WORDS_MIX, WORDS_MEET, WORDS_KERNELS };
static const unsigned short words_sizes[][4] = {{8, 4, 4}, {8, 8, 4, 4}, {8, 4}};
static const struct fakecuda_entry words_kernels[] = {
    {"words_fill", words_fill, 3, words_sizes[0]},
    {"words_mix", words_mix, 4, words_sizes[1]},
    {"words_meet", words_meet, 2, words_sizes[2]},
};
static const struct fakecuda_image words_image = {FAKECUDA_MAGIC, WORDS_KERNELS, words_kernels, 0,
                                                  NULL};
static CUfunction words_functions[WORDS_KERNELS];

static inline void words_load(void)
{
    CUlibrary library;
    CUkernel kernel;
    CHECK(cuLibraryLoadData(&library, program_image(&words_image), NULL, NULL, 0, NULL, NULL, 0));
    for (int i = 0; i < WORDS_KERNELS; i++) {
        CHECK(cuLibraryGetKernel(&kernel, library, words_kernels[i].name));
        CHECK(cuKernelGetFunction(&words_functions[i], kernel));
    }
}

static inline CUresult words_launch(int kernel, CUstream stream, void **parameters)
{
    return cuLaunchKernel(words_functions[kernel], GRID_BLOCKS, 1, 1, GRID_THREADS, 1, 1, 0, stream,
                          parameters, NULL);
}

static inline CUresult fill_words(CUdeviceptr x, unsigned count, unsigned value, CUstream stream)
{
    return words_launch(WORDS_FILL, stream, (void *[]){&x, &count, &value});
}

static inline CUresult mix_words(CUdeviceptr x, CUdeviceptr y, unsigned count, unsigned value,
                                 CUstream stream)
{
    return words_launch(WORDS_MIX, stream, (void *[]){&x, &y, &count, &value});
}

static inline CUcontext words_open(int device)
{
    CUcontext context;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    if (!words_functions[0])
        words_load();
    return context;
}

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#endif
