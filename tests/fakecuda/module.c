/* Modules, libraries and kernels. The image is a struct of the program, see fakecuda.h. A library
 * is a module that each context loads when it first needs it; here its functions serve all
 * contexts.
 */
#include "fake.h"
#include <stdlib.h>

enum { MODULE_MAGIC = 0x4d4f4455 };

struct CUmod_st {
    unsigned magic;
    const struct fakecuda_image *image;
    struct CUfunc_st *functions;
    CUdeviceptr globals[MOST_DEVICES]; /* one allocation for all, on first use */
    bool alive;
};

static size_t padded(size_t bytes)
{
    return (bytes + 15) / 16 * 16;
}

static void lay_out(struct CUfunc_st *function, const struct fakecuda_entry *entry)
{
    unsigned at = 0;
    function->entry = entry;
    for (unsigned i = 0; i < entry->parameter_count; i++) {
        unsigned bytes = entry->parameter_bytes[i];
        unsigned alignment = bytes & (0u - bytes);
        alignment = alignment > 8 ? 8 : alignment;
        at = (at + alignment - 1) / alignment * alignment;
        function->offsets[i] = (unsigned short)at;
        at += bytes;
    }
    function->parameter_bytes = at;
}

static CUresult load(struct CUmod_st **module, const void *data)
{
    const struct fakecuda_image *image = data;
    if (!module || !image)
        return CUDA_ERROR_INVALID_VALUE;
    if (memcmp(image->magic, FAKECUDA_MAGIC, sizeof(FAKECUDA_MAGIC)))
        return CUDA_ERROR_INVALID_IMAGE;
    struct CUmod_st *made = calloc(1, sizeof(*made));
    if (made)
        made->functions = calloc(image->kernel_count + 1, sizeof(*made->functions));
    if (!made || !made->functions)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->magic = MODULE_MAGIC;
    made->image = image;
    made->alive = true;
    for (unsigned i = 0; i < image->kernel_count; i++) {
        if (image->kernels[i].parameter_count > 64)
            return CUDA_ERROR_INVALID_IMAGE;
        lay_out(&made->functions[i], &image->kernels[i]);
        made->functions[i].module = made;
    }
    *module = made;
    return CUDA_SUCCESS;
}

CUdeviceptr fake_module_global(CUcontext context, struct CUmod_st *module, const char *name,
                               size_t *bytes)
{
    const struct fakecuda_image *image = module->image;
    size_t total = 0, found = SIZE_MAX;
    for (unsigned i = 0; i < image->global_count; i++) {
        if (!strcmp(image->globals[i].name, name)) {
            found = total;
            *bytes = image->globals[i].bytes;
        }
        total += padded(image->globals[i].bytes);
    }
    if (found == SIZE_MAX)
        return 0;
    pthread_mutex_lock(&memory_lock);
    CUdeviceptr *at = &module->globals[context->device];
    if (!*at && (*at = fake_arena_take(total, 4096))) {
        struct range *range = fake_range_add(*at, total, RANGE_PLAIN);
        range->device = context->device;
        fake_bytes_add(context->device, BYTES_PLAIN, (long long)range->held_bytes, "globals");
        for (unsigned i = 0, offset = 0; i < image->global_count; i++) {
            const struct fakecuda_global *global = &image->globals[i];
            memset(range->alias + offset, 0, global->bytes);
            if (global->initial)
                memcpy(range->alias + offset, global->initial, global->bytes);
            offset += (unsigned)padded(global->bytes);
        }
    }
    pthread_mutex_unlock(&memory_lock);
    return *at ? *at + found : 0;
}

static void unload(struct CUmod_st *module)
{
    pthread_mutex_lock(&memory_lock);
    for (int i = 0; i < MOST_DEVICES; i++) {
        struct range *range = module->globals[i] ? fake_range_find(module->globals[i]) : NULL;
        if (range)
            fake_free_now(range);
    }
    pthread_mutex_unlock(&memory_lock);
    module->alive = false; /* launches that are queued keep the rest */
}

static CUfunction find(struct CUmod_st *module, const char *name)
{
    for (unsigned i = 0; i < module->image->kernel_count; i++)
        if (!strcmp(module->image->kernels[i].name, name))
            return &module->functions[i];
    return NULL;
}

