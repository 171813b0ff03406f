/* Watches a running program. Push its events as they occur and ask whether its iterations are
 * known. The model of one is available as soon as its accesses have been traced.
 *
 *     struct ebb_watch *watch;
 *     if (ebb__watch_create(EBB_WATCH_SIZES, &watch) != EBB_OK) ...
 *     for (each event of the ring) if (ebb__watch_push(watch, &event) != EBB_OK) ...
 *     if (ebb__watch_found(watch) && ebb__watch_model(watch, &model, &first, NULL) == EBB_OK) ...
 *     ebb__watch_destroy(watch);
 *
 * Not thread-safe. */
#ifndef EBB_MODEL_WATCH_H
#define EBB_MODEL_WATCH_H

#include "base/status.h"
#include "model/model.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ebb_watch;

/* One whole iteration of the program. */
struct ebb_watch_iteration {
    uint64_t start_ns; /* time of its first clock event */
    uint64_t duration_ns;
    uint64_t demand_faults; /* demand accesses in it */
    uint64_t first_event;   /* serial numbers of events: 0 is the first one pushed */
    uint64_t last_event;    /* serial number of the event after its last one */
    bool planned;           /* a plan was in force during all of it */
    bool traced;            /* accesses were traced during all of it */
    uint64_t first_serial;  /* serial of the first block allocated in it; 0: none */
    uint32_t alloc_count;   /* blocks allocated in it, */
    uint64_t alloc_bytes;   /* and their sizes: they differ if its template is a shape */
    uint32_t pattern;       /* number of its repetition: 0 for the first one seen, 1 for the next,
                               ... */
};

/* May steps that differ only in sizes be an iteration? Its model has blocks that vary. */
enum ebb_watch_shapes { EBB_WATCH_SIZES, EBB_WATCH_SHAPES };

EBB_NODISCARD enum ebb_status ebb__watch_create(enum ebb_watch_shapes shapes,
                                                struct ebb_watch **watch);
void ebb__watch_destroy(struct ebb_watch *watch); /* may be NULL */

/* Pushes the next event. O(1) amortised. Keeps the newest 2^21 events or more; if the program does
 * nothing but its iteration, 32 iterations and 2^14 events or more. When older ones are dropped,
 * the live blocks remain known. EBB_ERR_FORMAT if no program can have such an event;
 * EBB_ERR_MEMORY. After either error only ebb__watch_destroy() is allowed. */
EBB_NODISCARD enum ebb_status ebb__watch_push(struct ebb_watch *watch,
                                              const struct ebb_event *event);

/* True if a repetition has been seen: of two whole iterations, or of a part of the second one if
 * it is long. Remains true after the program stops repeating it. */
bool ebb__watch_found(const struct ebb_watch *watch);
/* True if the program is in the repetition at the newest event, judged by its allocations. */
bool ebb__watch_in_period(const struct ebb_watch *watch);
/* The number of ALLOC and FREE events in an iteration; 0 if none is found. */
size_t ebb__watch_period_clock_events(const struct ebb_watch *watch);
/* The number of allocations in an iteration, by which it is recognised; 0 if it is not recognised
 * by these. */
size_t ebb__watch_period_allocs(const struct ebb_watch *watch);
/* True unless marks or accesses tell the iteration: by allocations, or none is found yet. */
bool ebb__watch_is_by_allocs(const struct ebb_watch *watch);
/* The number of different repetitions so far; 0 before the first is found. */
size_t ebb__watch_patterns(const struct ebb_watch *watch);
/* The number of the repetition that the program is in or was in last. The first is 1; 0 before it
 * is found. A repetition that recurs keeps its number. */
size_t ebb__watch_pattern(const struct ebb_watch *watch);

/* Does the program mark where its iterations begin? */
bool ebb__watch_is_marked(const struct ebb_watch *watch);
/* The iteration found is planned and known to be one of the program's, so it is held. A period of
 * it and of other phrases (an evaluation after some iterations, a last batch) does not replace it
 * until ebb__watch_take_longer() is called. A repetition without it replaces it after a long
 * time. */
void ebb__watch_hold(struct ebb_watch *watch);
bool ebb__watch_is_held(const struct ebb_watch *watch);
/* True if the iteration consists of micro-batches, and one of them was first taken for it. */
bool ebb__watch_accumulates(const struct ebb_watch *watch);
/* True if the iteration is one of several steps that recur in any order. The others are told as
 * gaps. */
bool ebb__watch_recurs(const struct ebb_watch *watch);
/* True if iterations are of one shape, and their sizes differ. */
bool ebb__watch_varies(const struct ebb_watch *watch);
/* True if the repetition was announced before it was complete, and has not been whole twice. */
bool ebb__watch_is_early(const struct ebb_watch *watch);

