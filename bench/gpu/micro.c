/* Runs the measurements of a GPU's driver: micro FILE KERNELS [NAME...], or prints their names:
 * micro --list
 *
 * Each measurement runs in a child process with a time limit, so that a fault or a hang loses
 * nothing else. Lines of JSON are appended to FILE at once. KERNELS is kernels.ptx. Exits with 77
 * and "no GPU" if there is no driver or no device. */
#include "micro.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SKIPPED 77

struct micro_driver cu;
CUfunction k_empty, k_spin, k_copy, k_read, k_fill, k_gather;
CUcontext micro_context;

static int output = -1;
static const char *current = "", *kernels_path;

static const struct {
    const char *name;
    void (*run)(void);
    int seconds;
} measurements[] = {
    {"info", m_info, 10},
    {"stream_starvation", m_stream_starvation, 15},
    {"prefetch", m_prefetch, 12},
    {"evict", m_evict, 12},
    {"remote", m_remote, 12},
    {"discard", m_discard, 10},
    {"vmm_host", m_vmm_host, 15},
    {"vmm_costs", m_vmm_costs, 12},
    {"vmm_busy", m_vmm_busy, 10},
    {"vmm_beside", m_vmm_beside, 20},
    {"stream_values", m_stream_values, 8},
    {"stream_costs", m_stream_costs, 8},
    {"kernels", m_kernels, 8},
    {"prefetch_busy", m_prefetch_busy, 10},
    {"evict_copies", m_evict_copies, 10},
    {"evict_threads", m_evict_threads, 10},
    {"mixed", m_mixed, 10},
    {"faults", m_faults, 8},
    {"pinned", m_pinned, 10},
    {"allocs", m_allocs, 8},
    {"pointers", m_pointers, 8},
};
#define MEASUREMENTS (sizeof measurements / sizeof *measurements)

double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

void emit(const char *format, ...)
{
    char line[8192];
    int at = snprintf(line, sizeof line, "{\"m\": \"%s\", ", current);
    va_list arguments;
    va_start(arguments, format);
    at += vsnprintf(line + at, sizeof line - (size_t)at - 3, format, arguments);
    va_end(arguments);
    if (at > (int)sizeof line - 3)
        at = (int)sizeof line - 3;
    memcpy(line + at, "}\n", 3);
    if (write(output, line, (size_t)at + 2) < 0)
        _exit(3);
}

const char *error_text(CUresult result)
{
    const char *name = NULL;
    if (result == CUDA_SUCCESS)
        return "ok";
    cu.cuGetErrorName(result, &name);
    return name ? name : "unknown";
}

void micro_check(CUresult result, const char *what, int line)
{
    if (result == CUDA_SUCCESS)
        return;
    char shorter[120];
    size_t at = 0;
    for (; *what && at < sizeof shorter - 1; what++)
        if (*what != '"' && *what != '\\')
            shorter[at++] = *what;
    shorter[at] = 0;
    emit("\"error\": \"%s\", \"line\": %d, \"call\": \"%s\"", error_text(result), line, shorter);
    _exit(4);
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct spread spread_of(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, compare_doubles);
    return (struct spread){values[count / 2], values[0], values[count - 1]};
}

double median_of(double *values, int count)
{
    return spread_of(values, count).median;
}

CUdeviceptr device_alloc(size_t bytes)
{
    CUdeviceptr p;
    T(cu.cuMemAlloc_v2(&p, bytes));
    T(cu.cuMemsetD8Async(p, 0, bytes, NULL));
    T(cu.cuStreamSynchronize(NULL));
    return p;
}

CUdeviceptr managed_alloc(size_t bytes)
{
    CUdeviceptr p;
    T(cu.cuMemAllocManaged(&p, bytes, CU_MEM_ATTACH_GLOBAL));
    return p;
}

void *pinned_alloc(size_t bytes)
{
    void *p;
    T(cu.cuMemHostAlloc(&p, bytes, 0));
    return p;
}

CUstream stream_new(void)
{
    CUstream stream;
    T(cu.cuStreamCreate(&stream, 1)); /* 1: it does not wait for stream 0 */
    return stream;
}

CUevent event_new(void)
{
    CUevent event;
    T(cu.cuEventCreate(&event, 0));
    return event;
}

size_t free_mib(void)
{
    size_t left, total;
    T(cu.cuMemGetInfo_v2(&left, &total));
    return left >> 20;
}

void launch(CUfunction kernel, unsigned blocks, CUstream stream, uint64_t a, uint64_t b, uint64_t c)
{
    void *parameters[] = {&a, &b, &c};
    T(cu.cuLaunchKernel(kernel, blocks, 1, 1, blocks == 1 ? 1 : 256, 1, 1, 0, stream,
                        kernel == k_empty ? NULL : parameters, NULL));
}

double gbps(size_t bytes, double us)
{
    return us > 0 ? (double)bytes / us / 1e3 : 0;
}

