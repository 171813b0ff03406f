#ifndef EBB_PARENT_INTERNAL_H
#define EBB_PARENT_INTERNAL_H

#include "base/vec.h"
#include "machine/machine.h"
#include "model/recurrence.h"
#include "model/steps.h"
#include "model/watch.h"
#include "parent/budget.h"
#include "parent/cache.h"
#include "parent/measured.h"
#include "parent/parent.h"
#include "parent/rest.h"
#include "parent/states.h"
#include "plan/request/request.h"
#include "runtime/ledger.h"
#include "runtime/protocol.h"
#include "runtime/script.h"
#include "trace/file.h"
#include "trace/ring.h"

#include <pthread.h>

/* A plan in force and its results: see replan.c. */
enum { TRIAL_STALLS = 64 }; /* a limit: more give the same median */

struct trial {
    enum trial_state state;
    struct ebb_machine machine;        /* that it assumed */
    struct ebb_machine machine_before; /* assumed by the previous plan */
    struct lane_counts counts;         /* at its begin */
    uint64_t stalled_ns;               /* counters.stall_ns when an iteration was last noted */
    uint64_t stalls_ns[TRIAL_STALLS];  /* of its planned iterations, the newest ones */
    size_t stall_count;                /* noted so far, also those that are not there any more */
    uint64_t predicted_stall_ns;       /* per iteration */
    uint64_t predicted_work_ns;        /* time without stalls, per iteration */
    size_t first_iteration;            /* number in the watch of the first iteration that counts */
    size_t looked_at;                  /* iterations judged so far */
    uint64_t before_ns; /* median iteration under the previous plan; 0: nothing to compare */
    unsigned replans;
    enum replan_reason room;  /* REPLAN_CRAMPED, REPLAN_ROOMY, or REPLAN_NONE if it is as planned */
    unsigned room_iterations; /* consecutive iterations with that judgement */
    unsigned room_replans;
};

#define EBB_ALARM_WAITS (EBB_WAIT_ANSWERS + EBB_WAIT_BLOCKS + EBB_WAIT_TRANSFERS)

enum alarm_kind {
    ALARM_FAULT,
    ALARM_TRANSFER,
    ALARM_STUCK, /* a fault that the runtime does not know of */
    ALARM_KINDS
};

/* What a process waits for, as far as the parent sees: alarm.c. */
struct alarm {
    uint64_t looked_ns; /* time of the last look; 0: never */
    struct seen_wait {
        uint64_t since_ns; /* begin of the wait by the process; 0: nobody waits */
        uint64_t first_ns; /* when the parent first saw it */
    } seen[EBB_ALARM_WAITS];
    enum alarm_state states[ALARM_KINDS];
};

/* A thread that sleeps in a page fault: stuck.c. */
struct stuck {
    int thread;        /* the thread that is watched, or was watched last */
    uint64_t sleeps;   /* its count of sleeps when first seen; 0: no thread is watched */
    uint64_t first_ns; /* when the parent first saw it */
};

/* The events of a process and what the parent finds in them. */
struct stream {
    struct ebb_ring *ring;
    size_t ring_bytes;
    struct ebb_watch *watch;           /* NULL: it is no longer watched */
    struct ebb_recurrence *recurrence; /* NULL: the search is not on */
    struct ebb_steps steps;            /* the steps of the training, for the summary */
    uint64_t allocs;                   /* so far */
    uint64_t allocs_lost;              /* allocations since the stream deviated from the template */
    bool replaying;                    /* the process follows a plan */
    uint64_t followed_allocs;          /* matched in a row: since a lap or the replay began */
    uint64_t followed_faults;          /* since then; of what was not on its way */
    uint64_t now_ns;                   /* time of the newest event */
};

enum { GAPS_SEEN = 16 }; /* a limit */

/* Phrases between the planned iterations: gaps.c. */
struct gaps {
    unsigned fresh;             /* seen that no plan was made for before */
    unsigned known;             /* seen that had a plan */
    unsigned planned;           /* plans made */
    bool is_far;                /* the run is far below its budget: nothing is observed */
    bool observed;              /* the process observes what it does outside of its scripts, */
    size_t allocations;         /* for so many allocations at least */
    uint64_t hashes[GAPS_SEEN]; /* of the newest without a plan, [number % GAPS_SEEN] */
};

