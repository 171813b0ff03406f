/* The model: one iteration of a program's memory behaviour on a cyclic timeline.
 *
 * Tick t is the index of an event in the iteration, 0 <= t < tick_count. The tick after the last is
 * the first. Planner, checker, simulator and reports all read this structure. It is the same
 * whether it is built from a file or online, by the parent of a running program. */
#ifndef EBB_MODEL_MODEL_H
#define EBB_MODEL_MODEL_H

#include "base/status.h"
#include "trace/event.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EBB_TICK_NONE UINT32_MAX

/* One event of the iteration. */
struct ebb_model_event {
    uint32_t block; /* index into blocks, EBB_TICK_NONE for marks */
    uint8_t kind;   /* enum ebb_event_kind */
    uint8_t access; /* enum ebb_access_kind */
    uint8_t mark;   /* enum ebb_mark */
    bool clock;     /* the runtime sees it in every iteration: ALLOC, FREE, and announced accesses
                       (other accesses are only seen while tracing) */
};

/* One block, or a part of a large one: a run of units with the same history. The parts of one
 * allocation are consecutive, ordered by part_first, and share its serial. The first part is at its
 * start and has its ALLOC and FREE, which are clock events. Those of the other parts are not. A
 * part's ALLOC may be later than its allocation's: pages are taken at the first use.
 *
 * A block that is neither allocated nor freed in the iteration is persistent: alloc_tick ==
 * free_tick == EBB_TICK_NONE, and it is live at every tick. Otherwise both are set. The block is
 * live in the half-open cyclic interval [alloc_tick, alloc_tick + span_ticks), and free_tick ==
 * (alloc_tick + span_ticks) % tick_count. If span_ticks exceeds tick_count, instances of several
 * iterations are live at once. */
struct ebb_model_block {
    uint64_t serial;          /* serial of the instance in the modelled iteration (see struct
                                 ebb_event) */
    uint64_t size_bytes;      /* as requested; for a part: its own */
    uint64_t allocated_bytes; /* for a part: of the whole allocation; otherwise 0 */
    uint32_t part_first;      /* units of EBB_HUGE_BYTES from the allocation's start */
    uint32_t part_count;      /* 0: not a part */
    uint32_t alloc_tick;
    uint32_t free_tick;
    uint32_t span_ticks;   /* tick_count for a persistent block */
    uint32_t first_access; /* index into accesses */
    uint32_t access_count;
    bool varies; /* its size differs between iterations: size_bytes is the largest (widest.h) */
};

/* One access. `tick` is on the cyclic timeline. The accesses of a block are in order of occurrence
 * since its allocation (if persistent: since tick 0). */
struct ebb_model_access {
    uint32_t tick;
    uint8_t access; /* enum ebb_access_kind */
    bool held;      /* the block was held since its previous event: there is no gap before it */
};

/* A mark of the program: its layer or phase from `tick` on. events[tick].mark is its kind. */
struct ebb_model_mark {
    uint32_t tick;
    uint32_t value; /* larger values count as UINT32_MAX */
};

/* A gap: a time in which `block` is not used, from the end of the use that begins at `from_tick` to
 * the event at `to_tick`. With ends_in_free, `to_tick` is the block's FREE: its bytes are never
 * needed again. Both ticks are on the cyclic timeline; if to_tick <= from_tick, the gap crosses the
 * iteration's end. */
struct ebb_gap {
    uint32_t block;
    uint32_t from_tick; /* the last access before the gap */
    uint32_t to_tick;   /* the next access (or FREE) */
    bool ends_in_free;
    uint64_t from_ns; /* the use is certainly over: time of the first clock event after from_tick */
    uint64_t length_ns; /* from from_ns to to_tick, cyclic; 0 if they coincide */
};

/* The three properties of AppObMem, as figures in [0, 1]. */
struct ebb_properties {
    double iterative;       /* share of the events after the first iteration, up to the end of the
                               last, that repeat an iteration exactly */
    double regularity;      /* share of the blocks whose size, ticks and accesses agree in all
                               observed iterations but the first */
    double extremalization; /* share of the byte-seconds of gaps that is in the longest 10 % of the
                               gaps */
};

