/* The machine: the lane model of planner and simulator. Plain data; thread-safe. */
#ifndef EBB_MACHINE_MACHINE_H
#define EBB_MACHINE_MACHINE_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A lane: a serial transfer resource in one direction. Each transfer costs fixed_ns, and each byte
 * ns_per_byte. */
struct ebb_lane {
    double ns_per_byte;
    uint64_t fixed_ns;
};

/* What a transfer costs the program although it does not wait. The processor moves pages, serves
 * the disk, and interrupts the program's threads. All 0: nothing, as with a copy engine. */
struct ebb_transfer_costs {
    double huge_page_ns;  /* for each whole 2 MiB of the block */
    double small_page_ns; /* for each page of the rest */
    double ns_per_byte;   /* for the copy itself */
    uint64_t fixed_ns;    /* for each transfer: interrupts, a change of threads */
};
#define EBB_NO_COSTS                                                                               \
    {                                                                                              \
        0, 0, 0, 0                                                                                 \
    }

struct ebb_machine {
    char name[32];
    struct ebb_lane out; /* fast memory -> store */
    struct ebb_lane in;  /* store -> fast memory */
    bool duplex;         /* out and in do not share bandwidth */
    struct ebb_transfer_costs costs;
};

/* Time that a transfer of `bytes` occupies the lane, ns. */
uint64_t ebb__lane_ns(const struct ebb_lane *lane, uint64_t bytes);

/* Time that the program loses to a transfer of `bytes` in one direction, waits apart, ns. */
uint64_t ebb__machine_transfer_ns(const struct ebb_machine *machine, uint64_t bytes);

/* Looks up a named machine: `autoswap-paper`, `pcie3`, `pcie4`, `pcie5`, `h200`, `nvlink`,
 * `optane`, `cxl`, `nvme`, `hdd`. EBB_ERR_ARGUMENT if the name is unknown. */
EBB_NODISCARD enum ebb_status ebb__machine_named(const char *name, struct ebb_machine *machine,
                                                 struct ebb_error *error);

/* The name of the machine with this index; NULL if there are fewer. */
const char *ebb__machine_name(size_t index);

/* Reads a machine from a JSON file (docs/formats/machine.md). EBB_ERR_IO if it cannot be read,
 * EBB_ERR_FORMAT if it is not a machine; *machine is then untouched. */
EBB_NODISCARD enum ebb_status ebb__machine_read(const char *path, struct ebb_machine *machine,
                                                struct ebb_error *error);

/* The same from memory; errors use `name` as the file name. */
EBB_NODISCARD enum ebb_status ebb__machine_read_memory(const void *bytes, size_t size,
                                                       const char *name,
                                                       struct ebb_machine *machine,
                                                       struct ebb_error *error);

/* The same from a parsed JSON value (jansson's json_t; NULL is not a machine); errors use `path` as
 * the file name. */
struct json_t;
EBB_NODISCARD enum ebb_status ebb__machine_from_json(const struct json_t *root, const char *path,
                                                     struct ebb_machine *machine,
                                                     struct ebb_error *error);

/* The machine as a JSON value, which ebb__machine_from_json() reads. The caller owns it. */
struct json_t *ebb__machine_to_json(const struct ebb_machine *machine);

/* Finds the machine of a `--machine` argument, except `host`: a name, else the path of a JSON
 * file. */
EBB_NODISCARD enum ebb_status ebb__machine_find(const char *spec, struct ebb_machine *machine,
                                                struct ebb_error *error);

/* How much a probe for a program with this budget transfers each way. The program moves about its
 * budget in an iteration: under a small one a long probe would take many of its iterations. */
uint64_t ebb__machine_probe_bytes(uint64_t budget_bytes);

/* Measures the lanes of the store into *machine, named `host`. `places` lists directories, one a
 * line, as for ebb__store_open(). Uses O_DIRECT if the file system supports it, and 8 MiB requests,
 * two in flight in each place. Transfers `probe_bytes` each way (e.g. 256 MiB): first one way at a
 * time, then both at once. Creates no named file (O_TMPFILE). EBB_ERR_IO with detail if a place
 * cannot be written. */
EBB_NODISCARD enum ebb_status ebb__machine_probe(const char *places, uint64_t probe_bytes,
                                                 struct ebb_machine *machine,
                                                 struct ebb_error *error);

#endif
