#include "gpu.h"

#include "command.h"
#include "launch.h"
#include "options.h"

#include "base/clock.h"
#include "cuda/abi.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE_NS                                                                                \
    ((uint64_t)20000000000) /* a driver starts in 0.1 to 5 s, cold, with 8 devices */
#define LEAST_VERSION 12040 /* as shim/cuda/state.c */

/* The functions that are needed, in one struct, as they are looked up at run time. */
struct driver {
    __typeof__(cuInit) *init;
    __typeof__(cuDriverGetVersion) *version;
    __typeof__(cuDeviceGetCount) *count;
    __typeof__(cuDeviceGet) *device;
    __typeof__(cuDeviceGetName) *name;
    __typeof__(cuDeviceTotalMem_v2) *memory;
    __typeof__(cuDeviceGetAttribute) *attribute;
};

static bool load(struct driver *driver)
{
    static const char *const names[] = {
        "cuInit",          "cuDriverGetVersion",  "cuDeviceGetCount",    "cuDeviceGet",
        "cuDeviceGetName", "cuDeviceTotalMem_v2", "cuDeviceGetAttribute"};
    const char *path = getenv("EBB_CUDA_DRIVER");
    void *library = dlopen(path ? path : "libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    for (size_t i = 0; library && i < sizeof names / sizeof names[0]; i++) {
        void *function = dlsym(library, names[i]);
        if (!function)
            return false;
        memcpy((char *)driver + i * sizeof function, &function, sizeof function);
    }
    return library != NULL;
}

/* The device with the most memory. Each may have as much of a budget as it has memory. */
static void find_largest(const struct driver *driver, struct ebb_gpu *gpu)
{
    gpu->most_bytes = gpu->bytes;
    memcpy(gpu->most_name, gpu->name, sizeof gpu->most_name);
    for (int i = 1; i < gpu->count; i++) {
        CUdevice device;
        size_t bytes = 0;
        char name[sizeof gpu->most_name];
        if (driver->device(&device, i) != CUDA_SUCCESS ||
            driver->memory(&bytes, device) != CUDA_SUCCESS || bytes <= gpu->most_bytes ||
            driver->name(name, (int)sizeof name, device) != CUDA_SUCCESS)
            continue;
        gpu->most_bytes = bytes;
        memcpy(gpu->most_name, name, sizeof name);
    }
}

#define SAY(gpu, ...) snprintf((gpu)->why, sizeof(gpu)->why, __VA_ARGS__)

static void ask(struct ebb_gpu *gpu)
{
    struct driver driver;
    CUdevice device;
    size_t bytes = 0;
    if (!load(&driver)) {
        SAY(gpu, "no CUDA driver (libcuda.so.1) was found");
        return;
    }
    if (driver.version(&gpu->version) != CUDA_SUCCESS)
        gpu->version = 0;
    CUresult result = driver.init(0);
    if (result == CUDA_SUCCESS)
        result = driver.count(&gpu->count);
    if (result != CUDA_SUCCESS || gpu->count < 1) {
        SAY(gpu, "the CUDA driver has no device (error %d)", (int)result);
        gpu->count = 0;
        return;
    }
    if (driver.device(&device, 0) != CUDA_SUCCESS ||
        driver.memory(&bytes, device) != CUDA_SUCCESS ||
        driver.name(gpu->name, (int)sizeof gpu->name, device) != CUDA_SUCCESS ||
        driver.attribute(&gpu->has_managed_access, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
                         device) != CUDA_SUCCESS) {
        SAY(gpu, "the CUDA driver tells nothing of its device");
        return;
    }
    gpu->bytes = bytes;
    find_largest(&driver, gpu);
    if (gpu->version < LEAST_VERSION)
        SAY(gpu, "the CUDA driver is version %d.%d, %d.%d is needed", gpu->version / 1000,
            gpu->version % 1000 / 10, LEAST_VERSION / 1000, LEAST_VERSION % 1000 / 10);
    else if (!gpu->has_managed_access)
        SAY(gpu, "%s has no concurrent managed access", gpu->name);
    else
        gpu->is_usable = 1;
}

/* In the child. The driver may print, or end its process: neither reaches the user. */
static void answer(int descriptor)
{
    struct ebb_gpu gpu = {0};
    int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (nowhere >= 0) {
        dup2(nowhere, STDOUT_FILENO);
        dup2(nowhere, STDERR_FILENO);
    }
    ask(&gpu);
    _exit(write(descriptor, &gpu, sizeof gpu) == (ssize_t)sizeof gpu ? 0 : 1);
}

/* Reads the whole answer, or returns false when the time is over or the child has ended. */
static bool read_answer(int descriptor, struct ebb_gpu *gpu)
{
    uint64_t end = ebb__now_ns() + PATIENCE_NS;
    for (uint64_t now; (now = ebb__now_ns()) < end;) {
        struct pollfd polled = {.fd = descriptor, .events = POLLIN};
        if (poll(&polled, 1, (int)((end - now) / 1000000) + 1) < 0 && errno == EINTR)
            continue;
        if (polled.revents) /* an answer is shorter than a pipe's atomic writes */
            return read(descriptor, gpu, sizeof *gpu) == (ssize_t)sizeof *gpu;
    }
    return false;
}
_Static_assert(sizeof(struct ebb_gpu) <= PIPE_BUF, "read_answer() reads once");

void ebb__gpu_look(struct ebb_gpu *gpu)
{
    int ends[2];
    memset(gpu, 0, sizeof *gpu);
    SAY(gpu, "the CUDA driver does not start");
    if (pipe2(ends, O_CLOEXEC) != 0)
        return;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        answer(ends[1]);
    close(ends[1]);
    struct ebb_gpu told;
    if (child > 0 && read_answer(ends[0], &told))
        *gpu = told;
    close(ends[0]);
    if (child > 0) {
        kill(child, SIGKILL);
        while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
            ;
    }
}

const char *ebb__gpu_choice_name(size_t index)
{
    static const char *const words[] = {"auto", "cpu", "cuda"}; /* enum ebb_device_choice */
    return index < sizeof words / sizeof words[0] ? words[index] : NULL;
}

bool ebb__gpu_decide(const char *command, enum ebb_device_choice choice, bool quiet,
                     struct ebb_gpu *gpu, struct ebb_shims *shims)
{
    char path[PATH_MAX];
    *shims = (struct ebb_shims){.has = {[EBB_SHIM_MALLOC] = choice != EBB_CHOOSE_CUDA}};
    memset(gpu, 0, sizeof *gpu);
    if (choice == EBB_CHOOSE_CPU)
        return true;
    bool has_library = ebb__launch_find_shim(EBB_SHIM_CUDA, path, sizeof path);
    if (choice == EBB_CHOOSE_AUTO && !has_library)
        return true;
    ebb__gpu_look(gpu);
    bool is_cuda = shims->has[EBB_SHIM_CUDA] = gpu->is_usable && has_library;
    if (choice == EBB_CHOOSE_CUDA && !is_cuda) {
        fprintf(stderr, "ebb: %s: --device cuda: %s\n", command,
                has_library ? gpu->why : "this build has no library for it (libebb_cuda.so)");
        return false;
    }
    if (choice == EBB_CHOOSE_AUTO && gpu->count > 0 && !is_cuda && !quiet)
        fprintf(stderr, "ebb: %s: %s: only host memory is managed\n", command, gpu->why);
    return true;
}
