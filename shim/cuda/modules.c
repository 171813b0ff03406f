/* Modules and libraries: when they are unloaded, what is known of their functions is forgotten. */
#include "door.h"
#include "params.h"

CUresult ebb__door_module_unload(__typeof__(cuModuleUnload) *next, CUstream stream, CUmodule a)
{
    (void)stream;
    CUresult result = next(a);
    ebb__params_forget(); /* after the call: another thread may have asked during it */
    return result;
}

CUresult ebb__door_library_unload(__typeof__(cuLibraryUnload) *next, CUstream stream, CUlibrary a)
{
    (void)stream;
    CUresult result = next(a);
    ebb__params_forget();
    return result;
}

CUresult ebb__door_library_kernel(__typeof__(cuLibraryGetKernel) *next, CUstream stream,
                                  CUkernel *a, CUlibrary b, const char *c)
{
    (void)stream;
    CUresult result = next(a, b, c);
    if (result == CUDA_SUCCESS)
        ebb__params_know_kernel(*a);
    return result;
}

CUresult ebb__door_library_kernels(__typeof__(cuLibraryEnumerateKernels) *next, CUstream stream,
                                   CUkernel *a, unsigned b, CUlibrary c)
{
    (void)stream;
    unsigned count = 0;
    CUresult result = next(a, b, c);
    if (result == CUDA_SUCCESS && ebb__real.cuLibraryGetKernelCount(&count, c) != CUDA_SUCCESS)
        count = 0;
    for (unsigned i = 0; i < b && i < count; i++)
        ebb__params_know_kernel(a[i]);
    return result;
}
