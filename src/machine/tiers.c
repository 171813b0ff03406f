#include "machine/tiers.h"

#include "base/file.h"
#include "base/size.h"

#include <stdlib.h>
#include <string.h>

#define GB_S(gigabytes_per_second) (1.0 / (gigabytes_per_second)) /* as ns a byte */

/* Each constant has its source here; docs/papers.md lists the sources.
 *
 * optane: one socket with six interleaved modules, Izraelevitz et al., arXiv 1903.05714. They
 * read 39.4 GB/s and write 13.9 GB/s, in lines of 256 B. A random read takes 305 ns, and 81 ns in
 * DRAM. DRAM is six channels of DDR4-2666, 128 GB/s by data sheet; 80 % of that is usual. A copy
 * has the rate of the slower end. Prices are of 2019: 577 USD recommended for a module of 128 GB,
 * so 4.5 USD a GiB. DRAM is assumed to cost twice that.
 *
 * cxl: a card of one DDR channel behind PCIe 5 x8, Sun et al., Demystifying CXL Memory, MICRO
 * 2023. Such cards reach 20 to 26 GB/s. They take 2 to 3 times the latency of local DDR5, about
 * 110 ns. DRAM is eight channels of DDR5-4800, 307 GB/s by data sheet, 80 % of that. Prices are
 * assumed: DDR5 at 5 USD a GiB, and DDR4 reused behind CXL at half of that.
 *
 * Both: a run of pages is moved by one call, which costs about 2 us (arbitrary: a system call and
 * the interrupts to other processors). Pages are of 4 KiB. */
static const struct ebb_tier_machine named[] = {
    {.name = "optane",
     .tiers = {{"dram", 0, GB_S(102.4), GB_S(102.4), 81, 64, 9.0},
               {"optane", 0, GB_S(39.4), GB_S(13.9), 305, 256, 4.5}},
     .out = {GB_S(13.9), 2000},
     .in = {GB_S(39.4), 2000},
     .duplex = false,
     .page_bytes = 4096},
    {.name = "cxl",
     .tiers = {{"dram", 0, GB_S(245.8), GB_S(245.8), 110, 64, 5.0},
               {"cxl", 0, GB_S(24.0), GB_S(20.0), 275, 64, 2.5}},
     .out = {GB_S(20.0), 2000},
     .in = {GB_S(24.0), 2000},
     .duplex = true,
     .page_bytes = 4096},
};

static uint64_t lines(uint64_t bytes, uint32_t line_bytes)
{
    return line_bytes > 1 ? (bytes + line_bytes - 1) / line_bytes * line_bytes : bytes;
}

double ebb__tier_ns(const struct ebb_tier *tier, uint64_t read_bytes, uint64_t write_bytes)
{
    return (double)lines(read_bytes, tier->line_bytes) * tier->read_ns_per_byte +
           (double)lines(write_bytes, tier->line_bytes) * tier->write_ns_per_byte;
}

double ebb__tier_price(const struct ebb_tier *tier, uint64_t bytes)
{
    return (double)bytes / (double)EBB_GIB * tier->price_per_gib;
}

enum ebb_status ebb__tiers_find(const char *spec, struct ebb_tier_machine *machine,
                                struct ebb_error *error)
{
    uint32_t nodes;
    if (strchr(spec, '/') || strchr(spec, '.')) {
        struct ebb_file_content content;
        enum ebb_status status = ebb__file_read(spec, "a machine", 0, NULL, &content, error);
        if (!status)
            status = ebb__tiers_read_memory(content.bytes, content.size, spec, machine, error);
        free(content.bytes);
        return status;
    }
    if (strcmp(spec, "numa") == 0)
        return ebb__tiers_probe(machine, &nodes, error);
    for (size_t i = 0; i < sizeof named / sizeof named[0]; i++) {
        if (strcmp(named[i].name, spec) == 0) {
            *machine = named[i];
            return EBB_OK;
        }
    }
    ebb__fail(error, EBB_ERR_ARGUMENT, spec, "no machine with tiers has this name");
    ebb__error_set_remedy(error, "known: optane, cxl, numa, or a JSON file with tiers");
    return EBB_ERR_ARGUMENT;
}
