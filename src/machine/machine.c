#include "machine/machine.h"

#include "base/geometry.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define NS_PER_BYTE(gigabytes_per_second) (1.0 / (gigabytes_per_second))

/* `autoswap-paper` was fitted by the paper's authors, and `h200` was measured for Ebb. The others
 * are typical figures for pinned, large, sequential transfers. They are meant for comparisons and
 * not for any one product. */
static const struct ebb_machine named[] = {
    /* AutoSwap, arXiv 1903.06631: linear fits of copies between a GTX 1080-class device and pinned
     * host memory, published with its code. */
    {"autoswap-paper", {0.0756, 47200}, {0.0823, 9700}, true, EBB_NO_COSTS},
    /* PCIe x16 carries 15.75 / 31.5 / 63 GB/s a direction. Pinned copies of megabytes usually reach
     * 78-82 % of that. 10 us is the usual launch and completion cost of an asynchronous copy. */
    {"pcie3", {NS_PER_BYTE(12.3), 10000}, {NS_PER_BYTE(12.3), 10000}, true, EBB_NO_COSTS},
    {"pcie4", {NS_PER_BYTE(25.0), 10000}, {NS_PER_BYTE(25.0), 10000}, true, EBB_NO_COSTS},
    {"pcie5", {NS_PER_BYTE(50.0), 10000}, {NS_PER_BYTE(50.0), 10000}, true, EBB_NO_COSTS},
    /* One H200 on PCIe 5 x16: pinned copies of 4 KiB to 256 MiB, from submission to completion
     * (bench/gpu_lanes.c, docs/results/README.md). Both lanes at once keep 85 % or more. */
    {"h200", {0.01811, 6500}, {0.01799, 7600}, true, EBB_NO_COSTS},
    /* NVLink 2.0 between a POWER9 and a V100: 75 GB/s a direction by data sheet. 63 GiB/s were
     * measured (Lutz et al., Pump Up the Volume, SIGMOD 2020). */
    {"nvlink", {NS_PER_BYTE(67.6), 10000}, {NS_PER_BYTE(67.6), 10000}, true, EBB_NO_COSTS},
    /* Six interleaved Optane DC modules: at best 13.9 GB/s write and 39.4 GB/s read, on one shared
     * medium (Izraelevitz et al., arXiv 1903.05714). */
    {"optane", {NS_PER_BYTE(13.9), 1000}, {NS_PER_BYTE(39.4), 1000}, false, EBB_NO_COSTS},
    /* A CXL 1.1 x8 memory expander on PCIe 5 (32 GB/s a direction raw). Such cards were measured at
     * about 20-26 GB/s (Sun et al., Demystifying CXL Memory, MICRO 2023). */
    {"cxl", {NS_PER_BYTE(20.0), 1000}, {NS_PER_BYTE(24.0), 1000}, true, EBB_NO_COSTS},
    /* A PCIe 4 x4 consumer drive by data sheet: 5 GB/s write, 7 GB/s read. */
    {"nvme", {NS_PER_BYTE(5.0), 30000}, {NS_PER_BYTE(7.0), 80000}, false, EBB_NO_COSTS},
    /* A hard disk of 7200 rpm by data sheet: 250 MB/s at the outer edge, a mean seek of 8 ms. To
     * it comes half a turn, 4 ms, because reads and writes alternate. */
    {"hdd", {NS_PER_BYTE(0.25), 12000000}, {NS_PER_BYTE(0.25), 12000000}, false, EBB_NO_COSTS},
};

static const size_t named_count = sizeof named / sizeof named[0];

uint64_t ebb__lane_ns(const struct ebb_lane *lane, uint64_t bytes)
{
    /* At most 13 days, so that sums of times cannot overflow. */
    double ns = (double)bytes * lane->ns_per_byte;
    return lane->fixed_ns + (ns < 0x1p50 ? (uint64_t)llround(ns) : (uint64_t)1 << 50);
}

uint64_t ebb__machine_transfer_ns(const struct ebb_machine *machine, uint64_t bytes)
{
    const struct ebb_transfer_costs *costs = &machine->costs;
    uint64_t huge = bytes / EBB_HUGE_BYTES;
    uint64_t small = (bytes % EBB_HUGE_BYTES + EBB_PAGE_BYTES - 1) / EBB_PAGE_BYTES;
    double ns = (double)huge * costs->huge_page_ns + (double)small * costs->small_page_ns +
                (double)bytes * costs->ns_per_byte + (double)costs->fixed_ns;
    return ns < 0x1p50 ? (uint64_t)llround(ns) : (uint64_t)1 << 50;
}

const char *ebb__machine_name(size_t index)
{
    return index < named_count ? named[index].name : NULL;
}

enum ebb_status ebb__machine_named(const char *name, struct ebb_machine *machine,
                                   struct ebb_error *error)
{
    for (size_t i = 0; i < named_count; i++) {
        if (strcmp(named[i].name, name) == 0) {
            *machine = named[i];
            return EBB_OK;
        }
    }
    char known[256] = "known: ";
    for (size_t i = 0; i < named_count; i++) {
        strncat(known, named[i].name, sizeof known - strlen(known) - 1);
        strncat(known, ", ", sizeof known - strlen(known) - 1);
    }
    ebb__fail(error, EBB_ERR_ARGUMENT, name, "no machine of this name");
    ebb__error_set_remedy(error, "%shost, or a JSON file", known);
    return EBB_ERR_ARGUMENT;
}

enum ebb_status ebb__machine_find(const char *spec, struct ebb_machine *machine,
                                  struct ebb_error *error)
{
    if (strchr(spec, '/') || strchr(spec, '.'))
        return ebb__machine_read(spec, machine, error);
    return ebb__machine_named(spec, machine, error);
}
