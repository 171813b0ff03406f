/* Symbols are hashed by content, so that an iteration is recognised in O(1) at any position. A push
 * is O(1) expected; the search for iterations is linear in the number of symbols. */
#include "stream.h"

#include "base/geometry.h"

#include "shapes.h"

#include <string.h>

enum ebb_status ebb__stream_init(struct ebb_stream *stream)
{
    memset(stream, 0, sizeof *stream);
    for (size_t kind = 0; kind < EBB_SYMBOL_MARK; kind++) {
        struct ebb_symbols *symbols = &stream->symbols[kind];
        if (ebb__detector_create(&symbols->detector) != EBB_OK) {
            ebb__stream_fini(stream);
            return EBB_ERR_MEMORY;
        }
        symbols->rolling = ebb__detector_rolling(symbols->detector);
    }
    return EBB_OK;
}

void ebb__stream_forget_symbols(struct ebb_stream *stream)
{
    for (size_t kind = 0; kind < EBB_SYMBOL_KIND_COUNT; kind++) {
        ebb_vec_free(&stream->symbols[kind].events);
        ebb__detector_destroy(stream->symbols[kind].detector);
        stream->symbols[kind].detector = NULL;
        stream->symbols[kind].rolling = NULL;
    }
    ebb__shapes_fini(stream);
}

void ebb__stream_fini(struct ebb_stream *stream)
{
    ebb_vec_free(&stream->kept);
    ebb__stream_forget_symbols(stream);
    ebb_vec_free(&stream->allocs);
    ebb__serials_fini(&stream->serials);
    ebb_vec_free(&stream->traced);
    ebb_vec_free(&stream->planned);
    ebb_vec_free(&stream->waits);
    ebb_vec_free(&stream->lost);
    memset(stream, 0, sizeof *stream);
}

bool ebb__stream_find(const struct ebb_stream *stream, uint64_t serial, size_t *alloc)
{
    return ebb__serials_get(&stream->serials, serial, alloc);
}

size_t ebb__stream_event_of(const struct ebb_stream *stream, enum ebb_symbol_kind kind,
                            size_t symbol)
{
    const struct ebb_symbols *symbols = &stream->symbols[kind];
    return symbol < symbols->events.count ? symbols->events.items[symbol] : stream->events.count;
}

size_t ebb__stream_coverage(const struct ebb_stream *stream,
                            const struct ebb_repetition *repetition)
{
    return ebb__stream_event_of(stream, repetition->kind, repetition->last_symbol) -
           ebb__stream_event_of(stream, repetition->kind, repetition->first_symbol);
}

/* Keeps the repetition among the best if it covers enough. */
static void retire(struct ebb_stream *stream, struct ebb_repetition *repetition)
{
    if (repetition->period_symbols == 0)
        return;
    size_t slot = stream->best_count;
    if (slot == EBB_STREAM_BEST) {
        slot = 0;
        for (size_t i = 1; i < EBB_STREAM_BEST; i++)
            if (ebb__stream_coverage(stream, &stream->best[i]) <
                ebb__stream_coverage(stream, &stream->best[slot]))
                slot = i;
        if (ebb__stream_coverage(stream, &stream->best[slot]) >=
            ebb__stream_coverage(stream, repetition)) {
            repetition->period_symbols = 0;
            return;
        }
    } else {
        stream->best_count++;
    }
    stream->best[slot] = *repetition;
    repetition->period_symbols = 0;
}

/* Updates the current repetition after a symbol. */
static void follow_detector(struct ebb_stream *stream, enum ebb_symbol_kind kind)
{
    const struct ebb_symbols *symbols = &stream->symbols[kind];
    struct ebb_repetition *current = &stream->current[kind];
    struct ebb_detection detection = ebb__detector_current(symbols->detector);
    if (!detection.found) {
        retire(stream, current);
        return;
    }
    size_t reach = ebb__detector_run(symbols->detector) + detection.period_symbols;
    if (current->period_symbols && current->found_at_symbol != detection.found_at_symbol)
        retire(stream, current);
    *current = (struct ebb_repetition){
        .kind = kind,
        .first_symbol = symbols->events.count - reach,
        .last_symbol = symbols->events.count,
        .period_symbols = detection.period_symbols,
        .found_at_symbol = detection.found_at_symbol,
    };
}

