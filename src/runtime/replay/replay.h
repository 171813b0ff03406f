/* Replay: matches the live stream to the script, and carries out its actions. */
#ifndef EBB_RUNTIME_REPLAY_REPLAY_H
#define EBB_RUNTIME_REPLAY_REPLAY_H

#include "runtime/template.h"
#include "runtime/transfer/transfer.h"

/* The position of the program in a template with unordered events; see replay/unordered.c. The
 * tables are NULL if the order is fixed. */
struct unordered {
    uint32_t *passed;  /* [clock position] 1: seen in this iteration, or given up */
    uint32_t *free_at; /* [script block] position of its FREE; EBB_SCRIPT_NONE: none */
    /* [index into allocs of the first of a size] the first one that may be open. */
    uint32_t *cursors;
    uint32_t passed_count;
    uint32_t first_open;     /* the lowest position not passed; clock_count: none */
    uint32_t unknown_allocs; /* allocations of this iteration that are not in the template */
    bool confirmed;          /* a whole iteration has matched, and none has failed since */
};

/* An action that is to be performed at a set time. */
struct timer {
    uint64_t at_ns; /* when, on the clock of ebb__progress_ns() */
    uint32_t absence;
    bool in; /* true: a prefetch; false: an eviction */
};

/* How long the stretches between clock events take. */
struct pace {
    uint64_t *stretch_ns;         /* by clock position: measured time from it to the next */
    uint64_t took_ns, planned_ns; /* of all stretches passed so far, measured and planned */
};

/* A script, the runtime's tables for it, and its learnt corrections. */
struct prepared_script {
    const struct ebb_script *script;
    const struct matcher *matcher; /* finds the program's position: matcher.h */
    void *tables;                  /* memory of the tables that the pointers below use */
    size_t table_bytes;
    uint32_t *live;         /* block index of each script block; NO_BLOCK: none is live */
    struct ebb_names names; /* of its persistent blocks in this process */
    /* For each clock position, the absences whose eviction starts there, whose prefetch starts, and
     * which are due. The first array of each pair has the heads of the chains, clock_count of them.
     * The second has the next absence in the chain, for each of absence_count. */
    uint32_t *out_first, *out_next;
    uint32_t *in_first, *in_next;
    uint32_t *due_first, *due_next;
    uint32_t *in_clock;     /* of each absence; moved earlier after a late prefetch */
    uint64_t *in_delay_ns;  /* as in_clock */
    uint64_t *out_delay_ns; /* moved later after an eviction that was too early */
    uint8_t *changes;       /* of each script block: it was expected to be read only, but
                                     was written */
    struct pace pace;
    struct timer *timers; /* a heap with space for two per absence */
    uint32_t timer_count;
    struct unordered unordered;
    /* Positions of the allocations that cover each unit of the static placement, ascending. Those
     * of unit u are unit_covers[unit_first[u] … unit_first[u + 1]). unit_count is 0 if the script
     * plans no addresses. */
    uint32_t *unit_first, *unit_covers;
    uint32_t unit_count;
    uint64_t used; /* value of script_uses when it was sent or last put in force */
    struct {
        uint64_t begun_at; /* allocations of the program when it was put in force */
        uint32_t at;       /* position of the allocation that did not come; EBB_SCRIPT_NONE: none */
    } left;                /* where the program left it, false starts apart */
};

#define MAX_SCRIPTS 12 /* a limit: an iteration, and what comes between its repetitions */
#define HISTORY 16384u /* number of allocations remembered: several iterations */

struct history {
    uint64_t size_bytes;
    uint64_t serial;
    uint32_t block;
};

/* What is known of a step whose sizes are not those of the script: sizes.c. Zeros: they are. */
struct other_sizes {
    double ratio;      /* of its sizes to those of the script; 0: none */
    uint64_t since;    /* allocations made when it began, the first one included */
    uint32_t position; /* of that one in the script */
    uint32_t scaled;   /* allocations since then with a scaled size */
    bool is_proven;    /* there was enough evidence */
    uint32_t strays;   /* frees since then, or in this iteration, at other places */
};

