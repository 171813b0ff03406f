/* The parent's side of a run: takes hellos, drains rings, learns, plans, keeps the figures.
 *
 *     ebb__parent_create(&options, &parent, &error)
 *     ... put ebb__parent_environment() into the program's environment, start it ...
 *     loop: poll on ebb__parent_descriptors(); ebb__parent_step(parent)
 *     ebb__parent_finish(parent, &result)
 *
 * Call from one thread. Processes appear by fork and exec, and end. Each has its own ring, watch
 * and script. All share the ledger. */
#ifndef EBB_PARENT_PARENT_H
#define EBB_PARENT_PARENT_H

#include "base/status.h"
#include "model/lost.h"
#include "plan/plan.h"
#include "runtime/protocol.h"

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether processes leave out zeros when they write to the store. */
enum ebb_compress {
    EBB_COMPRESS_AUTO, /* if writes are so slow that this gains time */
    EBB_COMPRESS_ON,
    EBB_COMPRESS_OFF,
};

struct ebb_parent_options {
    bool record; /* only record: no budget, no transfers */
    bool verify; /* check evicted bytes by a hash */
    enum ebb_compress compress;
    enum ebb_gpu_backing gpu_backing;
    const char *record_path;         /* NULL: no trace file */
    const char *command;             /* for the trace's header */
    const struct ebb_policy *policy; /* of any table: plan/plan.h */
    const char *store;               /* its places, one a line: ebb__store_open() */
    const char *cache;               /* directory of profiles; NULL: none are read or written */
    uint64_t store_limit_bytes;
    uint64_t device_store_limit_bytes; /* for all devices together; 0: as store_limit_bytes */
    uint64_t budget_bytes;             /* UINT64_MAX: none; ignored if budget_fraction > 0 */
    uint64_t device_budget_bytes;      /* of each device; 0: as budget_bytes */
    double budget_fraction;            /* of the unmanaged peak; 0: not given */
    uint64_t threshold_bytes;
    void (*warn)(void *context, const char *message);
    void *context;
};

/* How the profile of an earlier run was used. */
enum ebb_cache_use {
    EBB_CACHE_OFF,         /* not asked for */
    EBB_CACHE_NONE,        /* there was none */
    EBB_CACHE_UNCONFIRMED, /* the program ended before its iterations were detected */
    EBB_CACHE_USED,        /* the program did what the profile says */
    EBB_CACHE_DROPPED,     /* the program did something else and was learnt again */
};
/* "off", "none", "unconfirmed", "used", "dropped". */
const char *ebb__cache_use_name(enum ebb_cache_use use);

/* The figures of a run, by subject. Sums are over all processes, unless stated otherwise. */

struct ebb_budget_figures {
    uint64_t bytes; /* UINT64_MAX if none came into force */
    uint64_t over_bytes;
    int64_t from_iteration;           /* counted from 0; -1: never; 0: from the first allocation */
    uint64_t smallest_feasible_bytes; /* 0: unknown */
};

struct ebb_peak_figures {
    uint64_t resident_bytes;
    uint64_t learning_bytes;  /* before the budget came into force */
    uint64_t unmanaged_bytes; /* the heap that the busiest process requested, managed or not */
    uint64_t managed_bytes;   /* of the busiest process */
};

/* Memory outside of blocks of their own, in the busiest process. */
struct ebb_small_figures {
    uint64_t unmanaged_bytes;
    uint64_t slab_peak_bytes; /* small blocks, in slabs */
    uint64_t slab_used_bytes; /* of it, bytes in use when the newest plan was made */
};

/* Of the busiest process. */
struct ebb_iteration_figures {
    uint64_t count;
    uint64_t planned;
    uint64_t period_events; /* clock events per iteration */
    int64_t planned_from;   /* counted from 0; -1: never planned */
    /* Of planned iterations. Under a policy without a script: of iterations after it was learnt. */
    uint64_t median_ns, min_ns, max_ns;
    uint64_t demand_faults_median; /* of planned iterations */
    struct ebb_lost lost;          /* of the first ones; count 0: not known */
};

/* The figures that the newest plan predicts. */
struct ebb_plan_figures {
    uint64_t count;   /* plans that were made */
    uint64_t replans; /* of these, plans made because lanes or waits were not as assumed */
    uint64_t peak_bytes, stall_ns;
    uint64_t overhead_ns;         /* see struct ebb_plan */
    uint64_t iteration_ns;        /* with stalls and overhead; 0: no plan was made */
    uint64_t learnt_iteration_ns; /* the same by the newest plan that was made before anything was
                                     known of planned iterations */
    struct ebb_machine machine;   /* that the plan assumed */
    bool timed_out;               /* its search hit the time limit */
};

