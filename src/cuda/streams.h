/* The program's streams: how far each has come, and events that tell.
 *
 * Each work has a place in the launch order. A stream has *passed* an order when all of its work up
 * to there is over. The engine learns that from events of the driver, which it records only when
 * something must wait. An event may be recorded late: it then covers more work than necessary.
 *
 * Handles of default streams are bound to the current context, and that of per-thread streams to
 * the thread. So events on them are recorded early, at the end of each work, where it matters. */
#ifndef EBB_CUDA_STREAMS_H
#define EBB_CUDA_STREAMS_H

#include "cuda/core.h"

#include <stdatomic.h>

#define CUDA_MOST_STREAMS 256u
#define CUDA_NO_STREAM UINT32_MAX
#define CUDA_MOST_EVENTS 65536u
#define CUDA_NO_EVENT UINT32_MAX
#define CUDA_RECENT_EVENTS 8u

struct cuda_event_entry {
    CUevent handle;
    CUcontext context; /* events are recorded on streams of their context alone */
    _Atomic uint32_t references;
    _Atomic uint32_t is_over;
    uint64_t order; /* all work of its stream up to here has been queued before it */
};

struct cuda_stream {
    CUstream handle;
    CUcontext context;
    uint64_t thread; /* of a per-thread stream; 0: of no thread */
    uint64_t worker; /* the thread that queued all work that may not be over, or none, or several */
    uint64_t last_order, passed;
    uint64_t open_since; /* the oldest work between begin and end */
    uint32_t open_count;
    uint32_t awaited; /* newest arrival that the stream waits for already; 0: none */
    uint64_t settled; /* what was owed up to this number is waited for */
    bool is_used, is_ended;
    bool is_blocking; /* ordered with the legacy stream */
    bool is_legacy;
    bool is_eager;                       /* an event is recorded at the end of each work */
    uint32_t recent[CUDA_RECENT_EVENTS]; /* recorded and not over, the oldest first */
    uint32_t recent_count;
};

struct cuda_streams {
    const struct ebb_cuda_driver *driver;
    CUcontext context;
    struct cuda_stream *streams;
    uint32_t used; /* entries from this number on have never been used */
    uint32_t live_count, blocking_count;
    uint32_t newest; /* found last */
    struct cuda_event_entry *events;
    uint32_t event_count, event_cursor;
    uint32_t dead_count; /* entries whose context has ended */
    /* Work that is not over, and whose memory has been given out again without a stream. All
     * kernels from now on, in any stream, come after it. A driver whose free waits does the same.
     * Copies name all that they use, and need not wait. A kernel may wait for what another thread
     * copies. */
    struct cuda_passages owed;
    uint64_t owed_number; /* of the newest addition to it */
    uint64_t news_count;  /* how often work was found to be over */
    bool has_news;        /* an event has been recorded that nobody looks at yet */
    /* waits[a * CUDA_MOST_STREAMS + b]: order of b that stream a waits for already. */
    uint64_t *waits;
};

bool ebb__streams_init(struct cuda_streams *streams, const struct ebb_cuda_driver *driver,
                       CUcontext context);
/* Destroys the events, unless the driver must not be called any more. */
void ebb__streams_fini(struct cuda_streams *streams, bool is_abandoned);

/* Around driver calls on threads of the program: the engine's context is current, and a capture
 * elsewhere does not forbid the calls. */
struct cuda_visit {
    CUstreamCaptureMode mode;
    bool is_pushed, is_relaxed;
};
struct cuda_visit ebb__streams_enter(const struct cuda_streams *streams);
/* The same in another context, of a stream of the program. */
struct cuda_visit ebb__streams_enter_context(const struct cuda_streams *streams, CUcontext context);
void ebb__streams_leave(const struct cuda_streams *streams, struct cuda_visit visit);
/* Waits for a stream of the calling thread's context, which may be its default stream. */
void ebb__streams_await(const struct cuda_streams *streams, CUstream handle);

/* The stream of a handle, which becomes known. CUDA_NO_STREAM: too many live ones. */
uint32_t ebb__streams_find(struct cuda_streams *streams, CUstream handle, uint64_t order);
/* The same where a default stream is that of `context`. NULL: of the engine's. */
uint32_t ebb__streams_find_in(struct cuda_streams *streams, CUcontext context, CUstream handle,
                              uint64_t order);
