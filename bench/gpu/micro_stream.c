/* Streams: waits for values, host functions, events; what one stream's wait does to others. */
#include "micro.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT 400

static volatile uint32_t *flags; /* pinned */
static CUdeviceptr at(int i)
{
    return (CUdeviceptr)(uintptr_t)(flags + i);
}

static bool reaches(volatile uint32_t *flag, uint32_t value, double us)
{
    double end = now_us() + us;
    while (*flag != value)
        if (now_us() > end)
            return false;
    return true;
}

static void pinned_flags(void)
{
    flags = pinned_alloc(65536);
    memset((void *)(uintptr_t)flags, 0, 65536);
}

static void wait_at_least(CUstream s, CUdeviceptr p, uint32_t v)
{
    T(cu.cuStreamWaitValue32_v2(s, p, v, CU_STREAM_WAIT_VALUE_GEQ));
}

static void write_value(CUstream s, CUdeviceptr p, uint32_t v)
{
    T(cu.cuStreamWriteValue32_v2(s, p, v, CU_STREAM_WRITE_VALUE_DEFAULT));
}

void m_stream_values(void)
{
    if (!cu.cuStreamWaitValue32_v2 || !cu.cuStreamWriteValue32_v2) {
        emit("\"error\": \"no stream memory operations\"");
        return;
    }
    pinned_flags();
    CUstream s = stream_new(), t = stream_new();
    CUdeviceptr device_flag = device_alloc(4096);
    double wait_call[COUNT], write_call[COUNT], echo[COUNT], device_echo[COUNT];
    bool ok = true;
    for (uint32_t i = 0; i < COUNT && ok; i++) { /* the host writes, the stream answers */
        double a = now_us();
        wait_at_least(s, at(0), i + 1);
        double b = now_us();
        write_value(s, at(64), i + 1);
        double c = now_us();
        usleep(20);
        double first = now_us();
        flags[0] = i + 1;
        ok = reaches(&flags[64], i + 1, 1e6);
        echo[i] = now_us() - first;
        wait_call[i] = b - a;
        write_call[i] = c - b;
    }
    emit("\"host_writes_stream_answers\": %s, \"wait_call_us\": %.2f, \"write_call_us\": %.2f, "
         "\"echo_us\": %.2f",
         ok ? "true" : "false", median_of(wait_call, COUNT), median_of(write_call, COUNT),
         median_of(echo, COUNT));
    for (uint32_t i = 0; i < COUNT && ok; i++) { /* one stream writes, another answers */
        wait_at_least(s, device_flag, i + 1);
        write_value(s, at(128), i + 1);
        usleep(20);
        double first = now_us();
        write_value(t, device_flag, i + 1);
        ok = reaches(&flags[128], i + 1, 1e6);
        device_echo[i] = now_us() - first;
    }
    emit("\"stream_writes_stream_answers\": %s, \"us\": %.2f", ok ? "true" : "false",
         median_of(device_echo, COUNT));
    /* A managed flag, as a wait may be asked for on it. */
    CUdeviceptr managed = managed_alloc(2 * MIB);
    CUresult r = cu.cuStreamWaitValue32_v2(s, managed, 0, CU_STREAM_WAIT_VALUE_GEQ);
    CUresult sync = cu.cuStreamSynchronize(s);
    emit("\"wait_on_managed\": \"%s\", \"sync\": \"%s\"", error_text(r), error_text(sync));
}

/* Device time and host time of `COUNT` times `one`, per time. */
static void cost(const char *name, void (*one)(CUstream, int), CUstream s)
{
    CUevent first = event_new(), last = event_new();
    double call[5], device[5];
    for (int round = -1; round < 5; round++) {
        float ms = 0;
        launch(k_spin, 1, s, 4000000, 0, 0); /* the queue fills meanwhile */
        T(cu.cuEventRecord(first, s));
        double begin = now_us();
        for (int i = 0; i < COUNT; i++)
            one(s, i);
        double host = now_us() - begin;
        T(cu.cuEventRecord(last, s));
        T(cu.cuStreamSynchronize(s));
        T(cu.cuEventElapsedTime(&ms, first, last));
        if (round >= 0)
            call[round] = host / COUNT, device[round] = (double)ms * 1e3 / COUNT;
    }
    emit("\"one\": \"%s\", \"host_us\": %.2f, \"device_us\": %.2f", name, median_of(call, 5),
         median_of(device, 5));
}

