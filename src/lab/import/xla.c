/* XLA's buffer assignment, which TensorFlow and JAX write under --xla_dump_to: one run of a
 * compiled module, as the compiler planned it.
 *
 * Time is logical: an instruction lasts 1 us. Values that share memory while both live are one
 * buffer: a block. A value may take over the memory of one that ends at this instruction. It is
 * then computed in place, so the old block ends before the new one begins. Parameters and constants
 * live throughout. Loop bodies appear once. A training runs its module again and again. So the run
 * is repeated, for commands that look for an iteration. O(values x buffers that live at once). */
#include "base/size.h"
#include "lab/import/events.h"
#include "lab/import/kinds.h"
#include "lab/import/xla_text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS = 3 }; /* the fewest in which an iteration is found for sure */

struct buffer {
    uint32_t allocation;
    uint64_t begin_byte, end_byte; /* within the allocation */
    uint64_t first_tick, last_tick;
    uint32_t merged_into; /* itself: it counts */
    bool is_lasting;
    bool ends_in_place;
};

/* Order of what happens at one tick: an instruction has its result and operands at once, unless it
 * works in place. */
enum step { STEP_READ_IN_PLACE, STEP_END_IN_PLACE, STEP_BEGIN, STEP_READ, STEP_WRITE, STEP_END };

struct action {
    uint64_t tick;
    enum step step;
    uint32_t buffer;
};

/* A value that has memory. */
struct placed {
    uint32_t allocation, value;
    uint64_t first_tick;
};

struct builder {
    struct ebb_xla xla;
    EBB_VEC(struct buffer) buffers;
    EBB_VEC(uint32_t) alive; /* buffers of the current allocation that may still live */
    EBB_VEC(struct action) actions;
    EBB_VEC(uint32_t) buffer_of;   /* by value; UINT32_MAX: none */
    EBB_VEC(struct placed) placed; /* by allocation and time */
    size_t rangeless_count;
    uint64_t rangeless_bytes;
    struct ebb_import_events events;
};

bool ebb__xla_recognises(const uint8_t *bytes, size_t size)
{
    static const char *const heads[] = {"BufferAssignment:\n", "HloLiveRange ", "Used values:\n"};
    while (size && (*bytes == '\n' || *bytes == ' ')) {
        bytes++;
        size--;
    }
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
        if (size >= strlen(heads[i]) && !memcmp(bytes, heads[i], strlen(heads[i])))
            return true;
    return false;
}

static enum ebb_status fail_memory(const struct builder *b)
{
    return ebb__fail(b->events.error, EBB_ERR_MEMORY, b->events.name, "no memory for its values");
}

static int compare_placed(const void *a, const void *b)
{
    const struct placed *left = a, *right = b;
    if (left->allocation != right->allocation)
        return left->allocation < right->allocation ? -1 : 1;
    if (left->first_tick != right->first_tick)
        return left->first_tick < right->first_tick ? -1 : 1;
    return left->value < right->value ? -1 : left->value > right->value;
}

static int compare_actions(const void *a, const void *b)
{
    const struct action *left = a, *right = b;
    if (left->tick != right->tick)
        return left->tick < right->tick ? -1 : 1;
    if (left->step != right->step)
        return left->step < right->step ? -1 : 1;
    return left->buffer < right->buffer ? -1 : left->buffer > right->buffer;
}

/* Lists the values that have memory and a lifetime, and counts those without a lifetime. */
static enum ebb_status list_values(struct builder *b)
{
    for (size_t i = 0; i < b->xla.values.count; i++) {
        const struct ebb_xla_value *value = &b->xla.values.items[i];
        const struct ebb_xla_allocation *allocation = &b->xla.allocations.items[value->allocation];
        struct placed placed = {value->allocation, (uint32_t)i, value->first_tick};
        if (!ebb_vec_push(&b->buffer_of, UINT32_MAX))
            return fail_memory(b);
        if (!value->size_bytes || allocation->is_local)
            continue;
        if (value->has_range || allocation->is_lasting) {
            if (!ebb_vec_push(&b->placed, placed))
                return fail_memory(b);
        } else {
            b->rangeless_count++;
            b->rangeless_bytes += value->size_bytes;
        }
    }
    if (b->placed.count)
        qsort(b->placed.items, b->placed.count, sizeof *b->placed.items, compare_placed);
    return EBB_OK;
}

static bool share_bytes(const struct buffer *a, const struct buffer *b)
{
    return a->begin_byte < b->end_byte && b->begin_byte < a->end_byte;
}

/* True if both live at once. `later` does not begin before the other. A value of one tick lives
 * with all that live at this tick. */
static bool share_time(const struct buffer *known, const struct buffer *later)
{
    bool is_instant =
        later->first_tick == later->last_tick || known->first_tick == known->last_tick;
    return later->first_tick < known->last_tick ||
           (is_instant && later->first_tick == known->last_tick);
}

