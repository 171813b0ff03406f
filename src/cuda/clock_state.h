/* The state of a clock: clock.c, clock_queue.c and stalls.c share it. */
#ifndef EBB_CUDA_CLOCK_STATE_H
#define EBB_CUDA_CLOCK_STATE_H

#include "cuda/clock.h"
#include "cuda/timer.h"

#include <pthread.h>

#define MOST_ITEMS ((uint32_t)1 << 16) /* powers of two; a limit: then times are those of calls */
#define MOST_WORKS ((uint32_t)1 << 12)
#define MOST_USES ((uint32_t)1 << 10) /* of a work that is timed */
#define STREAMS 64u                   /* timed at a time */
#define MOST_OPEN 64u                 /* threads that queue timed work at a time */
#define MOST_STALLS ((uint32_t)1 << 10)
#define LOOK_NS 300000u            /* as often is the device asked */
#define LOOK_AT_STALLS_NS 2000000u /* and so often if nothing is observed */
#define NO_WORK UINT32_MAX

/* Waits in the queue: an event, or a use of a work. */
struct item {
    struct ebb_event event; /* time_ns: of the call */
    uint32_t work;          /* its number; NO_WORK: none */
};

enum work_state {
    WORK_UNTIMED, /* its time is that of its call, or it has ended */
    WORK_OPEN,    /* the program is about to queue it */
    WORK_QUEUED,
    WORK_BEGUN, /* its uses are in the ring */
};

struct work {
    enum work_state state;
    CUstream handle;
    uint32_t stream, event; /* indices */
    uint32_t first, count;  /* its items; they stay in the queue until it has ended */
    uint64_t launch_ns;
    uint64_t end_ns;                 /* 0: not yet known */
    uint64_t stall_ns, stall_end_ns; /* of the wait before it; 0: none */
    uint32_t stall;                  /* its number while its times are not known; or NO_STALL */
};

enum stall_state { STALL_VOID, STALL_OPEN, STALL_QUEUED };

/* A stream stands still. */
struct stall {
    enum stall_state state;
    CUstream stream;
    uint32_t begin, end; /* timing events; CUDA_TIMER_NONE */
    uint32_t work;       /* that gets its times; NO_WORK */
};

struct timed_stream {
    CUstream handle;
    uint32_t queued; /* works that have not ended */
    uint32_t begun;  /* the work that runs; NO_WORK: none */
    uint64_t end_ns; /* of the last one that has ended */
};

struct ebb_cuda_clock {
    struct ebb_ring *ring;
    pthread_mutex_t lock; /* of the queue and the ring; never held in a call of the driver that may
                             wait */
    struct item *items;   /* rings: [first, told) are in the ring, [told, last) wait */
    uint32_t first, told, last;
    struct work *works;
    uint32_t first_work, last_work;
    struct timed_stream streams[STREAMS];
    uint32_t stream_count;
    struct cuda_timer timer;
    struct stall *stalls; /* a ring, in the order of their begins */
    uint32_t first_stall, last_stall;
    _Atomic uint32_t open_stalls;         /* for who has not the lock: are there any? */
    uint64_t stalls_end_ns;               /* of the last one that was counted */
    uint64_t next_look_ns;                /* at stalls, if nothing is observed */
    uint32_t open[MOST_OPEN], open_count; /* works between begin and end, the oldest first */
    uint64_t last_ns;
    bool has_timer, is_observing;
};

static inline struct item *item_at(struct ebb_cuda_clock *clock, uint32_t index)
{
    return &clock->items[index & (MOST_ITEMS - 1)];
}

static inline struct work *work_at(struct ebb_cuda_clock *clock, uint32_t number)
{
    return &clock->works[number & (MOST_WORKS - 1)];
}

/* Nothing waits. */
static inline bool clock_is_idle(const struct ebb_cuda_clock *clock)
{
    return clock->told == clock->last && clock->first_work == clock->last_work;
}

/* clock_queue.c, all with the lock held. Appends an event; make space before. */
void ebb__clock_push(struct ebb_cuda_clock *clock, const struct ebb_event *event, uint32_t work,
                     uint64_t now_ns);
/* Writes an event of this time, on CLOCK_MONOTONIC, or of that of the event before if that is
 * later. Only if nothing waits. */
void ebb__clock_write(struct ebb_cuda_clock *clock, const struct ebb_event *event, uint64_t ns);
/* Writes what is known, in order. is_looked_at: works without a known end still run. So nothing
 * begins earlier than the ends that are known. */
void ebb__clock_write_known(struct ebb_cuda_clock *clock, bool is_looked_at);
/* Space for `items` and a work. Where there is none, nothing that waits is timed any more. */
void ebb__clock_make_space(struct ebb_cuda_clock *clock, uint32_t items);
/* stalls.c, all with the lock held. A work ends: stalls of other threads on its stream are none. */
void ebb__clock_mix_stalls(struct ebb_cuda_clock *clock, CUstream stream);
/* Asks the device about those that are queued, the oldest first. */
void ebb__clock_look_at_stalls(struct ebb_cuda_clock *clock);
/* None is timed any more. */
void ebb__clock_forget_stalls(struct ebb_cuda_clock *clock);

/* No work is timed any more: all have ended when they were launched, as far as is not known. */
void ebb__clock_stop_timing(struct ebb_cuda_clock *clock);

#endif
