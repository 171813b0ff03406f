/* Matching: at which position of its script the program is. One interface, three ways.
 *
 *   ordered       events come in one order; a size that is not the expected one ends the match
 *   unordered     threads interleave: the same events in each lap, in varying order
 *   access clock  a program that allocates nothing: the uses of some of its blocks are the events
 *
 * The rest of replay knows no more of them than this table. A function that is NULL does nothing. All
 * are called with the lock held, prepare() and words() also without. */
#ifndef EBB_RUNTIME_REPLAY_MATCHER_H
#define EBB_RUNTIME_REPLAY_MATCHER_H

#include "runtime/replay/replay.h"

struct matcher {
    const char *name;
    /* Events come in the order of the script, so that the time since the last one says how far the
     * program is, and an absence whose end has been passed is over. */
    bool is_ordered;
    /* Nothing has to be found: a script is in force as soon as it is known. */
    bool starts_at_once;
    /* Words of memory that its tables take, and what is made of them, zeroed. */
    size_t (*words)(const struct ebb_script *script);
    void (*prepare)(struct prepared_script *prepared, uint32_t *memory);
    /* The position of `prepared` that the newest allocation is; EBB_SCRIPT_NONE: none, or not only one. */
    uint32_t (*find)(const struct replay *replay, struct prepared_script *prepared);
    /* It is followed from `position` on: name the blocks of the allocations before. */
    void (*begin)(struct replay *replay, struct prepared_script *prepared, uint32_t position);
    /* Match an ALLOC or FREE to the script in force, and act on what it passes. False: the program has
     * left the script. *due: `first` is the present position; set it and `count` to what was passed. */
    bool (*match)(struct replay *replay, enum ebb_event_kind kind, struct block *block,
                  struct due *due);
    /* The position that an allocation of `size_bytes` would have, or a FREE in front of it, should it come
     * next; EBB_SCRIPT_NONE: none. Only while a script is in force. */
    uint32_t (*next_position)(const struct replay *replay, uint64_t size_bytes);
    /* Has the end of `absence` been seen before its beginning? */
    bool (*is_over)(const struct prepared_script *prepared,
                    const struct ebb_script_absence *absence);
    /* See to it that the uses of the next events will be seen; is the next use of `block` to be seen? */
    void (*watch)(struct replay *replay);
    bool (*is_watching)(const struct replay *replay, const struct block *block);
    /* `block` is used, and that was seen; missed: it was absent. */
    void (*touched)(struct replay *replay, const struct block *block, bool missed);
};

extern const struct matcher ebb__matcher_ordered;
extern const struct matcher ebb__matcher_unordered;
extern const struct matcher ebb__matcher_access_clock;

/* The one for `script`. */
const struct matcher *ebb__matcher_of(const struct ebb_script *script);

bool ebb__ordered_match(struct replay *replay, enum ebb_event_kind kind, struct block *block,
                        struct due *due);

/* These come with each event: the usual matcher is called without the table. */
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
