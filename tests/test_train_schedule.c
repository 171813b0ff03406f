/* Schedules of the trainer, by symbolic execution: whatever shares a storage, each step reads what
 * the right step wrote. The rules of the check are those of memory. It knows none of the reasons
 * why slots share a storage. */
#include "train/exec/schedule.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const nets[] = {"cnn",       "alexnet",     "vgg-16",     "googlenet",
                                   "resnet-18", "resnet-50",   "resnet-152", "gpt-2",
                                   "wrn-28-10", "resnet-1517", "gpt-3",      "densenet-121"};
static const char *const mode_names[] = {"ebb",    "static", "intra", "inter",
                                         "hybrid", "all",    "conv"};

struct made {
    struct ebb_net *net;
    struct ebb_graph graph;
};

static void make(struct made *made, const char *name)
{
    struct ebb_net_options options = {.batch = 2, .size = 64, .classes = 10};
    struct ebb_error error;
    if (ebb__net_named(name, &options, &made->net, &error) ||
        ebb__graph_create(made->net, &made->graph, &error))
        fail_msg("%s: %s: %s", name, error.what, error.why);
}

static void unmake(struct made *made)
{
    ebb__graph_destroy(&made->graph);
    ebb__net_destroy(made->net);
}

static void schedule_of(const struct made *made, enum ebb_mode mode, bool is_training,
                        struct ebb_schedule *schedule)
{
    struct ebb_schedule_options options = {mode, EBB_OPTIMIZER_SGD, is_training};
    assert_int_equal(ebb__schedule_create(&made->graph, &options, schedule, NULL), EBB_OK);
}

/* Memory: what a storage contains is the newest write of one slot. A copy has the same contents
 * under a second name, so each storage has a number of its contents, and so has each slot. */
struct memory {
    const struct ebb_schedule *schedule;
    uint64_t *contents; /* [storage]; 0: none */
    uint64_t *expected; /* [slot]: the number that its storage must have; 0: not written */
    uint64_t newest;
};

static void fail_at(const struct memory *memory, uint32_t step, uint32_t slot, const char *why)
{
    const struct ebb_slot *named = &memory->schedule->slots.items[slot];
    fail_msg("%s, %s: step %u, %s of layer %u: %s", memory->schedule->graph->net->name,
             mode_names[memory->schedule->options.mode], step, named->name, named->layer, why);
}

static bool is_copy(const struct memory *memory, const struct ebb_step *step,
                    const struct ebb_step_use *use)
{
    const struct ebb_op *op = memory->schedule->graph->ops[step->layer];
    return step->kind == EBB_STEP_RUN && use->buffer != EBB_NONE &&
           op->buffers[use->buffer].is_copy;
}

static void read_slots(struct memory *memory, uint32_t number)
{
    const struct ebb_schedule *schedule = memory->schedule;
    const struct ebb_step *step = &schedule->steps.items[number];
    for (uint32_t u = step->first_use; u < step->first_use + step->use_count; u++) {
        const struct ebb_step_use *use = &schedule->uses.items[u];
        uint32_t storage = schedule->slots.items[use->slot].storage;
        if (storage == EBB_NONE)
            fail_at(memory, number, use->slot, "has no storage");
        if (use->use == EBB_USE_OVERWRITE)
            continue;
        if (!memory->expected[use->slot])
            fail_at(memory, number, use->slot, "is read before it is written");
        if (memory->expected[use->slot] != memory->contents[storage])
            fail_at(memory, number, use->slot, "has been overwritten");
    }
}

/* A written slot that shares a storage with one that the step reads needs the operation's leave. */
static void write_slots(struct memory *memory, uint32_t number)
{
    const struct ebb_schedule *schedule = memory->schedule;
    const struct ebb_step *step = &schedule->steps.items[number];
    for (uint32_t u = step->first_use; u < step->first_use + step->use_count; u++) {
        const struct ebb_step_use *use = &schedule->uses.items[u];
        if (use->use == EBB_USE_READ)
            continue;
        uint32_t storage = schedule->slots.items[use->slot].storage, shared = 0;
        for (uint32_t v = step->first_use; v < step->first_use + step->use_count; v++) {
            const struct ebb_step_use *other = &schedule->uses.items[v];
            if (v == u || schedule->slots.items[other->slot].storage != storage)
                continue;
            shared++;
            const struct ebb_op *op = schedule->graph->ops[step->layer];
            if (is_copy(memory, step, use) || is_copy(memory, step, other))
                continue;
            if (step->kind != EBB_STEP_RUN ||
                !(op->buffers[use->buffer].may_replace >> other->buffer & 1) || shared > 1)
                fail_at(memory, number, use->slot, "may not share the storage");
        }
        bool keeps = shared && is_copy(memory, step, use);
        if (!keeps)
            memory->contents[storage] = ++memory->newest;
        memory->expected[use->slot] = memory->contents[storage];
    }
}