/* Pushes the symbol of event `index`, with the live bytes after it. */
static enum ebb_status push_symbol(struct ebb_stream *stream, enum ebb_symbol_kind kind,
                                   size_t index, uint64_t symbol, uint64_t live_bytes)
{
    struct ebb_symbols *symbols = &stream->symbols[kind];
    if (!ebb_vec_push(&symbols->events, (uint32_t)index))
        return EBB_ERR_MEMORY;
    if (symbols->detector) {
        enum ebb_status status =
            ebb__detector_push(symbols->detector, symbol, kind == EBB_SYMBOL_ALLOC, live_bytes);
        if (status)
            return status;
        follow_detector(stream, kind);
        return EBB_OK;
    }
    /* Marks set by the program need no evidence; marks found by accesses already had it. */
    uint64_t value = stream->events.items[index].size_bytes;
    size_t count = symbols->events.count, least = ebb__iteration_is_by_accesses(value) ? 2 : 3;
    if (value == EBB_ITERATION_ANEW) {
        stream->marks_from = count - 1;
        stream->current[kind] = (struct ebb_repetition){0};
    }
    if (count - stream->marks_from >= least)
        stream->current[kind] = (struct ebb_repetition){.kind = kind,
                                                        .first_symbol = stream->marks_from,
                                                        .last_symbol = count,
                                                        .period_symbols = 1,
                                                        .found_at_symbol = stream->marks_from + 2};
    return EBB_OK;
}

#define begin_stretch(stretches, event)                                                            \
    (((stretches)->count == 0 || (stretches)->items[(stretches)->count - 1].last != SIZE_MAX)      \
         ? ebb_vec_push(stretches, ((struct ebb_stretch){event, SIZE_MAX}))                        \
         : true)

#define end_stretch(stretches, event)                                                              \
    do {                                                                                           \
        if ((stretches)->count && (stretches)->items[(stretches)->count - 1].last == SIZE_MAX)     \
            (stretches)->items[(stretches)->count - 1].last = (event);                             \
    } while (0)

/* Several threads may wait at the same time: time before the end of the last wait counts once. */
static bool note_wait(struct ebb_stream *stream, size_t index, const struct ebb_event *event)
{
    const struct ebb_wait *last =
        stream->waits.count ? &stream->waits.items[stream->waits.count - 1] : NULL;
    uint64_t since_ns = event->time_ns;
    struct ebb_wait wait = {.event = index};
    if (last) {
        since_ns -= stream->events.items[last->event].time_ns;
        wait.sum_ns = last->sum_ns;
        wait.observed_ns = last->observed_ns;
    }
    uint64_t lost_ns = event->size_bytes < since_ns ? event->size_bytes : since_ns;
    wait.sum_ns += lost_ns;
    wait.observed_ns += event->mark == EBB_MARK_OBSERVED ? lost_ns : 0;
    return ebb_vec_push(&stream->waits, wait);
}

static enum ebb_status push_mark(struct ebb_stream *stream, const struct ebb_event *event)
{
    size_t index = stream->events.count - 1;
    bool ok = true;
    switch (event->mark) {
    case EBB_MARK_ITERATION:
        return push_symbol(stream, EBB_SYMBOL_MARK, index, 0, stream->live_bytes);
    case EBB_MARK_TRACE_ON:
        if (!stream->has_trace_marks) /* accesses before the first mark: not traced throughout */
            stream->traced.count = 0;
        stream->has_trace_marks = true;
        ok = begin_stretch(&stream->traced, index);
        break;
    case EBB_MARK_TRACE_OFF:
        if (!stream->has_trace_marks && stream->traced.count == 0)
            ok = begin_stretch(&stream->traced, 0); /* traced from the start, without marks */
        stream->has_trace_marks = true;
        end_stretch(&stream->traced, index);
        break;
    case EBB_MARK_PLAN_ON:
        ok = begin_stretch(&stream->planned, index);
        break;
    case EBB_MARK_PLAN_OFF:
        end_stretch(&stream->planned, index);
        break;
    case EBB_MARK_LOST:
        ok = ebb_vec_push(&stream->lost, index);
        break;
    case EBB_MARK_WAIT:
    case EBB_MARK_OBSERVED:
        ok = note_wait(stream, index, event);
        break;
    default:
        break;
    }
    return ok ? EBB_OK : EBB_ERR_MEMORY;
}

static uint64_t access_symbol(const struct ebb_event *event)
{
    uint64_t unit = event->flags & EBB_EVENT_PART ? event->size_bytes / EBB_HUGE_BYTES + 1 : 0;
    return (event->block << 24 ^ unit) << 2 | event->access;
}

/* The number of bytes by which the FREE at `index` reduces the load. */
static uint64_t freed_bytes(const struct ebb_stream *stream, size_t index, uint64_t live_bytes)
{
    const struct ebb_event *event = &stream->events.items[index];
    size_t alloc;
    if (!ebb__stream_find(stream, event->block, &alloc))
        return stream->existing_blocks && event->size_bytes <= live_bytes ? event->size_bytes : 0;
    if (stream->allocs.items[alloc].free_event != index)
        return 0;
    return stream->events.items[stream->allocs.items[alloc].event].size_bytes;
}

