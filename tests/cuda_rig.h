/* An engine on the fake driver, for tests. The fake is the library of FAKECUDA_LIBRARY; it reads
 * its settings when it is initialised, once a process. So each test of other settings is a child
 * (rig_child). */
#ifndef CUDA_RIG_H
#define CUDA_RIG_H

#include "cuda/internal.h"
#include "fakecuda/fakecuda.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define RIG_CALLS(X)                                                                               \
    X(cuInit)                                                                                      \
    X(cuDevicePrimaryCtxRetain)                                                                    \
    X(cuCtxSetCurrent)                                                                             \
    X(cuCtxSynchronize)                                                                            \
    X(cuModuleLoadData)                                                                            \
    X(cuModuleGetFunction)                                                                         \
    X(cuLaunchKernel)                                                                              \
    X(cuMemcpyHtoD_v2)                                                                             \
    X(cuMemcpyDtoH_v2)                                                                             \
    X(cuMemcpyDtoHAsync_v2)                                                                        \
    X(cuMemcpyHtoDAsync_v2)                                                                        \
    X(cuStreamQuery)                                                                               \
    X(cuStreamBeginCapture_v2)                                                                     \
    X(cuStreamEndCapture)                                                                          \
    X(cuGraphInstantiateWithFlags)                                                                 \
    X(cuGraphLaunch)                                                                               \
    X(cuGraphExecDestroy)                                                                          \
    X(cuGraphDestroy)

/* The fake keeps events, streams and contexts, as programs may use handles of dead ones. */
const char *__lsan_default_suppressions(void);
__attribute__((weak, visibility("default"))) const char *__lsan_default_suppressions(void)
{
    return "leak:libfakecuda.so\n";
}

struct rig_calls {
#define RIG_CALL(name) __typeof__(name) *name;
    RIG_CALLS(RIG_CALL)
#undef RIG_CALL
};

struct rig {
    void *library;
    struct rig_calls call;
    struct ebb_cuda_driver driver;
    struct ebb_ledger *ledger, *store_ledger;
    struct ebb_ring *ring;
    struct ebb_cuda_config config;
    struct ebb_cuda *engine;
    CUmodule module;
    void *module_owner;
    _Atomic unsigned unfit; /* works whose blocks did not all fit */
    char warned[2048];
};

static inline void rig_must(int holds, const char *what, int line)
{
    if (holds)
        return;
    fprintf(stderr, "cuda_rig: line %d: not true: %s\n", line, what);
    abort();
}
#define RIG_MUST(holds) rig_must(!!(holds), #holds, __LINE__)
#define RIG_OK(call) RIG_MUST((call) == CUDA_SUCCESS)

static inline void *rig_find(void *library, const char *symbol)
{
    return dlsym(library, symbol);
}

static inline void rig_warn(void *context, const char *message)
{
    struct rig *rig = context;
    size_t used = strlen(rig->warned);
    snprintf(rig->warned + used, sizeof rig->warned - used, "%s\n", message);
}

