/* Sets of passages: which work something must wait for. */
#include "cuda/streams.h"

/* To look which passages are over reads what other threads write, so it is done for one work of so
 * many. */
#define PRUNE_ORDERS 64u

static bool has_work(const struct cuda_stream *stream, uint64_t order)
{
    return stream->is_used && stream->passed < order && stream->passed < stream->last_order;
}

/* One passage of a set for each stream: calls `visit` until it returns false. */
typedef bool visit_passage(struct cuda_streams *streams, const struct cuda_passage *passage,
                           void *context);

static bool for_each(struct cuda_streams *streams, const struct cuda_passages *passages,
                     visit_passage *visit, void *context)
{
    for (uint32_t i = 0; i < passages->count; i++) {
        const struct cuda_passage *item = &passages->items[i];
        if (item->stream != CUDA_ALL_STREAMS) {
            if (!ebb__streams_is_over(streams, item) && !visit(streams, item, context))
                return false;
            continue;
        }
        for (uint32_t j = 0; j < streams->used; j++) {
            const struct cuda_stream *stream = &streams->streams[j];
            struct cuda_passage one = {j, item->order < stream->last_order ? item->order
                                                                           : stream->last_order};
            if (has_work(stream, item->order) && !visit(streams, &one, context))
                return false;
        }
    }
    return true;
}

static bool stop(struct cuda_streams *streams, const struct cuda_passage *passage, void *context)
{
    (void)streams, (void)passage, (void)context;
    return false;
}

bool ebb__passages_are_over(const struct cuda_streams *streams,
                            const struct cuda_passages *passages)
{
    return for_each((struct cuda_streams *)streams, passages, stop, NULL);
}

static bool is_queued(struct cuda_streams *streams, const struct cuda_passage *passage,
                      void *context)
{
    const struct cuda_stream *stream = &streams->streams[passage->stream];
    (void)context;
    return !stream->open_count || passage->order < stream->open_since;
}

bool ebb__passages_are_queued(const struct cuda_streams *streams,
                              const struct cuda_passages *passages)
{
    return for_each((struct cuda_streams *)streams, passages, is_queued, NULL);
}

void ebb__passages_insert(struct cuda_passages *passages, const struct cuda_streams *streams,
                          uint32_t stream, uint64_t order)
{
    uint32_t kept = 0;
    uint64_t latest = order;
    bool is_noted = false;
    for (uint32_t i = 0; i < passages->count; i++) {
        struct cuda_passage item = passages->items[i];
        if (item.stream == stream || item.stream == CUDA_ALL_STREAMS) {
            if (item.order < order)
                passages->items[i].order = item.order = order;
            if (order % PRUNE_ORDERS)
                return;
            is_noted = true;
        } else if (ebb__streams_is_over(streams, &item)) {
            continue;
        }
        if (item.order > latest)
            latest = item.order;
        passages->items[kept++] = item;
    }
    passages->count = kept;
    if (is_noted)
        return;
    if (stream == CUDA_ALL_STREAMS || kept == CUDA_MOST_PASSAGES) {
        passages->items[0] = (struct cuda_passage){CUDA_ALL_STREAMS, latest};
        passages->count = 1;
    } else {
        passages->items[passages->count++] = (struct cuda_passage){stream, order};
    }
}

void ebb__passages_join(struct cuda_passages *passages, const struct cuda_streams *streams,
                        const struct cuda_passages *others)
{
    for (uint32_t i = 0; i < others->count; i++) {
        const struct cuda_passage *item = &others->items[i];
        if (item->stream == CUDA_ALL_STREAMS || !ebb__streams_is_over(streams, item))
            ebb__passages_add(passages, streams, item->stream, item->order);
    }
}

struct cuda_passages ebb__passages_of_all(const struct cuda_streams *streams, uint64_t order)
{
    struct cuda_passages passages = {.count = 0};
    for (uint32_t i = 0; i < streams->used; i++)
        if (has_work(&streams->streams[i], order))
            ebb__passages_add(&passages, streams, i, streams->streams[i].last_order);
    return passages;
}

struct cover {
    uint32_t *events, most, *count;
};

static bool cover_one(struct cuda_streams *streams, const struct cuda_passage *passage,
                      void *context)
{
    struct cover *cover = context;
    if (*cover->count == cover->most ||
        !ebb__streams_cover(streams, passage, &cover->events[*cover->count]))
        return false;
    ++*cover->count;
    return true;
}

bool ebb__passages_cover(struct cuda_streams *streams, const struct cuda_passages *passages,
                         uint32_t *events, uint32_t most, uint32_t *count)
{
    struct cover cover = {events, most, count};
    *count = 0;
    if (for_each(streams, passages, cover_one, &cover))
        return true;
    while (*count)
        ebb__streams_release(streams, events[--*count]);
    return false;
}

static bool await_one(struct cuda_streams *streams, const struct cuda_passage *passage,
                      void *context)
{
    uint32_t waiter = *(const uint32_t *)context, event;
    uint64_t *awaited = &streams->waits[waiter * CUDA_MOST_STREAMS + passage->stream];
    if (ebb__streams_is_ordered(streams, waiter, passage) || *awaited >= passage->order)
        return true;
    if (!ebb__streams_cover(streams, passage, &event))
        return false;
    bool done =
        streams->driver->cuStreamWaitEvent(streams->streams[waiter].handle,
                                           streams->events[event].handle, 0) == CUDA_SUCCESS;
    if (done && *awaited < streams->events[event].order)
        *awaited = streams->events[event].order;
    ebb__streams_release(streams, event);
    return done;
}

bool ebb__passages_await(struct cuda_streams *streams, uint32_t stream,
                         const struct cuda_passages *passages)
{
    return for_each(streams, passages, await_one, &stream);
}

struct price {
    uint32_t stream;
    unsigned cost;
};

static bool price_one(struct cuda_streams *streams, const struct cuda_passage *passage,
                      void *context)
{
    struct price *price = context;
    if (price->stream != CUDA_NO_STREAM && ebb__streams_is_ordered(streams, price->stream, passage))
        return true;
    price->cost = ebb__streams_can_cover(streams, passage) ? 1 : 2;
    return price->cost < 2;
}

unsigned ebb__passages_cost(const struct cuda_streams *streams, uint32_t stream,
                            const struct cuda_passages *passages)
{
    struct price price = {stream, 0};
    if (stream == CUDA_NO_STREAM && streams->live_count <= 1)
        return 0; /* there is nothing to wait for in one stream */
    for_each((struct cuda_streams *)streams, passages, price_one, &price);
    return price.cost;
}

void ebb__passages_owe(struct cuda_streams *streams, const struct cuda_passages *passages)
{
    ebb__passages_join(&streams->owed, streams, passages);
    streams->owed_number++;
}

/* A passage may name work that is still between begin and end: events that are recorded meanwhile
 * are never new enough for it. So what has been waited for is known by a number. And before waits
 * are queued, it is clear that all of them can be: another try must not queue them again. */
bool ebb__passages_settle(struct cuda_streams *streams, uint32_t stream,
                          const struct cuda_passages *before)
{
    struct cuda_stream *waiter = &streams->streams[stream];
    const struct cuda_passages *awaited = before ? before : &streams->owed;
    if (waiter->settled == streams->owed_number)
        return true;
    if (ebb__passages_cost(streams, stream, awaited) > 1 ||
        !ebb__passages_await(streams, stream, awaited))
        return false;
    if (!before)
        waiter->settled = streams->owed_number;
    return true;
}
