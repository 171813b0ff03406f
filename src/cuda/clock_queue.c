#include "cuda/clock_state.h"

void ebb__clock_write(struct ebb_cuda_clock *clock, const struct ebb_event *event, uint64_t ns)
{
    struct ebb_event written = *event;
    if (ns > clock->last_ns)
        clock->last_ns = ns;
    uint64_t origin_ns = clock->ring->origin_ns;
    written.time_ns = clock->last_ns > origin_ns ? clock->last_ns - origin_ns : 0;
    ebb__ring_write(clock->ring, &written);
}

/* The uses of a work end. `block`: of this one only; 0: of all that have not ended. */
static void write_end(struct ebb_cuda_clock *clock, struct work *work, uint64_t block, uint64_t ns)
{
    for (uint32_t i = 0; i < work->count; i++) {
        struct item *item = item_at(clock, work->first + i);
        if (item->event.kind != EBB_EVENT_ACCESS || (block && item->event.block != block))
            continue;
        struct ebb_event held = item->event;
        held.flags = EBB_EVENT_HELD;
        ebb__clock_write(clock, &held, ns);
        item->event.kind = EBB_EVENT_NONE;
    }
}

/* Writes the known ends up to `ns`, the earliest first. */
static void write_ends(struct ebb_cuda_clock *clock, uint64_t ns)
{
    for (;;) {
        struct timed_stream *next = NULL;
        for (uint32_t i = 0; i < clock->stream_count; i++) {
            struct timed_stream *stream = &clock->streams[i];
            uint64_t end_ns = stream->begun == NO_WORK ? 0 : work_at(clock, stream->begun)->end_ns;
            if (end_ns && end_ns <= ns && (!next || end_ns < work_at(clock, next->begun)->end_ns))
                next = stream;
        }
        if (!next)
            return;
        struct work *work = work_at(clock, next->begun);
        write_end(clock, work, 0, work->end_ns);
        next->end_ns = work->end_ns;
        next->queued--;
        next->begun = NO_WORK;
        if (work->event != CUDA_TIMER_NONE)
            ebb__timer_give_back(&clock->timer, work->event);
        work->state = WORK_UNTIMED;
        work->count = 0;
    }
}

/* A block is freed while works on it run: their uses of it end with it. */
static void end_uses(struct ebb_cuda_clock *clock, uint64_t block)
{
    for (uint32_t i = 0; i < clock->stream_count; i++)
        if (clock->streams[i].begun != NO_WORK)
            write_end(clock, work_at(clock, clock->streams[i].begun), block, clock->last_ns);
}

/* When the work begins. False: not known yet. */
static bool knows_begin(struct ebb_cuda_clock *clock, const struct work *work, uint64_t *ns)
{
    *ns = work->launch_ns;
    if (work->state == WORK_UNTIMED || work->state == WORK_OPEN)
        return work->state == WORK_UNTIMED;
    if (work->stall != CLOCK_NO_STALL)
        return false;
    const struct timed_stream *stream = &clock->streams[work->stream];
    uint64_t before_ns = stream->end_ns;
    if (stream->begun != NO_WORK)
        before_ns = work_at(clock, stream->begun)->end_ns;
    if (before_ns > *ns)
        *ns = before_ns;
    if (work->stall_end_ns > *ns)
        *ns = work->stall_end_ns;
    return stream->begun == NO_WORK || before_ns;
}

/* The stall before a work that begins at `ns`. What another stream did meanwhile, as far as the
 * ring has it, was not lost. */
static void write_stall(struct ebb_cuda_clock *clock, const struct work *work, uint64_t ns)
{
    uint64_t since_ns = ns > clock->last_ns ? ns - clock->last_ns : 0;
    struct ebb_event event = {.size_bytes = work->stall_ns < since_ns ? work->stall_ns : since_ns,
                              .kind = EBB_EVENT_MARK,
                              .mark = EBB_MARK_WAIT};
    if (event.size_bytes)
        ebb__clock_write(clock, &event, ns);
}

static void write_uses(struct ebb_cuda_clock *clock, uint32_t number, uint64_t ns)
{
    struct work *work = work_at(clock, number);
    write_stall(clock, work, ns);
    for (; clock->told != work->first + work->count; clock->told++)
        if (item_at(clock, clock->told)->event.kind != EBB_EVENT_NONE)
            ebb__clock_write(clock, &item_at(clock, clock->told)->event, ns);
    if (work->state != WORK_QUEUED)
        return;
    work->state = WORK_BEGUN;
    clock->streams[work->stream].begun = number;
}

/* Gives up the items and works that nobody needs any more. */
static void forget(struct ebb_cuda_clock *clock)
{
    while (clock->first_work != clock->last_work) {
        const struct work *work = work_at(clock, clock->first_work);
        bool is_told = (int32_t)(clock->told - (work->first + work->count)) >= 0;
        if (work->state != WORK_UNTIMED || !is_told)
            break;
        clock->first_work++;
    }
    clock->first = clock->told;
    for (uint32_t i = 0; i < clock->stream_count; i++) {
        uint32_t begun = clock->streams[i].begun;
        if (begun != NO_WORK &&
            clock->told - work_at(clock, begun)->first > clock->told - clock->first)
            clock->first = work_at(clock, begun)->first;
    }
}

void ebb__clock_write_known(struct ebb_cuda_clock *clock, bool is_looked_at)
{
    while (clock->told != clock->last) {
        const struct item *item = item_at(clock, clock->told);
        uint64_t ns = item->event.time_ns;
        if (item->work == NO_WORK) {
            write_ends(clock, ns > clock->last_ns ? ns : clock->last_ns);
            if (item->event.kind == EBB_EVENT_FREE)
                end_uses(clock, item->event.block);
            ebb__clock_write(clock, &item->event, ns);
            clock->told++;
            continue;
        }
        if (!knows_begin(clock, work_at(clock, item->work), &ns))
            break;
        write_ends(clock, ns > clock->last_ns ? ns : clock->last_ns);
        write_uses(clock, item->work, ns);
    }
    if (is_looked_at || clock->told == clock->last)
        write_ends(clock, UINT64_MAX);
    forget(clock);
}

void ebb__clock_stop_timing(struct ebb_cuda_clock *clock)
{
    for (uint32_t i = clock->first_work; i != clock->last_work; i++) {
        struct work *work = work_at(clock, i);
        if (work->state == WORK_OPEN)
            work->state = WORK_UNTIMED;
        else if (work->state != WORK_UNTIMED && !work->end_ns)
            work->end_ns = work->launch_ns ? work->launch_ns : 1;
        work->stall = CLOCK_NO_STALL;
    }
    clock->open_count = 0;
}

void ebb__clock_make_space(struct ebb_cuda_clock *clock, uint32_t items)
{
    if (clock->last - clock->first + items <= MOST_ITEMS &&
        clock->last_work - clock->first_work < MOST_WORKS)
        return;
    ebb__clock_stop_timing(clock);
    ebb__clock_write_known(clock, true);
}

void ebb__clock_push(struct ebb_cuda_clock *clock, const struct ebb_event *event, uint32_t work,
                     uint64_t now_ns)
{
    struct item *item = item_at(clock, clock->last++);
    item->event = *event;
    item->event.time_ns = now_ns;
    item->work = work;
}