/* Defined in clock.c, replay/unordered.c, timers.c, feedback.c, replay/access_clock.c */
struct replay {
    struct core *core;
    struct table *table;
    struct addresses *addresses;
    struct transfer *transfer;
    struct history *history; /* ring of HISTORY entries */
    uint64_t allocations;
    struct prepared_script scripts[MAX_SCRIPTS];
    uint32_t script_count;
    uint64_t script_sets;            /* number of changes of `scripts` */
    uint64_t script_uses;            /* how often a script was sent or put in force */
    struct prepared_script *current; /* in force; NULL: reactive */
    struct prepared_script awaited;  /* replaces `current` at awaited_at; none if its script is
                                        NULL */
    uint32_t awaited_at;
    bool awaited_due;
    uint32_t position;              /* of the next clock event expected */
    uint64_t position_ns;           /* when the last clock event was seen, on the program's own
                                       clock */
    uint64_t position_touches;      /* number of uses seen by then */
    uint64_t position_event;        /* event number of that clock event */
    int64_t lead_ns;                /* correction: how far the program is ahead of the time since
                                       then */
    uint64_t missed;                /* access clock: faults on absent parts since then */
    uint64_t access_clock_began_ns; /* access clock: when the first event was last seen */
    uint64_t laps;
    bool continues;          /* announced: the iteration before followed the script that begins */
    uint32_t planned_clocks; /* clock events of the last planned iteration */
    struct other_sizes other_sizes;
};

/* The position passed last. Only while a script is replayed. */
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
/* False if memory is exhausted. The caller must call ebb__replay_fini() even then. */
EBB_NODISCARD bool ebb__replay_init(struct replay *replay, struct transfer *transfer);
void ebb__replay_fini(struct replay *replay);
/* In the child of a fork: the runtime is reactive and knows no script. */
void ebb__replay_forked(struct replay *replay);
/* See ebb__runtime_set_script() and ebb__runtime_forget_scripts(). Both take the lock. */
EBB_NODISCARD enum ebb_status ebb__replay_set_script(struct replay *replay,
                                                     const struct ebb_script *script,
                                                     uint64_t bytes);
void ebb__replay_forget_scripts(struct replay *replay);
/* names.c: see ebb__runtime_rename(). Takes the lock. */
void ebb__replay_rename(struct replay *replay, const struct ebb_renaming *renamings, size_t count);
/* Binds the live blocks that the script names and that are not bound. */
void ebb__names_bind(struct replay *replay, struct prepared_script *current);
/* The persistent block of the script that the new `block` is by its name, else `place`, the one
 * that is allocated at this position. */
uint32_t ebb__names_or_place(const struct prepared_script *current, const struct block *block,
                             uint32_t place);
/* clock.c */
/* Positions passed in one step: `count` of them from `first` on, in `current`. The blocks due there
 * must be awaited. */
struct due {
    struct prepared_script *current;
    uint64_t script_sets;
    uint32_t first, count;
};
/* An ALLOC, a FREE or an announced use has happened. Matches it and queues the actions attached to
 * it. */
struct due ebb__clock_step(struct replay *replay, enum ebb_event_kind kind, struct block *block);
/* Ends the step after the pages of a freed block are free: waits for the blocks that are due.
 * Releases the lock while it waits. */
void ebb__clock_end_step(struct replay *replay, enum ebb_event_kind kind, struct due due);
/* Access clock: ensures that the accesses of the next events are seen. */
void ebb__replay_watch(struct replay *replay);
/* Must the next use of `block` be seen? */
bool ebb__replay_is_awaited(const struct replay *replay, const struct block *block);
/* A use of `block` was seen. missed: the block was absent. */
void ebb__replay_touched(struct replay *replay, const struct block *block, bool missed);
/* Ends the replay of the script in force. */
void ebb__clock_stop(struct replay *replay);
/* The next event of the script in force has happened. Queues the actions attached to it. */
void ebb__clock_pass(struct replay *replay);
/* Begins the replay of `current`. The last event seen is at `position`. */
void ebb__clock_start(struct replay *replay, struct prepared_script *current, uint32_t position);
/* Makes the tables of a script. False if memory is exhausted. No lock needed. */
EBB_NODISCARD bool ebb__replay_prepare(const struct replay *replay,
                                       struct prepared_script *prepared,
                                       const struct ebb_script *script);
