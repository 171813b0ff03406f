/* Measures the cost of a page move, in us, and its cost to other cores. Each move flushes TLB
 * entries on every core that runs the program.
 *
 *     bench_page_moves
 *
 * The host's device moves a huge page, and 384 small pages, between arena and staging. Meanwhile a
 * thread of the program computes on another core. Measured are the time of the mover, and the time
 * that the thread loses in interruptions of more than a microsecond. Prints one JSON object with
 * medians of ROUNDS rounds. */
#include "base/clock.h"
#include "base/order.h"
#include "device/device.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#define ROUNDS 9
#define UNITS 32
#define SMALL_BYTES ((uint64_t)384 * EBB_PAGE_BYTES)
#define PIECE_NS 1000

static _Atomic bool stopping;
static _Atomic uint64_t lost_ns;

/* Stands for a computing thread: reads the clock repeatedly and adds up the interruptions. */
static void *compute(void *unused)
{
    (void)unused;
    for (uint64_t last = ebb__now_ns(); !atomic_load(&stopping);) {
        uint64_t now = ebb__now_ns();
        if (now - last > PIECE_NS)
            atomic_fetch_add(&lost_ns, now - last);
        last = now;
    }
    return NULL;
}

struct cost {
    uint64_t own_ns, others_ns;
};

static bool there_and_back(const struct ebb_device *device, uint64_t bytes)
{
    const struct ebb_device_layout *layout = &device->layout;
    for (int back = 0; back < 2; back++) {
        for (uint64_t i = 0; i < UNITS; i++) {
            uintptr_t home = layout->arena.base + i * EBB_HUGE_BYTES;
            uintptr_t aside = layout->staging.base + i * EBB_HUGE_BYTES;
            uint64_t moved;
            if (device->ops->move(device->state, back ? home : aside, back ? aside : home, bytes,
                                  &moved) != EBB_DEVICE_OK)
                return false;
        }
    }
    return true;
}

static bool measure(const struct ebb_device *device, uint64_t bytes, struct cost *cost)
{
    uint64_t own[ROUNDS], others[ROUNDS];
    for (uint64_t i = 0; i < UNITS; i++)
        if (device->ops->fresh(device->state, device->layout.arena.base + i * EBB_HUGE_BYTES,
                               bytes) != EBB_DEVICE_OK)
            return false;
    for (size_t round = 0; round < ROUNDS; round++) {
        uint64_t began = ebb__now_ns(), lost = atomic_load(&lost_ns);
        if (!there_and_back(device, bytes))
            return false;
        own[round] = (ebb__now_ns() - began) / (2 * UNITS);
        others[round] = (atomic_load(&lost_ns) - lost) / (2 * UNITS);
    }
    device->ops->release(device->state, device->layout.arena.base, UNITS * EBB_HUGE_BYTES);
    *cost = (struct cost){ebb__median_u64(own, ROUNDS), ebb__median_u64(others, ROUNDS)};
    return true;
}

int main(void)
{
    struct ebb_device device = {0};
    struct ebb_error error;
    struct cost huge, small;
    pthread_t thread;
    if (ebb__host_create(4 * UNITS * EBB_HUGE_BYTES, &device, &error) != EBB_OK) {
        fprintf(stderr, "bench_page_moves: %s\n", error.why);
        return 1;
    }
    if (pthread_create(&thread, NULL, compute, NULL) != 0)
        return 1;
    bool good = measure(&device, EBB_HUGE_BYTES, &huge) && measure(&device, SMALL_BYTES, &small);
    atomic_store(&stopping, true);
    pthread_join(thread, NULL);
    if (!good) {
        fprintf(stderr, "bench_page_moves: a move failed\n");
        return 1;
    }
    printf("{\"device\": %u, \"huge_us\": %.1f, \"huge_others_us\": %.1f, \"small_384_us\": %.1f, "
           "\"small_384_others_us\": %.1f}\n",
           (unsigned)device.ops->kind, (double)huge.own_ns / 1e3, (double)huge.others_ns / 1e3,
           (double)small.own_ns / 1e3, (double)small.others_ns / 1e3);
    return 0;
}
