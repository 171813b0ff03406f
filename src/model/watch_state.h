/* The state of a watch. Only the files watch*.c include this. */
#ifndef EBB_MODEL_WATCH_STATE_H
#define EBB_MODEL_WATCH_STATE_H

#include "model/watch.h"
#include "model/windows.h"

enum {
    KNOWN_PATTERNS = 8, /* a limit: training, evaluation, a last batch */
    KNOWN_GAPS = 16,    /* a limit */
    KEPT_TROUGHS = 32,  /* a limit: so many steps at most until one recurs */
};

/* The phrases known to stand between repetitions of the held iteration: watch_gaps.c. */
struct known_gaps {
    struct {
        uint64_t hash;
        size_t allocs;
    } items[KNOWN_GAPS]; /* the newest, [number % KNOWN_GAPS] */
    size_t count;        /* so far */
    uint64_t looked_at;  /* serial number of the event behind the last iteration looked at */
    uint64_t told;       /* the same for the first event of the last one that repeats */
    uint64_t next_look;  /* number of ALLOCs at which one that repeats is looked for */
};

/* Where live bytes turn, and the steps between: watch_recurring.c. */
struct recurring {
    struct trough {
        size_t symbol;       /* the first that is allocated behind it */
        uint64_t bytes;      /* live there */
        uint64_t made_bytes; /* allocated before it since the turns are noted */
        uint64_t peak_bytes; /* the most until the next one; 0: not known yet */
    } troughs[KEPT_TROUGHS]; /* the newest, the oldest first */
    size_t count;
    bool is_rising;                       /* the turn that is not over is a peak */
    uint64_t turn_bytes;                  /* live at it */
    size_t turn_symbol;                   /* of a trough */
    uint64_t turn_made_bytes, made_bytes; /* allocated before that, and so far */
    bool has_news;                        /* a trough has come since all phrases were told */
    size_t told_symbol;                   /* where the last phrase that was told ends */
    bool in_force; /* the template is one of several steps that recur in any order */
};

struct ebb_watch {
    struct ebb_stream stream;
    uint64_t event_base; /* serial number of the stream's event 0; wraps below 0 */
    struct ebb_template template;
    bool found;
    bool was_ordered; /* an iteration found by a landmark was found exactly later */
    bool early;       /* the template was believed before its first repetition was complete */
    bool held; /* a period of it and other phrases does not replace the template: watch_phrases.c */
    uint32_t pattern; /* number of the template's repetition */
    size_t pattern_count;
    struct ebb_template known[KNOWN_PATTERNS]; /* the newest known templates, [pattern %
                                                  KNOWN_PATTERNS] */
    bool accumulates[KNOWN_PATTERNS];          /* the known repetitions consist of micro-batches */
    struct landmark_seen {
        uint64_t at;             /* number of ALLOCs before the newest one of this size */
        uint64_t apart;          /* distance in ALLOCs between the two newest ones */
    } landmarks[KNOWN_PATTERNS]; /* of the known repetitions; zero if there is none */
    uint64_t alloc_count;        /* ALLOCs pushed */
    size_t window_events;        /* events of an iteration of the template, the longest seen */
    size_t period_clock_events;
    size_t next_symbol;                       /* the search for the next iteration starts here */
    size_t considered[EBB_SYMBOL_KIND_COUNT]; /* found_at_symbol of the last judged repetition */
    struct early {
        size_t found_at_symbol; /* of the last repetition that was announced early */
        bool refutes;           /* the template, which was believed early */
        bool is_made_up;        /* half of it is iterations of the template */
    } early_judged;
    struct micro_batch {
        size_t found_at_symbol; /* of the repetition that was judged */
        bool is_one;            /* the template is a micro-batch of it */
    } micro_batch;
    struct {
        size_t found_at_symbol; /* of the repetition that was judged */
        bool has_held;          /* the held iteration is in its first periods */
    } changed;
    size_t next_look; /* number of symbols at which the next search for a landmark starts */
    EBB_VEC(struct ebb_watch_iteration) iterations; /* those not forgotten */
    struct ebb_watch_forgotten forgotten;
    struct known_gaps gaps;
    struct recurring recurring;
};

/* ---- iterations, watch_iterations.c ---------------------------------------------------------- */

/* The first symbol of the kind behind the recorded iterations; if none is recorded, behind event
 * `otherwise`. */
size_t ebb__watch_first_unrecorded(const struct ebb_watch *watch, enum ebb_symbol_kind kind,
                                   uint64_t otherwise);