/* Bytes of pages for the next allocation, if the program follows the script. Whole units if the
 * block is huge-rounded. */
uint64_t ebb__clock_page_bytes(const struct replay *replay, uint64_t bytes);
/* Will the next allocation, if the program follows the script, have parts? */
bool ebb__clock_expects_parts(const struct replay *replay, uint64_t size_bytes);
/* Queues the actions attached to `position`. */
void ebb__clock_act(struct replay *replay, struct prepared_script *current, uint32_t position);
/* Binds `block` to `script_block` of the script. */
void ebb__clock_bind(struct replay *replay, struct prepared_script *current, struct block *block,
                     uint32_t script_block);
/* The store's copy of `block` is outdated. It was kept because the block was expected not to
 * change. */
void ebb__clock_changed(struct replay *replay, const struct block *block);
/* `block` ends: removes its binding. Its script_block must be known. */
void ebb__clock_unbind(const struct replay *replay, struct prepared_script *current,
                       const struct block *block);
/* The script's block that an allocation of `size_bytes` would match if it were the next event.
 * EBB_SCRIPT_NONE: none. Only while a script is replayed. */
uint32_t ebb__clock_foresee(const struct replay *replay, uint64_t size_bytes);
/* Begins an absence, or ends it if `in` is set, unless the program is past that. */
void ebb__clock_fire(struct replay *replay, uint32_t absence, bool in);
/* Clock positions until the template next allocates `size_bytes`. UINT32_MAX: never. Only while a
 * script is replayed. O(log allocations). */
uint32_t ebb__replay_next_alloc(const struct replay *replay, uint64_t size_bytes);
/* Distance to the next use of `block`: clock positions * 2^32 + us. The time counts from that
 * position, or within the present stretch. 0: now. UINT64_MAX: unknown. *done: its uses in the
 * present stretch are over. */
uint64_t ebb__replay_distance(const struct replay *replay, const struct block *block, bool *done);
/* The program uses `block` now. In a long stretch this shows how far the program is in it. */
void ebb__replay_seen(struct replay *replay, const struct block *block);

/* next_use.c: the policy's next_use(). If no script is in force it is the time since the last
 * use. */
uint64_t ebb__replay_next_use(const struct replay *replay, const struct block *block);

/* actions.c */
/* Fetches `block`. */
void ebb__replay_return(struct replay *replay, struct block *block, bool keep_copy, bool urgent);
/* Waits until every block that is due at `position` is resident. Releases the lock; scripts,
 * `current` included, may change meanwhile. */
void ebb__replay_wait_for_due(struct replay *replay, struct prepared_script *current,
                              uint32_t position);

/* scripts.c */
/* The awaited script replaces the script in force. */
void ebb__replay_take_over(struct replay *replay);

/* sync.c */
/* Finds the program's position in the known scripts. Puts a script in force if it finds one. */
void ebb__replay_look_for_script(struct replay *replay);
/* The program marks the begin of an iteration. If no script is followed, the newest one that begins
 * at a mark is. */
void ebb__replay_marked(struct replay *replay);
/* The program says that an iteration of `script` begins, which it follows from now on. continues:
 * it has just followed one of it. False: it is not known, and none is followed. */
bool ebb__replay_begin(struct replay *replay, const struct ebb_script *script, bool continues);

/* border.c */
/* The script in force has just begun at the present position, or knows more blocks now. Evicts
 * those that its plan has evicted there. Fetches those that its plan has resident, the next to be
 * used first. Does nothing if allocations in order do not tell the position. */
void ebb__replay_cross_border(struct replay *replay);
/* Evicts the blocks of `absence`, unless they are needed first; fetches them. */
void ebb__clock_leave(struct replay *replay, const struct prepared_script *current,
                      uint32_t absence);
