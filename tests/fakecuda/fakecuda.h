#ifndef FAKECUDA_H
#define FAKECUDA_H

/* How a test program describes its kernels to the fake CUDA driver: a kernel is a C function.
 *
 * The program links nothing of the fake. It hands a `struct fakecuda_image` to cuModuleLoadData or
 * cuLibraryLoadData, as it would hand machine code to the real driver. Example:
 *
 *     static void scale(struct fakecuda_kernel *k)
 *     {
 *         float *x = fakecuda_update(k, fakecuda_pointer(k, 0), 4096);
 *         for (int i = 0; i < 1024; i++)
 *             x[i] *= fakecuda_float(k, 8);
 *     }
 *     static const unsigned short scale_sizes[] = {8, 4};
 *     static const struct fakecuda_entry kernels[] = {{"scale", scale, 2, scale_sizes}};
 *     static const struct fakecuda_image image = {FAKECUDA_MAGIC, 1, kernels, 0, NULL};
 *
 * A kernel may touch device memory through the calls below only. Each call is checked against what
 * is mapped and resident at that moment. Other streams may run between two calls. A call on bad
 * memory ends the kernel and makes its context fail: it does not return. So a kernel holds no
 * resources, and host memory of the program is not its business.
 */

#include "cuda/abi.h"
#include <string.h>

#define FAKECUDA_MAGIC "FAKECU1"

/* For AddressSanitizer, once in a program or library that it is not the first one to be loaded
 * with. The fake keeps what streams may still use, and programs may die by a signal. */
#define FAKECUDA_SANITIZER_OPTIONS                                                                 \
    __attribute__((visibility("default"), used)) const char *__asan_default_options(void);         \
    const char *__asan_default_options(void)                                                       \
    {                                                                                              \
        return "verify_asan_link_order=0:detect_leaks=0:handle_segv=0";                            \
    }

struct fakecuda_kernel;
typedef void (*fakecuda_function)(struct fakecuda_kernel *kernel);

struct fakecuda_entry {
    const char *name;
    fakecuda_function function;
    unsigned parameter_count;
    /* Bytes of each parameter. A parameter is aligned to the largest power of two in its size, 8 at
     * most. */
    const unsigned short *parameter_bytes;
};

struct fakecuda_global {
    const char *name;
    size_t bytes;
    const void *initial; /* or NULL: zeros */
};

struct fakecuda_image {
    char magic[8];
    unsigned kernel_count;
    const struct fakecuda_entry *kernels;
    unsigned global_count;
    const struct fakecuda_global *globals;
};

struct fakecuda_calls {
    void *(*access)(struct fakecuda_kernel *kernel, CUdeviceptr address, size_t bytes, int mode);
    void (*yield)(struct fakecuda_kernel *kernel);
    unsigned (*atomic_add)(struct fakecuda_kernel *kernel, CUdeviceptr address, unsigned value);
    CUdeviceptr (*global)(struct fakecuda_kernel *kernel, const char *name);
};

/* What a running kernel sees. The struct is valid until the function returns. */
struct fakecuda_kernel {
    const struct fakecuda_calls *calls;
    const unsigned char *parameters; /* the packed image */
    unsigned grid[3], block[3], shared_bytes;
};

enum { FAKECUDA_READ = 1, FAKECUDA_WRITE = 2, FAKECUDA_UPDATE = 3 };

/* Host pointers to device bytes [address, address + bytes), good until the next call here. A range
 * that is only written must be written whole. */
static inline const void *fakecuda_read(struct fakecuda_kernel *k, CUdeviceptr address,
                                        size_t bytes)
{
    return k->calls->access(k, address, bytes, FAKECUDA_READ);
}

static inline void *fakecuda_write(struct fakecuda_kernel *k, CUdeviceptr address, size_t bytes)
{
    return k->calls->access(k, address, bytes, FAKECUDA_WRITE);
}

static inline void *fakecuda_update(struct fakecuda_kernel *k, CUdeviceptr address, size_t bytes)
{
    return k->calls->access(k, address, bytes, FAKECUDA_UPDATE);
}

/* Lets other streams run. A kernel that waits for memory to change must call it in its loop. */
static inline void fakecuda_yield(struct fakecuda_kernel *k)
{
    k->calls->yield(k);
}

/* Adds to a 32-bit word in device memory and returns its value before. Adding 0 reads. Streams may
 * use one word so without an order between them: it is no race. */
static inline unsigned fakecuda_atomic_add(struct fakecuda_kernel *k, CUdeviceptr address,
                                           unsigned value)
{
    return k->calls->atomic_add(k, address, value);
}

/* The address of a global of the kernel's module, or 0. */
static inline CUdeviceptr fakecuda_global(struct fakecuda_kernel *k, const char *name)
{
    return k->calls->global(k, name);
}

/* The parameter at a byte offset of the packed image. */
static inline CUdeviceptr fakecuda_pointer(const struct fakecuda_kernel *k, size_t offset)
{
    CUdeviceptr value;
    memcpy(&value, k->parameters + offset, sizeof(value));
    return value;
}

static inline unsigned fakecuda_word(const struct fakecuda_kernel *k, size_t offset)
{
    unsigned value;
    memcpy(&value, k->parameters + offset, sizeof(value));
    return value;
}

static inline float fakecuda_float(const struct fakecuda_kernel *k, size_t offset)
{
    float value;
    memcpy(&value, k->parameters + offset, sizeof(value));
    return value;
}

#endif
