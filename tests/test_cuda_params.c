/* shim/cuda/params.c: layouts of parameters and the scan, on a driver of three functions. */
#include "../shim/cuda/params.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define FIRST ((CUdeviceptr)0x700000000000)
#define BYTES ((uint64_t)1 << 20)

/* ---- what params.c and job.c need ------------------------------------------------------------ */

struct ebb_real ebb__real;
_Atomic CUdeviceptr ebb__blocks_first = FIRST;
_Atomic uint64_t ebb__blocks_bytes = BYTES;
atomic_int ebb__engines_only;

struct ebb_cuda *ebb__engines_at(CUdevice device)
{
    (void)device;
    return NULL;
}

/* A hole at the end belongs to nobody. */
void ebb__unheard_note(void)
{
}

int ebb__engines_owner(CUdeviceptr address)
{
    return address - FIRST < BYTES - 4096 ? 3 : -1;
}

bool ebb__stream_is_elsewhere(CUstream stream, CUdevice device)
{
    (void)stream, (void)device;
    return false;
}

int ebb__engines_hearing(void)
{
    return -1;
}

bool ebb__stream_is_captured(CUstream stream)
{
    (void)stream;
    return false;
}

CUresult ebb__cuda_begin(struct ebb_cuda *engine, struct ebb_cuda_work *work)
{
    (void)engine, (void)work;
    return CUDA_SUCCESS;
}

void ebb__cuda_end(struct ebb_cuda *engine, struct ebb_cuda_work *work, bool is_queued)
{
    (void)engine, (void)work, (void)is_queued;
}

/* ---- the driver ------------------------------------------------------------------------------ */

struct function {
    const char *name;
    size_t count, sizes[200];
    bool is_kernel;
};

static _Atomic unsigned questions; /* for first parameters */

static CUresult ask(const struct function *function, bool as_kernel, size_t index, size_t *offset,
                    size_t *bytes)
{
    if (index == 0)
        questions++;
    if (function->is_kernel != as_kernel)
        return CUDA_ERROR_INVALID_HANDLE;
    if (index >= function->count)
        return CUDA_ERROR_INVALID_VALUE;
    *offset = 0; /* nobody needs it */
    *bytes = function->sizes[index];
    return CUDA_SUCCESS;
}

static CUresult ask_function(CUfunction function, size_t index, size_t *offset, size_t *bytes)
{
    return ask((const struct function *)(const void *)function, false, index, offset, bytes);
}

static CUresult ask_kernel(CUkernel kernel, size_t index, size_t *offset, size_t *bytes)
{
    return ask((const struct function *)(const void *)kernel, true, index, offset, bytes);
}

static CUresult function_name(const char **name, CUfunction function)
{
    *name = ((const struct function *)(const void *)function)->name;
    return CUDA_SUCCESS;
}

static CUresult kernel_name(const char **name, CUkernel kernel)
{
    *name = ((const struct function *)(const void *)kernel)->name;
    return CUDA_SUCCESS;
}

static int set_up(void **state)
{
    (void)state;
    ebb__real.cuFuncGetParamInfo = ask_function;
    ebb__real.cuKernelGetParamInfo = ask_kernel;
    ebb__real.cuFuncGetName = function_name;
    ebb__real.cuKernelGetName = kernel_name;
    atomic_store(&ebb__engines_only, 3);
    atomic_store(&ebb__blocks_bytes, BYTES);
    questions = 0;
    return 0;
}