/* When to plan: learn.c. */
struct learning {
    size_t settled_pattern;   /* the repetition that was looked at last, and */
    size_t settled_period;    /* its clock events */
    size_t traced_from;       /* iterations known when accesses began to be observed again */
    size_t attempted_at;      /* iterations known when one was looked at last, to plan it */
    uint64_t next_attempt_ns; /* do not try to plan before */
    size_t judged_at;         /* iterations known when what is between them was judged last */
    uint64_t widest_bytes;    /* allocated in an iteration, at most, when it was planned */
    size_t widened_at;        /* iterations known when that was compared last */
    int64_t reactive_from; /* the iteration that a policy without a script is known from, or -1 */
    uint64_t names_ns;     /* do not look for the names of lasting blocks before */
    uint64_t names_allocs; /* until so many allocations were made, names that hold may lack some */
    bool unproven;         /* the planned iteration has not been whole twice in a row */
    bool slight;           /* the planned iteration touches little of the memory */
    bool held;             /* the planned iteration was held when it was looked at last */
    bool exactly;          /* each use is observed: without that, no plan fits */
    struct gaps gaps;
    struct rest rest;
};

/* The newest plan and what it assumed: plans.c. */
struct sent {
    struct ebb_script *script, *script_before; /* the last sent, and the one before; NULL: none */
    bool has_access_clock;                     /* it uses an access clock */
    uint64_t share_bytes;                      /* of the budget that it assumes */
    uint64_t slab_bytes;                       /* of slabs in use when it was made */
    uint64_t peak_bytes;   /* most bytes resident at a time; 0: the plan did not fit at its begin */
    uint64_t margin_bytes; /* of its share, left free because the share has shrunk before */
    uint64_t small_bytes;  /* most bytes of small blocks since then */
    bool is_of_part;       /* what was sent is of a micro-batch: the next script replaces all */
};

/* What an earlier run has learnt: recall.c. */
struct recall {
    enum ebb_cache_use use;
    const char *why_dropped; /* for people; NULL: it was not */
    bool has_key;            /* it may have a profile, under `key` */
    bool is_other;           /* the profile is of a run with other arguments */
    bool is_scaled;          /* its sizes have been changed to those of this run */
    bool is_named;           /* its blocks have been found */
    bool renamed;            /* its blocks have other serials in this run */
    bool awaits_blocks;      /* its plan follows accesses: it is sent when the blocks are there */
    struct ebb_profile_key key;
    struct ebb_profile profile;            /* while PHASE_RECALLED */
    uint64_t at_allocs;                    /* allocations made before its plans were sent */
    struct ebb_profile_iteration original; /* what was scaled; empty if nothing was */
    unsigned scalings;                     /* how often the profile has been scaled */
    bool strayed;                          /* a replay has ended since the plans were sent last */
    uint64_t scale_at;                     /* allocations made when its sizes are compared next */
    uint64_t named_at;        /* allocations made when its blocks were looked for last, */
    uint64_t named_ns;        /* and when that number was new */
    uint64_t most_faults;     /* of an iteration that goes as planned */
    uint64_t whole_allocs;    /* so many matched in a row are an iteration; 0: any lap is */
    unsigned followed;        /* iterations that were replayed */
    unsigned broken;          /* replays that ended earlier, at most one an iteration */
    uint64_t broken_at;       /* allocations made when the newest of these ended */
    unsigned disappointments; /* of those followed, with too many demand faults */
};

struct process {
    uint64_t number;            /* of its hello, counted from 1 */
    uint64_t since_ns;          /* time of its hello */
    struct fast_memory *memory; /* of its blocks */
    int process_id;
    int channel; /* -1: closed */
    enum phase phase;
    struct stream stream;
    struct learning learning;
    struct sent sent;
    struct recall recall;
    struct ebb_profile learnt; /* confirmed facts for the next run */
    bool learnt_anew;          /* it differs from the cached profile */
    int64_t budget_from;       /* the first iteration with a budget in force, or -1 */
    uint64_t budget_event;     /* if that is not the first: events pushed to the steps before */
    uint64_t peak_bytes;       /* its peak when the budget followed it last */
    uint64_t over_before;      /* over_bytes of the ledger when it came */
    struct alarm alarm;
    struct stuck stuck;
    struct trial trial;
};