/* Each use is covered by a hold of its storage, and each storage is held once. */
static void check_holds(const struct memory *memory, uint32_t number)
{
    const struct ebb_schedule *schedule = memory->schedule;
    const struct ebb_step *step = &schedule->steps.items[number];
    const struct ebb_hold *holds = &schedule->holds.items[step->first_hold];
    for (uint32_t u = step->first_use; u < step->first_use + step->use_count; u++) {
        const struct ebb_step_use *use = &schedule->uses.items[u];
        assert_true(use->hold < step->hold_count);
        const struct ebb_hold *hold = &holds[use->hold];
        assert_int_equal(schedule->slots.items[hold->slot].storage,
                         schedule->slots.items[use->slot].storage);
        assert_true(schedule->slots.items[hold->slot].bytes >=
                    schedule->slots.items[use->slot].bytes);
        if (use->use != EBB_USE_READ && hold->use == EBB_USE_READ)
            assert_true(is_copy(memory, step, use));
        if (use->use != EBB_USE_OVERWRITE)
            assert_int_not_equal(hold->use, EBB_USE_OVERWRITE);
    }
    for (uint32_t a = 0; a < step->hold_count; a++)
        for (uint32_t b = 0; b < a; b++)
            assert_int_not_equal(schedule->slots.items[holds[a].slot].storage,
                                 schedule->slots.items[holds[b].slot].storage);
}

static void discard(struct memory *memory, const struct ebb_step *step)
{
    for (uint32_t d = step->first_discard; d < step->first_discard + step->discard_count; d++) {
        uint32_t storage = memory->schedule->discards.items[d];
        assert_true(memory->contents[storage] > 0);
        memory->contents[storage] = 0;
    }
}

/* The whole iteration. In the end only persistent storages have contents. */
static void execute(const struct ebb_schedule *schedule)
{
    struct memory memory = {.schedule = schedule, .newest = 1};
    memory.contents = calloc(schedule->storages.count, sizeof(uint64_t));
    memory.expected = calloc(schedule->slots.count, sizeof(uint64_t));
    assert_true(memory.contents && memory.expected);
    for (uint32_t s = 0; s < schedule->persistent_count; s++)
        memory.expected[s] = memory.contents[schedule->slots.items[s].storage] = 1;
    for (uint32_t number = 0; number < schedule->steps.count; number++) {
        const struct ebb_step *step = &schedule->steps.items[number];
        read_slots(&memory, number);
        write_slots(&memory, number);
        check_holds(&memory, number);
        discard(&memory, step);
    }
    for (uint32_t s = 0; s < schedule->storages.count; s++)
        assert_int_equal(memory.contents[s] != 0, schedule->storages.items[s].is_persistent);
    free(memory.contents);
    free(memory.expected);
}

static void test_steps_read_what_was_written(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof nets / sizeof *nets; n++) {
        struct made made;
        make(&made, nets[n]);
        for (int mode = 0; mode < EBB_MODE_COUNT; mode++) {
            struct ebb_schedule schedule;
            schedule_of(&made, (enum ebb_mode)mode, true, &schedule);
            execute(&schedule);
            ebb__schedule_destroy(&schedule);
        }
        struct ebb_schedule schedule;
        schedule_of(&made, EBB_MODE_EBB, false, &schedule);
        execute(&schedule);
        ebb__schedule_destroy(&schedule);
        unmake(&made);
    }
}

/* Is a slot ever read although its storage has other contents? As execute(), without an end of the
 * test. */
static bool reads_wrong(const struct ebb_schedule *schedule, uint32_t slot)
{
    const struct ebb_slot *read = &schedule->slots.items[slot];
    uint32_t writer = EBB_NONE;
    for (uint32_t number = 0; number <= read->last_step; number++) {
        const struct ebb_step *step = &schedule->steps.items[number];
        for (uint32_t u = step->first_use; u < step->first_use + step->use_count; u++) {
            const struct ebb_step_use *use = &schedule->uses.items[u];
            bool is_here = schedule->slots.items[use->slot].storage == read->storage;
            if (is_here && use->slot == slot && use->use == EBB_USE_READ && writer != slot)
                return true;
            if (is_here && use->use != EBB_USE_READ)
                writer = use->slot;
        }
    }
    return false;
}

/* An output that backward reads would be lost if the next output had its storage. */
static void test_check_finds_a_lost_output(void **state)
{
    (void)state;
    struct made made;
    struct ebb_schedule schedule;
    make(&made, "cnn");
    schedule_of(&made, EBB_MODE_EBB, true, &schedule);
    uint32_t kept = schedule.value_slots[2], next = schedule.value_slots[5];
    assert_false(reads_wrong(&schedule, kept));
    schedule.slots.items[next].storage = schedule.slots.items[kept].storage;
    assert_true(reads_wrong(&schedule, kept));
    ebb__schedule_destroy(&schedule);
    unmake(&made);
}

