/* The door's place in a run without a run: for tests of the library with its engine, on the fake
 * driver. The budget of each device is EBB_ALONE_BUDGET in bytes, else it has none. EBB_ALONE_CHAOS
 * is the seed of random evictions. EBB_ALONE_NATIVE: nothing moves. Nobody reads the ring. */
#include "../shim/cuda/attach.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

bool ebb__attach_hello(void)
{
    return true;
}

static uint64_t number(const char *name, uint64_t usual)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 0) : usual;
}

static void *map(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

bool ebb__attach(CUdevice device, uint64_t bytes, const char *name,
                 struct ebb_cuda_attachment *attachment)
{
    (void)device, (void)bytes, (void)name;
    struct ebb_ledger *ledger = map(sizeof *ledger);
    struct ebb_ring *ring = map(ebb__ring_bytes(EBB_RING_EVENTS));
    if (!ledger || !ring)
        return false;
    ledger->magic = EBB_LEDGER_MAGIC;
    ledger->slot_count = EBB_LEDGER_SLOTS;
    atomic_store(&ledger->budget_bytes, number("EBB_ALONE_BUDGET", UINT64_MAX));
    atomic_store(&ledger->in_force, 1);
    ebb__ring_init(ring, EBB_RING_EVENTS, 0);
    atomic_store(&ring->parent_gone, 1);
    *attachment = (struct ebb_cuda_attachment){
        .ledger = ledger,
        .slot = &ledger->slots[1],
        .ring = ring,
        .backing = getenv("EBB_ALONE_NATIVE") ? EBB_CUDA_NATIVE : EBB_CUDA_MANAGED,
        .host_budget_bytes = UINT64_MAX,
        .pinned_budget_bytes = UINT64_MAX,
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
