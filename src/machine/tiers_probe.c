/* Measures two memories of this machine. The slow tier is the NUMA node farthest from node 0, as
 * the kernel's table of distances says. Pages are bound by mbind(2), without libnuma. Rates are of
 * one thread that streams over 64 MiB, medians of some passes; the latency is that of a chain of
 * dependent loads. On a machine with one node both tiers have the same figures. */
#include "machine/tiers.h"

#include "base/clock.h"
#include "base/order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PROBE_BYTES ((size_t)64 << 20) /* larger than the caches of most processors */
#define PASSES 5
#define CHAIN_STEPS 200000
#define STRIDE_BYTES 4160 /* a page and a line: the next load is neither prefetched nor cached */
#define BIND 2            /* MPOL_BIND of mbind(2) */

/* The farthest node from node 0, and the number of nodes. */
static uint32_t farthest_node(uint32_t *nodes)
{
    FILE *file = fopen("/sys/devices/system/node/node0/distance", "r");
    uint32_t farthest = 0, most = 0, distance;
    *nodes = 0;
    while (file && fscanf(file, "%u", &distance) == 1) {
        if (distance > most)
            most = distance, farthest = *nodes;
        ++*nodes;
    }
    if (file)
        fclose(file);
    if (*nodes == 0)
        *nodes = 1;
    return farthest;
}

static unsigned char *pages_on(uint32_t node, uint32_t nodes)
{
    void *pages =
        mmap(NULL, PROBE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED)
        return NULL;
    unsigned long mask = node < 64 ? 1ul << node : 1;
    if (nodes > 1)
        (void)syscall(SYS_mbind, pages, PROBE_BYTES, BIND, &mask, 64, 0);
    memset(pages, 1, PROBE_BYTES);
    return pages;
}

static double read_ns_per_byte(const unsigned char *pages)
{
    uint64_t times[PASSES];
    volatile uint64_t kept = 0;
    for (int pass = 0; pass < PASSES; pass++) {
        const uint64_t *words = (const uint64_t *)(const void *)pages;
        uint64_t sum[8] = {0}, before = ebb__now_ns();
        for (size_t i = 0; i < PROBE_BYTES / sizeof *words; i += 8)
            for (size_t k = 0; k < 8; k++)
                sum[k] += words[i + k];
        times[pass] = ebb__now_ns() - before;
        kept += sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
    }
    return (double)ebb__median_u64(times, PASSES) / (double)PROBE_BYTES;
}

static double write_ns_per_byte(unsigned char *pages)
{
    uint64_t times[PASSES];
    for (int pass = 0; pass < PASSES; pass++) {
        uint64_t before = ebb__now_ns();
        memset(pages, pass, PROBE_BYTES);
        times[pass] = ebb__now_ns() - before;
    }
    return (double)ebb__median_u64(times, PASSES) / (double)PROBE_BYTES;
}

static double chain_ns(unsigned char *pages)
{
    size_t at = 0;
    for (size_t i = 0; i < CHAIN_STEPS; i++) { /* each place holds the next one */
        size_t next = (at + STRIDE_BYTES) % (PROBE_BYTES - sizeof at) / sizeof at * sizeof at;
        memcpy(pages + at, &next, sizeof next);
        at = next;
    }
    uint64_t before = ebb__now_ns();
    at = 0;
    for (size_t i = 0; i < CHAIN_STEPS; i++)
        memcpy(&at, pages + at, sizeof at);
    volatile size_t kept = at;
    (void)kept;
    return (double)(ebb__now_ns() - before) / CHAIN_STEPS;
}

static double copy_ns_per_byte(unsigned char *to, const unsigned char *from)
{
    uint64_t times[PASSES];
    for (int pass = 0; pass < PASSES; pass++) {
        uint64_t before = ebb__now_ns();
        memcpy(to, from, PROBE_BYTES);
        times[pass] = ebb__now_ns() - before;
    }
    return (double)ebb__median_u64(times, PASSES) / (double)PROBE_BYTES;
}

static void tier_measure(struct ebb_tier *tier, const char *name, unsigned char *pages)
{
    *tier = (struct ebb_tier){.line_bytes = 64};
    snprintf(tier->name, sizeof tier->name, "%s", name);
    tier->read_ns_per_byte = read_ns_per_byte(pages);
    tier->write_ns_per_byte = write_ns_per_byte(pages);
    tier->latency_ns = chain_ns(pages);
}

enum ebb_status ebb__tiers_probe(struct ebb_tier_machine *machine, uint32_t *nodes,
                                 struct ebb_error *error)
{
    uint32_t node = farthest_node(nodes);
    unsigned char *fast = pages_on(0, *nodes), *slow = pages_on(node, *nodes);
    if (fast && slow) {
        *machine = (struct ebb_tier_machine){.name = "numa", .page_bytes = 4096};
        machine->out.ns_per_byte = copy_ns_per_byte(slow, fast);
        machine->in.ns_per_byte = copy_ns_per_byte(fast, slow);
        machine->out.fixed_ns = machine->in.fixed_ns = 2000; /* as for the named machines */
        tier_measure(&machine->tiers[EBB_TIER_FAST], "node0", fast);
        char name[32];
        snprintf(name, sizeof name, "node%u", node);
        tier_measure(&machine->tiers[EBB_TIER_SLOW], name, slow);
    }
    bool ok = fast && slow;
    if (fast)
        munmap(fast, PROBE_BYTES);
    if (slow)
        munmap(slow, PROBE_BYTES);
    return ok ? EBB_OK : ebb__fail(error, EBB_ERR_MEMORY, "numa", "no memory to measure with");
}