struct ebb_transfer_figures {
    uint64_t out_bytes, in_bytes, evicted_clean_bytes;
    uint64_t saved_bytes;             /* zeros among out_bytes that were not written */
    uint64_t out_busy_ns, in_busy_ns; /* of the lanes */
    uint64_t stall_ns;
    uint64_t reactive_evictions, busy_blocks;
    uint64_t away_allocations; /* blocks of a device that began in host memory */
    uint64_t page_moves;       /* runs of pages that changed their address */
};

/* Events that no plan predicted. */
struct ebb_fault_figures {
    uint64_t demand;
    uint64_t mismatches;
    uint64_t observed;    /* to learn which blocks are used when, and */
    uint64_t observed_ns; /* what that has cost the program, estimated */
};

/* Blocks at planned addresses: their peak bytes as requested, the peak of their pages, the
 * allocations served there. misses: allocations whose planned address was taken. Peaks of several
 * processes are added. */
struct ebb_placement_figures {
    uint64_t load_bytes, peak_bytes, blocks, misses;
};

struct ebb_store_figures {
    uint64_t peak_bytes;
    int error; /* errno; 0: none */
};

struct ebb_lane_figures {
    double out_bps, in_bps;                   /* assumed by the last plan; 0: not probed */
    double measured_out_bps, measured_in_bps; /* during transfers; 0: too few transfers */
};

struct ebb_event_figures {
    uint64_t taken; /* from the rings */
    uint64_t lost;
};

struct ebb_process_figures {
    size_t count; /* processes that said hello */
    bool main_said_hello;
    bool managing;        /* some process had managed blocks */
    bool retired;         /* some process used a device: its blocks in the host's memory are not
                             managed since then */
    unsigned device_kind; /* of the busiest process: enum ebb_device_kind */
};

/* The host's memory. */
struct ebb_host_figures {
    bool managing; /* a process has blocks there, or blocks were away before it used a device */
    uint64_t budget_bytes, peak_bytes, over_bytes; /* as of a device */
    uint64_t store_peak_bytes;                     /* without blocks of devices */
};

/* Devices with a memory of their own. Each has the whole budget. */
#define EBB_MOST_DEVICES 16u
struct ebb_device_figures {
    char name[128], bus[40];
    uint64_t bytes; /* of its memory */
    uint64_t budget_bytes;
    uint64_t peak_bytes; /* most bytes on it */
    uint64_t over_bytes;
};

struct ebb_parent_result {
    /* The first three and `lanes`: of the memory in which the busiest process has its blocks. */
    struct ebb_budget_figures budget;
    struct ebb_peak_figures peak;
    struct ebb_small_figures small;
    struct ebb_iteration_figures iterations;
    struct ebb_plan_figures plan;
    struct ebb_transfer_figures transfers;
    struct ebb_fault_figures faults;
    struct ebb_placement_figures placement;
    struct ebb_store_figures store;
    struct ebb_lane_figures lanes;
    struct ebb_event_figures events;
    struct ebb_process_figures processes;
    struct ebb_host_figures host;
    struct {
        struct ebb_device_figures items[EBB_MOST_DEVICES];
        size_t count;
    } devices;
    enum ebb_cache_use cache;
    const char *cache_dropped; /* why its profile was dropped, for people; NULL: it was not */
};

struct ebb_parent;

EBB_NODISCARD enum ebb_status ebb__parent_create(const struct ebb_parent_options *options,
                                                 struct ebb_parent **parent,
                                                 struct ebb_error *error);
/* The value of EBB_RUN for the program. Valid as long as `parent`. */
const char *ebb__parent_environment(const struct ebb_parent *parent);
/* The descriptor that the program inherits. Keep it open across exec in the child. */
int ebb__parent_inherited(const struct ebb_parent *parent);
/* Tells the parent which process is the program's main one. */
void ebb__parent_set_main(struct ebb_parent *parent, int process_id);
bool ebb__parent_main_said_hello(const struct ebb_parent *parent);

/* Fills in descriptors to poll, up to `most`. Returns how many. */
size_t ebb__parent_descriptors(const struct ebb_parent *parent, struct pollfd *polled, size_t most);
/* Does all pending work. Returns how many ms may pass before the next call. */
int ebb__parent_step(struct ebb_parent *parent);

/* Drains the rings, closes the trace, fills in the figures. Returns the status of the trace. */
enum ebb_status ebb__parent_finish(struct ebb_parent *parent, struct ebb_parent_result *result,
                                   struct ebb_error *error);
void ebb__parent_destroy(struct ebb_parent *parent);

#endif
