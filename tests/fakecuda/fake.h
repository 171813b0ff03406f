#ifndef FAKE_H
#define FAKE_H

/* Declarations that the files of the fake driver share.
 *
 * Locks, from the first taken to the last:
 * - `fake_control`: contexts, modules, captures, graphs.
 * - A stream's lock. In a scheduled run that is `sched_lock`, one for all streams.
 * - `memory_lock`: address ranges, residency and bytes.
 * Reports take their own lock, last of all.
 */

#pragma GCC visibility push(default)
#include "cuda/abi.h"
#pragma GCC visibility pop

#include "fakecuda.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

/* Most devices, and most streams that the race check tells apart at one time. */
enum { MOST_DEVICES = 8, MOST_SLOTS = 64 };

/* --- settings.c: the environment, faults, random numbers -------------------------------------- */

enum fault_point {
    FAULT_ALLOC,     /* device memory is exhausted */
    FAULT_MANAGED,   /* managed memory is exhausted */
    FAULT_HOST,      /* pinned memory is exhausted */
    FAULT_CREATE,    /* cuMemCreate is out of memory */
    FAULT_MAP,       /* cuMemMap fails */
    FAULT_PREFETCH,  /* a prefetch is refused */
    FAULT_LAUNCH,    /* a launch is out of resources */
    FAULT_COPY_LATE, /* a copy runs long after the other streams' work */
    FAULT_STALL,     /* a kernel never ends */
    FAULT_EVENT,     /* cuEventCreate is out of memory */
    FAULT_STREAM,    /* cuStreamCreate is out of memory */
    FAULT_WORD,      /* a stream's wait for a word in managed memory, or its write, is refused */
    FAULT_COUNT
};

struct fake_settings {
    int device_count;
    int driver_version;
    size_t memory_bytes; /* of each device */
    size_t budget_bytes; /* more on a device is a violation; 0: none */
    size_t pinned_bytes; /* pinned allocations beyond it fail; 0: none */
    size_t page_bytes;   /* granularity of residency */
    uint64_t seed;
    unsigned lazy_us;            /* longest pause of a device that nobody waits for */
    uint64_t launch_ns;          /* that each launch keeps its thread busy */
    unsigned kernel_us, move_us; /* in a fast run, what a kernel and a MiB take; 0: no time */
    bool fast;                   /* operations run at once, where nothing is before them */
    bool host_waits;    /* a prefetch to the host returns when it is done, as measured on a card */
    bool races;         /* accesses without an order between them are violations */
    bool host_faults;   /* host accesses to managed pages on a device are seen, and migrate */
    bool strict;        /* violations change the exit code */
    bool newer_variant; /* cuLaunchKernel has a variant that dlsym does not know */
    bool no_device;
    bool mig, no_concurrent;
    const char *report_path;
};

extern struct fake_settings fake_set;

void fake_settings_read(void);
/* True if this passage of the point is to fail. Thread-safe, one load if nothing is set. */
bool fake_fault(enum fault_point point);
extern bool fake_faults_armed[FAULT_COUNT];
/* A number below `most`, from the seed. Thread-safe. */
unsigned fake_random(unsigned most);

/* --- report.c: violations, counters, the verdict ---------------------------------------------- */

enum counter {
    COUNT_LAUNCHES,
    COUNT_COPIES,
    COUNT_COPY_BYTES,
    COUNT_MEMSETS,
    COUNT_FAULTS,         /* a kernel or copy touched a managed page that was elsewhere */
    COUNT_REMOTE,         /* it used the page where it was */
    COUNT_MIGRATED,       /* bytes moved by faults */
    COUNT_PREFETCHES,     /* calls */
    COUNT_PREFETCHED,     /* bytes moved to a device by them */
    COUNT_PREFETCHED_OUT, /* bytes moved to the host */
    COUNT_DISCARDED,      /* bytes */
    COUNT_EVICTED,        /* bytes that the driver moved out for want of memory */
    COUNT_HOST_FAULTS,    /* host accesses to pages on a device */
    COUNT_MAPS,
    COUNT_CREATES,
    COUNT_GRAPHS,
    COUNT_SYNCS,
    COUNT_FREES_SYNCING, /* cuMemFree calls that had to wait for the device */
    COUNT_MISSING,       /* calls of functions that the fake lacks */
    COUNT_CHECKS,        /* accesses of kernels and copies that were checked */
    COUNT_END
};