static CUstream second;
static CUevent events[COUNT];

static void one_launch(CUstream s, int i)
{
    (void)i;
    launch(k_empty, 1, s, 0, 0, 0);
}
static void one_launch_and_wait_value(CUstream s, int i)
{
    (void)i;
    wait_at_least(s, at(0), 0);
    launch(k_empty, 1, s, 0, 0, 0);
}
static void one_launch_and_write_value(CUstream s, int i)
{
    write_value(s, at(1), (uint32_t)i);
    launch(k_empty, 1, s, 0, 0, 0);
}
static void one_launch_and_record(CUstream s, int i)
{
    T(cu.cuEventRecord(events[i], s));
    launch(k_empty, 1, s, 0, 0, 0);
}
static void one_launch_and_wait_event(CUstream s, int i)
{
    T(cu.cuStreamWaitEvent(s, events[i], 0)); /* passed long ago */
    launch(k_empty, 1, s, 0, 0, 0);
}
static void one_launch_and_fresh_event(CUstream s, int i)
{
    T(cu.cuEventRecord(events[i], second));
    T(cu.cuStreamWaitEvent(s, events[i], 0));
    launch(k_empty, 1, s, 0, 0, 0);
}
static void nothing(void *data)
{
    (void)data;
}
static void one_host_function(CUstream s, int i)
{
    (void)i;
    T(cu.cuLaunchHostFunc(s, nothing, NULL));
}
static void one_query(CUstream s, int i)
{
    (void)s;
    (void)cu.cuEventQuery(events[i]);
}
static void one_stream_query(CUstream s, int i)
{
    (void)i;
    (void)cu.cuStreamQuery(s);
}
static void one_create(CUstream s, int i)
{
    (void)s, (void)i;
    CUevent event;
    T(cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    T(cu.cuEventDestroy_v2(event));
}

static void set_flag(void *flag)
{
    *(volatile uint32_t *)flag = 1;
}

void m_stream_costs(void)
{
    pinned_flags();
    CUstream s = stream_new();
    second = stream_new();
    for (int i = 0; i < COUNT; i++)
        T(cu.cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING));
    cost("launch", one_launch, s);
    if (cu.cuStreamWaitValue32_v2) {
        cost("wait value (passed), launch", one_launch_and_wait_value, s);
        cost("write value, launch", one_launch_and_write_value, s);
    }
    cost("record, launch", one_launch_and_record, s);
    cost("wait event (passed), launch", one_launch_and_wait_event, s);
    cost("record in another stream, wait event, launch", one_launch_and_fresh_event, s);
    cost("host function", one_host_function, s);
    cost("event query", one_query, s);
    cost("stream query", one_stream_query, s);
    cost("event create and destroy", one_create, s);
    double host_function[64], event_sync[64];
    for (int i = 0; i < 64; i++) {
        flags[512] = 0;
        double first = now_us();
        T(cu.cuLaunchHostFunc(s, set_flag, (void *)(uintptr_t)&flags[512]));
        reaches(&flags[512], 1, 1e6);
        host_function[i] = now_us() - first;
        T(cu.cuStreamSynchronize(s));
        first = now_us();
        T(cu.cuEventRecord(events[0], s));
        T(cu.cuEventSynchronize(events[0]));
        event_sync[i] = now_us() - first;
    }
    emit("\"host_function_latency_us\": %.1f, \"record_and_synchronize_us\": %.1f",
         median_of(host_function, 64), median_of(event_sync, 64));
}