/* Drops the iterations recorded since event `begin`. Since then the repetition `pattern` is in
 * force, with `window_events` an iteration. */
void ebb__watch_drop(struct ebb_watch *watch, uint32_t pattern, size_t window_events,
                     uint64_t begin);
/* Records the iterations that have ended. EBB_ERR_MEMORY. */
EBB_NODISCARD enum ebb_status ebb__watch_record(struct ebb_watch *watch);
/* True if accesses tell the newest mark of an iteration. */
bool ebb__watch_marks_by_accesses(const struct ebb_watch *watch);
/* True if the newest steady_iterations (tuning.def) follow each other without a gap, up to the
 * newest event. */
bool ebb__watch_is_steady(const struct ebb_watch *watch);
/* The number of allocations in the newest iteration; 0 if there is none. */
size_t ebb__watch_allocs_of_newest(const struct ebb_watch *watch);

/* ---- repetitions, watch_patterns.c ----------------------------------------------------------- */

/* An ALLOC of this size was pushed: it may be the landmark of a known pattern. */
void ebb__watch_note_alloc(struct ebb_watch *watch, uint64_t size_bytes);
/* Judges the repetition in force, if it is new. */
void ebb__watch_consider(struct ebb_watch *watch, enum ebb_symbol_kind kind);
/* An ALLOC was pushed: takes a step that recurs without following itself. */
void ebb__watch_consider_recurring(struct ebb_watch *watch);
/* Looks for a landmark, if nothing repeats exactly and a search is due. EBB_ERR_MEMORY. */
EBB_NODISCARD enum ebb_status ebb__watch_look_for_landmark(struct ebb_watch *watch);

/* ---- steps that recur in any order, watch_recurring.c ---------------------------------------- */

struct ebb_watch_phrase {
    size_t first, last;   /* symbols */
    uint64_t hash, shape; /* of its sizes; of when its blocks are freed */
    uint64_t bytes;       /* allocated in it */
    uint64_t swing_bytes; /* of the live bytes */
    bool again;           /* it has come before */
    bool traced;          /* its accesses were observed at `first` */
    bool replaces;        /* the template is a loop in it, or there is none */
    bool by_shape;        /* it has come before with other sizes */
};

/* Call at each ALLOC. True if nothing repeats, and the step that has just ended has come before, or
 * one of its shape. It is *phrase then. O(1), but at each trough of the live bytes O(troughs kept,
 * squared). */
bool ebb__watch_recurring(struct ebb_watch *watch, struct ebb_watch_phrase *phrase);
/* What identifies the phrase, once it is taken. */
struct ebb_template ebb__watch_phrase_template(const struct ebb_watch_phrase *phrase);
/* Steps recur in any order. Is the repetition, of exact sizes, one of them for a while? */
bool ebb__watch_is_by_chance(const struct ebb_watch *watch,
                             const struct ebb_repetition *repetition);
/* Do steps recur in any order, and has the template's come lately? */
bool ebb__watch_still_recurs(const struct ebb_watch *watch);
/* The stream has begun anew: symbols have other numbers. */
void ebb__watch_forget_turns(struct ebb_watch *watch);
/* The next step that has not been told, and is not the template's. If it was observed anywhere, it
 * is told there. False: there is none. */
bool ebb__watch_next_step(struct ebb_watch *watch, struct ebb_watch_phrase *step);

/* ---- phrases, watch_phrases.c ---------------------------------------------------------------- */

/* True if the held iteration makes up at least half of the repetition's period. */
bool ebb__watch_is_composed(const struct ebb_watch *watch, const struct ebb_repetition *repetition);
/* True if the repetition is what the held iteration has become. It is about as long, has come three
 * times, and the iteration itself has not come meanwhile. The batches of an evaluation are shorter,
 * and may come more often. O(symbols of three periods), once a repetition. */
bool ebb__watch_has_changed(struct ebb_watch *watch, const struct ebb_repetition *repetition);
/* The position of the template's next iteration at or after symbol `at`, or `last` if there is none
 * that ends before. The template is exact. */
size_t ebb__watch_next_whole(const struct ebb_watch *watch, size_t at, size_t last);
/* True if iterations of the template, which is exact, make up half of the newest period of a
 * repetition. O(symbols of the period). */
bool ebb__watch_makes_up(const struct ebb_watch *watch, const struct ebb_repetition *repetition);
/* True if the held iteration stays although something else has repeated for `events` events. */
bool ebb__watch_outlasts(const struct ebb_watch *watch, size_t events);

#endif
