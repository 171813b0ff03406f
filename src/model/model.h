/* The model: one iteration of a program's memory behaviour on a cyclic timeline.
 *
 * Tick t is the index of an event in the iteration, 0 <= t < tick_count; behind the last tick the
 * first comes again. Planner, checker, simulator and reports all read this one structure; it is
 * the same whether it was built from a file or online by the parent of a running program. */
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
    bool clock;     /* an runtime sees it in every iteration: ALLOC, FREE, and accesses that the
                       runtime announces (others are only seen while tracing) */
};

/* One block, or a part of a large one: its units that have the same history. The parts of one
 * allocation follow each other by part_first and share its serial; the first stands at its start and
 * has its ALLOC and FREE, which are clock events. The others' are not, and a part's ALLOC may come
 * later than its allocation's: pages are taken when it is first used.
 * A block that is neither allocated nor freed in the iteration is persistent: it has
 * alloc_tick == free_tick == EBB_TICK_NONE and is live at every tick. Otherwise both are set; the
 * block is live in the half-open cyclic interval [alloc_tick, alloc_tick + span_ticks), and
 * free_tick == (alloc_tick + span_ticks) % tick_count. span_ticks may exceed tick_count: then
 * instances of several iterations are live at once. */
struct ebb_model_block {
    uint64_t serial;          /* of the instance in the modelled iteration (see struct ebb_event) */
    uint64_t size_bytes;      /* as asked for; of a part: its own */
    uint64_t allocated_bytes; /* of the whole allocation where this is a part of it, else 0 */
    uint32_t part_first;      /* units of EBB_HUGE_BYTES from the allocation's start */
    uint32_t part_count;      /* 0: not a part */
    uint32_t alloc_tick;
    uint32_t free_tick;
    uint32_t span_ticks;   /* tick_count for a persistent block */
    uint32_t first_access; /* index into accesses */
    uint32_t access_count;
};

/* One access. `tick` is on the cyclic timeline; the accesses of a block stand in the order of
 * their occurrence since its allocation (persistent: since tick 0). */
struct ebb_model_access {
    uint32_t tick;
    uint8_t access; /* enum ebb_access_kind */
};

/* A gap: `block` is not touched between the end of the use that begins at `from_tick` and the
 * event at `to_tick`. ends_in_free: `to_tick` is the block's FREE, its bytes are never wanted
 * again. Both lie on the cyclic timeline; to_tick <= from_tick means across the iteration's end. */
struct ebb_gap {
    uint32_t block;
    uint32_t from_tick; /* the last access before the gap */
    uint32_t to_tick;   /* the next access (or FREE) */
    bool ends_in_free;
    uint64_t
        from_ns; /* when the use is surely over: time of the first clock event after from_tick */
    uint64_t length_ns; /* from from_ns to to_tick, cyclic; 0 where they meet */
};

/* The three properties of AppObMem, as figures in [0, 1]. */
struct ebb_properties {
    double iterative;       /* share of the events after the first iteration, up to the end of the
                              last, that repeat an iteration exactly */
    double regularity;      /* share of the blocks whose size, ticks and accesses agree in all
                              observed iterations but the first */
    double extremalization; /* share of the byte-seconds of gaps that lie in the longest 10 % of
                               the gaps */
};

struct ebb_model {
    uint32_t tick_count;
    uint32_t clock_count;           /* events with clock == true */
    struct ebb_model_event *events; /* tick_count */
    uint64_t *time_ns;    /* tick_count + 1: when each tick happens, from 0; the last one is the
                             iteration's duration. Medians of untraced iterations where known, else
                             of all that agree event by event. */
    uint64_t *load_bytes; /* tick_count: live bytes just after each event */
    struct ebb_model_block *blocks;
    uint32_t block_count;
    struct ebb_model_access *accesses;
    uint32_t access_count;
    struct ebb_gap *gaps; /* every gap of every block, grouped by block */
    uint32_t gap_count;
    uint64_t peak_bytes;  /* max of load_bytes */
    uint32_t peak_tick;   /* the first tick with it */
    bool has_accesses;    /* false: the trace held none for this iteration */
    bool unordered;       /* threads interleave: the order of the events varies from iteration to
                            iteration, and the accesses are those of several */
    uint64_t slack_bytes; /* unordered: what another order may need beyond load_bytes, as
                             observed */
};

/* Duration of one iteration. */
static inline uint64_t ebb__model_iteration_ns(const struct ebb_model *model)
{
    return model->time_ns[model->tick_count];
}

/* The first clock event at a tick > `tick` on the cyclic timeline (a clock event at `tick` itself
 * only after a whole turn); EBB_TICK_NONE where the model has no clock event. O(distance). */
uint32_t ebb__model_clock_after(const struct ebb_model *model, uint32_t tick);
/* Allocations that are clock events. O(ticks). */
uint32_t ebb__model_count_allocs(const struct ebb_model *model);
/* The last clock event at a tick < `tick`, cyclic likewise. */
uint32_t ebb__model_clock_before(const struct ebb_model *model, uint32_t tick);

/* Both for every tick, O(ticks). Where the model has no clock (programs that allocate once) each event
 * is one. uint32_t[tick_count], the caller frees it; NULL: out of memory. */
uint32_t *ebb__model_clocks_after(const struct ebb_model *model);
uint32_t *ebb__model_clocks_before(const struct ebb_model *model);

/* Do accesses belong to the clock? Then the runtime announces them, and every iteration of it is traced,
 * whatever marks say. O(ticks). */
bool ebb__model_announced(const struct ebb_model *model);

/* Does the event count as one of an iteration's? Marks of the runtime and demand accesses are about
 * Ebb, not about the program. */
bool ebb__model_is_tick(const struct ebb_event *event);

/* A span of events, owned by the caller. */
struct ebb_event_span {
    const struct ebb_event *events;
    size_t count;
};

/* Build the model of one iteration, events [first, first + period) of `trace`, out of which
 * `observed` is an iteration with accesses (TRACE_ON in force). Lifetimes that leave the window
 * are completed from the events around it and from the cyclic repetition.
 *   trace     all events known, in time order; serials are looked up in it
 *   first     index of the first event of the modelled iteration
 *   period    its number of events
 *   model     out; release with ebb__model_fini(). On error it is untouched.
 * EBB_ERR_ARGUMENT where the window leaves the trace or is empty, EBB_ERR_FORMAT where the events
 * contradict each other (a block freed twice, an access to a freed block), EBB_ERR_MEMORY.
 * Source: the cyclic timeline of docs/papers.md. O(trace) time and memory. */
EBB_NODISCARD enum ebb_status ebb__model_build(struct ebb_event_span trace, size_t first,
                                               size_t period, struct ebb_model *model,
                                               struct ebb_error *error);

/* Replace the model's times by those of `iteration_ns`-like evidence: `clock_ns` holds, for each
 * clock event of the model in order, its time from the iteration's start, and at
 * [clock_count] the duration; accesses between two clock events keep their relative position. */
void ebb__model_retime(struct ebb_model *model, const uint64_t *clock_ns);

void ebb__model_fini(struct ebb_model *model);

/* (Re)compute load_bytes, peak, gaps from events, blocks, accesses and times. Used by the builder,
 * importers and tests that make models by hand. */
EBB_NODISCARD enum ebb_status ebb__model_derive(struct ebb_model *model, struct ebb_error *error);

#endif