/* How processes reach the parent: doors.c. */
struct doors {
    char environment[4608];
    uint64_t secret[2];    /* in EBB_RUN; a hello must contain it */
    int listening;         /* when the wait began, by the process; 0: no thread waits */
    int hello_pair[2];     /* the parent's end, the program's end */
    EBB_VEC(int) accepted; /* connections on `listening` without a hello so far */
};

/* Pages that forked relatives hold beyond their ledger entries: copies.c. */
struct copies {
    uint64_t bytes;
    uint64_t faults;
    size_t relatives;
    uint64_t look_ns; /* do not look before this time */
};

struct lanes {
    enum lanes_state state;
    struct ebb_machine machine; /* while LANES_KNOWN */
    bool compressed;            /* measured with a store that leaves out zeros */
    pthread_t prober;           /* while LANES_PROBING */
    atomic_bool probed;         /* it has ended */
    enum ebb_status status;     /* its result; if it failed, why */
    struct ebb_error error;
};

struct recording {
    struct ebb_trace_writer *writer;
    uint64_t process; /* number of the process whose events are traced; 0: none yet */
    bool is_of_device;
    enum ebb_status status;
    struct ebb_error error;
};

/* Figures over all processes, and of the newest plan. */
struct figures {
    uint64_t events;
    struct ebb_plan_figures plan;
    uint64_t smallest_feasible_bytes;
    uint64_t period_events;
};

/* A memory with a budget of its own: that of the host, or of a device. Each device that a process
 * uses counts as a process: it says hello, and has a ring and scripts of its own. */
struct fast_memory {
    struct ebb_ledger *ledger;
    int ledger_descriptor;
    unsigned departed; /* ended processes whose ledger slots must be released */
    uint64_t reap_ns;  /* latest time of the next search for them */
    struct lanes lanes;
    struct budget budget;
    bool is_device;
    /* Of a device: what tells it from others, its place on the bus, its name, its size. */
    char id[40], bus[40], name[128];
    uint64_t bytes;
};

/* The limit of what has left the host's memory, or of host memory for what has left any device. All
 * processes share it. Opened with the first that needs it. */
struct store_limit {
    struct ebb_ledger *ledger; /* NULL: not open */
    int ledger_descriptor;
    uint64_t reap_ns; /* latest time of the next search for ended processes */
};

struct ebb_parent {
    struct ebb_parent_options options;
    struct doors doors;
    int showing;         /* where `ebb top` asks; -1: nowhere */
    uint64_t started_ns; /* CLOCK_MONOTONIC */
    struct fast_memory host;
    EBB_VEC(struct fast_memory *) devices;
    struct store_limit host_store, device_store;
    struct copies copies;
    EBB_VEC(struct process *) processes;
    size_t hello_count;            /* processes that have said hello */
    struct ebb_parent_result gone; /* sums over the processes already released */
    int main_process_id;
    bool main_said_hello;
    struct recording recording;
    struct figures figures;
};

/* memories.c: the memory number `index`: 0 is the host's, the others are devices. NULL: none. */
struct fast_memory *ebb__memory_at(struct ebb_parent *parent, size_t index);
EBB_NODISCARD enum ebb_status ebb__memory_open(const struct ebb_parent *parent,
                                               struct fast_memory *memory, struct ebb_error *error);
/* The memory of a device that introduces itself (protocol.h). NULL: it cannot be had. */
struct fast_memory *ebb__memory_of_device(struct ebb_parent *parent,
                                          const struct ebb_message *hello);
/* Notes that a device holds no more than its budget. From then on it never does. */
void ebb__memory_look(struct fast_memory *memory);
void ebb__memory_close(struct fast_memory *memory);
/* Opens the limit of host memory for devices, if it is not open. Returns its descriptor; -1: it
 * cannot be had, and each process has the limit for itself. */
int ebb__store_limit_open(struct store_limit *limit, uint64_t bytes);
void ebb__store_limit_close(struct store_limit *limit);