void fake_count(enum counter counter, uint64_t by);
/* A line on standard error, and a verdict other than 0 at the end. */
void fake_violation(const char *kind, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Counts an error by its name and returns it. */
CUresult fake_result(CUresult code);
const char *fake_error_name(CUresult code); /* or NULL */
void fake_report_start(void);

#define API __attribute__((visibility("default"))) CUresult
#define DONE(code) return fake_result(code)
/* Leaves an API function if the call is refused. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        CUresult tried = (call);                                                                   \
        if (tried != CUDA_SUCCESS)                                                                 \
            return fake_result(tried);                                                             \
    } while (0)

/* --- context.c: devices, contexts, what a call finds ------------------------------------------ */

struct pool;
struct CUctx_st {
    int device;
    unsigned flags;
    unsigned retained; /* of a primary context */
    bool primary, alive;
    _Atomic CUresult error; /* of a kernel: every later call returns it */
    uint64_t id;
    struct CUstream_st *legacy;
    struct CUstream_st *_Atomic streams; /* all of this context, the newest first */
    bool peers[MOST_DEVICES];
    size_t limits[16];
};

struct device {
    size_t plain_bytes, vmm_bytes, managed_bytes, most_bytes; /* under memory_lock */
    struct CUctx_st primary;
    struct CUmemPoolHandle_st *default_pool, *pool;
};

extern struct device fake_devices[MOST_DEVICES];
extern pthread_mutex_t fake_control;
extern _Thread_local bool fake_in_host_function;

CUresult fake_ready(void);
CUresult fake_current(CUcontext *context); /* fake_ready, and the context of the thread */
/* As above, with a context that has not failed. */
CUresult fake_usable(CUcontext *context);
CUresult fake_device_valid(CUdevice device);
void fake_context_fail(CUcontext context, CUresult error);
struct CUstream_st *fake_thread_stream(CUcontext context);
int fake_attribute(CUdevice_attribute attribute, int device);

/* --- stream.c, sched.c: operations in streams ------------------------------------------------- */

struct op;
struct CUstream_st;

struct op_class {
    const char *name;
    CUgraphNodeType node_type;
    void (*run)(struct op *op, struct CUstream_st *stream);
    bool (*ready)(const struct op *op); /* or NULL: always */
    void (*destroy)(struct op *op);     /* or NULL: nothing to release but the memory */
};

struct dep {
    struct CUstream_st *stream;
    uint64_t seq;
};

/* One operation. It is the head of a larger struct without pointers to itself, `bytes` long, so
 * that graphs can copy it. */
struct op {
    const struct op_class *class;
    struct op *next;
    size_t bytes;
    uint64_t seq;
    CUcontext context;
    struct dep *deps;
    unsigned dep_count;
    uint64_t *clock;  /* for the race check: the last operation of each slot before this one */
    uint64_t *seq_to; /* or NULL: gets `seq` when the operation is taken */
};

enum stream_state { STREAM_IDLE, STREAM_RUNNING, STREAM_YIELDED };

struct node_set {
    CUgraphNode *nodes;
    unsigned count;
};

struct capture;
struct CUstream_st {
    CUcontext context;
    unsigned flags;
    int priority, slot;
    uint64_t id;
    bool alive;
    pthread_mutex_t own, *lock;
    pthread_cond_t wake;
    struct op *head, *tail;
    _Atomic uint64_t enqueued, completed;
    enum stream_state state;
    bool has_thread;
    struct CUstream_st *next, *next_active; /* in its context; among those with work */
    bool active;
    struct capture *capture;
    struct node_set tails; /* in a capture: the next operation comes after these */
    /* For the race check. What operations come before the last one taken, before the one that runs
     * by way of words in memory, and before all that is done. */
    uint64_t *clock, *acquired, *done_clock;
};

extern pthread_mutex_t sched_lock;

void *fake_op_new(const struct op_class *class, size_t bytes);
void fake_op_free(struct op *op);
/* Takes the operation. A capturing stream makes a node of it. Returns 0 or the error. */
CUresult fake_enqueue(struct CUstream_st *stream, struct op *op);
/* The stream of a handle in the current context, or an error. */
CUresult fake_stream_of(CUstream handle, CUcontext context, struct CUstream_st **stream);
CUresult fake_stream_new(CUcontext context, unsigned flags, int priority, struct CUstream_st **to);
bool fake_stream_done(const struct CUstream_st *stream, uint64_t seq);
/* Wait in the host. fake_wait_context waits for all streams. */
void fake_wait(struct CUstream_st *stream, uint64_t seq);
void fake_wait_context(CUcontext context);
void fake_observe(struct CUstream_st *stream, uint64_t seq);
/* The operation must come after that one, too. */
void fake_op_after(struct op *op, struct CUstream_st *on, uint64_t seq);
/* Lets other streams run, from within an operation. The second form is for loops that wait. */
void fake_yield(struct CUstream_st *stream);
void fake_yield_waiting(struct CUstream_st *stream);
void fake_sched_poll(void);
void fake_sched_push(struct CUstream_st *stream, struct op *op);
/* The clock of event times. It is simulated; in a fast run it is the real one. */
uint64_t fake_clock_ns(void);
void fake_clock_pass(uint64_t ns);
/* An operation takes so long, in a fast run. */
void fake_take(uint64_t us);
bool fake_op_deps_done(const struct op *op);

/* --- event.c ---------------------------------------------------------------------------------- */

struct CUevent_st {
    unsigned flags;
    CUcontext context;
    pthread_mutex_t lock;
    struct CUstream_st *stream; /* of the last record, or NULL */
    uint64_t seq;
    uint64_t time_ns;
    uint64_t *clock, *acquired; /* for the race check, as those of the stream */
    bool alive;
    struct capture *capture; /* if recorded in one: the nodes that it stands for */
    struct node_set nodes;
};

/* --- memory: arena.c, plain.c, managed.c, vmm.c, pool.c --------------------------------------- */

enum range_kind {
    RANGE_PLAIN,
    RANGE_POOL,
    RANGE_MANAGED,
    RANGE_MAPPED, /* by cuMemMap */
    RANGE_RESERVED /* by cuMemAddressReserve */,
    RANGE_HOST, /* cuMemHostAlloc */
    RANGE_REGISTERED,
    RANGE_IMPORTED
};

struct page {
    uint8_t devices; /* a bit for each device that has a copy */
    bool host;       /* the host has it */
    bool discarded;  /* its content is garbage until it is written */
    bool read_mostly;
    int8_t preferred;    /* a device, CU_DEVICE_CPU or CU_DEVICE_INVALID */
    uint8_t accessed_by; /* a bit for each device */
    uint64_t used;       /* for the driver's eviction */
};

struct access_record;
struct handle;
struct range {
    CUdeviceptr address;
    size_t bytes;      /* as asked for */
    size_t held_bytes; /* as accounted */
    enum range_kind kind;
    char *alias;       /* where the fake itself reaches the bytes */
    CUdeviceptr place; /* whose bytes of the memory file they are */
    int device;
    CUcontext context;
    bool live; /* of a pool's block: between its allocation and its release in the stream */
    unsigned flags;
    uint64_t id;
    struct page *pages; /* of managed memory */
    /* A mapping: */
    struct handle *handle;
    uint8_t readable, writable; /* a bit for each device */
    bool host_access;
    struct CUmemPoolHandle_st *pool;
    struct access_record *records;
};

extern pthread_mutex_t memory_lock;

extern size_t fake_pinned_bytes, fake_most_pinned_bytes; /* of cuMemHostAlloc and cuMemCreate */
/* Under memory_lock. False: that is more than FAKECUDA_PINNED. */
bool fake_pinned_take(size_t bytes);
void fake_pinned_give(size_t bytes);

bool fake_arena_start(void);
/* A piece of the address space, inaccessible to the host. 0 if there is none. memory_lock held. */
CUdeviceptr fake_arena_take(size_t bytes, size_t alignment);
void fake_arena_give(CUdeviceptr address, size_t bytes);
bool fake_arena_owns(CUdeviceptr address);
char *fake_arena_alias(CUdeviceptr address);
void fake_arena_open(CUdeviceptr address, size_t bytes, int protection); /* for the host */
int fake_arena_descriptor(void);
size_t fake_arena_offset(CUdeviceptr address);
/* The physical bytes are dropped and read as zeros. */
void fake_arena_punch(CUdeviceptr address, size_t bytes);
/* The first of these bytes of the memory file that were ever written: *data bytes after *hole
 * others. Those are zeros and take no memory. False: none was written. */
bool fake_arena_next(CUdeviceptr place, size_t bytes, size_t *hole, size_t *data);

struct range *fake_range_add(CUdeviceptr address, size_t bytes, enum range_kind kind);
void fake_range_remove(struct range *range);
/* The range that holds the address, mappings before the reservation around them. */
struct range *fake_range_find(CUdeviceptr address);
/* Whose bytes of the memory file are at the address. 0: of none, or of several ranges. */
CUdeviceptr fake_range_place(CUdeviceptr address, size_t bytes);
/* The n-th range, in order of addresses, or NULL. */
struct range *fake_range_at(size_t index);
/* Says what was at an address that no range holds, for a message. */
const char *fake_range_history(CUdeviceptr address);

enum bytes_kind { BYTES_PLAIN, BYTES_VMM, BYTES_MANAGED };
/* Changes what a device holds and checks the budget. memory_lock held. */
void fake_bytes_add(int device, enum bytes_kind kind, long long bytes, const char *why);
/* True if a device has that much, after eviction of managed pages. memory_lock held. */
bool fake_bytes_fit(int device, size_t bytes);
size_t fake_bytes_used(int device);

/* Where a copy of a page may be: one device, the host (CU_DEVICE_CPU), or nowhere yet. */
void fake_managed_free(struct range *range);
/* Moves the pages of a part of a range. Moved bytes are added to the counter. */
void fake_managed_discard(struct range *range, size_t at);
void fake_managed_move(struct range *range, size_t first, size_t count, int to,
                       enum counter counter);
void fake_managed_watch(void); /* host accesses */
/* The pages of a managed range that an access needs. Returns false if it is not permitted. */
bool fake_managed_touch(struct range *range, CUdeviceptr address, size_t bytes, int device,
                        int mode);
size_t fake_managed_evict(int device, size_t bytes);

/* The bytes of an access by the context's device, or NULL after a report. It takes memory_lock. */
void *fake_access(CUcontext context, struct op *op, struct CUstream_st *stream, CUdeviceptr address,
                  size_t bytes, int mode, const char *who);
/* Is it device memory (of any kind) that the driver knows? */
bool fake_is_known(const void *pointer, struct range *copy);
/* Besides those of fakecuda.h. A discard excludes everything else, prefetches included. */
enum {
    MODE_ATOMIC = 4,
    MODE_DISCARD = 8,
    MODE_PREFETCH = 16,
    MODE_ACQUIRE = 32,
    MODE_RELEASE = 64,
    MODE_COPY = 128 /* by the driver, which also copies between devices without peer access */
};
void fake_race_check(struct range *range, struct op *op, struct CUstream_st *stream, size_t offset,
                     size_t bytes, int mode, const char *who);
void fake_race_forget(struct range *range);
void fake_clock_join(uint64_t *clock, const uint64_t *other); /* either may be NULL */
/* An operation reads or writes a word that orders streams. memory_lock held. */
void fake_race_word(struct op *op, struct CUstream_st *stream, CUdeviceptr address, int mode);
void fake_race_write(CUdeviceptr address, uint64_t value);
void fake_race_wait(struct CUstream_st *stream, CUdeviceptr address, uint64_t value);
/* What some host thread knows to be done comes before what the stream does from here on. */
void fake_race_host(struct CUstream_st *stream);
CUresult fake_free_now(struct range *range);
void fake_pool_trim_stream(struct CUstream_st *stream);

/* --- capture.c, graph.c ----------------------------------------------------------------------- */

/* Nonzero if a capture forbids a call that is unsafe in it; the capture becomes invalid. */
CUresult fake_capture_unsafe(void);
CUresult fake_capture_add(struct CUstream_st *stream, struct op *op);
CUresult fake_capture_wait(struct CUstream_st *stream, struct CUevent_st *event);
CUresult fake_capture_record(struct CUstream_st *stream, struct CUevent_st *event);
void fake_capture_spoil(struct CUstream_st *stream);
extern _Atomic int fake_capturing; /* captures under way */
CUresult fake_capture_implicit(CUcontext context, const struct CUstream_st *stream);

struct CUgraphNode_st {
    CUgraph graph;
    CUgraphNodeType type;
    struct op *op; /* NULL: an empty node, or a child graph */
    CUgraph child;
    bool owns_child;
    struct node_set deps;
    size_t index;
    bool mark;
    void *pointers[64]; /* for cuGraphKernelNodeGetParams */
};

struct CUgraph_st {
    CUgraphNode *nodes;
    size_t count;
};

void fake_nodes_add(struct node_set *set, const struct node_set *more);
void fake_nodes_clear(struct node_set *set);
CUgraph fake_graph_new(void);
/* Takes the operation. */
CUgraphNode fake_graph_add(CUgraph graph, CUgraphNodeType type, struct op *op,
                           const struct node_set *deps);
struct op *fake_op_clone(const struct op *op);
void fake_kernel_params(const struct op *op, CUDA_KERNEL_NODE_PARAMS *params, void **pointers);

/* --- module.c, launch.c ----------------------------------------------------------------------- */

struct CUmod_st;
struct CUfunc_st {
    const struct fakecuda_entry *entry;
    struct CUmod_st *module;
    unsigned short offsets[64];
    unsigned parameter_bytes;
    int attributes[16];
};

struct launch {
    unsigned grid[3], block[3], shared_bytes;
    void **parameters, **extra;
    bool cooperative;
};

CUresult fake_kernel_op(CUfunction function, const struct launch *launch, CUcontext context,
                        struct op **op);
CUfunction fake_function_of(const void *handle); /* of a CUfunction or a CUkernel */
CUdeviceptr fake_module_global(CUcontext context, struct CUmod_st *module, const char *name,
                               size_t *bytes);

/* --- copy.c, fill.c --------------------------------------------------------------------------- */

CUresult fake_copy_op(const CUDA_MEMCPY3D *copy, CUcontext context, struct op **op);
CUresult fake_fill_op(const CUDA_MEMSET_NODE_PARAMS *fill, CUcontext context, struct op **op);
CUresult fake_host_op(CUhostFn function, void *data, CUcontext context, struct op **op);

/* --- entry.c ---------------------------------------------------------------------------------- */

CUresult fake_missing(const char *name);
struct fake_symbol {
    const char *name;
    void *address;
};
extern const struct fake_symbol fake_symbols[];
extern const size_t fake_symbol_count;

#endif
