/* Matching: finds the position of the program in its script. One interface has four methods.
 *
 *     ordered       events have a fixed order; an unexpected size ends the match
 *     unordered     threads interleave: each iteration has the same events, in varying order
 *     access clock  the program allocates nothing: the uses of some of its blocks are the events
 *     announced     the program announces uses and iterations, in a fixed order
 *
 * The rest of replay knows matchers only by this table. A function that is NULL does nothing. All
 * are called with the lock held; prepare() and words() also without it. */
#ifndef EBB_RUNTIME_REPLAY_MATCHER_H
#define EBB_RUNTIME_REPLAY_MATCHER_H

#include "runtime/replay/replay.h"

struct matcher {
    const char *name;
    /* Events have the order of the script. So the time since the last event shows how far the
     * program is, and an absence is over once its end has been passed. */
    bool is_ordered;
    /* No position needs to be found first: a script is in force as soon as it is known. */
    bool starts_at_once;
    /* Words of memory that its tables take. prepare() fills them; they are zero before. */
    size_t (*words)(const struct ebb_script *script);
    void (*prepare)(struct prepared_script *prepared, uint32_t *memory);
    /* The position of the newest allocation in `prepared`. EBB_SCRIPT_NONE: none, or several. */
    uint32_t (*find)(const struct replay *replay, struct prepared_script *prepared);
    /* How many of the newest allocations agree with `prepared` if the newest is at `position`. The
     * script with the most is the one that the program follows. NULL: unknown, counts as none. */
    uint32_t (*agreement)(const struct replay *replay, const struct prepared_script *prepared,
                          uint32_t position);
    /* The script is followed from `position` on: binds the blocks of earlier allocations. */
    void (*begin)(struct replay *replay, struct prepared_script *prepared, uint32_t position);
    /* Matches an ALLOC, a FREE or an announced use to the script in force, and performs the actions
     * that it passes. False: the program has left the script. *due: `first` is the present
     * position; set it and `count` to the positions passed. */
    bool (*match)(struct replay *replay, enum ebb_event_kind kind, struct block *block,
                  struct due *due);
    /* The position of an allocation of `size_bytes`, or of a FREE before it, if it were the next
     * event. EBB_SCRIPT_NONE: none. Only while a script is in force. */
    uint32_t (*next_position)(const struct replay *replay, uint64_t size_bytes);
    /* Has the end of `absence` been seen before its beginning? */
    bool (*is_over)(const struct prepared_script *prepared,
                    const struct ebb_script_absence *absence);
    /* Ensures that the uses of the next events are seen. Will the next use of `block` be seen? */
    void (*watch)(struct replay *replay);
    bool (*is_watching)(const struct replay *replay, const struct block *block);
    /* A use of `block` was seen. missed: the block was absent. */
    void (*touched)(struct replay *replay, const struct block *block, bool missed);
};

extern const struct matcher ebb__matcher_ordered;
extern const struct matcher ebb__matcher_unordered;
extern const struct matcher ebb__matcher_access_clock;
extern const struct matcher ebb__matcher_announced;

/* The matcher for `script`. */
const struct matcher *ebb__matcher_of(const struct ebb_script *script);

bool ebb__ordered_match(struct replay *replay, enum ebb_event_kind kind, struct block *block,
                        struct due *due);

/* Called at each event: these avoid the table for the most frequent matcher. */
static inline bool ebb__matcher_match(const struct matcher *matcher, struct replay *replay,
                                      enum ebb_event_kind kind, struct block *block,
                                      struct due *due)
{
    return matcher == &ebb__matcher_ordered ? ebb__ordered_match(replay, kind, block, due)
                                            : matcher->match(replay, kind, block, due);
}
static inline uint32_t ebb__matcher_next_position(const struct matcher *matcher,
                                                  const struct replay *replay, uint64_t size_bytes)
{
    return matcher == &ebb__matcher_ordered ? replay->position
                                            : matcher->next_position(replay, size_bytes);
}

#endif