/* A kernel's handle is its function with the lowest bit set, so that the two are not mixed up. */
static CUfunction of_kernel(CUkernel kernel)
{
    return (CUfunction)((uintptr_t)kernel & ~(uintptr_t)1);
}

CUfunction fake_function_of(const void *handle)
{
    CUfunction function = of_kernel((CUkernel)(uintptr_t)handle);
    if (function && !function->module->alive) {
        fake_violation("unloaded-module", "kernel %s of an unloaded module", function->entry->name);
        return NULL;
    }
    return function;
}

/* --- modules ---------------------------------------------------------------------------------- */

static CUresult load_module(CUmodule *module, const void *image)
{
    CUcontext context;
    TRY(fake_usable(&context));
    TRY(fake_capture_unsafe());
    DONE(load(module, image));
}

API cuModuleLoadData(CUmodule *module, const void *image)
{
    return load_module(module, image);
}

API cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, CUjit_option *options,
                       void **values)
{
    (void)count;
    (void)options;
    (void)values;
    return load_module(module, image);
}

API cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
    return load_module(module, image);
}

API cuModuleUnload(CUmodule module)
{
    CUcontext context;
    TRY(fake_current(&context));
    if (!module || module->magic != MODULE_MAGIC || !module->alive)
        DONE(CUDA_ERROR_INVALID_HANDLE);
    fake_wait_context(context);
    unload(module);
    return CUDA_SUCCESS;
}

API cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    CUcontext context;
    TRY(fake_usable(&context));
    if (!function || !module || !name || !module->alive)
        DONE(CUDA_ERROR_INVALID_VALUE);
    *function = find(module, name);
    DONE(*function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND);
}

API cuModuleGetFunctionCount(unsigned *count, CUmodule module)
{
    TRY(fake_ready());
    *count = module->image->kernel_count;
    return CUDA_SUCCESS;
}

API cuModuleEnumerateFunctions(CUfunction *functions, unsigned count, CUmodule module)
{
    TRY(fake_ready());
    for (unsigned i = 0; i < count && i < module->image->kernel_count; i++)
        functions[i] = &module->functions[i];
    return CUDA_SUCCESS;
}

static CUresult get_global(CUdeviceptr *address, size_t *bytes, struct CUmod_st *module,
                           const char *name)
{
    CUcontext context;
    TRY(fake_usable(&context));
    if (!module || !module->alive || !name)
        DONE(CUDA_ERROR_INVALID_VALUE);
    size_t size = 0;
    CUdeviceptr at = fake_module_global(context, module, name, &size);
    if (address)
        *address = at;
    if (bytes)
        *bytes = size;
    DONE(at ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND);
}

API cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name)
{
    return get_global(address, bytes, module, name);
}

API cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
    *mode = CU_MODULE_LAZY_LOADING;
    DONE(fake_ready());
}

/* --- libraries -------------------------------------------------------------------------------- */

API cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *options, void **values,
                      unsigned count, CUlibraryOption *library_options, void **library_values,
                      unsigned library_count)
{
    (void)options;
    (void)values;
    (void)count;
    (void)library_options;
    (void)library_values;
    (void)library_count;
    TRY(fake_ready());
    DONE(load((struct CUmod_st **)library, code));
}

API cuLibraryUnload(CUlibrary library)
{
    TRY(fake_ready());
    struct CUmod_st *module = (struct CUmod_st *)library;
    if (!module || module->magic != MODULE_MAGIC || !module->alive)
        DONE(CUDA_ERROR_INVALID_HANDLE);
    unload(module);
    return CUDA_SUCCESS;
}

API cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    TRY(fake_ready());
    if (!library || !kernel || !name)
        DONE(CUDA_ERROR_INVALID_VALUE);
    CUfunction function = find((struct CUmod_st *)library, name);
    *kernel = function ? (CUkernel)((uintptr_t)function | 1) : NULL;
    DONE(function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND);
}

API cuLibraryGetKernelCount(unsigned *count, CUlibrary library)
{
    TRY(fake_ready());
    *count = ((struct CUmod_st *)library)->image->kernel_count;
    return CUDA_SUCCESS;
}