struct ebb_model {
    uint32_t tick_count;
    uint32_t clock_count;           /* events with clock == true */
    struct ebb_model_event *events; /* tick_count */
    uint64_t *time_ns;    /* tick_count + 1: the time of each tick, from 0; the last one is the
                             iteration's duration. Medians of untraced iterations if known, else of
                             all that agree event by event. */
    uint64_t *load_bytes; /* tick_count: live bytes just after each event */
    struct ebb_model_block *blocks;
    uint32_t block_count;
    struct ebb_model_access *accesses;
    uint32_t access_count;
    struct ebb_gap *gaps; /* every gap of every block, grouped by block */
    uint32_t gap_count;
    struct ebb_model_mark *marks; /* by tick; NULL: the iteration has none (stages.h) */
    uint32_t mark_count;
    uint64_t peak_bytes;  /* max of load_bytes */
    uint32_t peak_tick;   /* the first tick at which load_bytes is peak_bytes */
    bool has_accesses;    /* false: the trace has none for this iteration */
    bool varies;          /* some blocks do (widest.h) */
    bool unordered;       /* threads interleave: the order of events varies between iterations, and
                             the accesses are those of several */
    uint64_t slack_bytes; /* unordered: observed excess over load_bytes in another order of
                             events */
};

/* What the program allocated: the whole of which the block may be a part. */
static inline uint64_t ebb__model_whole_bytes(const struct ebb_model_block *block)
{
    return block->part_count ? block->allocated_bytes : block->size_bytes;
}

/* Duration of one iteration. */
static inline uint64_t ebb__model_iteration_ns(const struct ebb_model *model)
{
    return model->time_ns[model->tick_count];
}

/* The first clock event at a tick > `tick` on the cyclic timeline. A clock event at `tick` itself
 * is found only after a full cycle. EBB_TICK_NONE if the model has no clock event. O(distance). */
uint32_t ebb__model_clock_after(const struct ebb_model *model, uint32_t tick);
/* The number of allocations that are clock events. O(ticks). */
uint32_t ebb__model_count_allocs(const struct ebb_model *model);
/* The last clock event at a tick < `tick`, also cyclic. */
uint32_t ebb__model_clock_before(const struct ebb_model *model, uint32_t tick);

/* Both for every tick, O(ticks). In a model without clock events (programs that allocate once)
 * every event counts as one. Returns uint32_t[tick_count], which the caller frees; NULL if out of
 * memory. */
uint32_t *ebb__model_clocks_after(const struct ebb_model *model);
uint32_t *ebb__model_clocks_before(const struct ebb_model *model);

/* Time from one tick to another on the cyclic timeline, in [0, an iteration). */
uint64_t ebb__model_ns_between(const struct ebb_model *model, uint32_t from, uint32_t to);
/* The possible error of a time predicted for `tick`, in a stretch that began with the clock event
 * `start`. It is within_ns, or the time since then divided by within_drift_divisor if that is
 * more. Both are rows of the tuning. */
uint64_t ebb__model_time_error_ns(const struct ebb_model *model, uint32_t start, uint32_t tick);

/* True if accesses are clock events. The runtime then announces them, and every iteration counts as
 * traced, whatever marks say. O(ticks). */
bool ebb__model_announced(const struct ebb_model *model);
/* True if allocations or frees are clock events. They are none where a clock of accesses was
 * chosen. O(ticks). */
bool ebb__model_has_clock_allocs(const struct ebb_model *model);

/* True if the event counts as an event of an iteration. Marks of the runtime and demand accesses
 * concern Ebb, not the program. */
bool ebb__model_is_tick(const struct ebb_event *event);

/* A span of events, owned by the caller. */
struct ebb_event_span {
    const struct ebb_event *events;
    size_t count;
};

/* Builds the model of one iteration, events [first, first + period) of `trace`. It has accesses if
 * they were observed (TRACE_ON in force). Lifetimes that extend beyond the window are completed
 * from the events around it and from the cyclic repetition.
 *   trace     all known events, in time order; serials are looked up in it
 *   first     index of the first event of the modelled iteration
 *   period    its number of events
 *   model     out; release with ebb__model_fini(). On error it is untouched.
 * EBB_ERR_ARGUMENT if the window exceeds the trace or is empty. EBB_ERR_FORMAT if the events are
 * contradictory (a block freed twice, an access to a freed block). EBB_ERR_MEMORY.
 * Source: the cyclic timeline of docs/papers.md. O(trace) time and memory. */
EBB_NODISCARD enum ebb_status ebb__model_build(struct ebb_event_span trace, size_t first,
                                               size_t period, struct ebb_model *model,
                                               struct ebb_error *error);

/* Replaces the times of the model. `clock_ns` has the time since the iteration's start of each
 * clock event of the model, in order. At [clock_count] it has the duration. Accesses between two
 * clock events keep their relative position. */
void ebb__model_retime(struct ebb_model *model, const uint64_t *clock_ns);

/* Multiplies all times by `factor`, above 0: the same program on a processor of another speed. */
void ebb__model_scale_time(struct ebb_model *model, double factor);

void ebb__model_fini(struct ebb_model *model);

/* (Re)computes load_bytes, peak and gaps from events, blocks, accesses and times. Used by the
 * builder, importers and tests that construct models. */
EBB_NODISCARD enum ebb_status ebb__model_derive(struct ebb_model *model, struct ebb_error *error);

#endif
