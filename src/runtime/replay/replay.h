/* Replay: the live stream is matched to the script, and what the script says is done. */
#ifndef EBB_RUNTIME_REPLAY_REPLAY_H
#define EBB_RUNTIME_REPLAY_REPLAY_H

#include "runtime/script.h"
#include "runtime/transfer/transfer.h"

/* The position of the program in a template whose events are unordered; see replay/unordered.c. The
 * tables are NULL if the order is fixed. */
struct unordered {
    uint32_t *passed;  /* [clock position] 1: has been seen in this lap, or given up */
    uint32_t *free_at; /* [script block] position of its FREE, EBB_SCRIPT_NONE: none */
    uint32_t *cursors; /* [index into allocs of the first of a size]: the first that may be open */
    uint32_t passed_count;
    uint32_t first_open;     /* the least position that has not passed; clock_count: none */
    uint32_t unknown_allocs; /* allocations of this lap that the template does not know */
    bool confirmed; /* a whole lap has been seen, and what began with the landmark since was one */
};

/* An action that waits for its time. */
struct timer {
    uint64_t at_ns; /* on the clock of ebb__progress_ns() */
    uint32_t absence;
    bool in; /* a prefetch, not an eviction */
};

/* A script with the tables that the runtime makes for it, and what it has learnt. */
struct prepared_script {
    const struct ebb_script *script;
    const struct matcher *matcher; /* how the program is found in it: matcher.h */
    void *tables;                  /* what the pointers below point into */
    size_t table_bytes;
    uint32_t *live; /* block index for each script block, NO_BLOCK: none alive */
    /* Absences whose eviction starts, whose prefetch starts, and that are due at each clock
     * position: heads of chains (clock_count each) and what follows in the chain (absence_count
     * each). */
    uint32_t *out_first, *out_next;
    uint32_t *in_first, *in_next;
    uint32_t *due_first, *due_next;
    uint32_t *in_clock;           /* of each absence; moved earlier when its prefetch was late */
    uint64_t *in_delay_ns;        /* likewise */
    uint64_t *out_delay_ns;       /* moved later when its eviction was too early */
    uint8_t *changes;             /* of each script block: was thought to be only read, was not */
    uint64_t *stretch_ns;         /* by clock position: how long it took from there to the next */
    uint64_t took_ns, planned_ns; /* all stretches passed so far */
    struct timer *timers;         /* a heap, room for two of each absence */
    uint32_t timer_count;
    struct unordered unordered;
    /* Positions of the allocations that cover each unit of the static placement, ascending: those
     * of unit u are unit_covers[unit_first[u] … unit_first[u + 1]). 0 units: the script plans no
     * addresses. */
    uint32_t *unit_first, *unit_covers;
    uint32_t unit_count;
};

#define MAX_SCRIPTS 4
#define HISTORY 16384u /* remembered allocations: several iterations */

struct history {
    uint64_t size_bytes;
    uint64_t serial;
    uint32_t block;
};

/* clock.c, replay/unordered.c, timers.c, feedback.c, replay/access_clock.c */
struct replay {
    struct core *core;
    struct table *table;
    struct addresses *addresses;
    struct transfer *transfer;
    struct history *history; /* ring of HISTORY */
    uint64_t allocations;
    struct prepared_script scripts[MAX_SCRIPTS];
    uint32_t script_count;
    uint64_t script_sets;            /* times that `scripts` has changed */
    struct prepared_script *current; /* in force; NULL: reactive */
    struct prepared_script awaited;  /* takes over from `current` at awaited_at; no script: none */
    uint32_t awaited_at;
    bool awaited_due;
    uint32_t position;              /* next clock event expected */
    uint64_t position_ns;           /* when the last one was seen, on the program's own clock */
    uint64_t position_touches;      /* uses seen by then */
    uint64_t position_event;        /* its event number */
    int64_t lead_ns;                /* how much farther it has come since than the time says */
    uint64_t missed;                /* faults on absent parts since, where accesses are the clock */
    uint64_t access_clock_began_ns; /* when the first event was seen last, likewise */
    uint64_t laps;
    uint32_t planned_clocks; /* clock events of the iteration that was planned last */
};