static void merge(struct buffer *known, const struct buffer *other)
{
    if (other->begin_byte < known->begin_byte)
        known->begin_byte = other->begin_byte;
    if (other->end_byte > known->end_byte)
        known->end_byte = other->end_byte;
    if (other->first_tick < known->first_tick)
        known->first_tick = other->first_tick;
    if (other->last_tick > known->last_tick)
        known->last_tick = other->last_tick;
}

/* Gives a value its buffer: one with which it shares memory and time, or a new one. */
static enum ebb_status place_value(struct builder *b, uint32_t index)
{
    const struct ebb_xla_value *value = &b->xla.values.items[index];
    uint32_t own = UINT32_MAX;
    size_t kept = 0;
    struct buffer wanted = {.allocation = value->allocation,
                            .begin_byte = value->offset_bytes,
                            .end_byte = value->offset_bytes + value->size_bytes,
                            .first_tick = value->first_tick,
                            .last_tick = value->last_tick};
    for (size_t i = 0; i < b->alive.count; i++) {
        uint32_t at = b->alive.items[i];
        struct buffer *known = &b->buffers.items[at];
        if (known->last_tick < wanted.first_tick)
            continue; /* no longer alive */
        if (share_bytes(known, &wanted) && share_time(known, &wanted)) {
            merge(&wanted, known);
            if (own == UINT32_MAX)
                own = at;
            known->merged_into = own;
            if (own != at)
                continue;
        } else if (share_bytes(known, &wanted)) {
            known->ends_in_place = true;
        }
        b->alive.items[kept++] = at;
    }
    b->alive.count = kept;
    if (own != UINT32_MAX) {
        merge(&b->buffers.items[own], &wanted);
    } else {
        own = (uint32_t)b->buffers.count;
        wanted.merged_into = own;
        if (!ebb_vec_push(&b->buffers, wanted) || !ebb_vec_push(&b->alive, own))
            return fail_memory(b);
    }
    b->buffer_of.items[index] = own;
    return EBB_OK;
}

/* A parameter or constant: its whole allocation is one buffer. */
static enum ebb_status place_lasting(struct builder *b, uint32_t index)
{
    uint32_t allocation = b->xla.values.items[index].allocation, last = (uint32_t)b->buffers.count;
    if (!last || b->buffers.items[last - 1].allocation != allocation) {
        struct buffer buffer = {.allocation = allocation,
                                .end_byte = b->xla.allocations.items[allocation].size_bytes,
                                .last_tick = b->xla.tick_count,
                                .merged_into = last,
                                .is_lasting = true};
        if (!ebb_vec_push(&b->buffers, buffer))
            return fail_memory(b);
        last++;
    }
    b->buffer_of.items[index] = last - 1;
    return EBB_OK;
}

static enum ebb_status place_values(struct builder *b)
{
    enum ebb_status status = EBB_OK;
    for (size_t i = 0; i < b->placed.count && !status; i++) {
        const struct placed *placed = &b->placed.items[i];
        if (i && placed[-1].allocation != placed->allocation)
            b->alive.count = 0;
        status = b->xla.allocations.items[placed->allocation].is_lasting
                     ? place_lasting(b, placed->value)
                     : place_value(b, placed->value);
    }
    return status;
}

/* The buffer that a value ended up in, or UINT32_MAX. */
static uint32_t buffer_of(const struct builder *b, uint32_t value)
{
    uint32_t at = b->buffer_of.items[value];
    while (at != UINT32_MAX && b->buffers.items[at].merged_into != at)
        at = b->buffers.items[at].merged_into;
    return at;
}

static bool add(struct builder *b, uint64_t tick, enum step step, uint32_t buffer)
{
    return ebb_vec_push(&b->actions, ((struct action){tick, step, buffer}));
}

/* Lists begins, ends, writes and reads of all buffers of one run. */
static enum ebb_status list_actions(struct builder *b)
{
    bool ok = true;
    for (uint32_t i = 0; i < b->buffers.count && ok; i++) {
        const struct buffer *buffer = &b->buffers.items[i];
        if (buffer->merged_into != i || buffer->is_lasting)
            continue;
        ok = add(b, buffer->first_tick, STEP_BEGIN, i) &&
             add(b, buffer->last_tick, buffer->ends_in_place ? STEP_END_IN_PLACE : STEP_END, i);
    }
    for (size_t i = 0; i < b->placed.count && ok && b->xla.has_uses; i++) {
        const struct ebb_xla_value *value = &b->xla.values.items[b->placed.items[i].value];
        uint32_t at = buffer_of(b, b->placed.items[i].value);
        bool is_given = b->buffers.items[at].is_lasting &&
                        (!i || b->placed.items[i - 1].allocation != value->allocation);
        if (!is_given)
            ok = add(b, value->first_tick, STEP_WRITE, at);
    }
    for (size_t i = 0; i < b->xla.uses.count && ok; i++) {
        const struct ebb_xla_use *use = &b->xla.uses.items[i];
        uint32_t at = buffer_of(b, use->value);
        if (at == UINT32_MAX)
            continue;
        const struct buffer *buffer = &b->buffers.items[at];
        if (use->tick < buffer->first_tick || use->tick > buffer->last_tick)
            continue; /* in a computation that this run does not contain */
        bool in_place = buffer->ends_in_place && use->tick == buffer->last_tick;
        ok = add(b, use->tick, in_place ? STEP_READ_IN_PLACE : STEP_READ, at);
    }
    if (ok && b->actions.count)
        qsort(b->actions.items, b->actions.count, sizeof *b->actions.items, compare_actions);
    return ok ? EBB_OK : fail_memory(b);
}

