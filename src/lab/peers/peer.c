#include "lab/peers/peer.h"

#include "base/map.h"
#include "base/vec.h"
#include "lab/peers/peers.h"

#include <string.h>

static const struct ebb_peer *const peers[] = {
    &ebb__peer_cnmem,
    &ebb__peer_torch,
    &ebb__peer_bfc,
    &ebb__peer_glibc,
};

#define PEER_COUNT (sizeof peers / sizeof peers[0])

const char *ebb__peer_name(size_t index)
{
    return index < PEER_COUNT ? peers[index]->name : NULL;
}

struct lifetime {
    uint64_t handle;
    uint64_t size_bytes;
    bool live;
};

struct replay {
    const struct ebb_peer *peer;
    void *state;
    struct ebb_map serials; /* serial -> index into lifetimes */
    EBB_VEC(struct lifetime) lifetimes;
    uint64_t load_bytes;
    struct ebb_footprint footprint;
    struct ebb_error *error;
};

static enum ebb_status fail_memory(struct replay *replay)
{
    return ebb__fail(replay->error, EBB_ERR_MEMORY, replay->peer->name, "no memory to emulate it");
}

static void note(struct replay *replay)
{
    uint64_t held = replay->peer->held_bytes(replay->state);
    replay->footprint.last_held_bytes = held;
    if (held > replay->footprint.peak_held_bytes)
        replay->footprint.peak_held_bytes = held;
    if (replay->load_bytes > replay->footprint.peak_load_bytes)
        replay->footprint.peak_load_bytes = replay->load_bytes;
}

/* No device has more. With this limit the arithmetic of the peers cannot overflow. */
#define LOAD_LIMIT_BYTES ((uint64_t)1 << 56)

static enum ebb_status begin(struct replay *replay, const struct ebb_event *event)
{
    if (event->size_bytes > LOAD_LIMIT_BYTES - replay->load_bytes)
        return ebb__fail(replay->error, EBB_ERR_LIMIT, "trace", "its load is impossibly large");
    struct lifetime made = {.size_bytes = event->size_bytes, .live = true};
    if (!replay->peer->allocate(replay->state, event->size_bytes, &made.handle) ||
        !ebb__map_put(&replay->serials, event->block, replay->lifetimes.count) ||
        !ebb_vec_push(&replay->lifetimes, made))
        return fail_memory(replay);
    replay->load_bytes += event->size_bytes;
    note(replay);
    return EBB_OK;
}

static enum ebb_status end(struct replay *replay, struct lifetime *lifetime)
{
    if (!replay->peer->release(replay->state, lifetime->handle))
        return fail_memory(replay);
    lifetime->live = false;
    replay->load_bytes -= lifetime->size_bytes;
    note(replay);
    return EBB_OK;
}

static enum ebb_status bad_event(struct replay *replay, size_t event, const char *why)
{
    return ebb__fail(replay->error, EBB_ERR_FORMAT, "trace", "event %zu: its block %s", event, why);
}

/* Allocates the blocks that are older than the trace, in the order in which they occur. */
static enum ebb_status begin_existing(struct replay *replay, struct ebb_event_span trace)
{
    struct ebb_map met = {0};
    enum ebb_status status = EBB_OK;
    for (size_t i = 0; !status && i < trace.count; i++) {
        const struct ebb_event *event = &trace.events[i];
        if ((event->kind != EBB_EVENT_ALLOC && event->kind != EBB_EVENT_FREE &&
             event->kind != EBB_EVENT_ACCESS) ||
            ebb__map_get(&met, event->block, NULL))
            continue;
        if (!ebb__map_put(&met, event->block, 1))
            status = fail_memory(replay);
        else if (event->kind != EBB_EVENT_ALLOC)
            status = begin(replay, event);
    }
    ebb__map_fini(&met);
    return status;
}

static enum ebb_status run(struct replay *replay, struct ebb_event_span trace)
{
    enum ebb_status status = begin_existing(replay, trace);
    note(replay);
    for (size_t i = 0; !status && i < trace.count; i++) {
        const struct ebb_event *event = &trace.events[i];
        uint64_t index;
        if (event->kind == EBB_EVENT_ALLOC) {
            status = ebb__map_get(&replay->serials, event->block, NULL)
                         ? bad_event(replay, i, "is allocated twice")
                         : begin(replay, event);
        } else if (event->kind == EBB_EVENT_FREE &&
                   ebb__map_get(&replay->serials, event->block, &index)) {
            struct lifetime *lifetime = &replay->lifetimes.items[index];
            status =
                lifetime->live ? end(replay, lifetime) : bad_event(replay, i, "is freed twice");
        }
    }
    return status;
}

enum ebb_status ebb__peer_footprint(const char *peer, struct ebb_event_span trace,
                                    struct ebb_footprint *footprint, struct ebb_error *error)
{
    struct replay replay = {.error = error};
    for (size_t i = 0; i < PEER_COUNT; i++)
        if (strcmp(peers[i]->name, peer) == 0)
            replay.peer = peers[i];
    if (!replay.peer)
        return ebb__fail(error, EBB_ERR_ARGUMENT, peer, "no emulated allocator of this name");
    replay.state = replay.peer->create();
    enum ebb_status status = replay.state ? run(&replay, trace) : fail_memory(&replay);
    if (replay.state)
        replay.peer->destroy(replay.state);
    ebb__map_fini(&replay.serials);
    ebb_vec_free(&replay.lifetimes);
    if (!status)
        *footprint = replay.footprint;
    return status;
}