double kernel_gbps(CUfunction kernel, CUdeviceptr to, uint64_t from, size_t bytes, size_t moved,
                   CUstream stream)
{
    CUevent first = event_new(), last = event_new();
    float ms = 0;
    T(cu.cuEventRecord(first, stream));
    launch(kernel, 2112, stream, to, from, bytes);
    T(cu.cuEventRecord(last, stream));
    T(cu.cuStreamSynchronize(stream));
    T(cu.cuEventElapsedTime(&ms, first, last));
    T(cu.cuEventDestroy_v2(first));
    T(cu.cuEventDestroy_v2(last));
    return gbps(moved, (double)ms * 1e3);
}

struct timing prefetch(CUdeviceptr base, size_t bytes, CUmemLocation to, CUstream stream)
{
    struct timing t;
    double first = now_us();
    T(cu.cuMemPrefetchAsync_v2(base, bytes, to, 0, stream));
    t.call_us = now_us() - first;
    T(cu.cuStreamSynchronize(stream));
    t.all_us = now_us() - first;
    return t;
}

struct timing copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    struct timing t;
    double first = now_us();
    T(cu.cuMemcpyAsync(to, from, bytes, stream));
    t.call_us = now_us() - first;
    T(cu.cuStreamSynchronize(stream));
    t.all_us = now_us() - first;
    return t;
}

static bool open_driver(void)
{
    cu.library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!cu.library)
        return false;
#define NEED(name)                                                                                 \
    if (!(*(void **)&cu.name = dlsym(cu.library, #name)))                                          \
        return false;
#define TRY(name) *(void **)&cu.name = dlsym(cu.library, #name);
    MICRO_NEEDED(NEED)
    MICRO_OPTIONAL(TRY)
    int count = 0;
    return cu.cuInit(0) == CUDA_SUCCESS && cu.cuDeviceGetCount(&count) == CUDA_SUCCESS && count > 0;
}

static void load_kernels(void)
{
    static char text[32768];
    FILE *file = fopen(kernels_path, "r");
    if (!file || fread(text, 1, sizeof text - 1, file) == 0)
        _exit(5);
    fclose(file);
    CUmodule module;
    T(cu.cuModuleLoadData(&module, text));
    T(cu.cuModuleGetFunction(&k_empty, module, "empty"));
    T(cu.cuModuleGetFunction(&k_spin, module, "spin"));
    T(cu.cuModuleGetFunction(&k_copy, module, "copy"));
    T(cu.cuModuleGetFunction(&k_read, module, "read"));
    T(cu.cuModuleGetFunction(&k_fill, module, "fill"));
    T(cu.cuModuleGetFunction(&k_gather, module, "gather"));
}

static void child(size_t i)
{
    current = measurements[i].name;
    double first = now_us();
    if (!open_driver()) {
        emit("\"error\": \"no GPU\"");
        _exit(SKIPPED);
    }
    T(cu.cuDevicePrimaryCtxRetain(&micro_context, 0));
    T(cu.cuCtxSetCurrent(micro_context));
    load_kernels();
    emit("\"start_ms\": %.0f", (now_us() - first) / 1e3);
    measurements[i].run();
    T(cu.cuCtxSynchronize());
    emit("\"done_ms\": %.0f", (now_us() - first) / 1e3);
    _exit(0);
}

/* Waits for `pid` for at most `seconds`, kills it then, and gives up after 5 seconds more. */
static int wait_for(pid_t pid, int seconds, int *status)
{
    double end = now_us() + seconds * 1e6;
    bool is_killed = false;
    while (waitpid(pid, status, WNOHANG) == 0) {
        if (now_us() > end) {
            if (is_killed)
                return -1;
            emit("\"error\": \"killed after %d s\"", seconds);
            kill(pid, SIGKILL);
            is_killed = true;
            end += 5e6;
        }
        usleep(2000);
    }
    return 0;
}

static bool is_wanted(const char *name, int argc, char **argv)
{
    for (int i = 3; i < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return true;
    return argc <= 3;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (size_t i = 0; i < MEASUREMENTS; i++)
            puts(measurements[i].name);
        return 0;
    }
    if (argc < 3) {
        fputs("usage: micro FILE KERNELS [NAME...], or micro --list\n", stderr);
        return 2;
    }
    output = open(argv[1], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    kernels_path = argv[2];
    if (output < 0) {
        perror(argv[1]);
        return 2;
    }
    for (size_t i = 0; i < MEASUREMENTS; i++) {
        if (!is_wanted(measurements[i].name, argc, argv))
            continue;
        current = measurements[i].name;
        pid_t pid = fork();
        if (pid == 0)
            child(i);
        int status = 0;
        if (pid < 0 || wait_for(pid, measurements[i].seconds, &status) != 0)
            emit("\"error\": \"does not end\"");
        else if (WIFSIGNALED(status))
            emit("\"error\": \"signal %d\"", WTERMSIG(status));
        else if (WEXITSTATUS(status) == SKIPPED) {
            puts("no GPU");
            return SKIPPED;
        }
    }
    return 0;
}