static uint64_t size_of(const struct buffer *buffer)
{
    return buffer->end_byte - buffer->begin_byte;
}

static enum ebb_status emit_action(struct builder *b, const struct action *action)
{
    uint64_t size_bytes = size_of(&b->buffers.items[action->buffer]), id = action->buffer;
    switch (action->step) {
    case STEP_BEGIN:
        return ebb__import_alloc(&b->events, id, size_bytes);
    case STEP_END:
    case STEP_END_IN_PLACE:
        return ebb__import_free(&b->events, id, size_bytes);
    case STEP_WRITE:
        return ebb__import_access(&b->events, id, size_bytes, EBB_ACCESS_WRITE);
    default:
        return ebb__import_access(&b->events, id, size_bytes, EBB_ACCESS_READ);
    }
}

/* Makes the events of all runs. An action that occurs twice at one tick counts once. */
static enum ebb_status emit(struct builder *b)
{
    enum ebb_status status = EBB_OK;
    b->events.place = 1;
    for (uint32_t i = 0; i < b->buffers.count && !status; i++)
        if (b->buffers.items[i].is_lasting)
            status = ebb__import_alloc(&b->events, i, size_of(&b->buffers.items[i]));
    for (uint64_t run = 0; run < RUNS && !status; run++) {
        b->events.time = run * (b->xla.tick_count + 1);
        status = ebb__import_mark(&b->events, EBB_MARK_ITERATION, 0);
        for (size_t i = 0; i < b->actions.count && !status; i++) {
            const struct action *action = &b->actions.items[i];
            if (i && !compare_actions(action, action - 1))
                continue;
            b->events.place = action->tick + 1;
            b->events.time = run * (b->xla.tick_count + 1) + action->tick;
            status = emit_action(b, action);
        }
    }
    return status;
}

static enum ebb_status check_sections(const struct builder *b)
{
    struct ebb_error *error = b->events.error;
    const char *lacks = !b->xla.has_assignment ? "a buffer assignment (BufferAssignment)"
                        : !b->xla.has_ranges   ? "live ranges (BufferLiveRange)"
                                               : NULL;
    if (!lacks)
        return b->placed.count ? EBB_OK
                               : ebb__fail(error, EBB_ERR_FORMAT, b->events.name,
                                           "has no value with memory and a live range");
    ebb__fail(error, EBB_ERR_FORMAT, b->events.name, "lacks %s", lacks);
    if (error)
        ebb__error_set_remedy(error, "newer releases write several files: 'cat "
                                     "M-buffer-assignment.txt M-buffer-assignment-values.txt "
                                     "M-live-range.txt > IN'");
    return EBB_ERR_FORMAT;
}

static void say(const struct builder *b, struct ebb_import_request *request)
{
    char size[32];
    if (b->rangeless_count)
        ebb__import_note(request, "left out, values without a live range: %zu, of %s",
                         b->rangeless_count,
                         ebb_size_format(b->rangeless_bytes, size, sizeof size));
    if (!b->xla.has_uses)
        ebb__import_note(request, "there are no accesses, since it lacks the uses (Used values)");
}

static void fini(struct builder *b)
{
    ebb__xla_fini(&b->xla);
    ebb_vec_free(&b->buffers);
    ebb_vec_free(&b->alive);
    ebb_vec_free(&b->actions);
    ebb_vec_free(&b->buffer_of);
    ebb_vec_free(&b->placed);
    ebb__import_events_fini(&b->events);
}

enum ebb_status ebb__xla_read(const uint8_t *bytes, size_t size, struct ebb_import_request *request,
                              struct ebb_trace *trace, struct ebb_error *error)
{
    struct builder b = {.rangeless_count = 0};
    ebb__import_events_init(&b.events, request->name, "instruction", error);
    enum ebb_status status = ebb__xla_read_text(bytes, size, request->name, &b.xla, error);
    if (!status)
        status = list_values(&b);
    if (!status)
        status = check_sections(&b);
    if (!status)
        status = place_values(&b);
    if (!status)
        status = list_actions(&b);
    if (!status)
        status = emit(&b);
    if (!status)
        status = ebb__import_finish(&b.events, 1000, trace);
    if (!status)
        say(&b, request);
    fini(&b);
    return status;
}