void ebb__clock_come_back(struct replay *replay, const struct prepared_script *current,
                          uint32_t absence);

/* sizes.c */
/* May an allocation of `size_bytes`, which is not the event's size, be this event of the script in
 * force? If it is the first such one, it begins a step in doubt. */
bool ebb__sizes_agree(struct replay *replay, const struct ebb_script_event *event,
                      uint64_t size_bytes);
/* Has a step of other sizes begun, without enough evidence so far? */
bool ebb__sizes_doubtful(const struct replay *replay);
/* A block was freed at another place than in the script. */
void ebb__sizes_stray(struct replay *replay);
/* False: there were too many of these, for a step whose sizes tell little, or its doubt was not
 * resolved. */
bool ebb__sizes_are_regular(struct replay *replay);

/* placements.c */
/* Words that the tables of a script's placements take, and the function that fills them; they are
 * zero before. No lock. */
size_t ebb__placement_table_words(const struct replay *replay, const struct ebb_script *script);
void ebb__placement_prepare(struct prepared_script *prepared, uint32_t *words);
/* The planned block of an allocation of `bytes` at this moment, at its planned address. It is in
 * state EMPTY, without pages. NULL: no plan, or the address is taken. */
struct block *ebb__replay_place(struct replay *replay, size_t bytes, size_t alignment);
/* Clock positions until the next block in `unit` of the static placement. UINT32_MAX: never. */
uint32_t ebb__replay_next_cover(const struct replay *replay, uint32_t unit);

/* timers.c */
/* The clock passes `position`: updates the measured durations and the base of the timers. */
void ebb__timers_pace(struct replay *replay, struct prepared_script *current, uint32_t position);
/* Time since the last position passed, in the script's time. */
uint64_t ebb__timers_since_ns(const struct replay *replay);
/* Sets that time to `ns`. Actions that were performed too early will be repeated. */
void ebb__timers_set_since(struct replay *replay, uint64_t ns);
/* Planned duration of the stretch behind `position`. */
uint64_t ebb__timers_stretch_ns(const struct prepared_script *current, uint32_t position);
/* The most by which an action at `position` may be moved from its planned time. */
uint64_t ebb__timers_most_shift_ns(const struct prepared_script *current, uint32_t position);
/* Sets a timer for the beginning of the absence, or its end if `in` is set: its delay after
 * `position`, just passed. False: it is due now. */
bool ebb__timers_set(struct replay *replay, struct prepared_script *current, uint32_t position,
                     uint32_t absence, bool in);
/* Performs the actions that are due. Returns when to call again (CLOCK_MONOTONIC); 0: when
 * woken. */
uint64_t ebb__timers_fire(struct replay *replay);

/* feedback.c */
/* Learns from the lateness of a prefetch beyond the planned stall. A late prefetch starts earlier
 * in the next iteration, by one and a half times its lateness. A timely one starts a little later
 * again, but no later than planned. The machine may have been busy for a moment, and early
 * prefetches take memory from others. The same applies if memory was short, since an earlier start
 * would not help. */
void ebb__feedback_learn(struct prepared_script *current, uint32_t absence, uint64_t late_ns);
/* The program uses `block`, which is absent. If it was evicted too early within a stretch, it is
 * evicted later in the next iteration. */
void ebb__feedback_missed(struct replay *replay, const struct block *block);
/* True if the plan returns the block within the present stretch. */
bool ebb__feedback_is_due(const struct replay *replay, const struct block *block);
/* The program has waited `late_ns` for `block`. If it was fetched too late within a stretch, it is
 * fetched earlier in the next iteration. */
void ebb__feedback_late(struct replay *replay, const struct block *block, uint64_t late_ns);
/* The memory of `block` is needed first for another use. If it is being fetched, or is resident
 * before it is due, it is fetched later in the next iteration. Its fetch is never later than
 * planned. Its lateness in this one is not learnt from. */
void ebb__feedback_early(struct replay *replay, struct block *block);

#endif