/* What the modes need, in the order that the papers claim. */
static void test_figures(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof nets / sizeof *nets; n++) {
        struct made made;
        struct ebb_schedule schedules[EBB_MODE_COUNT];
        make(&made, nets[n]);
        for (int mode = 0; mode < EBB_MODE_COUNT; mode++)
            schedule_of(&made, (enum ebb_mode)mode, true, &schedules[mode]);
        const struct ebb_schedule *fixed = &schedules[EBB_MODE_STATIC];
        assert_true(schedules[EBB_MODE_INTRA].static_bytes < fixed->static_bytes);
        assert_true(schedules[EBB_MODE_EBB].peak_bytes < fixed->static_bytes);
        for (int mode = 0; mode < EBB_MODE_COUNT; mode++) {
            assert_true(schedules[mode].working_bytes <= schedules[mode].peak_bytes);
            assert_true(schedules[mode].peak_bytes <= schedules[mode].static_bytes);
            ebb__schedule_destroy(&schedules[mode]);
        }
        unmake(&made);
    }
}

/* What is evicted is fetched before it is used, and nothing uses it in between. Returns how many
 * storages are evicted. */
static uint32_t check_transfers(const struct ebb_schedule *schedule)
{
    uint8_t *is_away = calloc(schedule->storages.count, 1);
    assert_non_null(is_away);
    uint32_t at = 0, evicted = 0;
    for (uint32_t number = 0; number < schedule->steps.count; number++) {
        for (; at < schedule->transfers.count && schedule->transfers.items[at].step == number;
             at++) {
            const struct ebb_transfer_at *transfer = &schedule->transfers.items[at];
            if (transfer->transfer == EBB_TRANSFER_BARRIER)
                continue;
            bool is_eviction = transfer->transfer == EBB_TRANSFER_EVICT;
            assert_int_equal(is_away[transfer->storage], !is_eviction);
            is_away[transfer->storage] = is_eviction;
            evicted += is_eviction;
        }
        const struct ebb_step *step = &schedule->steps.items[number];
        for (uint32_t h = step->first_hold; h < step->first_hold + step->hold_count; h++)
            assert_false(is_away[schedule->slots.items[schedule->holds.items[h].slot].storage]);
    }
    assert_int_equal(at, schedule->transfers.count);
    free(is_away);
    return evicted;
}

/* Does the layer whose work begins with `step` use a storage that migrates? */
static bool needs_a_fetched_one(const struct ebb_schedule *schedule, uint32_t step)
{
    const struct ebb_step *steps = schedule->steps.items;
    for (uint32_t number = step;
         number < schedule->steps.count && steps[number].layer == steps[step].layer &&
         steps[number].phase == steps[step].phase;
         number++)
        for (uint32_t h = 0; h < steps[number].hold_count; h++)
            for (uint32_t t = 0; t < schedule->transfers.count; t++) {
                const struct ebb_transfer_at *transfer = &schedule->transfers.items[t];
                uint32_t slot = schedule->holds.items[steps[number].first_hold + h].slot;
                if (transfer->transfer == EBB_TRANSFER_PREFETCH && transfer->step < step &&
                    schedule->slots.items[slot].storage == transfer->storage)
                    return true;
            }
    return false;
}

/* vDNN fetches when the layer begins that needs the output before. The first one has none before
 * it. A barrier follows each layer with a transfer, and no other. */
static void check_vdnn(const struct ebb_schedule *schedule)
{
    uint32_t first = EBB_NONE;
    bool is_pending = false;
    for (uint32_t t = 0; t < schedule->transfers.count; t++) {
        const struct ebb_transfer_at *transfer = &schedule->transfers.items[t];
        if (transfer->transfer == EBB_TRANSFER_BARRIER) {
            assert_true(is_pending);
            is_pending = false;
            continue;
        }
        if (t > 0 && schedule->transfers.items[t - 1].step != transfer->step)
            assert_false(is_pending);
        is_pending = true;
        if (transfer->transfer == EBB_TRANSFER_EVICT)
            continue;
        if (first == EBB_NONE)
            first = transfer->step;
        if (transfer->step != first)
            assert_true(needs_a_fetched_one(schedule, transfer->step));
    }
    assert_false(is_pending);
}

static void test_transfers(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof nets / sizeof *nets; n++) {
        struct made made;
        struct ebb_schedule schedule;
        make(&made, nets[n]);
        uint32_t evicted[EBB_MODE_COUNT];
        for (int mode = EBB_MODE_INTER; mode <= EBB_MODE_VDNN_CONV; mode++) {
            schedule_of(&made, (enum ebb_mode)mode, true, &schedule);
            evicted[mode] = check_transfers(&schedule);
            if (mode >= EBB_MODE_VDNN_ALL)
                check_vdnn(&schedule);
            ebb__schedule_destroy(&schedule);
        }
        assert_true(evicted[EBB_MODE_INTER] > 0 && evicted[EBB_MODE_HYBRID] > 0);
        assert_true(evicted[EBB_MODE_VDNN_CONV] < evicted[EBB_MODE_VDNN_ALL]);
        assert_int_equal(evicted[EBB_MODE_VDNN_CONV] > 0, strncmp(nets[n], "gpt", 3) != 0);
        schedule_of(&made, EBB_MODE_EBB, true, &schedule);
        assert_int_equal(schedule.transfers.count, 0);
        ebb__schedule_destroy(&schedule);
        unmake(&made);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps_read_what_was_written),
        cmocka_unit_test(test_check_finds_a_lost_output),
        cmocka_unit_test(test_figures),
        cmocka_unit_test(test_transfers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
