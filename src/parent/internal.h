#ifndef EBB_PARENT_INTERNAL_H
#define EBB_PARENT_INTERNAL_H

#include "base/vec.h"
#include "machine/machine.h"
#include "model/recurrence.h"
#include "model/watch.h"
#include "parent/cache.h"
#include "parent/parent.h"
#include "runtime/ledger.h"
#include "runtime/protocol.h"
#include "runtime/script.h"
#include "trace/file.h"
#include "trace/ring.h"

#include <pthread.h>

/* How far a process has come. */
enum learner_state {
    LEARNER_TRACING,  /* accesses are observed, no plan yet */
    LEARNER_RECALLED, /* a plan from a profile has been sent, the live stream decides */
    LEARNER_PLANNED,  /* a plan has been sent */
    LEARNER_DONE,     /* record, or a policy without a script: untraced iterations follow */
};

struct lane_counts {
    uint64_t out_bytes, in_bytes, out_busy_ns, in_busy_ns, both_busy_ns, stall_ns;
};

/* A plan in force, and what comes of it: see replan.c. */
struct trial {
    struct ebb_machine machine;        /* that it assumed */
    struct ebb_machine machine_before; /* that the plan before assumed */
    struct lane_counts counts;         /* when it began */
    uint64_t predicted_stall_ns;       /* an iteration */
    uint64_t predicted_work_ns;        /* the rest of it */
    size_t first_iteration;            /* of the watch, that counts */
    size_t looked_at;                  /* iterations then */
    bool under_way;                    /* the first whole iteration is over */
    bool settled;                      /* it stays, whatever comes */
    uint64_t before_ns; /* median iteration under the plan before; 0: none is to be compared */
    unsigned replans;
    unsigned cramped; /* iterations in a row for which the plan needed more than its share */
    unsigned roomy;   /* likewise, in which the share was much more than the plan was made for */
    unsigned room_replans;
};

#define EBB_ALARM_WAITS (EBB_WAIT_ANSWERS + EBB_WAIT_BLOCKS + EBB_WAIT_TRANSFERS)

/* What a process waits for, as far as seen: alarm.c. */
struct alarm {
    uint64_t looked_ns; /* 0: never */
    struct seen_wait {
        uint64_t since_ns; /* as the process says; 0: nobody waits */
        uint64_t first_ns; /* when it was seen first */
    } seen[EBB_ALARM_WAITS];
    bool told_fault, told_transfer; /* and they have not ended */
    bool told_stuck;
};

/* A thread that sleeps in a page fault: stuck.c. */
struct stuck {
    int thread;        /* followed, or followed last */
    uint64_t sleeps;   /* that it had begun then; 0: none is followed */
    uint64_t first_ns; /* when it was seen first */
};

struct process {
    uint64_t number; /* of its hello, from 1 */
    int process_id;
    int channel; /* -1: gone */
    struct ebb_ring *ring;
    size_t ring_bytes;
    struct ebb_watch *watch;
    enum learner_state state;
    uint64_t allocs;      /* so far */
    uint64_t allocs_lost; /* allocations since the stream left the template */
    bool playing;
    struct ebb_recurrence *recurrence; /* NULL: not looked for */
    bool guarded;                      /* the plan sent last has accesses for a clock */
    uint64_t planned_share;            /* of the budget, that the newest plan was made for */
    uint64_t planned_slabs;            /* bytes of slabs in use, which it had to leave room for */
    uint64_t planned_bytes;   /* most that it holds at a time; 0: it did not fit to begin with */
    uint64_t margin_bytes;    /* of its share, left free because that has shrunk before */
    uint64_t small_bytes;     /* most that small blocks held while a plan was in force */
    size_t settled_pattern;   /* the repetition that was looked at last, and */
    size_t settled_period;    /* its clock events */
    size_t traced_from;       /* iterations known when accesses began to be observed again */
    uint64_t next_attempt_ns; /* do not try to plan before */
    int64_t reactive_from; /* the iteration that a policy without a script is known from, or -1 */
    int64_t budget_from;
    bool has_key;               /* it may have a profile */
    struct ebb_profile_key key; /* which */
    enum ebb_cache_use cache;
    struct ebb_profile recalled; /* of an earlier run, while RECALLED */
    struct ebb_profile learnt;   /* what is known to be so, for the next run */
    bool learnt_anew;            /* it differs from what lies in the cache */
    uint64_t recalled_at;        /* allocations that had been made when its plans were sent */
    size_t judged;               /* iterations looked at while RECALLED */
    struct alarm alarm;
    struct stuck stuck;
    struct trial trial;
    struct ebb_script *script, *script_before; /* sent last, and before that; NULL: none */
    unsigned strayed;         /* of these, those that were not played to their end */
    unsigned disappointments; /* of these, those in which blocks were not where they had to be */
};