/* tell.c: warns the user who started the run, and sends messages to processes. */
void ebb__parent_warn(struct ebb_parent *parent, const char *format, ...) EBB_PRINTF(2, 3);
/* `descriptor`: -1, or what the message comes with. */
bool ebb__parent_send(struct process *process, const struct ebb_message *message, int descriptor);
/* Sends a message that consists of a number. An error is ignored: doors detect that a process has
 * ended. */
void ebb__parent_tell(struct process *process, enum ebb_message_kind kind, uint64_t value);
void ebb__parent_tell_all(struct ebb_parent *parent, enum ebb_message_kind kind, uint64_t value);

/* doors.c: opens what processes need to find the parent. */
EBB_NODISCARD enum ebb_status ebb__doors_open(struct ebb_parent *parent, struct ebb_error *error);
/* Accepts waiting processes: welcomes or rejects each. */
void ebb__doors_answer(struct ebb_parent *parent);
void ebb__doors_close(struct ebb_parent *parent);

/* lanes.c: starts a thread that measures the store's lanes while the program runs. */
void ebb__lanes_begin(struct ebb_parent *parent, struct fast_memory *memory);
/* True if the lanes are known. If not, that thread is at work. If there can be none, measures at
 * once. */
bool ebb__lanes_known(struct ebb_parent *parent, struct fast_memory *memory);
/* Waits for that thread. If there is none, measures at once. */
void ebb__lanes_await(struct ebb_parent *parent, struct fast_memory *memory);
/* Records that memory->lanes.machine is known. If `compressed` is true, the store leaves out zeros,
 * and processes are told to do so. */
void ebb__lanes_know(struct ebb_parent *parent, struct fast_memory *memory, bool compressed);
/* Waits for the thread, whatever it finds. */
void ebb__lanes_fini(struct fast_memory *memory);

/* plans.c: the current terms of a plan for the process. */
struct ebb_plan_terms ebb__parent_terms(const struct ebb_parent *parent,
                                        const struct process *process,
                                        const struct ebb_model *model);
/* Plans `model` and sends the plan. Returns true if it was sent, or if the policy has no plan and
 * only predicts. first_serial: see struct ebb_script. */
bool ebb__parent_plan(struct ebb_parent *parent, struct process *process,
                      const struct ebb_model *model, uint64_t first_serial);
/* Says what was held back: while the budget was presumed, and while small blocks that are not used
 * might still leave memory. */
void ebb__plans_tell(struct ebb_parent *parent, const struct process *process);
/* The same at the end of the run, if the budget was exceeded. */
void ebb__plans_tell_last(struct ebb_parent *parent, struct fast_memory *memory);
/* Plans `model`, which is what comes between planned iterations, and one of them, and sends the
 * plan. The plan of the iteration stays as it is. Returns true if it was sent. */
bool ebb__parent_plan_beside(struct ebb_parent *parent, struct process *process,
                             const struct ebb_model *model);
bool ebb__parent_send_script(struct process *process, const struct ebb_script *script);
/* Renames the persistent blocks in all scripts that the process has, and in those kept here. */
bool ebb__parent_send_names(struct process *process, const struct ebb_renaming *renamings,
                            size_t count);

/* gaps.c: the iteration has been planned, and what it is may be new. Accesses are observed
 * outside of it only. */
void ebb__gaps_begin(struct process *process);
/* Plans what has come between the newest planned iterations, if it is new. */
void ebb__gaps_consider(struct ebb_parent *parent, struct process *process);

/* learn.c: examines what the process has done, and plans or learns again. */
void ebb__parent_learn(struct ebb_parent *parent, struct process *process);

/* observe.c: records an event of the process. */
void ebb__parent_note_event(struct process *process, const struct ebb_event *event);
/* Starts observing accesses. */
void ebb__parent_trace(struct process *process);
/* Takes the newest repetition as the iteration to plan. */
void ebb__parent_settle(struct process *process);
struct seen {
    size_t traced;
    size_t in_a_row;       /* in a row, up to the newest */
    uint64_t widest_bytes; /* allocated in one of them, at most */
};
/* Of the repetition that counts as the iteration. */
struct seen ebb__parent_seen(const struct process *process);