/* The last position passed. Only while a script is replayed. */
static inline uint32_t ebb__clock_now(const struct replay *replay)
{
    uint32_t clocks = replay->current->script->clock_count;
    return (replay->position + clocks - 1) % clocks;
}
static inline const struct ebb_script_event *ebb__replay_event(
    const struct prepared_script *current, uint32_t position)
{
    return &ebb__script_events(current->script)[position];
}

/* scripts.c */
/* False where memory is lacking; ebb__replay_fini() is due all the same. */
EBB_NODISCARD bool ebb__replay_init(struct replay *replay, struct transfer *transfer);
void ebb__replay_fini(struct replay *replay);
/* In the child of a fork: it is reactive, no script is known. */
void ebb__replay_forked(struct replay *replay);
/* As ebb__runtime_set_script() and ebb__runtime_forget_scripts(), which see. Take the lock. */
EBB_NODISCARD enum ebb_status ebb__replay_set_script(struct replay *replay,
                                                     const struct ebb_script *script,
                                                     uint64_t bytes);
void ebb__replay_forget_scripts(struct replay *replay);

/* clock.c */
/* What is due since a step: at `count` positions from `first` on, of `current`. */
struct due {
    struct prepared_script *current;
    uint64_t script_sets;
    uint32_t first, count;
};
/* An ALLOC or FREE has happened: match it and queue the actions that hang on it. */
struct due ebb__clock_step(struct replay *replay, enum ebb_event_kind kind, struct block *block);
/* The step's end, once the pages of what was freed are free: wait for what is due. Releases the lock
 * while it waits. */
void ebb__clock_end_step(struct replay *replay, enum ebb_event_kind kind, struct due due);
/* Where accesses are the clock: see to it that those of the next events will be seen. */
void ebb__replay_watch(struct replay *replay);
/* Is the next use of `block` to be seen? */
bool ebb__replay_is_awaited(const struct replay *replay, const struct block *block);
/* `block` is used, and that was seen; missed: it was absent. */
void ebb__replay_touched(struct replay *replay, const struct block *block, bool missed);
/* The script in force is no longer followed. */
void ebb__clock_stop(struct replay *replay);
/* The next event of the script in force has happened: queue what hangs on it. */
void ebb__clock_pass(struct replay *replay);
/* From now on `current` is followed; the last event seen is its `position`. */
void ebb__clock_start(struct replay *replay, struct prepared_script *current, uint32_t position);
/* Make the tables of a script; false where memory is lacking. No lock needed. */
EBB_NODISCARD bool ebb__replay_prepare(const struct replay *replay,
                                       struct prepared_script *prepared,
                                       const struct ebb_script *script);
/* Pages for the next allocation, if the program follows the script: whole units where it is wide. */
uint64_t ebb__clock_page_bytes(const struct replay *replay, uint64_t bytes);
/* Will the next allocation, if the program follows the script, have parts? */
bool ebb__clock_expects_parts(const struct replay *replay, uint64_t size_bytes);
/* What hangs on `position` is queued. */
void ebb__clock_act(struct replay *replay, struct prepared_script *current, uint32_t position);
/* `block` is what the script calls `script_block`. */
void ebb__clock_bind(struct replay *replay, struct prepared_script *current, struct block *block,
                     uint32_t script_block);
/* The store's copy of `block`, kept because it was to be only read, is not its bytes any more. */
void ebb__clock_changed(struct replay *replay, const struct block *block);
/* `block` ends: it is not meant any more. Its script_block must be known. */
void ebb__clock_unbind(const struct replay *replay, struct prepared_script *current,
                       const struct block *block);
/* The index into the allocs of `script` of the first one of at least `size_bytes`. */
uint32_t ebb__clock_first_alloc(const struct ebb_script *script, uint64_t size_bytes);
/* The script's block that an allocation of `size_bytes`, were it the next event, would be taken
 * for; EBB_SCRIPT_NONE: none. Only while a script is played. */
uint32_t ebb__clock_foresee(const struct replay *replay, uint64_t size_bytes);
/* Let an absence begin, or with `in` end, unless the program is past it. */
void ebb__clock_fire(struct replay *replay, uint32_t absence, bool in);
/* Clock positions until the template next allocates `size_bytes`; UINT32_MAX: never. Only while a
 * script is played. O(log allocations). */