static CUfunction handle(struct function *function)
{
    return (CUfunction)(void *)function;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_words(void **state)
{
    (void)state;
    static struct function f = {"words", 5, {8, 4, 8, 8, 8}, false};
    CUdeviceptr first = FIRST, last = FIRST + BYTES - 1, before = FIRST - 1, behind = FIRST + BYTES;
    int word = 1;
    void *parameters[] = {&first, &word, &before, &last, &behind};
    struct door_job job;
    ebb__job_init(&job);
    assert_int_not_equal(0, ebb__params_scan(&job, handle(&f), parameters, NULL));
    assert_int_equal(2, job.count);
    assert_true(job.uses[0].address == first && job.uses[0].bytes == 0);
    assert_int_equal(DOOR_READ_WRITE, job.uses[0].access);
    assert_true(job.uses[1].address == last);
    assert_int_equal(1u << 3, job.owners);
    ebb__job_end(&job, CUDA_SUCCESS);
}

/* A parameter that is too short for a pointer is not read. What is behind it is not, either. */
static void test_short_parameters(void **state)
{
    (void)state;
    static struct function f = {"short", 3, {4, 7, 1}, false};
    char *guarded = malloc(4);
    CUdeviceptr pointer = FIRST;
    void *parameters[] = {guarded, &pointer, &pointer};
    struct door_job job;
    memset(guarded, 0, 4);
    ebb__job_init(&job);
    ebb__params_scan(&job, handle(&f), parameters, NULL);
    assert_int_equal(0, job.count);
    ebb__job_end(&job, CUDA_SUCCESS);
    free(guarded);
}

/* Each multiple of 4 in a struct may be an address, up to its last 8 bytes. */
static void test_structs(void **state)
{
    (void)state;
    static struct function f = {"struct", 1, {44}, false};
    for (size_t at = 0; at + 8 <= 44; at++) {
        char *packed = calloc(1, 44); /* a sanitizer sees reads behind it */
        CUdeviceptr pointer = FIRST + 100;
        memcpy(packed + at, &pointer, 8);
        void *parameters[] = {packed};
        struct door_job job;
        ebb__job_init(&job);
        ebb__params_scan(&job, handle(&f), parameters, NULL);
        if (at % 4 == 0)
            assert_int_equal(1, job.count);
        for (size_t i = 0; i < job.count; i++)
            if (at % 4 == 0)
                assert_true(job.uses[i].address == pointer);
        ebb__job_end(&job, CUDA_SUCCESS);
        free(packed);
    }
}

static void test_extra(void **state)
{
    (void)state;
    static struct function f = {"extra", 2, {8, 8}, false};
    CUdeviceptr image[3] = {FIRST + 8, 0, FIRST + 16};
    size_t bytes = sizeof image;
    struct door_job job;
    void *usual[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, image, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};
    void *turned[] = {CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_BUFFER_POINTER, image,
                      CU_LAUNCH_PARAM_END};
    void *without_size[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, image, CU_LAUNCH_PARAM_END};
    void *empty[] = {CU_LAUNCH_PARAM_END};
    void **const all[] = {usual, turned, without_size, empty, NULL};
    static const size_t counts[] = {2, 2, 0, 0, 0};
    for (size_t i = 0; i < 5; i++) {
        ebb__job_init(&job);
        ebb__params_scan(&job, handle(&f), NULL, all[i]);
        assert_int_equal(counts[i], job.count);
        ebb__job_end(&job, CUDA_SUCCESS);
    }
}

/* More uses than a job has room for without an allocation. */
static void test_many(void **state)
{
    (void)state;
    static struct function f = {"many", 200, {0}, false};
    CUdeviceptr values[200];
    void *parameters[200];
    struct door_job job;
    for (size_t i = 0; i < 200; i++) {
        f.sizes[i] = 8;
        values[i] = FIRST + 8 * i;
        parameters[i] = &values[i];
    }
    ebb__job_init(&job);
    ebb__params_scan(&job, handle(&f), parameters, NULL);
    assert_int_equal(200, job.count);
    for (size_t i = 0; i < 200; i++)
        assert_true(job.uses[i].address == values[i]);
    ebb__job_end(&job, CUDA_SUCCESS);
}

/* With several engines, each is asked; an address of none is left out. */
static void test_several_engines(void **state)
{
    (void)state;
    static struct function f = {"several", 2, {8, 8}, false};
    CUdeviceptr mine = FIRST, nobodys = FIRST + BYTES - 1;
    void *parameters[] = {&mine, &nobodys};
    struct door_job job;
    atomic_store(&ebb__engines_only, -1);
    ebb__job_init(&job);
    ebb__params_scan(&job, handle(&f), parameters, NULL);
    assert_int_equal(1, job.count);
    assert_int_equal(1u << 3, job.owners);
    ebb__job_end(&job, CUDA_SUCCESS);
}

static uint64_t scan_once(struct function *f)
{
    CUdeviceptr value = FIRST;
    void *parameters[200];
    struct door_job job;
    for (size_t i = 0; i < 200; i++)
        parameters[i] = &value;
    ebb__job_init(&job);
    uint64_t name = ebb__params_scan(&job, handle(f), parameters, NULL);
    ebb__job_end(&job, CUDA_SUCCESS);
    return name;
}

/* The driver is asked once, and once more after an unload. The name is that of the function. */
static void test_cache(void **state)
{
    (void)state;
    static struct function f = {"cached", 1, {8}, false}, g = {"cached", 2, {8, 8}, false},
                           h = {"other", 1, {8}, false};
    uint64_t name = scan_once(&f);
    scan_once(&f);
    assert_int_equal(1, questions);
    assert_true(scan_once(&g) == name);
    assert_true(scan_once(&h) != name);
    assert_int_equal(3, questions);
    ebb__params_forget();
    f.name = "renamed"; /* another function has the handle now */
    f.count = 0;
    assert_true(scan_once(&f) != name);
    assert_int_equal(4, questions);
    scan_once(&f);
    assert_int_equal(4, questions);
}

static void test_kernels(void **state)
{
    (void)state;
    static struct function known = {"known", 1, {8}, true}, unknown = {"unknown", 1, {8}, true};
    ebb__params_know_kernel((CUkernel)(void *)&known);
    assert_int_not_equal(0, scan_once(&known));
    assert_int_equal(1, questions);
    assert_int_not_equal(0, scan_once(&unknown)); /* asked as a function first */
    assert_int_equal(3, questions);
    ebb__params_forget();
    scan_once(&unknown); /* what it is was learned */
    assert_int_equal(4, questions);
}

/* Without blocks there is nothing to look for, and nobody is asked. */
static void test_no_blocks(void **state)
{
    (void)state;
    static struct function f = {"early", 1, {8}, false};
    atomic_store(&ebb__blocks_bytes, 0);
    assert_int_equal(0, scan_once(&f));
    assert_int_equal(0, questions);
}

#define FUNCTIONS 64
static struct function shared[FUNCTIONS];

static void *launch_all(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument;
    for (int i = 0; i < 20000; i++) {
        seed = seed * 1664525u + 1013904223u;
        if (seed >> 24 == 0)
            ebb__params_forget();
        struct function *f = &shared[(seed >> 8) % FUNCTIONS];
        CUdeviceptr value = FIRST;
        void *parameters[] = {&value, &value, &value, &value};
        struct door_job job;
        ebb__job_init(&job);
        ebb__params_scan(&job, handle(f), parameters, NULL);
        if (job.count != f->count)
            return argument;
        ebb__job_end(&job, CUDA_SUCCESS);
    }
    return NULL;
}

/* Threads look up, add and forget at the same time. Layouts stay right. */
static void test_threads(void **state)
{
    (void)state;
    pthread_t threads[4];
    for (size_t i = 0; i < FUNCTIONS; i++)
        shared[i] = (struct function){"shared", i % 4 + 1, {8, 8, 8, 8}, i % 2};
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(0,
                         pthread_create(&threads[i], NULL, launch_all, (void *)(uintptr_t)(i + 1)));
    for (size_t i = 0; i < 4; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_words, set_up),
        cmocka_unit_test_setup(test_short_parameters, set_up),
        cmocka_unit_test_setup(test_structs, set_up),
        cmocka_unit_test_setup(test_extra, set_up),
        cmocka_unit_test_setup(test_many, set_up),
        cmocka_unit_test_setup(test_several_engines, set_up),
        cmocka_unit_test_setup(test_cache, set_up),
        cmocka_unit_test_setup(test_kernels, set_up),
        cmocka_unit_test_setup(test_no_blocks, set_up),
        cmocka_unit_test_setup(test_threads, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
