/* Blocks with known contents, and kernels that wait. For tests of the engine on the fake driver. */
#ifndef CUDA_KNOWN_H
#define CUDA_KNOWN_H

#include "base/clock.h"
#include "base/tuning.h"
#include "cuda_program.h"

#define MIB ((uint64_t)1 << 20)

static inline void set_patience(const char *value)
{
    char text[64];
    struct ebb_error error;
    snprintf(text, sizeof text, "cuda_patience_ns=%s", value);
    RIG_MUST(ebb__tuning_set(text, &error) == EBB_OK);
}

/* ---- kernels that wait ----------------------------------------------------------------------- */

static _Atomic int gate_is_open, gate_was_reached, peer_has_run;

static void kernel_gate(struct fakecuda_kernel *k)
{
    atomic_store(&gate_was_reached, 1);
    while (!atomic_load(&gate_is_open))
        fakecuda_yield(k);
}

static void kernel_await_peer(struct fakecuda_kernel *k)
{
    fakecuda_read(k, fakecuda_pointer(k, 0), 4);
    while (!atomic_load(&peer_has_run))
        fakecuda_yield(k);
}

static void kernel_peer(struct fakecuda_kernel *k)
{
    fakecuda_read(k, fakecuda_pointer(k, 0), 4);
    atomic_store(&peer_has_run, 1);
}

static void kernel_pause(struct fakecuda_kernel *k)
{
    const struct timespec pause = {.tv_nsec = 100000000};
    (void)k;
    nanosleep(&pause, NULL);
}

static void kernel_wild(struct fakecuda_kernel *k) /* the device fails */
{
    fakecuda_write(k, 16, 4);
}

static const unsigned short pointer_sizes[] = {8};
static const struct fakecuda_entry waiting_kernels[] = {
    {"gate", kernel_gate, 0, NULL},
    {"await_peer", kernel_await_peer, 1, pointer_sizes},
    {"peer", kernel_peer, 1, pointer_sizes},
    {"pause", kernel_pause, 0, NULL},
    {"wild", kernel_wild, 0, NULL}};
static const struct fakecuda_image waiting_image = {FAKECUDA_MAGIC, 5, waiting_kernels, 0, NULL};

static inline CUfunction waiting(struct rig *rig, const char *name)
{
    static CUmodule module;
    CUfunction function;
    if (!module)
        RIG_OK(rig->call.cuModuleLoadData(&module, &waiting_image));
    RIG_OK(rig->call.cuModuleGetFunction(&function, module, name));
    return function;
}

/* ---- a block with known contents ------------------------------------------------------------- */

struct known {
    CUdeviceptr address;
    uint64_t bytes;
    uint32_t salt;
};

static inline CUresult known_alloc(struct rig *rig, struct known *known, uint64_t bytes)
{
    *known = (struct known){.bytes = bytes};
    return ebb__cuda_alloc(rig->engine, bytes, EBB_CUDA_NO_STREAM, &known->address);
}

static inline void known_fill(struct rig *rig, struct known *known, CUstream stream, uint32_t salt)
{
    void *parameters[] = {&known->address, &known->bytes, &salt};
    struct ebb_cuda_use use = {known->address, 0, EBB_ACCESS_WRITE};
    known->salt = salt;
    RIG_OK(rig_launch(rig, rig_function(rig, "fill"), stream, parameters, &use, 1, false));
}

static inline void known_use(struct rig *rig, const struct known *known, const char *kernel,
                             CUstream stream)
{
    CUdeviceptr address = known->address;
    void *parameters[] = {&address};
    struct ebb_cuda_use use = {address, 0, EBB_ACCESS_READ};
    RIG_OK(rig_launch(rig, waiting(rig, kernel), stream, parameters, &use, 1, false));
}

static inline void known_check(struct rig *rig, const struct known *known, CUstream stream)
{
    uint32_t words[WORDS];
    for (unsigned place = 0; place < PLACES; place++) {
        CUdeviceptr from = place_of(known->address, known->bytes, place);
        struct ebb_cuda_use use = {from, sizeof words, EBB_ACCESS_READ};
        struct ebb_cuda_work work = {
            .kind = EBB_CUDA_COPY, .stream = stream, .uses = &use, .use_count = 1};
        ebb__cuda_begin(rig->engine, &work);
        RIG_OK(rig->call.cuMemcpyDtoHAsync_v2(words, from, sizeof words, stream));
        ebb__cuda_end(rig->engine, &work, true);
        RIG_OK(rig->driver.cuStreamSynchronize(stream));
        for (unsigned i = 0; i < WORDS; i++)
            RIG_MUST(words[i] == filled(known->salt, place, i));
    }
}

static inline void start(struct rig *rig, uint64_t budget_bytes)
{
    rig_init(rig, budget_bytes);
    rig_start(rig);
    RIG_OK(rig->call.cuModuleLoadData(&rig->module, &program_image));
}

static inline CUstream new_stream(struct rig *rig)
{
    CUstream stream;
    RIG_OK(rig->driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

/* Block `a` comes back and stays in use until the peer has run. The peer needs `b`, whose place `a`
 * took, and `c` must leave first. Then `a` itself would have to. At the end, all of them are
 * right. */
static inline void known_peers(struct rig *rig, CUstream one, CUstream two)
{
    struct known a, b, c;
    RIG_OK(known_alloc(rig, &a, 4 * MIB));
    known_fill(rig, &a, one, 1);
    RIG_OK(known_alloc(rig, &b, 4 * MIB));
    known_fill(rig, &b, two, 2);
    RIG_OK(known_alloc(rig, &c, 4 * MIB)); /* a leaves */
    known_fill(rig, &c, two, 3);
    RIG_OK(rig->call.cuCtxSynchronize());
    known_use(rig, &a, "await_peer", one);
    known_use(rig, &b, "peer", two);
    known_use(rig, &c, "peer", two);
    RIG_OK(rig->call.cuCtxSynchronize());
    for (unsigned i = 0; i < 3; i++) { /* what strayed comes back */
        known_check(rig, &a, one);
        known_check(rig, &b, two);
        known_check(rig, &c, two);
    }
}

#endif