/* Does work in the last of many streams run while all others wait for a value or an event? */
static void starve(int waiting, bool by_event, int priority)
{
    CUstream streams[64], last, gate = stream_new();
    CUdeviceptr plain = device_alloc(2 * MIB), managed = managed_alloc(2 * MIB);
    void *pinned = pinned_alloc(2 * MIB);
    CUevent opened = event_new();
    flags[0] = flags[64] = flags[65] = flags[66] = 0;
    if (priority == 0)
        last = stream_new();
    else
        T(cu.cuStreamCreateWithPriority(&last, 1, priority));
    prefetch(managed, 2 * MIB, ON_HOST, last);
    if (by_event) {
        wait_at_least(gate, at(0), 1);
        T(cu.cuEventRecord(opened, gate));
    }
    for (int i = 0; i < waiting; i++) {
        streams[i] = stream_new();
        if (by_event)
            T(cu.cuStreamWaitEvent(streams[i], opened, 0));
        else
            wait_at_least(streams[i], at(0), 1);
        launch(k_empty, 1, streams[i], 0, 0, 0);
    }
    launch(k_empty, 1, last, 0, 0, 0);
    write_value(last, at(64), 1);
    bool kernel = reaches(&flags[64], 1, 3e5);
    T(cu.cuMemcpyAsync(plain, (CUdeviceptr)(uintptr_t)pinned, 2 * MIB, last));
    write_value(last, at(65), 1);
    bool copied = reaches(&flags[65], 1, 3e5);
    T(cu.cuMemPrefetchAsync_v2(managed, 2 * MIB, ON_DEVICE, 0, last));
    write_value(last, at(66), 1);
    bool fetched = reaches(&flags[66], 1, 3e5);
    flags[0] = 1;
    CUresult r = cu.cuCtxSynchronize();
    emit("\"waiting_streams\": %d, \"for\": \"%s\", \"priority\": %d, \"kernel_runs\": %d, "
         "\"copy_runs\": %d, \"prefetch_runs\": %d, \"sync\": \"%s\"",
         waiting, by_event ? "event" : "value", priority, kernel, copied, fetched, error_text(r));
}

void m_stream_starvation(void)
{
    if (!cu.cuStreamWaitValue32_v2)
        return;
    pinned_flags();
    const char *connections = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    int least = 0, greatest = 0;
    T(cu.cuCtxGetStreamPriorityRange(&least, &greatest));
    emit("\"connections\": \"%s\", \"priorities\": [%d, %d]", connections ? connections : "", least,
         greatest);
    static const int counts[] = {1, 4, 8, 16, 32, 64};
    for (unsigned i = 0; i < sizeof counts / sizeof *counts; i++)
        starve(counts[i], false, 0);
    starve(64, false, greatest);
    starve(32, true, 0);
    /* Does a managed evict or a VMM call hang while a stream waits? Also cuMemAlloc, cuMemFree. */
    CUstream waiting = stream_new();
    CUdeviceptr managed = managed_alloc(2 * MIB), p;
    prefetch(managed, 2 * MIB, ON_DEVICE, waiting);
    flags[0] = 0;
    wait_at_least(waiting, at(0), 1);
    launch(k_empty, 1, waiting, 0, 0, 0);
    CUstream lane = stream_new();
    emit("\"while_a_stream_waits\": \"begin\"");
    double a = now_us();
    prefetch(managed, 2 * MIB, ON_HOST, lane);
    emit("\"while_a_stream_waits\": \"evict\", \"us\": %.0f", now_us() - a);
    a = now_us();
    prefetch(managed, 2 * MIB, ON_DEVICE, lane);
    emit("\"while_a_stream_waits\": \"fetch\", \"us\": %.0f", now_us() - a);
    a = now_us();
    T(cu.cuMemAlloc_v2(&p, 32 * MIB));
    emit("\"while_a_stream_waits\": \"alloc\", \"us\": %.0f", now_us() - a);
    a = now_us();
    CUdeviceptr more = managed_alloc(64 * MIB);
    emit("\"while_a_stream_waits\": \"alloc managed\", \"us\": %.0f", now_us() - a);
    a = now_us();
    (void)pinned_alloc(2 * MIB);
    emit("\"while_a_stream_waits\": \"host alloc\", \"us\": %.0f", now_us() - a);
    flags[0] = 1;
    T(cu.cuCtxSynchronize());
    T(cu.cuMemFree_v2(more));
}
