/* The machine: what planner and simulator believe about lanes. (Tiers and prices join it with the
 * planners that use them.) Plain data; thread-safe. */
#ifndef EBB_MACHINE_MACHINE_H
#define EBB_MACHINE_MACHINE_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A lane: a serial transfer resource in one direction; bytes cost ns_per_byte and each transfer
 * fixed_ns on top. */
struct ebb_lane {
    double ns_per_byte;
    uint64_t fixed_ns;
};

struct ebb_machine {
    char name[32];
    struct ebb_lane out; /* fast memory -> store */
    struct ebb_lane in;  /* store -> fast memory */
    bool duplex;         /* out and in do not share bandwidth */
};

/* Time that a transfer of `bytes` occupies the lane, ns. */
uint64_t ebb__lane_ns(const struct ebb_lane *lane, uint64_t bytes);

/* A named machine: `autoswap-paper`, `pcie3`, `pcie4`, `pcie5`, `optane`, `cxl`, `nvme`.
 * EBB_ERR_ARGUMENT where the name is unknown. */
EBB_NODISCARD enum ebb_status ebb__machine_named(const char *name, struct ebb_machine *machine,
                                                 struct ebb_error *error);

/* Read a machine from a JSON file (docs/formats/machine.md). EBB_ERR_IO where it cannot be read,
 * EBB_ERR_FORMAT where it is not a machine; *machine is then untouched. */
EBB_NODISCARD enum ebb_status ebb__machine_read(const char *path, struct ebb_machine *machine,
                                                struct ebb_error *error);

/* The same from memory; `name` stands for the file in errors. */
EBB_NODISCARD enum ebb_status ebb__machine_read_memory(const void *bytes, size_t size,
                                                       const char *name,
                                                       struct ebb_machine *machine,
                                                       struct ebb_error *error);

/* The same from a JSON value that was read already (jansson's json_t; NULL is not a machine); `path`
 * stands for the file in errors. */
struct json_t;
EBB_NODISCARD enum ebb_status ebb__machine_from_json(const struct json_t *root, const char *path,
                                                     struct ebb_machine *machine,
                                                     struct ebb_error *error);

/* What `--machine` takes, `host` apart: a name, else the path of a JSON file. */
EBB_NODISCARD enum ebb_status ebb__machine_find(const char *spec, struct ebb_machine *machine,
                                                struct ebb_error *error);

/* Measure the lanes of the store at `places`, one a line as ebb__store_open() takes them (O_DIRECT where
 * the file system has it, 8 MiB requests, two in flight on each, `probe_bytes` each way, e.g. 256 MiB,
 * first alone, then both at once) into *machine, named `host`. Makes no named file (O_TMPFILE).
 * EBB_ERR_IO with detail where a place cannot be written. */
EBB_NODISCARD enum ebb_status ebb__machine_probe(const char *places, uint64_t probe_bytes,
                                                 struct ebb_machine *machine,
                                                 struct ebb_error *error);

#endif