API cuLibraryEnumerateKernels(CUkernel *kernels, unsigned count, CUlibrary library)
{
    TRY(fake_ready());
    struct CUmod_st *module = (struct CUmod_st *)library;
    for (unsigned i = 0; i < count && i < module->image->kernel_count; i++)
        kernels[i] = (CUkernel)((uintptr_t)&module->functions[i] | 1);
    return CUDA_SUCCESS;
}

API cuLibraryGetModule(CUmodule *module, CUlibrary library)
{
    TRY(fake_ready());
    *module = (CUmodule)library;
    return CUDA_SUCCESS;
}

API cuLibraryGetGlobal(CUdeviceptr *address, size_t *bytes, CUlibrary library, const char *name)
{
    return get_global(address, bytes, (struct CUmod_st *)library, name);
}

API cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
    CUcontext context;
    TRY(fake_usable(&context));
    *function = fake_function_of(kernel);
    DONE(*function ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
}

API cuKernelGetLibrary(CUlibrary *library, CUkernel kernel)
{
    TRY(fake_ready());
    *library = (CUlibrary)of_kernel(kernel)->module;
    return CUDA_SUCCESS;
}

/* --- functions -------------------------------------------------------------------------------- */

static CUresult parameter(CUfunction function, size_t index, size_t *offset, size_t *bytes)
{
    TRY(fake_ready());
    if (!function || !offset || index >= function->entry->parameter_count)
        DONE(CUDA_ERROR_INVALID_VALUE);
    *offset = function->offsets[index];
    if (bytes)
        *bytes = function->entry->parameter_bytes[index];
    return CUDA_SUCCESS;
}

API cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *bytes)
{
    return parameter(function, index, offset, bytes);
}

API cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t *offset, size_t *bytes)
{
    return parameter(of_kernel(kernel), index, offset, bytes);
}

static CUresult get_attribute(int *value, CUfunction_attribute attribute, CUfunction function)
{
    TRY(fake_ready());
    if (!function || (unsigned)attribute >= 16)
        DONE(CUDA_ERROR_INVALID_VALUE);
    *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024
             : attribute == CU_FUNC_ATTRIBUTE_NUM_REGS            ? 32
             : attribute == CU_FUNC_ATTRIBUTE_BINARY_VERSION      ? 90
                                                                  : function->attributes[attribute];
    return CUDA_SUCCESS;
}

API cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function)
{
    return get_attribute(value, attribute, function);
}

API cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel kernel,
                         CUdevice device)
{
    (void)device;
    return get_attribute(value, attribute, of_kernel(kernel));
}

API cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
    TRY(fake_ready());
    if (!function || (unsigned)attribute >= 16)
        DONE(CUDA_ERROR_INVALID_VALUE);
    function->attributes[attribute] = value;
    return CUDA_SUCCESS;
}

API cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel,
                         CUdevice device)
{
    (void)device;
    return cuFuncSetAttribute(of_kernel(kernel), attribute, value);
}

API cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config)
{
    (void)config;
    DONE(function ? fake_ready() : CUDA_ERROR_INVALID_VALUE);
}

API cuFuncGetModule(CUmodule *module, CUfunction function)
{
    TRY(fake_ready());
    *module = function->module;
    return CUDA_SUCCESS;
}

API cuFuncGetName(const char **name, CUfunction function)
{
    TRY(fake_ready());
    *name = function->entry->name;
    return CUDA_SUCCESS;
}

API cuKernelGetName(const char **name, CUkernel kernel)
{
    return cuFuncGetName(name, of_kernel(kernel));
}

API cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function)
{
    *state = CU_FUNCTION_LOADING_STATE_LOADED;
    DONE(function ? fake_ready() : CUDA_ERROR_INVALID_VALUE);
}

API cuFuncLoad(CUfunction function)
{
    DONE(function ? fake_ready() : CUDA_ERROR_INVALID_VALUE);
}

API cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int size,
                                                size_t shared)
{
    (void)shared;
    TRY(fake_ready());
    if (!function || size <= 0)
        DONE(CUDA_ERROR_INVALID_VALUE);
    *blocks = 2048 / size;
    return CUDA_SUCCESS;
}

API cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction function, int size,
                                                         size_t shared, unsigned flags)
{
    (void)flags;
    return cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, size, shared);
}
