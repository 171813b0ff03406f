#include "environment.h"

#include <stdlib.h>

/* TF_ONEDNN_USE_SYSTEM_ALLOCATOR: otherwise TensorFlow's CPU allocator takes regions that double up
 * to 1 GiB and never frees them. TensorFlow, core/common_runtime/mkl_cpu_allocator.h. Seen with
 * 2.21: peak 2,230 MB without it, 1,413 MB with it, the same losses. */
static const struct ebb_setting settings[] = {
    {"TF_ONEDNN_USE_SYSTEM_ALLOCATOR", "1"},
};

_Static_assert(sizeof settings / sizeof settings[0] <= EBB_MOST_SETTINGS, "callers' room");

size_t ebb__settings_choose(struct ebb_setting *chosen)
{
    size_t count = 0;
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
        if (!getenv(settings[i].name))
            chosen[count++] = settings[i];
    return count;
}

bool ebb__settings_apply(const struct ebb_setting *made, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (setenv(made[i].name, made[i].value, 1) != 0)
            return false;
    return true;
}
