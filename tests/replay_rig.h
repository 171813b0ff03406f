/* Replay without the rest of the runtime: scripts made by hand, and a program whose events follow
 * them. Running lanes do the transfers. Include it once in a test, behind cmocka.h. */
#ifndef EBB_TEST_REPLAY_RIG_H
#define EBB_TEST_REPLAY_RIG_H

#include "lanes_rig.h"
#include "runtime/replay/matcher.h"

#define MOST 256u /* events, blocks, uses or absences of a script */
#define STEP_NS 1000000u

/* A script in one piece of memory. */
struct written {
    struct ebb_script head;
    struct ebb_script_event events[MOST];
    struct ebb_script_block blocks[MOST];
    struct ebb_script_use uses[MOST];
    struct ebb_script_absence absences[MOST];
    uint32_t allocs[MOST];
};

struct stage {
    struct lanes lanes;
    struct replay replay;
    struct written written;
};

static inline bool is_planned(const void *context)
{
    return ((const struct stage *)context)->replay.current != NULL;
}

static inline uint64_t next_use(const void *context, const struct block *block)
{
    return ebb__replay_next_use(&((const struct stage *)context)->replay, block);
}

static inline uint32_t next_alloc(const void *context, uint64_t size_bytes)
{
    return ebb__replay_next_alloc(&((const struct stage *)context)->replay, size_bytes);
}

static inline uint32_t next_cover(const void *context, uint32_t unit)
{
    return ebb__replay_next_cover(&((const struct stage *)context)->replay, unit);
}

static inline bool is_awaited(const void *context, const struct block *block)
{
    return ebb__replay_is_awaited(&((const struct stage *)context)->replay, block);
}

static inline void was_late(void *context, const struct block *block, uint64_t ns)
{
    ebb__feedback_late(&((struct stage *)context)->replay, block, ns);
}

static inline void changed(void *context, const struct block *block)
{
    ebb__clock_changed(&((struct stage *)context)->replay, block);
}

static inline uint64_t fire(void *context)
{
    return ebb__timers_fire(&((struct stage *)context)->replay);
}

static inline void resumed(void *context)
{
    pthread_cond_signal(&((struct stage *)context)->lanes.transfer.out.work);
}

static const struct policy policy = {
    .is_planned = is_planned,
    .next_use = next_use,
    .next_alloc = next_alloc,
    .next_cover = next_cover,
    .is_awaited = is_awaited,
    .was_late = was_late,
    .changed = changed,
    .fire = fire,
    .resumed = resumed,
    .make_room = lanes_no_room,
};

/* --- scripts --- */

static inline void add_block(struct written *written, uint64_t serial, uint64_t bytes)
{
    written->head.persistent_count += serial > 0;
    written->blocks[written->head.block_count++] = (struct ebb_script_block){
        .serial = serial, .size_bytes = bytes, .place = EBB_SCRIPT_NO_PLACE, .parts = 1};
}

static inline void add_event(struct written *written, enum ebb_event_kind kind, uint32_t block)
{
    uint32_t at = written->head.clock_count++;
    written->events[at] = (struct ebb_script_event){.size_bytes = written->blocks[block].size_bytes,
                                                    .time_ns = at * STEP_NS,
                                                    .block = block,
                                                    .kind = kind};
    if (kind == EBB_EVENT_ALLOC)
        written->allocs[written->head.alloc_count++] = at;
}

static inline int by_size(const struct written *written, uint32_t left, uint32_t right)
{
    uint64_t a = written->events[left].size_bytes, b = written->events[right].size_bytes;
    return a != b ? (a > b) - (a < b) : (left > right) - (left < right);
}

static inline void finish(struct written *written)
{
    struct ebb_script *head = &written->head;
    for (uint32_t i = 1; i < head->alloc_count; i++)
        for (uint32_t k = i; k && by_size(written, written->allocs[k - 1], written->allocs[k]) > 0;
             k--) {
            uint32_t kept = written->allocs[k];
            written->allocs[k] = written->allocs[k - 1];
            written->allocs[k - 1] = kept;
        }
    head->magic = EBB_SCRIPT_MAGIC;
    head->bytes = sizeof *written;
    head->iteration_ns = head->clock_count * STEP_NS;
    head->events_offset = offsetof(struct written, events);
    head->blocks_offset = offsetof(struct written, blocks);
    head->uses_offset = offsetof(struct written, uses);
    head->absences_offset = offsetof(struct written, absences);
    head->allocs_offset = offsetof(struct written, allocs);
    assert_true(ebb__script_valid(head, sizeof *written));
}

/* --- the program --- */

static inline void start(struct stage *stage)
{
    lanes_open(&stage->lanes, UINT64_MAX, &policy, stage, false);
    memset(&stage->replay, 0, sizeof stage->replay);
    assert_true(ebb__replay_init(&stage->replay, &stage->lanes.transfer));
    assert_true(ebb__mover_start(&stage->lanes.transfer));
    lanes_lock(&stage->lanes);
}

static inline void stop(struct stage *stage)
{
    lanes_settle(&stage->lanes);
    lanes_unlock(&stage->lanes);
    ebb__replay_forget_scripts(&stage->replay);
    ebb__mover_stop(&stage->lanes.transfer);
    ebb__replay_fini(&stage->replay);
    lanes_close(&stage->lanes);
}

static inline void set_script(struct stage *stage, const struct written *written)
{
    lanes_unlock(&stage->lanes);
    assert_int_equal(ebb__replay_set_script(&stage->replay, &written->head, sizeof *written),
                     EBB_OK);
    lanes_lock(&stage->lanes);
}

static inline struct block *alloc(struct stage *stage, uint64_t bytes)
{
    struct replay *replay = &stage->replay;
    struct block *block = lanes_block(&stage->lanes, ebb__whole_pages(bytes));
    block->size_bytes = bytes;
    ebb__clock_end_step(replay, EBB_EVENT_ALLOC, ebb__clock_step(replay, EBB_EVENT_ALLOC, block));
    return block;
}

static inline void drop(struct stage *stage, struct block *block)
{
    struct due due = ebb__clock_step(&stage->replay, EBB_EVENT_FREE, block);
    ebb__move_discard(&stage->lanes.transfer, block);
    ebb__clock_end_step(&stage->replay, EBB_EVENT_FREE, due);
}

#endif
