/* What the files of the mover share: mover.c (interface, thread) and moves.c (the steps). */
#ifndef EBB_CUDA_MOVER_INTERNAL_H
#define EBB_CUDA_MOVER_INTERNAL_H

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
    uint32_t done;   /* units */
    uint32_t failures;
    bool is_moving; /* an out's piece is on its way: `event` is behind it */
    uint32_t piece_first, piece_count;
};

struct cuda_lanes {
    CUstream in, out;
    CUevent in_event, out_event; /* behind the newest transfer */
    CUevent between;             /* what *out* destroys comes after what *in* has queued */
    bool is_in_event_recorded;
    _Atomic uint32_t *flag; /* pinned: the newest arrival */
    CUdeviceptr flag_on_device;
    bool can_write, can_wait; /* on the device */
};

struct cuda_patience {
    uint64_t idle_since_ns; /* since when no *in* has made progress; 0: one did just now */
    bool is_hasty;          /* one has given up, and nothing has left the device since */
    bool has_given_up;      /* on the lane: `given_up` counts as arrived */
    uint32_t given_up;
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
    struct cuda_queue in, out;
    uint64_t newest_number;
    uint32_t newest_arrival;
    uint64_t *unit_moves;         /* of each unit: its newest request */
    struct cuda_unit_real *units; /* written by the thread alone */
    _Atomic uint64_t outs_over;   /* all *outs* up to this number are over */
    _Atomic uint64_t held_bytes, stuck_bytes, stray_units;
    struct cuda_lanes lanes;
    struct cuda_side going_out, coming_in;
    struct cuda_patience patience;
};

/* moves.c: one step each, on the mover's thread. True: something was done. */
bool ebb__mover_step_out(struct cuda_mover *mover);
bool ebb__mover_step_in(struct cuda_mover *mover);
bool ebb__mover_step_arrivals(struct cuda_mover *mover);

#endif
