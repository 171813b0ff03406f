/* What the files of the mover share: mover.c (interface, thread), and its steps. */
#ifndef EBB_CUDA_MOVER_INTERNAL_H
#define EBB_CUDA_MOVER_INTERNAL_H

#include "cuda/feeder.h"
#include "cuda/queue.h"

/* A transfer is made in pieces, so that both directions take turns. Of 32 MiB, the fixed cost of a
 * piece is under 1 % (docs/results). */
#define CUDA_PIECE_UNITS 16u

struct cuda_unit_real {
    uint8_t real;             /* enum cuda_real */
    _Atomic uint8_t is_stray; /* it counts as arrived, and is not on the device */
    uint8_t is_stuck;         /* it should have left, and the driver refused */
};

struct cuda_side {   /* the request that is being carried out: private to the thread */
    uint64_t number; /* 0: none */
    uint32_t done;   /* units; of an out: begun */
    uint32_t failures;
    uint32_t piece_first, piece_count;
};

#define CUDA_MOST_FLIGHTS CUDA_MOST_FEEDS

struct cuda_flight { /* a piece of an out that is on its way */
    uint64_t number; /* of its request */
    uint32_t first, count;
    uint8_t kind;          /* enum cuda_move_kind */
    bool is_fed;           /* the feeder makes its copy */
    CUevent event;         /* behind all of it; else: */
    struct cuda_feed feed; /* the copy */
};

struct cuda_flights { /* first in, first out */
    struct cuda_flight items[CUDA_MOST_FLIGHTS];
    uint32_t first, count, most;
};

struct cuda_busy { /* lanes with a transfer that is not over, as far as known */
    bool in, out;
    uint64_t since_ns; /* the time until here is counted */
};

struct cuda_lanes {
    CUstream in, out;
    CUevent in_event; /* behind the newest transfer, or the newest that was given up */
    CUevent between;  /* what *out* destroys comes after what *in* has queued */
    bool is_in_event_recorded;
    _Atomic uint32_t *flag; /* pinned: the newest arrival */
    CUdeviceptr flag_on_device;
    bool can_write, can_wait; /* on the device */
    struct cuda_busy busy;
    struct cuda_feeder feeder; /* of `out`, for backings with `out_bytes` */
};

struct cuda_spare { /* pages that the backing keeps for the next *in*: in the ledger still */
    uint64_t bytes, since_ns;
    bool is_starved; /* the newest *in* found no room in the ledger, and nothing has left since */
};

struct cuda_patience {
    uint64_t idle_since_ns; /* since when no *in* has made progress; 0: one did just now */
    uint64_t seen_news;     /* of the streams, at the last look */
    bool is_hasty;          /* one has given up, and nothing has left the device since */
    uint64_t newest_number; /* of the *ins* that have given up */
    bool has_given_up;      /* on the lane: `given_up` counts as arrived */
    bool is_lane_behind;    /* transfers up to `given_up` may still be queued there */
    uint32_t given_up;
    _Atomic uint64_t ends; /* how often it has ended */
};

struct cuda_mover {
    struct cuda_mover_config config;
    const struct ebb_cuda_driver *driver;
    struct ebb_counters *counters;
    pthread_mutex_t lock; /* the queues; taken after the engine's lock */
    pthread_cond_t wake;
    pthread_t thread;
    bool is_started, is_asleep, must_wake;
    _Atomic bool must_stop;
    struct cuda_queues {
        struct cuda_queue in, out;
        struct cuda_queue drop; /* *outs* that end at once */
    } queues;
    uint64_t newest_number;
    uint32_t newest_arrival;
    _Atomic uint32_t issued_arrival; /* the newest whose transfers are queued */
    uint64_t *unit_moves; /* of each unit: its newest request, and that one's queue, in 2 bits */
    struct cuda_unit_real *units; /* written by the thread alone */
    _Atomic uint64_t outs_over;   /* all *outs* up to this number are over */
    _Atomic uint64_t held_bytes, stuck_bytes, stray_units, leaving_units;
    struct cuda_lanes lanes;
    struct cuda_moving {
        struct cuda_side out, in;
        struct cuda_flights flights;
        uint64_t newest_out_over; /* the highest number among *outs* that are over */
    } moving;
    struct cuda_spare spare;
    struct cuda_patience patience;
};

/* outs.c, drops.c, moves.c, arrivals.c: one step each, on the mover's thread. True: something was
 * done. */
