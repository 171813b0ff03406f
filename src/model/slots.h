/* Identifies the same allocation in several iterations. Each allocation of the pattern is a *slot*;
 * each ALLOC or FREE of a slot is a *knot*. An instance of a slot is named by the slot and its age
 * in iterations. So ALLOC and FREE have names that mean the same in every window. Functions that
 * return bool return false if out of memory, unless stated otherwise. */
#ifndef EBB_MODEL_SLOTS_H
#define EBB_MODEL_SLOTS_H

#include "model/windows.h"

#define EBB_SLOT_NONE SIZE_MAX
#define EBB_SLOT_LEFT_OUT UINT64_MAX /* in `names`: a block of a window that matches no slot */

struct slot {
    uint64_t size_bytes;
    uint64_t serial; /* serial of the pattern's own instance */
    size_t event;
};

/* An ALLOC or FREE of the pattern: its name and its event. */
struct knot {
    uint64_t name;
    size_t event;
};

/* An event to be inserted into the pattern, or into a window in the pattern's order. */
struct placed {
    size_t knot; /* it is inserted before this one */
    size_t order;
    struct ebb_event event;
};

struct merger {
    const struct ebb_stream *stream;
    const struct ebb_window *windows;
    size_t window_count, own;
    EBB_VEC(struct slot) slots;
    struct ebb_map names;      /* serial -> window << 32 | slot */
    EBB_VEC(uint64_t) serials; /* [window * slots + slot]; 0: not in that window */
    EBB_VEC(struct knot) knots;
    struct ebb_map knot_of; /* name -> index */
    EBB_VEC(struct placed) placed;
    EBB_VEC(size_t) positions; /* of each knot in the current window; EBB_SLOT_NONE: not in it */
    uint64_t made_up; /* next serial for an allocation that is missing in a window, counting down */
};

static inline const struct ebb_event *ebb__weaver_event(const struct merger *w, size_t event)
{
    return &w->stream->events.items[event];
}

/* Numbers the pattern's allocations. */
bool ebb__slots_collect(struct merger *w);

/* Matches the allocations of a window to slots: by size, then by order. */
bool ebb__slots_match(struct merger *w, size_t window);

/* The name of an ALLOC or FREE in `window`; the same in all windows. Returns false if it belongs to
 * no slot. */
bool ebb__slots_name(const struct merger *w, const struct ebb_event *event, size_t window,
                     uint64_t *name);

/* Numbers the pattern's knots. */
bool ebb__knots_collect(struct merger *w);

/* Sets the positions of the knots in the order of `window`: the number of knots before each. */
void ebb__knots_place(struct merger *w, size_t window);

/* The pattern's counterpart of a block that is accessed in `window`; 0 if there is none. */
uint64_t ebb__slots_counterpart(const struct merger *w, uint64_t serial, size_t window);

/* The knots of the pattern between which `serial` is live: [*first, *last]. Returns false if it is
 * not live, or if no knot ends its lifetime. */
bool ebb__knots_lifetime(const struct merger *w, uint64_t serial, size_t *first, size_t *last);

#endif
