/* The door's place in a run without a run: for tests of the library with its engine, on the fake
 * driver. The budget of each device is EBB_ALONE_BUDGET in bytes, else it has none. EBB_ALONE_HOST
 * is that of host memory, also of pinned memory. EBB_ALONE_CHAOS is the seed of random evictions.
 * EBB_ALONE_BACKING is managed (usual), vmm-host, vmm-trusting, or native: nothing moves.
 * EBB_ALONE_TUNING sets one tuning number. Nobody reads the ring.
 *
 * In the end, a line for each device is appended to the file EBB_ALONE_REPORT. It has bytes moved
 * out and in, most bytes held, the largest excess over the budget, most bytes in host memory. */
#include "../shim/cuda/attach.h"

#include "base/tuning.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST_DEVICES = 16 };

static struct {
    struct ebb_ledger *ledger;
    struct ebb_ring *ring;
} attached[MOST_DEVICES];
static struct ebb_ledger *store; /* of host memory, for all devices */

static void report_device(int file, size_t i)
{
    const struct ebb_counters *counters = &attached[i].ring->counters;
    const struct ebb_ledger *ledger = attached[i].ledger;
    char line[128];
    int bytes =
        snprintf(line, sizeof line, "%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n",
                 atomic_load(&counters->moved_out_bytes), atomic_load(&counters->moved_in_bytes),
                 atomic_load(&ledger->peak_bytes), atomic_load(&ledger->over_bytes),
                 atomic_load(&counters->store_peak_bytes));
    if (write(file, line, (size_t)bytes) != bytes)
        abort();
}

__attribute__((destructor)) static void report(void)
{
    const char *path = getenv("EBB_ALONE_REPORT");
    int file = path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;
    for (size_t i = 0; i < MOST_DEVICES && file >= 0; i++)
        if (attached[i].ring)
            report_device(file, i);
    if (file >= 0)
        close(file);
}

bool ebb__attach_hello(void)
{
    return true;
}

static uint64_t number(const char *name, uint64_t usual)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 0) : usual;
}

static enum ebb_cuda_backing_kind backing(void)
{
    static const char *const names[EBB_CUDA_BACKING_COUNT] = {
        [EBB_CUDA_MANAGED] = "managed",
        [EBB_CUDA_VMM_HOST] = "vmm-host",
        [EBB_CUDA_VMM_TRUSTING] = "vmm-trusting",
        [EBB_CUDA_NATIVE] = "native",
    };
    const char *name = getenv("EBB_ALONE_BACKING");
    for (unsigned i = 0; name && i < EBB_CUDA_BACKING_COUNT; i++)
        if (!strcmp(name, names[i]))
            return i;
    if (name)
        abort(); /* a test of another backing than it says proves nothing */
    return EBB_CUDA_MANAGED;
}

static void *map(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static struct ebb_ledger *make_ledger(uint64_t budget_bytes)
{
    struct ebb_ledger *ledger = map(sizeof *ledger);
    if (!ledger)
        return NULL;
    ebb__ledger_init(ledger, EBB_LEDGER_SLOTS, budget_bytes);
    atomic_store(&ledger->in_force, 1); /* also without a budget: there is one peak */
    return ledger;
}

/* Calls do not overlap: the engines are made one after the other. */
bool ebb__attach(CUdevice device, uint64_t bytes, const char *name,
                 struct ebb_cuda_attachment *attachment)
{
    (void)bytes, (void)name;
    struct ebb_ledger *ledger = make_ledger(number("EBB_ALONE_BUDGET", UINT64_MAX));
    struct ebb_ring *ring = map(ebb__ring_bytes(EBB_RING_EVENTS));
    if (!store)
        store = make_ledger(number("EBB_ALONE_HOST", UINT64_MAX));
    if (!ledger || !ring || !store || device < 0 || device >= MOST_DEVICES)
        return false;
    attached[device].ledger = ledger;
    attached[device].ring = ring;
    struct ebb_error error = {0};
    const char *tuning = getenv("EBB_ALONE_TUNING");
    if (tuning && ebb__tuning_set(tuning, &error))
        return false;
    ebb__ring_init(ring, EBB_RING_EVENTS, 0);
    atomic_store(&ring->parent_gone, 1);
    *attachment = (struct ebb_cuda_attachment){
        .ledger = ledger,
        .slot = &ledger->slots[1],
        .store_ledger = store,
        .store_slot = &store->slots[1 + device],
        .ring = ring,
        .backing = backing(),
        .host_budget_bytes = number("EBB_ALONE_HOST", UINT64_MAX),
        .pinned_budget_bytes = number("EBB_ALONE_HOST", UINT64_MAX),
        .chaos_seed = number("EBB_ALONE_CHAOS", 0),
    };
    return true;
}

void ebb__attach_serve(CUdevice device, struct ebb_cuda *engine)
{
    (void)device, (void)engine;
}

void ebb__attach_leave(CUdevice device)
{
    (void)device;
}

void ebb__attach_warn(void *context, const char *message)
{
    (void)context;
    fprintf(stderr, "ebb: %s\n", message);
}
