/* A machine with two memories that compute reads and writes in place. Tier 0 is fast (DRAM). Tier
 * 1 is large, cheap and slow (persistent memory, CXL, another NUMA node). Plain data;
 * thread-safe.
 *
 *     struct ebb_tier_machine machine;
 *     status = ebb__tiers_find("optane", &machine, &error);
 *     uint64_t ns = ebb__tier_ns(&machine.tiers[EBB_TIER_SLOW], read_bytes, write_bytes);
 *
 * A tier serves an operand of an operation in `bytes * ns_per_byte`, reads and writes apart, in
 * whole lines. Its latency is paid once an operand: the first line is not prefetched. */
#ifndef EBB_MACHINE_TIERS_H
#define EBB_MACHINE_TIERS_H

#include "base/status.h"
#include "machine/machine.h"

#include <stdbool.h>
#include <stdint.h>

#define EBB_TIER_FAST 0
#define EBB_TIER_SLOW 1
#define EBB_TIER_COUNT 2

struct ebb_tier {
    char name[32];
    uint64_t capacity_bytes; /* 0: not limited */
    double read_ns_per_byte, write_ns_per_byte;
    double latency_ns;    /* of the first line of an operand */
    uint32_t line_bytes;  /* what the medium reads or writes at a time */
    double price_per_gib; /* any currency; 0: not known */
};

struct ebb_tier_machine {
    char name[32];
    struct ebb_tier tiers[EBB_TIER_COUNT];
    struct ebb_lane out; /* fast -> slow; fixed_ns is paid once for a run of pages */
    struct ebb_lane in;  /* slow -> fast */
    bool duplex;         /* false: the two lanes are one */
    uint32_t page_bytes; /* what is placed and moved as a whole; a power of two */
};

/* Time that a tier takes to serve an operand, without its latency, ns. */
double ebb__tier_ns(const struct ebb_tier *tier, uint64_t read_bytes, uint64_t write_bytes);

/* Price of some bytes, in the machine's currency. */
double ebb__tier_price(const struct ebb_tier *tier, uint64_t bytes);

/* Finds the machine of an argument: `optane`, `cxl`, `numa` (measured now), else the path of a
 * JSON file (docs/formats/machine.md). EBB_ERR_ARGUMENT if the name is unknown, EBB_ERR_IO,
 * EBB_ERR_FORMAT if the file is no machine with tiers; *machine is then untouched. */
EBB_NODISCARD enum ebb_status ebb__tiers_find(const char *spec, struct ebb_tier_machine *machine,
                                              struct ebb_error *error);

/* Reads a machine from JSON text; errors use `name` as the file name. */
EBB_NODISCARD enum ebb_status ebb__tiers_read_memory(const void *bytes, size_t size,
                                                     const char *name,
                                                     struct ebb_tier_machine *machine,
                                                     struct ebb_error *error);

/* Measures this machine's memory, and that of its farthest NUMA node as the slow tier. On a
 * machine with one node both tiers are the same memory; *nodes is the number of nodes. Takes
 * about 0.3 s and 128 MiB. EBB_ERR_MEMORY. */
EBB_NODISCARD enum ebb_status ebb__tiers_probe(struct ebb_tier_machine *machine, uint32_t *nodes,
                                               struct ebb_error *error);

#endif
