/* Whether this machine has a GPU on which Ebb can keep a budget, and so which libraries `ebb run`
 * and `ebb record` preload. */
#ifndef EBB_CLI_GPU_H
#define EBB_CLI_GPU_H

#include "launch.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ebb_device_choice {
    EBB_CHOOSE_AUTO, /* the GPU for processes that use it, the host for others */
    EBB_CHOOSE_CPU,
    EBB_CHOOSE_CUDA,
};

struct ebb_gpu {
    uint32_t is_usable; /* a budget can be kept on it */
    int32_t count;      /* devices that the program will see */
    int32_t version;    /* of the driver: 13000 is 13.0; 0: no driver */
    int32_t has_managed_access;
    uint64_t bytes;      /* memory of the first device; of its instance, if it is divided (MIG) */
    char name[128];      /* of the first device */
    uint64_t most_bytes; /* the same of the device with the most memory */
    char most_name[128];
    char why[200]; /* why it is not usable: one line */
};

/* Asks the driver, in a process of its own: the driver stays out of this one. Takes as long as the
 * driver's start, 20 s at most. Never fails: gpu->why tells. */
void ebb__gpu_look(struct ebb_gpu *gpu);

/* The word for the choice with this number: `auto`, `cpu`, `cuda`; NULL after the last. */
const char *ebb__gpu_choice_name(size_t index);

/* What to preload: *shims. Fills *gpu unless the choice is the CPU. Prints one line if the choice
 * cannot be had, and returns false. Under `auto`, a usable GPU needs both libraries: each process
 * decides by what it does. A GPU that is there but not usable is told of (unless `quiet`), and the
 * host is managed. */
bool ebb__gpu_decide(const char *command, enum ebb_device_choice choice, bool quiet,
                     struct ebb_gpu *gpu, struct ebb_shims *shims);

#endif
