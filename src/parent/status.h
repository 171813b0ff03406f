/* What a run shows of itself while it lives: one packet for each connection to its abstract address
 * `ebb-run-UID-PID`. `ebb top` finds these addresses in /proc/net/unix. There is no file, so
 * nothing is left behind, whoever dies. The kernel tells who connects: other users than the run's
 * own and root get no answer. A look costs the run 35 us (bench/top.py), no look costs nothing.
 *
 * Both ends are of the same version of Ebb, else the packet is refused. Plain data. */
#ifndef EBB_PARENT_STATUS_H
#define EBB_PARENT_STATUS_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EBB_STATUS_MAGIC 0x3174617473626245ull /* "Ebbstat1" */
#define EBB_STATUS_PREFIX "ebb-run-"

struct ebb_status_figures {
    uint64_t held_bytes, peak_bytes;  /* as the ledger counts */
    uint64_t over_bytes;              /* largest excess over the budget; 0: never */
    uint64_t out_bytes, in_bytes;     /* moved so far */
    uint64_t out_busy_ns, in_busy_ns; /* time with transfers in flight */
    uint64_t stall_ns, demand_faults; /* so far */
    uint64_t store_peak_bytes;        /* sum over processes */
    uint64_t iterations, planned;     /* of the busiest process */
    uint64_t last_iteration_ns;       /* its newest whole one; 0: none */
    uint64_t plans;                   /* made so far */
    uint64_t predicted_stall_ns;      /* an iteration, by the newest plan */
};

struct ebb_status_packet {
    uint64_t magic, bytes;   /* bytes: sizeof this struct */
    int32_t process_id;      /* of the run: its `ebb` */
    int32_t main_process_id; /* of the program */
    uint64_t now_ns;         /* CLOCK_MONOTONIC, when the packet was made */
    uint64_t started_ns;     /* the same clock */
    uint64_t budget_bytes;   /* UINT64_MAX: none */
    uint32_t in_force;       /* the budget is */
    uint32_t processes;      /* that live and said hello */
    struct ebb_status_figures figures;
    uint32_t device_kind; /* of the busiest process: enum ebb_device_kind */
    char command[256], policy[32], mode[16];
};

/* Lists the runs whose address is seen here, whoever they belong to: their process ids.
 *   ids    out: at most `most`
 *   count  out: their number
 * EBB_ERR_IO if /proc/net/unix cannot be read. */
EBB_NODISCARD enum ebb_status ebb__status_list(int *ids, size_t most, size_t *count,
                                               struct ebb_error *error);

/* Asks the run for its figures, and waits a second at most. EBB_ERR_IO if there is no such run, it
 * is another user's, or it does not answer; EBB_ERR_FORMAT if it is of another version. */
EBB_NODISCARD enum ebb_status ebb__status_ask(int process_id, struct ebb_status_packet *packet,
                                              struct ebb_error *error);

#endif
