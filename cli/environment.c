#include "environment.h"

#include <stdlib.h>

/* TF_ONEDNN_USE_SYSTEM_ALLOCATOR: otherwise TensorFlow's CPU allocator takes regions that double up
 * to 1 GiB and never frees them. TensorFlow, core/common_runtime/mkl_cpu_allocator.h. Seen with
 * 2.21: peak 2,230 MB without it, 1,413 MB with it, the same losses. */
static const struct ebb_setting on_host[] = {
    {"TF_ONEDNN_USE_SYSTEM_ALLOCATOR", "1"},
};

/* PyTorch, TensorFlow and JAX hide tensors in regions of their own, unless these are set.
 *
 * NCCL: blocks move, so another process cannot map them, and no other device or network card can
 * access them by itself. NCCL then stages its transfers in host memory. NVLS and registrations of
 * the program's buffers need memory that stays in its place. */
static const struct ebb_setting on_cuda[] = {
    {"PYTORCH_NO_CUDA_MEMORY_CACHING", "1"},
    {"TF_GPU_ALLOCATOR", "cuda_malloc_async"},
    {"XLA_PYTHON_CLIENT_ALLOCATOR", "platform"},
    {"NCCL_P2P_DISABLE", "1"},
    {"NCCL_NVLS_ENABLE", "0"},
    {"NCCL_LOCAL_REGISTER", "0"},
    {"NCCL_GRAPH_REGISTER", "0"},
};

#define COUNT(settings) (sizeof(settings) / sizeof *(settings))
_Static_assert(COUNT(on_host) + COUNT(on_cuda) <= EBB_MOST_SETTINGS, "callers' room");

static size_t add(struct ebb_setting *chosen, size_t count, const struct ebb_setting *settings,
                  size_t all)
{
    for (size_t i = 0; i < all; i++)
        if (!getenv(settings[i].name))
            chosen[count++] = settings[i];
    return count;
}

size_t ebb__settings_choose(struct ebb_setting *chosen, bool for_host, bool for_gpu)
{
    size_t count = for_host ? add(chosen, 0, on_host, COUNT(on_host)) : 0;
    return for_gpu ? add(chosen, count, on_cuda, COUNT(on_cuda)) : count;
}

bool ebb__settings_apply(const struct ebb_setting *made, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (setenv(made[i].name, made[i].value, 1) != 0)
            return false;
    return true;
}