bool ebb__mover_step_out(struct cuda_mover *mover);
bool ebb__mover_step_drop(struct cuda_mover *mover);
/* The oldest piece on its way to the host, if the lane is past it. */
bool ebb__mover_land(struct cuda_mover *mover);
bool ebb__mover_step_in(struct cuda_mover *mover);
bool ebb__mover_step_arrivals(struct cuda_mover *mover);
/* Does a request wait for a quiet device? */
bool ebb__mover_wants_quiet(struct cuda_mover *mover);

/* busy.c: a transfer is about to be queued on a lane of lanes.busy */
void ebb__mover_busy(struct cuda_mover *mover, bool *lane);
/* Are they over? */
void ebb__mover_look_at_lanes(struct cuda_mover *mover);

/* held.c: bytes that are held */
/* Before pages appear. False: the ledger has no room. */
bool ebb__mover_take_bytes(struct cuda_mover *mover, uint64_t bytes);
/* After they have left their addresses. */
void ebb__mover_give_bytes(struct cuda_mover *mover, uint64_t bytes);
/* Spare pages go back to the driver, if they have not been used for a while, or all (`now`). When
 * to look again, in ns from now; UINT64_MAX: not. */
uint64_t ebb__mover_trim(struct cuda_mover *mover, bool now);

/* outs.c: for drops.c, too */
/* The oldest request of its queue is over. */
void ebb__mover_out_is_over(struct cuda_mover *mover, struct cuda_queue *queue,
                            const struct cuda_move *move);
/* These units have left. */
void ebb__mover_has_left(struct cuda_mover *mover, uint8_t kind, uint32_t first, uint32_t count);

/* moves.c: for both sides */
/* Are the requests over that it comes after? One that was called off before it has begun does
 * nothing any more. Under the mover's lock. */
bool ebb__mover_may_begin(const struct cuda_mover *mover, const struct cuda_move *move);
/* Has nothing moved or ended for longer than patience lasts? */
bool ebb__mover_is_impatient(struct cuda_mover *mover);
uint32_t ebb__mover_find_run(const struct cuda_mover *mover, uint32_t first, uint32_t last,
                             enum cuda_real real, bool is, uint32_t *count);
/* What is left of an EVICT does not leave. Under the mover's lock. */
void ebb__mover_end_eviction(struct cuda_mover *mover, uint64_t number);
/* Are the *ins* and *drops* over that were requested before this number? In launch order they have
 * returned the host memory that a later request takes. */
bool ebb__mover_is_settled(struct cuda_mover *mover, uint64_t number);
/* Accesses to what is not on the device are served, if they need that. What is nowhere gets host
 * memory. is_urgent: beyond the budget of pinned memory, too. False: there is none for some piece,
 * and those before it have theirs. */
bool ebb__mover_serve(struct cuda_mover *mover, uint32_t first, uint32_t count, bool is_urgent);
/* How many of these units come or leave at once. */
uint32_t ebb__mover_piece(struct cuda_mover *mover, uint32_t first, uint32_t count);
void ebb__mover_progress(struct cuda_mover *mover);
/* They should leave and cannot: they stay on the device, and the budget is smaller by them. */
void ebb__mover_stays(struct cuda_mover *mover, uint32_t first, uint32_t count);
void ebb__mover_unstick(struct cuda_mover *mover, uint32_t unit);
bool ebb__mover_are_over(struct cuda_mover *mover, const struct cuda_move *move);
void ebb__mover_release_events(struct cuda_mover *mover, const struct cuda_move *move);
/* May live bytes move now? */
static inline bool ebb__mover_may_move(const struct cuda_mover *mover)
{
    return !mover->config.backing->ops->needs_quiet || ebb__gate_is_quiet(mover->config.gate);
}
/* Is this *in* over as soon as it is issued? */
static inline bool ebb__mover_is_light(const struct cuda_mover *mover, const struct cuda_move *in)
{
    return in->kind == CUDA_MOVE_POPULATE && mover->config.backing->ops->populates_at_once;
}
/* Where in `items` the flight is that comes `i` after the first. */
static inline uint32_t ebb__flight_at(const struct cuda_flights *flights, uint32_t i)
{
    return (flights->first + i) % CUDA_MOST_FLIGHTS;
}
static inline uint64_t ebb__unit_bytes(uint32_t count)
{
    return count * EBB_CUDA_UNIT_BYTES;
}

#endif