/* Work is about to be queued, and has been queued. */
void ebb__streams_begin(struct cuda_streams *streams, uint32_t stream, uint64_t order);
void ebb__streams_end(struct cuda_streams *streams, uint32_t stream);
/* The calling thread has waited for a stream, or for all (`all`). */
void ebb__streams_synchronized(struct cuda_streams *streams, CUstream handle, bool all);
/* The stream is about to be captured: what it has to do gets an event, while one can be had. */
void ebb__streams_mark(struct cuda_streams *streams, CUstream handle);
/* The handle dies: what the stream has still to do is known by an event. */
void ebb__streams_forget(struct cuda_streams *streams, CUstream handle);
/* The context is destroyed, with its streams and events, and all of its work is over. */
void ebb__streams_lose(struct cuda_streams *streams, CUcontext context);
/* All of its work is over and nobody can name it any more: its entry is free. */
void ebb__streams_retire(struct cuda_streams *streams, struct cuda_stream *stream);
bool ebb__streams_is_over(const struct cuda_streams *streams, const struct cuda_passage *passage);
/* Does work that is queued in `stream` now follow that work anyway? */
bool ebb__streams_is_ordered(const struct cuda_streams *streams, uint32_t stream,
                             const struct cuda_passage *passage);
/* Can events be recorded on it at present? */
bool ebb__streams_can_record(const struct cuda_streams *streams, uint32_t stream);
/* Records an event behind all that has been queued, in the stream's context, which is current. */
bool ebb__streams_record(struct cuda_streams *streams, struct cuda_stream *stream, uint32_t *event);
/* An event behind all work of the passage, with a reference for the caller. False: none can be
 * recorded now. */
bool ebb__streams_cover(struct cuda_streams *streams, const struct cuda_passage *passage,
                        uint32_t *event);
/* Would it succeed, as far as is known without recording? */
bool ebb__streams_can_cover(const struct cuda_streams *streams, const struct cuda_passage *passage);
void ebb__streams_release(struct cuda_streams *streams, uint32_t event);
/* Asks the driver. Thread-safe. The caller has a reference. */
bool ebb__streams_event_is_over(struct cuda_streams *streams, uint32_t event);
/* Records an event on the stream of this index, if work until `order` runs and none covers it. */
void ebb__streams_mark_until(struct cuda_streams *streams, uint32_t index, uint64_t order);
/* The same for each stream and all that is queued. */
void ebb__streams_mark_all(struct cuda_streams *streams);
/* An event behind all that has been queued, on each stream with work that may not be over. There
 * are *count, CUDA_MOST_STREAMS at most, with references. False: some stream has none now. */
bool ebb__streams_fence(struct cuda_streams *streams, uint32_t *events, uint32_t *count);
/* Looks which events are over. True: some are not. */
bool ebb__streams_poll(struct cuda_streams *streams);

/* ---- sets of passages ------------------------------------------------------------------------ */

void ebb__passages_insert(struct cuda_passages *passages, const struct cuda_streams *streams,
                          uint32_t stream, uint64_t order);
static inline void ebb__passages_add(struct cuda_passages *passages,
                                     const struct cuda_streams *streams, uint32_t stream,
                                     uint64_t order)
{
    if (passages->count == 1 && passages->items[0].stream == stream &&
        passages->items[0].order <= order)
        passages->items[0].order = order;
    else
        ebb__passages_insert(passages, streams, stream, order);
}
void ebb__passages_join(struct cuda_passages *passages, const struct cuda_streams *streams,
                        const struct cuda_passages *others);
/* Are all of them over, as far as known? */
bool ebb__passages_are_over(const struct cuda_streams *streams,
                            const struct cuda_passages *passages);
/* Has all of it been queued? Events do not cover what is between begin and end. */
bool ebb__passages_are_queued(const struct cuda_streams *streams,
                              const struct cuda_passages *passages);
/* All work in all streams until now, as one set: what a free without a stream must wait for. */
struct cuda_passages ebb__passages_of_all(const struct cuda_streams *streams, uint64_t order);
/* Events behind all work of the set, with references. False: there is none for some of it, or they
 * are more than `most`; *count is 0 then. */
bool ebb__passages_cover(struct cuda_streams *streams, const struct cuda_passages *passages,
                         uint32_t *events, uint32_t most, uint32_t *count);
/* Work that is queued in `stream` from now on follows the set. False: not possible now. */
bool ebb__passages_await(struct cuda_streams *streams, uint32_t stream,
                         const struct cuda_passages *passages);
/* The set is owed to all streams from now on. */
void ebb__passages_owe(struct cuda_streams *streams, const struct cuda_passages *passages);
/* Work that is queued in `stream` from now on follows `before`, or if that is NULL, all that is
 * owed. False: not possible now; nothing has been queued then. Cheap if nothing has been added to
 * what is owed since the last time. */
bool ebb__passages_settle(struct cuda_streams *streams, uint32_t stream,
                          const struct cuda_passages *before);
/* What ebb__passages_await() would cost: 0 nothing, 1 waits on the device, 2 impossible.
 * CUDA_NO_STREAM: in whichever stream uses it first. */
unsigned ebb__passages_cost(const struct cuda_streams *streams, uint32_t stream,
                            const struct cuda_passages *passages);

#endif