struct ebb_parent {
    struct ebb_parent_options options;
    char environment[4608];
    uint64_t secret[2];    /* of EBB_RUN: a hello must have it */
    int listening;         /* abstract address, for processes that lost the inherited descriptor */
    int hello_pair[2];     /* ours, the program's */
    EBB_VEC(int) accepted; /* connections on `listening` that have not said hello yet */
    struct ebb_ledger *ledger;
    int ledger_descriptor;
    unsigned departed;     /* processes whose slots of the ledger are to be taken out */
    uint64_t copied_bytes; /* that forked relatives have beyond what they have entered */
    uint64_t copies_faults;
    size_t copies_relatives;
    uint64_t copies_look_ns; /* do not look before */
    uint64_t reap_ns;        /* when it is looked for such at the latest */
    EBB_VEC(struct process *) processes;
    size_t hello_count;            /* processes so far */
    struct ebb_parent_result gone; /* sums of what those counted that were released */
    int main_process_id;
    bool main_said_hello;
    struct ebb_machine machine;
    bool probed;     /* machine is known */
    bool compressed; /* its lanes are those of a store that leaves zeros out */
    bool probing;    /* prober runs, or has ended and was not joined yet */
    pthread_t prober;
    enum ebb_status probe_status;
    struct ebb_error probe_error;
    struct ebb_trace_writer *writer;
    uint64_t recorded; /* number of the process whose events go to the trace; 0: none yet */
    enum ebb_status writer_status;
    struct ebb_error writer_error;
    bool budget_set;
    const struct process
        *share_of; /* of whose peak, share_of_bytes, the budget is a share; or NULL */
    uint64_t share_of_bytes;
    struct process *budget_presumed; /* by whose profile; NULL: by none, or it was right */
    uint64_t replans;
    uint64_t plans, events, predicted_peak_bytes, predicted_stall_ns, smallest_feasible_bytes;
    uint64_t predicted_iteration_ns;
    uint64_t period_events;
    bool told_infeasible;
};

void ebb__parent_warn(struct ebb_parent *parent, const char *format, ...) EBB_PRINTF(2, 3);
bool ebb__parent_send(struct process *process, const struct ebb_message *message, int descriptor);
/* A message of a number only; that the process has gone is seen elsewhere. */
void ebb__parent_tell(struct process *process, enum ebb_message_kind kind, uint64_t value);
/* learn.c: the most that the process takes without Ebb, as far as seen. */
uint64_t ebb__parent_unmanaged_peak(const struct process *process);
/* The part of the budget that the process's blocks may fill: not what the others hold, nor what its own
 * small blocks do, which never leave. */
uint64_t ebb__parent_share(const struct ebb_parent *parent, const struct process *process,
                           uint64_t budget);
/* The repetition that has now been found is the one that is planned. */
void ebb__parent_settle(struct process *process);
/* learn.c: plan `model` and send the plan; true where it was sent, or where the policy knows none and
 * this is what it predicts. first_serial: see struct ebb_script. */
bool ebb__parent_plan(struct ebb_parent *parent, struct process *process,
                      const struct ebb_model *model, uint64_t first_serial);
/* Observe accesses from now on. */
void ebb__parent_trace(struct process *process);
bool ebb__parent_send_script(struct process *process, const struct ebb_script *script);
uint32_t ebb__parent_count_allocs(const struct ebb_model *model);
/* replan.c: a plan has been sent, its trial begins. */
void ebb__replan_begin(struct ebb_parent *parent, struct process *process);
/* Has it shown that another is due? Then plan and send it. Cheap where nothing has happened. */
void ebb__replan_consider(struct ebb_parent *parent, struct process *process);
/* The lanes of *assumed as counted between *from and *to, as far as enough was moved. */
void ebb__replan_lanes(const struct ebb_machine *assumed, const struct lane_counts *from,
                       const struct lane_counts *to, struct ebb_machine *measured);
/* Give `model` the shorter of its own and `other`'s intervals between clock events: observing accesses
 * makes some longer, waiting for transfers others. False where they are not the same iteration. */
bool ebb__replan_shorten(struct ebb_model *model, const struct ebb_model *other);
/* recall.c: find the profile of a process that has just said hello; before it is welcomed. */
void ebb__recall_find(struct ebb_parent *parent, struct process *process, int parent_process_id);
/* Send the plans that follow from it; after the welcome. */
void ebb__recall_plan(struct ebb_parent *parent, struct process *process);
/* While RECALLED: does the live stream confirm it? Else drop it and learn. */
void ebb__recall_judge(struct ebb_parent *parent, struct process *process);
/* The run learns this model, and takes it over. */
void ebb__recall_learn(struct process *process, struct ebb_model *model);
/* Keep what was learnt of this process for the next run. */
void ebb__recall_save(struct ebb_parent *parent, struct process *process);
/* alarm.c: tell what the process has waited for too long. Cheap where it waits for nothing. */
void ebb__alarm_look(struct ebb_parent *parent, struct process *process, uint64_t now_ns);
/* stuck.c: how long a thread has been sleeping in one page fault, at least. anew: count from now. */
uint64_t ebb__stuck_look(struct process *process, uint64_t now_ns, bool anew);
/* gone.c: add what a process has counted to the figures of the run. */
void ebb__gone_add(const struct process *process, struct ebb_parent_result *result);
/* Release everything of a process. */
void ebb__gone_release(struct process *process);
/* Release those that have ended, but for the one with the largest blocks. */
void ebb__gone_collect(struct ebb_parent *parent);
/* copies.c: count what forked relatives have copied, if it is time. */
void ebb__copies_look(struct ebb_parent *parent);
/* There are, or were, so many bytes beyond what is held. */
void ebb__copies_note(struct ebb_parent *parent, uint64_t copied_bytes);
/* learn.c: look at what the process has done and plan, or learn anew. */
void ebb__parent_learn(struct ebb_parent *parent, struct process *process);
/* Begin to measure where the transfers will go, beside the running program. */
void ebb__parent_begin_probe(struct ebb_parent *parent);
/* Wait for it to end, if it was begun. */
void ebb__parent_end_probe(struct ebb_parent *parent);
/* parent->machine is what the lanes are; compressed: by leaving zeros out, which the processes do then. */
void ebb__parent_lanes_known(struct ebb_parent *parent, bool compressed);
void ebb__parent_note_event(struct ebb_parent *parent, struct process *process,
                            const struct ebb_event *event);

#endif
