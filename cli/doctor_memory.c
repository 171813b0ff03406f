/* What `ebb doctor` says of memory: what page moves cost, memlock, NUMA. */
#include "doctor.h"

#include "base/clock.h"
#include "base/geometry.h"
#include "base/size.h"
#include "device/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#define HUGE_PAGES 16u   /* 32 MiB: a large activation */
#define SMALL_PAGES 256u /* the tails of a few blocks */
#define ROUNDS 4         /* there and back; the best counts, since others disturb */
/* Twice what moves cost on the slowest machine measured (bench/page_moves.c). */
#define SLOW_HUGE_NS 100e3

/* The best time of a page that moves from one range to the other and back, ns; 0: it fails. */
static double move_ns(const struct ebb_device *device, uintptr_t one, uintptr_t other,
                      uint64_t page_bytes, uint64_t pages)
{
    const struct ebb_device_ops *ops = device->ops;
    uint64_t bytes = pages * page_bytes, moved;
    double best = 0;
    if (ops->fresh(device->state, one, bytes) != EBB_DEVICE_OK)
        return 0;
    for (uint64_t at = 0; at < bytes; at += page_bytes)
        *(volatile char *)(one + at) = 1;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t began = ebb__now_ns();
        if (ops->move(device->state, other, one, bytes, &moved) != EBB_DEVICE_OK ||
            ops->move(device->state, one, other, bytes, &moved) != EBB_DEVICE_OK)
            return 0;
        double each = (double)(ebb__now_ns() - began) / 2 / (double)pages;
        best = best > 0 && best < each ? best : each;
    }
    ops->release(device->state, one, bytes);
    return best;
}

static void try_moves(int descriptor)
{
    static struct ebb_device device;
    struct ebb_error error;
    if (ebb__host_create((uint64_t)1 << 30, &device, &error) != EBB_OK)
        _exit(1);
    const struct ebb_device_layout *layout = &device.layout;
    double huge =
        move_ns(&device, layout->staging.base, layout->arena.base, EBB_HUGE_BYTES, HUGE_PAGES);
    double small =
        move_ns(&device, layout->page_stack.base, layout->arena.base, EBB_PAGE_BYTES, SMALL_PAGES);
    dprintf(descriptor, "%.0f %.0f", huge, small);
}

void ebb__doctor_moves(struct ebb_doctor *report)
{
    char text[64], huge[32], small[32];
    double huge_ns = 0, small_ns = 0;
    if (report->support.kind == EBB_DEVICE_NONE)
        return;
    if (!ebb__doctor_try(try_moves, text, sizeof text) ||
        sscanf(text, "%lf %lf", &huge_ns, &small_ns) != 2 || huge_ns <= 0 || small_ns <= 0) {
        ebb__doctor_add(report, "page-moves", EBB_DOCTOR_WARN,
                        "see the line above; programs run with what works", "they do not work");
        return;
    }
    report->huge_move_ns = huge_ns;
    report->small_move_ns = small_ns;
    ebb__doctor_add(report, "page-moves", huge_ns < SLOW_HUGE_NS ? EBB_DOCTOR_OK : EBB_DOCTOR_WARN,
                    "permit userfaultfd (above) and huge pages (below): moves cost less then",
                    "%s for 2 MiB, %s for 4 KiB",
                    ebb_duration_format((uint64_t)huge_ns, huge, sizeof huge),
                    ebb_duration_format((uint64_t)small_ns, small, sizeof small));
}

void ebb__doctor_memlock(struct ebb_doctor *report)
{
    struct rlimit limit = {0};
    char size[32] = "no limit";
    getrlimit(RLIMIT_MEMLOCK, &limit);
    if (limit.rlim_cur != RLIM_INFINITY)
        ebb_size_format((uint64_t)limit.rlim_cur, size, sizeof size);
    ebb__doctor_add(report, "memlock", EBB_DOCTOR_OK, "",
                    "%s: Ebb locks nothing, programs that pin memory may (ulimit -l)", size);
}

void ebb__doctor_numa(struct ebb_doctor *report)
{
    char nodes[64] = "", path[64], line[128];
    unsigned count = 0;
    ebb__doctor_line("/sys/devices/system/node/online", nodes, sizeof nodes);
    for (unsigned i = 0; i < 1024; i++) {
        snprintf(path, sizeof path, "/sys/devices/system/node/node%u/cpulist", i);
        count += ebb__doctor_line(path, line, sizeof line);
    }
    if (count > 1)
        ebb__doctor_add(report, "numa", EBB_DOCTOR_OK, "",
                        "%u nodes (%s): --store memory:NODE evicts to another one", count, nodes);
    else
        ebb__doctor_add(report, "numa", EBB_DOCTOR_OK, "", "one node");
}