uint32_t ebb__replay_next_alloc(const struct replay *replay, uint64_t size_bytes);
/* How far away the next use of `block` is: clock positions * 2^32 + us, from then or within the present
 * stretch; 0: now. UINT64_MAX: unknown. *done: it is used in the present stretch, and not any more. */
uint64_t ebb__replay_distance(const struct replay *replay, const struct block *block, bool *done);
/* The program uses `block` now: within a long stretch that tells how far in it the program is. */
void ebb__replay_seen(struct replay *replay, const struct block *block);

/* next_use.c: policy's next_use(), where no script is in force the time since the last use. */
uint64_t ebb__replay_next_use(const struct replay *replay, const struct block *block);

/* actions.c */
/* `block` is to come back. */
void ebb__replay_return(struct replay *replay, struct block *block, bool keep_copy, bool urgent);
/* Wait until every block that is due at `position` is back. Releases the lock; scripts may come and go
 * meanwhile, and `current` with them. */
void ebb__replay_wait_for_due(struct replay *replay, struct prepared_script *current,
                              uint32_t position);

/* scripts.c */
/* The awaited script is put in force, in the place of what plays. */
void ebb__replay_take_over(struct replay *replay);

/* sync.c */
/* The program may be somewhere in a script that is known: then that is in force. */
void ebb__replay_look_for_script(struct replay *replay);

/* placements.c */
/* How many words of tables a script's placements take, and filling so many, zeroed. No lock. */
size_t ebb__placement_table_words(const struct replay *replay, const struct ebb_script *script);
void ebb__placement_prepare(struct prepared_script *prepared, uint32_t *words);
/* The position before which the static placement of `script` holds the fewest bytes. */
uint32_t ebb__placement_least(const struct ebb_script *script);
/* The block that an allocation of `bytes`, now, is planned to be, at its planned address, in state EMPTY, its
 * pages still to be had; NULL: no plan, or the address is taken. */
struct block *ebb__replay_place(struct replay *replay, size_t bytes, size_t alignment);
/* Clock positions until a block is to lie in `unit`; UINT32_MAX: never. */
uint32_t ebb__replay_next_cover(const struct replay *replay, uint32_t unit);

/* timers.c */
/* The clock passes `position` now. */
void ebb__timers_pace(struct replay *replay, struct prepared_script *current, uint32_t position);
/* How long after the last position passed the program is now, in the script's time. */
uint64_t ebb__timers_since_ns(const struct replay *replay);
/* It is `ns` of the script's time after that position now, whatever the time says: what was done too
 * early will be done again. */
void ebb__timers_set_since(struct replay *replay, uint64_t ns);
/* How long the stretch behind `position` is planned to take. */
uint64_t ebb__timers_stretch_ns(const struct prepared_script *current, uint32_t position);
/* By how much an action at `position` may be moved from its planned time. */
uint64_t ebb__timers_most_shift_ns(const struct prepared_script *current, uint32_t position);
/* Begin the absence, or with `in` end it, its delay after `position`, just passed; false: now. */
bool ebb__timers_set(struct replay *replay, struct prepared_script *current, uint32_t position,
                     uint32_t absence, bool in);
/* Do what is due. Returns when to look again (CLOCK_MONOTONIC), 0: when woken. */
uint64_t ebb__timers_fire(struct replay *replay);

/* feedback.c */
/* Learn from the lateness of a prefetch beyond what the plan expects. A late prefetch starts that
 * much earlier, and half as much again. One that was in time starts a little later again, down to
 * the plan: the machine may have been busy for a moment, and early prefetches take memory from
 * others. So does one that was late because memory was lacking: an earlier start would not help. */
void ebb__feedback_learn(struct prepared_script *current, uint32_t absence, uint64_t late_ns);
/* The program uses `block`, which is not there: what left too early within a stretch leaves later in
 * the next iteration. */
void ebb__feedback_missed(struct replay *replay, const struct block *block);
/* It has waited so long for `block`: what came back too late within a stretch comes earlier. */
void ebb__feedback_late(struct replay *replay, const struct block *block, uint64_t late_ns);
/* The room of `block` is needed first for something else: if it is coming back, or back and not yet due,
 * it comes later in the next iteration, not later than the script says. How late it is now says nothing
 * then. */
void ebb__feedback_early(struct replay *replay, struct block *block);

#endif