static inline void rig_load(struct rig *rig)
{
    const char *path = getenv("FAKECUDA_LIBRARY");
    struct ebb_error error = {0};
    rig->library = dlopen(path ? path : FAKECUDA_LIBRARY, RTLD_NOW);
    if (!rig->library)
        fprintf(stderr, "%s\n", dlerror());
    RIG_MUST(rig->library);
#define RIG_CALL(name)                                                                             \
    {                                                                                              \
        void *found = dlsym(rig->library, #name);                                                  \
        RIG_MUST(found);                                                                           \
        memcpy(&rig->call.name, &found, sizeof found);                                             \
    }
    RIG_CALLS(RIG_CALL)
#undef RIG_CALL
    RIG_MUST(ebb__cuda_driver_load(&rig->driver, rig_find, rig->library, &error) == EBB_OK);
    RIG_OK(rig->call.cuInit(0));
}

/* What the engine shares with other processes: zeros, until the process ends. */
static inline void *rig_share(size_t bytes)
{
    void *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    RIG_MUST(shared != MAP_FAILED);
    return shared;
}

static inline struct ebb_ledger *rig_ledger(uint64_t budget_bytes)
{
    struct ebb_ledger *ledger = rig_share(sizeof *ledger);
    ebb__ledger_init(ledger, EBB_LEDGER_SLOTS, budget_bytes);
    atomic_store(&ledger->in_force, 1); /* also without a budget: there is one peak */
    return ledger;
}

static inline struct ebb_ring *rig_ring(void)
{
    struct ebb_ring *ring = rig_share(ebb__ring_bytes(EBB_RING_EVENTS));
    ebb__ring_init(ring, EBB_RING_EVENTS, 0);
    atomic_store(&ring->parent_gone, 1); /* nobody reads it: do not wait */
    return ring;
}

/* The driver, a ledger with that budget, and the configuration. rig_start() makes the engine. */
static inline void rig_init(struct rig *rig, uint64_t budget_bytes)
{
    memset(rig, 0, sizeof *rig);
    rig_load(rig);
    CUcontext context;
    RIG_OK(rig->call.cuDevicePrimaryCtxRetain(&context, 0));
    RIG_OK(rig->call.cuCtxSetCurrent(context));
    rig->ledger = rig_ledger(budget_bytes);
    rig->store_ledger = rig_ledger(UINT64_MAX);
    rig->ring = rig_ring();
    rig->config = (struct ebb_cuda_config){.driver = &rig->driver,
                                           .device = 0,
                                           .context = context,
                                           .backing = EBB_CUDA_MANAGED,
                                           .ledger = rig->ledger,
                                           .slot = &rig->ledger->slots[1],
                                           .store_ledger = rig->store_ledger,
                                           .store_slot = &rig->store_ledger->slots[1],
                                           .ring = rig->ring,
                                           .host_budget_bytes = UINT64_MAX,
                                           .pinned_budget_bytes = UINT64_MAX,
                                           .warn = rig_warn,
                                           .warn_context = rig};
}

static inline void rig_start_at(struct rig *rig, uint32_t first_arrival)
{
    struct ebb_error error = {0};
    if (ebb__cuda_create_at(&rig->config, first_arrival, &rig->engine, &error) != EBB_OK)
        fprintf(stderr, "%s: %s\n", error.what, error.why);
    RIG_MUST(rig->engine);
}

static inline void rig_start(struct rig *rig)
{
    rig_start_at(rig, 2);
}

static inline void rig_stop(struct rig *rig)
{
    ebb__cuda_destroy(rig->engine);
    RIG_MUST(atomic_load(&rig->ledger->held_bytes) == 0);
    RIG_MUST(atomic_load(&rig->ledger->slots[1].held_bytes) == 0);
    RIG_MUST(atomic_load(&rig->store_ledger->slots[1].held_bytes) == 0);
}

static inline CUfunction rig_function(struct rig *rig, const char *name)
{
    CUfunction function;
    RIG_OK(rig->call.cuModuleGetFunction(&function, rig->module, name));
    return function;
}

static inline void rig_begin(struct rig *rig, struct ebb_cuda_work *work)
{
    if (ebb__cuda_begin(rig->engine, work) != CUDA_SUCCESS)
        atomic_fetch_add(&rig->unfit, 1);
}

/* A launch as the library before the driver makes it. */
static inline CUresult rig_launch(struct rig *rig, CUfunction function, CUstream stream,
                                  void **parameters, const struct ebb_cuda_use *uses, size_t count,
                                  bool is_captured)
{
    struct ebb_cuda_work work = {.kind = EBB_CUDA_KERNEL,
                                 .stream = stream,
                                 .is_captured = is_captured,
                                 .uses = uses,
                                 .use_count = count};
    rig_begin(rig, &work);
    CUresult result =
        rig->call.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
    ebb__cuda_end(rig->engine, &work, result == CUDA_SUCCESS);
    return result;
}

/* Runs `body` in a child with these settings ("NAME=value", the last one NULL). Its exit status,
 * 128 + the number of a signal, or 1000 after `limit_s` seconds. */
static inline int rig_child(const char *const *settings, void (*body)(void *), void *context,
                            unsigned limit_s)
{
    pid_t child = fork();
    RIG_MUST(child >= 0);
    if (child == 0) {
        for (; settings && *settings; settings++)
            putenv((char *)(uintptr_t)*settings);
        alarm(limit_s);
        body(context);
        exit(0);
    }
    int status;
    RIG_MUST(waitpid(child, &status, 0) == child);
    if (WIFSIGNALED(status))
        return WTERMSIG(status) == SIGALRM ? 1000 : 128 + WTERMSIG(status);
    return WEXITSTATUS(status);
}

/* A counter of the fake's report. */
static inline uint64_t rig_reported(const char *path, const char *counter)
{
    char text[8192], key[64];
    FILE *file = fopen(path, "r");
    size_t bytes = file ? fread(text, 1, sizeof text - 1, file) : 0;
    text[bytes] = 0;
    if (file)
        fclose(file);
    snprintf(key, sizeof key, "\"%s\": ", counter);
    const char *at = strstr(text, key);
    RIG_MUST(at);
    return strtoull(at + strlen(key), NULL, 10);
}

#endif