/* A period of phrases, one of which is the held iteration. */
struct ebb_watch_longer {
    size_t iterations;    /* held iterations in one period */
    uint64_t duration_ns; /* of the newest period */
    uint64_t beside_ns;   /* of that: outside the held iterations */
    uint64_t waited_ns;   /* of that: the program waited for the runtime */
    double pace;          /* time by allocation outside of them, divided by that in them */
};

/* The period in force. False if there is none or no iteration is held. O(symbols of three
 * periods). */
bool ebb__watch_longer(const struct ebb_watch *watch, struct ebb_watch_longer *longer);
/* Makes that period the program's iteration. No iteration is held afterwards. */
void ebb__watch_take_longer(struct ebb_watch *watch);

/* A phrase between two repetitions of the held iteration, or within one: an evaluation, a smaller
 * batch. It begins with the first allocation that the iteration would not make there. Once the
 * program has changed, a phrase is in each iteration. These begin as the held one does, and may
 * end so. */
struct ebb_watch_gap {
    uint64_t hash;      /* of the sizes that it allocates, in order */
    size_t allocs;      /* their number */
    size_t first_alloc; /* index of its first one among the allocations kept */
    size_t left_at;     /* allocations of the iteration before it left off, and */
    size_t resumed_by;  /* still to come behind it; of one iteration if they add up to it */
    bool traced;        /* its accesses were observed */
    bool known;         /* ebb__watch_know_gap() was called for one like it */
    bool repeats;       /* it comes in each iteration: the program has changed */
    bool whole;         /* it is a step of its own that recurs: ebb__watch_recurs() */
};

/* The next gap behind those that it has told already. Known phrases at its start are left out, and
 * what follows counts as the gap. False: there is none, or nothing is held. O(1) amortised. */
bool ebb__watch_next_gap(struct ebb_watch *watch, struct ebb_watch_gap *gap);
/* From now on the phrase is known. Of very many the oldest are forgotten. */
void ebb__watch_know_gap(struct ebb_watch *watch, const struct ebb_watch_gap *gap);
/* Builds the model of the gap that was told last, with what follows until the iteration is where it
 * was left. Accesses in the gap are those observed there. The others are those of the newest held
 * iteration that was traced. Errors as in ebb__watch_model(). */
EBB_NODISCARD enum ebb_status ebb__watch_gap_model(const struct ebb_watch *watch,
                                                   const struct ebb_watch_gap *gap,
                                                   struct ebb_model *model,
                                                   struct ebb_error *error);

/* The oldest iterations. Only these figures of them are kept. */
struct ebb_watch_forgotten {
    size_t iterations;
    size_t planned;       /* the number of planned ones */
    size_t first_planned; /* index; SIZE_MAX: none */
};

/* The number of whole iterations since the start, including those before the repetition was
 * recognised. */
size_t ebb__watch_iterations(const struct ebb_watch *watch);
/* The number of iterations kept, at least the newest 2^10. The first of *iterations is number
 * ebb__watch_forgotten().iterations. Valid until the next push. */
size_t ebb__watch_kept(const struct ebb_watch *watch,
                       const struct ebb_watch_iteration **iterations);
struct ebb_watch_forgotten ebb__watch_forgotten(const struct ebb_watch *watch);

struct ebb_watch_block {
    uint64_t serial, size_bytes;
    bool freed; /* at the newest event */
};

/* The number of live blocks at the newest event; the first `most` of them, in the order of their
 * allocation, are written to `blocks`. O(events kept). */
size_t ebb__watch_live(const struct ebb_watch *watch, struct ebb_watch_block *blocks, size_t most);

/* Writes the blocks of the newest allocations, at most `most`, in their order. Returns their
 * number. */
size_t ebb__watch_newest(const struct ebb_watch *watch, struct ebb_watch_block *blocks,
                         size_t most);

/* True if the block `serial` is live at the newest event; *size_bytes is then its size. */
bool ebb__watch_is_live(const struct ebb_watch *watch, uint64_t serial, uint64_t *size_bytes);

/* Builds the model of the newest whole iteration whose accesses were completely traced. Its times
 * are those of untraced iterations if there are any. It begins where least memory is live, or
 * anywhere if no such iteration has been traced yet.
 *   model        out; release with ebb__model_fini()
 *   first_event  out, may be NULL: serial number of its first event
 * EBB_INFEASIBLE if there is none yet; other errors as in ebb__model_build(). O(events kept). */
EBB_NODISCARD enum ebb_status ebb__watch_model(const struct ebb_watch *watch,
                                               struct ebb_model *model, uint64_t *first_event,
                                               struct ebb_error *error);

#endif
