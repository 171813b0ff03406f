/* The store as the lanes use it: opened when first needed, retried after a failure. */
#include "base/check.h"
#include "runtime/transfer/transfer.h"

#include "base/tuning.h"

#include <errno.h>

#define TO(state) (1u << STORE_##state)

/* By state: the allowed next states. A child of fork() has its own store, or none. */
static const uint16_t follow[] = {
    [STORE_CLOSED] = TO(OPENING) | TO(REFUSED) | TO(TOO_DEEP),
    [STORE_OPENING] = TO(WORKS) | TO(TRIED) | TO(PUT_OFF),
    [STORE_WORKS] = TO(FAILED) | TO(CLOSED) | TO(TOO_DEEP),
    [STORE_FAILED] = TO(TRIED) | TO(PUT_OFF) | TO(TOO_DEEP),
    [STORE_TRIED] = TO(WORKS) | TO(FAILED) | TO(CLOSED) | TO(TOO_DEEP),
    [STORE_PUT_OFF] = TO(CLOSED) | TO(TOO_DEEP),
    [STORE_REFUSED] = TO(TOO_DEEP),
    [STORE_TOO_DEEP] = TO(CLOSED),
};

bool ebb__store_may_become(enum store_state from, enum store_state to)
{
    return (follow[from] >> to & 1u) != 0;
}

static void become(struct store_health *store, enum store_state state)
{
    EBB_CHECK_THAT(ebb__store_may_become(store->state, state));
    store->state = state;
}

/* Sets when the store is tried again: later after each failure. True: it is the first one. */
static bool set_pause(struct transfer *transfer)
{
    struct store_health *store = &transfer->store;
    uint64_t first_ns = transfer->core->config.store_pause_ns;
    bool is_first = store->pause_ns == 0;
    if (is_first)
        store->pause_ns = first_ns;
    else if (store->pause_ns < first_ns * ebb__tuning()->store_most_pauses)
        store->pause_ns *= 2;
    store->retry_ns = ebb__now_ns() + store->pause_ns;
    return is_first;
}

static void open_store(struct transfer *transfer)
{
    struct core *core = transfer->core;
    struct store_copies *copies = &transfer->table->copies;
    struct ebb_error error;
    struct ebb_store store;
    become(&transfer->store, STORE_OPENING);
    pthread_mutex_unlock(&core->lock);
    struct ebb_wait *wait = ebb__waits_open(transfer->table);
    enum ebb_status status = core->config.open_store(core->config.context, &store, &error);
    ebb__wait_end(wait);
    pthread_mutex_lock(&core->lock);
    if (status == EBB_OK) {
        copies->stores[copies->current] = store;
        copies->extents.limit_bytes = store.limit_bytes;
        /* This one may have failed to open, or the parent's may have failed before. */
        become(&transfer->store, transfer->store.pause_ns ? STORE_TRIED : STORE_WORKS);
    } else {
        become(&transfer->store, STORE_PUT_OFF); /* descriptors or space may be lacking for now */
        atomic_store(&core->counters->store_error, EIO);
        if (set_pause(transfer))
            ebb__core_warn(core, "the store cannot be opened: the budget is NOT kept");
    }
    pthread_cond_broadcast(&core->changed);
}

bool ebb__store_have(struct transfer *transfer)
{
    while (transfer->store.state == STORE_OPENING)
        pthread_cond_wait(&transfer->core->changed, &transfer->core->lock);
    if (transfer->store.state == STORE_CLOSED) {
        if (transfer->core->config.open_store)
            open_store(transfer);
        else
            become(&transfer->store, STORE_REFUSED);
    }
    return ebb__store_is_open(&transfer->store) && ebb__store_may_write(&transfer->store);
}

static const char *failure(int why)
{
    switch (why) {
    case ENOSPC:
        return "the store is full: until there is room again blocks stay in memory, the budget is "
               "NOT kept; free space or give --store another directory";
    case EDQUOT:
        return "the store has reached its limit (--store-limit, or a quota): until there is room "
               "again blocks stay in memory, the budget is NOT kept";
    default:
        return "the store cannot be written: until it can blocks stay in memory, the budget is NOT "
               "kept; give --store another directory";
    }
}

void ebb__store_fail(struct transfer *transfer, int why)
{
    struct store_health *store = &transfer->store;
    if (!ebb__store_may_write(store))
        return;
    become(store, STORE_FAILED);
    if (set_pause(transfer))
        ebb__core_warn(transfer->core, failure(why));
    atomic_store(&transfer->core->counters->store_error, (uint32_t)why);
    while (transfer->out.queue.first != NO_BLOCK)
        ebb__move_unqueue_out(transfer, &transfer->table->blocks[transfer->out.queue.first]);
}

void ebb__store_retry(struct transfer *transfer, uint64_t now_ns)
{
    struct store_health *store = &transfer->store;
    bool has_failed = store->state == STORE_FAILED || store->state == STORE_PUT_OFF;
    if (!has_failed || now_ns < store->retry_ns)
        return;
    become(store, store->state == STORE_FAILED ? STORE_TRIED : STORE_CLOSED);
    transfer->may_exceed = true;
}

void ebb__store_worked(struct transfer *transfer)
{
    struct store_health *store = &transfer->store;
    if (store->state != STORE_TRIED)
        return;
    become(store, STORE_WORKS);
    if (!store->recovered)
        ebb__core_warn(transfer->core,
                       "the store can be written again: the budget is kept from here");
    store->recovered = true;
}

void ebb__store_forked(struct transfer *transfer)
{
    struct store_health *store = &transfer->store;
    if (transfer->table->copies.current == MAX_STORES) {
        if (store->state != STORE_TOO_DEEP)
            become(store, STORE_TOO_DEEP);
        ebb__core_warn(transfer->core,
                       "too many forks within one another: a process cannot have a store "
                       "beside those of its ancestors, its budget is NOT kept");
    } else if (store->state == STORE_FAILED) {
        become(store, STORE_PUT_OFF);
    } else if (ebb__store_is_open(store) || store->state == STORE_TOO_DEEP) {
        become(store, STORE_CLOSED);
    }
}