/* Files and rings may contain any numbers. True if these are possible for a block of a process, and
 * cannot overflow a sum or the symbol of an access. */
static bool is_possible(const struct ebb_stream *stream, const struct ebb_event *event)
{
    const uint64_t limit = (uint64_t)1 << 62;
    bool has_block = event->kind == EBB_EVENT_ALLOC || event->kind == EBB_EVENT_FREE ||
                     event->kind == EBB_EVENT_ACCESS;
    return event->time_ns <= EBB_EVENT_TIME_LIMIT_NS &&
           (!has_block || (event->block > 0 && event->block < limit && event->access < 4 &&
                           event->size_bytes <= EBB_EVENT_SIZE_LIMIT &&
                           stream->live_bytes < limit - EBB_EVENT_SIZE_LIMIT));
}

/* Processes the newest event, which is already in `events`. */
static enum ebb_status follow(struct ebb_stream *stream, const struct ebb_event *event)
{
    size_t index = stream->events.count - 1, alloc = stream->allocs.count;
    if (!is_possible(stream, event))
        return EBB_ERR_FORMAT;
    if (index >= EBB_STREAM_EVENTS)
        return EBB_ERR_MEMORY;
    switch (event->kind) {
    case EBB_EVENT_ALLOC:
        if (!ebb__serials_put(&stream->serials, event->block, alloc) ||
            !ebb_vec_push(&stream->allocs,
                          ((struct ebb_stream_alloc){(uint32_t)index, EBB_NOT_FREED})))
            return EBB_ERR_MEMORY;
        stream->live_bytes += event->size_bytes;
        if (stream->live_bytes > stream->peak_bytes)
            stream->peak_bytes = stream->live_bytes;
        if (ebb__shapes_push(stream) != EBB_OK)
            return EBB_ERR_MEMORY;
        return push_symbol(stream, EBB_SYMBOL_ALLOC, index, event->size_bytes, stream->live_bytes);
    case EBB_EVENT_FREE:
        if (ebb__stream_find(stream, event->block, &alloc) &&
            stream->allocs.items[alloc].free_event == EBB_NOT_FREED) {
            stream->allocs.items[alloc].free_event = (uint32_t)index;
            ebb__shapes_note_free(stream, alloc);
        }
        stream->live_bytes -= freed_bytes(stream, index, stream->live_bytes);
        return EBB_OK;
    case EBB_EVENT_ACCESS:
        if (event->flags & EBB_EVENT_DEMAND)
            return EBB_OK;
        if (!stream->has_trace_marks && stream->traced.count == 0 &&
            !begin_stretch(&stream->traced, 0))
            return EBB_ERR_MEMORY;
        if (stream->lent)
            return EBB_OK;
        return push_symbol(stream, EBB_SYMBOL_ACCESS, index, access_symbol(event),
                           stream->live_bytes);
    case EBB_EVENT_MARK:
        return push_mark(stream, event);
    default:
        return EBB_OK;
    }
}

enum ebb_status ebb__stream_push(struct ebb_stream *stream, const struct ebb_event *event)
{
    if (!ebb_vec_push(&stream->kept, *event))
        return EBB_ERR_MEMORY;
    stream->events.items = stream->kept.items;
    stream->events.count = stream->kept.count;
    struct ebb_event *kept = &stream->kept.items[stream->kept.count - 1];
    if (stream->kept.count > 1 && kept->time_ns < kept[-1].time_ns)
        kept->time_ns = kept[-1].time_ns;
    return follow(stream, kept);
}

enum { ROOM_LIMIT = 1 << 16 }; /* allocations, a limit: more are processed in pieces */

/* The set of serials that occurred: one bit each if not far above the number of events, otherwise
 * in a map. */
enum { MET_SHARE = 8, MET_ALWAYS = 1024 };

struct met {
    uint64_t *bits;
    uint64_t bit_count;
    struct ebb_map rest;
};

/* Adds the serial; returns false if out of memory. *before: it was there already. */
static inline bool meet_serial(struct met *met, uint64_t serial, bool *before)
{
    if (serial < met->bit_count) {
        uint64_t bit = UINT64_C(1) << (serial & 63), *word = &met->bits[serial >> 6];
        *before = *word & bit;
        *word |= bit;
        return true;
    }
    *before = ebb__map_get(&met->rest, serial, NULL);
    return *before || ebb__map_put(&met->rest, serial, 1);
}