/* trial.c: begins the trial of a plan that was sent. */
void ebb__trial_begin(struct process *process);

/* replan.c: if the trial shows that another plan is due, plans and sends it. Cheap if there is
 * nothing new. */
void ebb__replan_consider(struct ebb_parent *parent, struct process *process);
/* names.c: true if the persistent blocks that the model names are those of this process, but for a
 * twentieth of their bytes. The runtime ignores blocks of other sizes. If these are many, the plan
 * is useless. */
bool ebb__names_hold(const struct process *process, const struct ebb_model *model);
/* True if some of them are not. */
bool ebb__names_lack(const struct process *process, const struct ebb_model *model);
/* Names the persistent blocks of the model as this process does, by order and size. Returns false,
 * and changes nothing, if more than a twentieth of their bytes is not found, or more than its names
 * have now.
 *   renamings  out, or NULL: the names that have changed, ordered by `from`; the caller frees it
 *   count      out: their number */
bool ebb__names_find(const struct process *process, struct ebb_model *model,
                     struct ebb_renaming **renamings, size_t *count);

/* They have just been found: some may come yet, within two iterations. */
void ebb__names_changed(struct process *process, const struct ebb_model *model);

/* batch.c: gives the profile the sizes of this run, if it is of another batch, and if it is time.
 * Returns true if the profile has changed: it then has one iteration. Cheap if it is not time. */
bool ebb__batch_scale(struct process *process);
/* True if the profile has been scaled, the replay has strayed, and it may be scaled once more. */
bool ebb__batch_settles(const struct process *process);
/* Frees what was kept to scale the profile once more. */
void ebb__batch_end(struct process *process);

/* recall.c: finds the profile of a process that has said hello. Call before the welcome. */
void ebb__recall_find(struct ebb_parent *parent, struct process *process, int parent_process_id);
/* Sends the plans made from the profile. Call after the welcome. */
void ebb__recall_plan(struct ebb_parent *parent, struct process *process);
/* While RECALLED: compares the live stream with the profile. If they differ, drops the profile and
 * learns again. */
void ebb__recall_judge(struct ebb_parent *parent, struct process *process);

/* leave.c: adds this model to what the run has learnt, and takes ownership of it. */
void ebb__leave_learn(struct process *process, struct ebb_model *model);
/* Saves what was learnt of this process, once it is confirmed and whenever it has changed. A
 * process that is killed later leaves it, too. Cheap if there is nothing to save. */
void ebb__leave_early(struct ebb_parent *parent, struct process *process);
/* The process has ended: saves what differs from what was saved early. */
void ebb__leave_last(struct ebb_parent *parent, struct process *process);

/* alarm.c: warns if the process waits for too long. Cheap if it does not wait. */
void ebb__alarm_look(struct ebb_parent *parent, struct process *process, uint64_t now_ns);
/* stuck.c: the least time that a thread has slept in one page fault. If `anew` is true, the time
 * counts from this call. */
uint64_t ebb__stuck_look(struct process *process, uint64_t now_ns, bool anew);

/* gone.c: adds the counters of a process to the figures of the run. */
void ebb__gone_add(const struct process *process, struct ebb_parent_result *result);
void ebb__gone_release(struct process *process);
/* The process with the largest blocks, which represents the run; NULL: none has said hello. */
const struct process *ebb__gone_busiest(const struct ebb_parent *parent);
/* Releases ended processes, except the one with the largest blocks. */
void ebb__gone_collect(struct ebb_parent *parent);

/* show.c: the run is seen by `ebb top`, if there is room for a socket. */
void ebb__show_open(struct ebb_parent *parent);
/* Answers who asks. Cheap if nobody does. */
void ebb__show_answer(struct ebb_parent *parent);
void ebb__show_close(struct ebb_parent *parent);

/* copies.c: counts the pages that forked relatives have copied, if it is time. */
void ebb__copies_look(struct ebb_parent *parent);
/* Records that so many bytes exist, or existed, beyond the resident bytes in the ledger. */
void ebb__copies_note(struct ebb_parent *parent, uint64_t copied_bytes);
/* True if one was forked from the other, or both from a third. */
bool ebb__copies_related(const struct process *one, const struct process *other);

#endif