/* Blocks that the trace uses without an allocation are older than the trace. */
static enum ebb_status take_existing(struct ebb_stream *stream, struct ebb_event_span trace)
{
    struct met met = {.bit_count = MET_ALWAYS + MET_SHARE * (uint64_t)trace.count};
    met.bits = calloc((size_t)(met.bit_count / 64 + 1), sizeof *met.bits);
    bool ok = met.bits != NULL, lost = false;
    enum ebb_status status = EBB_OK;
    for (size_t i = 0; ok && !status && i < trace.count; i++) {
        const struct ebb_event *event = &trace.events[i];
        bool before;
        switch (event->kind) {
        case EBB_EVENT_ALLOC:
        case EBB_EVENT_FREE:
        case EBB_EVENT_ACCESS:
            stream->events.count = i + 1;
            if (!is_possible(stream, event)) {
                status = EBB_ERR_FORMAT;
                break;
            }
            ok = meet_serial(&met, event->block, &before);
            if (ok && !before && event->kind != EBB_EVENT_ALLOC) {
                stream->existing_blocks++;
                stream->live_bytes = stream->existing_bytes += event->size_bytes;
            }
            break;
        case EBB_EVENT_MARK:
            lost = lost || event->mark == EBB_MARK_LOST;
            break;
        default:
            break;
        }
    }
    if (lost)
        stream->existing_blocks = 0, stream->existing_bytes = 0;
    stream->live_bytes = stream->peak_bytes = stream->existing_bytes;
    free(met.bits);
    ebb__map_fini(&met.rest);
    return ok ? status : EBB_ERR_MEMORY;
}

enum ebb_status ebb__stream_take(struct ebb_stream *stream, struct ebb_event_span trace)
{
    /* Reserves memory for a short trace: untouched pages cost nothing, but growing does. */
    size_t room = trace.count < ROOM_LIMIT ? trace.count : ROOM_LIMIT;
    struct ebb_symbols *symbols = &stream->symbols[EBB_SYMBOL_ALLOC];
    enum ebb_status status = ebb__detector_reserve(symbols->detector, room);
    if (!status &&
        (!ebb_vec_reserve(&symbols->events, room) || !ebb_vec_reserve(&stream->allocs, room) ||
         !ebb_vec_reserve(&stream->serials.dense, room)))
        status = EBB_ERR_MEMORY;
    stream->lent = true;
    stream->events.items = trace.events;
    if (!status)
        status = take_existing(stream, trace);
    for (size_t i = 0; !status && i < trace.count; i++) {
        stream->events.count = i + 1;
        status = follow(stream, &trace.events[i]);
    }
    stream->closed = true;
    return status;
}

enum ebb_status ebb__stream_take_accesses(struct ebb_stream *stream)
{
    enum ebb_status status = EBB_OK;
    uint64_t live_bytes = stream->existing_bytes;
    for (size_t i = 0; !status && i < stream->events.count; i++) {
        const struct ebb_event *event = &stream->events.items[i];
        if (event->kind == EBB_EVENT_ALLOC)
            live_bytes += event->size_bytes;
        else if (event->kind == EBB_EVENT_FREE)
            live_bytes -= freed_bytes(stream, i, live_bytes);
        else if (event->kind == EBB_EVENT_ACCESS && !(event->flags & EBB_EVENT_DEMAND))
            status = push_symbol(stream, EBB_SYMBOL_ACCESS, i, access_symbol(event), live_bytes);
    }
    return status;
}

void ebb__stream_settle(struct ebb_stream *stream)
{
    for (size_t kind = 0; kind < EBB_SYMBOL_MARK; kind++)
        ebb__detector_settle(stream->symbols[kind].detector);
}

size_t ebb__stream_allocs_before(const struct ebb_stream *stream, size_t event)
{
    size_t low = 0, high = stream->allocs.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (stream->allocs.items[middle].event < event)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The newest wait that has ended before `event`, or NULL. */
static const struct ebb_wait *wait_before(const struct ebb_stream *stream, size_t event)
{
    size_t low = 0, high = stream->waits.count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (stream->waits.items[middle].event <= event)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? &stream->waits.items[low - 1] : NULL;
}

uint64_t ebb__stream_lost_ns(const struct ebb_stream *stream, size_t event)
{
    const struct ebb_wait *wait = wait_before(stream, event);
    return wait ? wait->sum_ns : 0;
}

uint64_t ebb__stream_waited_ns(const struct ebb_stream *stream, size_t event)
{
    const struct ebb_wait *wait = wait_before(stream, event);
    return wait ? wait->sum_ns - wait->observed_ns : 0;
}
