/* Compiles scripts from random models, with every gap an absence, and from real plans. Each figure
 * of the script is compared with a slow computation from the model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "machine/machine.h"
#include "plan/plan.h"
#include "plan/request/compile.h"
#include "synthetic.h"

#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

/* The number of clock events at ticks before `tick`. */
static uint32_t clocks_before(const struct ebb_model *model, uint32_t tick)
{
    uint32_t count = 0;
    for (uint32_t t = 0; t < tick; t++)
        count += model->events[t].clock;
    return count;
}

/* Position of the last clock event at or before `tick`, cyclic. */
static uint32_t last_clock(const struct ebb_model *model, uint32_t tick)
{
    return (clocks_before(model, tick + 1) + model->clock_count - 1) % model->clock_count;
}

static uint32_t first_clock_after(const struct ebb_model *model, uint32_t tick)
{
    return clocks_before(model, tick + 1) % model->clock_count;
}

static bool is_persistent(const struct ebb_model_block *block)
{
    return block->alloc_tick == EBB_TICK_NONE;
}

/* The script's index of a model's block, found by serial or by its ALLOC. */
static uint32_t place_of(const struct ebb_model *model, const struct ebb_script *script,
                         uint32_t index)
{
    const struct ebb_model_block *block = &model->blocks[index];
    if (!is_persistent(block))
        return ebb__script_events(script)[clocks_before(model, block->alloc_tick)].block;
    for (uint32_t i = 0; i < script->persistent_count; i++)
        if (ebb__script_blocks(script)[i].serial == block->serial)
            return i;
    fail_msg("no block of serial %llu", (unsigned long long)block->serial);
    return 0;
}

static void check_events(const struct ebb_model *model, const struct ebb_script *script)
{
    const struct ebb_script_event *events = ebb__script_events(script);
    assert_int_equal(script->clock_count, model->clock_count);
    assert_int_equal(script->iteration_ns, ebb__model_iteration_ns(model));
    uint32_t position = 0, allocs = 0;
    for (uint32_t t = 0; t < model->tick_count; t++) {
        const struct ebb_model_event *event = &model->events[t];
        if (!event->clock)
            continue;
        assert_int_equal(events[position].kind, event->kind);
        assert_int_equal(events[position].time_ns, model->time_ns[t]);
        assert_int_equal(events[position].size_bytes, model->blocks[event->block].size_bytes);
        assert_int_equal(events[position].block, place_of(model, script, event->block));
        allocs += event->kind == EBB_EVENT_ALLOC;
        position++;
    }
    assert_int_equal(script->alloc_count, allocs);
    const uint32_t *by_size = ebb__script_allocs(script);
    for (uint32_t i = 0; i < allocs; i++) {
        assert_int_equal(events[by_size[i]].kind, EBB_EVENT_ALLOC);
        if (i == 0)
            continue;
        uint64_t before = events[by_size[i - 1]].size_bytes, here = events[by_size[i]].size_bytes;
        assert_true(before < here || (before == here && by_size[i - 1] < by_size[i]));
    }
}

static void check_blocks(const struct ebb_model *model, const struct ebb_script *script)
{
    const struct ebb_script_block *blocks = ebb__script_blocks(script);
    assert_int_equal(script->block_count, model->block_count);
    uint32_t persistent = 0;
    for (uint32_t i = 0; i < model->block_count; i++)
        persistent += is_persistent(&model->blocks[i]);
    assert_int_equal(script->persistent_count, persistent);
    for (uint32_t i = 0; i < script->block_count; i++) {
        if (i >= persistent)
            assert_int_equal(blocks[i].serial, 0);
        else
            assert_true(blocks[i].serial > (i ? blocks[i - 1].serial : 0));
    }
    bool *taken = must(calloc(model->block_count, 1));
    bool *used = must(calloc(model->clock_count, 1));
    for (uint32_t i = 0; i < model->block_count; i++) {
        uint32_t place = place_of(model, script, i);
        assert_false(taken[place]);
        taken[place] = true;
        assert_int_equal(blocks[place].size_bytes, model->blocks[i].size_bytes);
        /* The positions must be the same, in any order. */
        memset(used, 0, model->clock_count);
        uint32_t wanted = 0;
        for (uint32_t t = 0; t < model->tick_count; t++)
            if (model->events[t].kind == EBB_EVENT_ACCESS && model->events[t].block == i) {
                wanted += !used[last_clock(model, t)];
                used[last_clock(model, t)] = true;
            }
        const struct ebb_script_use *uses = ebb__script_uses(script) + blocks[place].first_use;
        bool *seen = must(calloc(model->clock_count, 1));
        uint32_t falls = 0;
        for (uint32_t u = 0; u < blocks[place].use_count; u++) {
            assert_true(used[uses[u].clock]);
            wanted -= !seen[uses[u].clock];
            seen[uses[u].clock] = true;
            falls += u > 0 && (uses[u].clock < uses[u - 1].clock ||
                               (uses[u].clock == uses[u - 1].clock &&
                                uses[u].within_us <= uses[u - 1].within_us));
        }
        assert_int_equal(wanted, 0);
        /* Uses are sorted by the time since the allocation. They ascend, except at the iteration's
         * end. */
        assert_true(falls <= 1 + model->blocks[i].span_ticks / model->tick_count);
        free(seen);
    }
    free(taken);
    free(used);
}

static void check_absences(const struct ebb_model *model, const struct ebb_plan *plan,
                           const struct ebb_script *script)
{
    const struct ebb_script_absence *absences = ebb__script_absences(script);
    uint64_t whole = ebb__model_iteration_ns(model);
    uint32_t clocks = model->clock_count;
    assert_int_equal(script->absence_count, plan->absence_count);
    for (uint32_t i = 0; i < plan->absence_count; i++) {
        const struct ebb_absence *planned = &plan->absences[i];
        assert_int_equal(absences[i].block, place_of(model, script, planned->block));
        assert_int_equal(absences[i].out_clock, first_clock_after(model, planned->from_tick));
        assert_int_equal(absences[i].keep_copy, planned->keep_copy);
        if (planned->drops) {
            assert_int_equal(absences[i].in_clock, EBB_SCRIPT_NONE);
            assert_int_equal(absences[i].due_clock, EBB_SCRIPT_NONE);
            continue;
        }
        assert_int_equal(absences[i].stall_ns, planned->stall_ns);
        uint32_t in = absences[i].in_clock, out = absences[i].out_clock;
        assert_int_equal(absences[i].due_clock, last_clock(model, planned->to_tick));
        assert_true(in < clocks);
        /* Eviction, prefetch and due position follow each other in this order, cyclic. */
        assert_true((in + clocks - out) % clocks <=
                    (absences[i].due_clock + clocks - out) % clocks);
        uint64_t starts =
            (ebb__script_events(script)[in].time_ns + absences[i].in_delay_ns) % whole;
        if (starts != planned->in_start_ns % whole && in != absences[i].due_clock) {
            assert_int_equal(in, out);
            assert_int_equal(absences[i].in_delay_ns, 0);
        }
    }
}

static void compile_and_check(const struct ebb_model *model, const struct ebb_plan *plan)
{
    struct ebb_script *script;
    assert_int_equal(ebb__compile_script(model, plan, NULL, &script), EBB_OK);
    assert_true(ebb__script_valid(script, script->bytes));
    assert_false(ebb__script_valid(script, script->bytes - 1));
    check_events(model, script);
    check_blocks(model, script);
    check_absences(model, plan, script);
    free(script);
}

/* The runtime reads its own copy of a script, which the sender cannot change. */
static void copies(void **state)
{
    (void)state;
    struct ebb_model model = make_training(4, 64 * EBB_MIB, 10000000, 1);
    struct ebb_machine machine;
    assert_int_equal(ebb__machine_named("nvme", &machine, NULL), EBB_OK);
    struct ebb_plan_request request = {.model = &model,
                                       .machine = &machine,
                                       .budget_bytes = model.peak_bytes / 2,
                                       .page_bytes = 4096,
                                       .smallest_block_bytes = 4096};
    struct ebb_plan plan;
    struct ebb_script *script;
    assert_int_equal(ebb__plan_make(ebb__plan_policy("fifo"), &request, &plan, NULL), EBB_OK);
    assert_int_equal(ebb__compile_script(&model, &plan, NULL, &script), EBB_OK);
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_int_equal(fwrite(script, 1, script->bytes, file), script->bytes);
    assert_int_equal(fflush(file), 0);
    struct ebb_script *copy = ebb__script_copy(fileno(file), script->bytes);
    assert_non_null(copy);
    assert_int_equal(ftruncate(fileno(file), 0), 0);
    assert_memory_equal(copy, script, script->bytes);
    assert_null(ebb__script_copy(fileno(file), script->bytes)); /* the file is shorter than that */
    assert_null(ebb__script_copy(fileno(file), sizeof *script - 1));
    assert_int_equal(ftruncate(fileno(file), (off_t)EBB_SCRIPT_MOST_BYTES + 1), 0);
    assert_null(ebb__script_copy(fileno(file), EBB_SCRIPT_MOST_BYTES + 1));
    assert_null(ebb__script_copy(-1, script->bytes));
    munmap(copy, script->bytes);
    fclose(file);
    free(script);
    ebb__plan_fini(&plan);
    ebb__model_fini(&model);
}

static bool has_alloc(const struct ebb_model *model)
{
    for (uint32_t t = 0; t < model->tick_count; t++)
        if (model->events[t].kind == EBB_EVENT_ALLOC)
            return true;
    return false;
}

/* Every gap that is longer than 0 becomes an absence. */
static void all_gaps(void **state)
{
    (void)state;
    uint32_t absences = 0, drops = 0;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct ebb_model model = make_random(seed, 10 + (uint32_t)(seed % 9) * 15, 1 << 16, 10000);
        struct ebb_plan plan = {.absences =
                                    must(calloc(model.gap_count + 1, sizeof *plan.absences))};
        uint64_t chances = seed;
        for (uint32_t g = 0; g < model.gap_count; g++) {
            const struct ebb_gap *gap = &model.gaps[g];
            if (gap->length_ns == 0)
                continue;
            drops += gap->ends_in_free;
            plan.absences[plan.absence_count++] = (struct ebb_absence){
                .block = gap->block,
                .from_tick = gap->from_tick,
                .to_tick = gap->to_tick,
                .drops = gap->ends_in_free,
                .keep_copy = chance(&chances) % 2,
                .in_start_ns = (gap->from_ns + chance(&chances) % gap->length_ns) %
                               ebb__model_iteration_ns(&model)};
        }
        absences += plan.absence_count;
        struct ebb_script *script = NULL;
        if (has_alloc(&model))
            compile_and_check(&model, &plan);
        else
            assert_int_equal(ebb__compile_script(&model, &plan, NULL, &script), EBB_ERR_ARGUMENT);
        free(plan.absences);
        ebb__model_fini(&model);
    }
    assert_true(absences > 1000 && drops > 10);
}

static void real_plans(void **state)
{
    (void)state;
    const struct ebb_machine machine = {"test", {0.5, 50000}, {0.7, 50000}, true, EBB_NO_COSTS};
    uint32_t absences = 0;
    for (uint32_t layers = 2; layers <= 14; layers += 3) {
        struct ebb_model model = make_training(layers, (uint64_t)64 << 20, 300000000, layers);
        for (uint64_t percent = 100; percent >= 40; percent -= 20) {
            struct ebb_plan_request request = {.model = &model,
                                               .machine = &machine,
                                               .budget_bytes = model.peak_bytes * percent / 100,
                                               .page_bytes = 4096,
                                               .effort_steps = 15000000};
            struct ebb_plan plan;
            assert_int_equal(ebb__plan_make(ebb__plan_policy("ebb"), &request, &plan, NULL),
                             EBB_OK);
            absences += plan.absence_count;
            compile_and_check(&model, &plan);
            ebb__plan_fini(&plan);
        }
        ebb__model_fini(&model);
    }
    assert_true(absences > 20);
}

/* Several events have the time at which a prefetch starts and is due. It starts when it is due, not
 * an iteration earlier, after the events that have the same time. */
static void ties(void **state)
{
    (void)state;
    struct maker maker = {0};
    uint32_t kept = make_persistent(&maker, 4096), blocks[4];
    for (size_t i = 0; i < 4; i++)
        blocks[i] = make_block(&maker, 1000);
    for (size_t i = 0; i < 2; i++) {
        make_event(&maker, 100, EBB_EVENT_ALLOC, blocks[2 * i], 0);
        if (i == 0)
            make_event(&maker, 100, EBB_EVENT_ACCESS, kept, EBB_ACCESS_READ);
        make_event(&maker, 100, EBB_EVENT_FREE, blocks[2 * i], 0);
    }
    for (size_t i = 0; i < 2; i++) {
        make_event(&maker, 200 + 100 * i, EBB_EVENT_ALLOC, blocks[2 * i + 1], 0);
        make_event(&maker, 250 + 100 * i, EBB_EVENT_FREE, blocks[2 * i + 1], 0);
    }
    struct ebb_model model = make_model(&maker, 500);
    struct ebb_absence absence = {.block = kept, .from_tick = 1, .to_tick = 1, .in_start_ns = 100};
    struct ebb_plan plan = {.absences = &absence, .absence_count = 1};
    struct ebb_script *script;
    assert_int_equal(ebb__compile_script(&model, &plan, NULL, &script), EBB_OK);
    assert_int_equal(ebb__script_absences(script)->out_clock, 1);
    assert_int_equal(ebb__script_absences(script)->in_clock, 0);
    assert_int_equal(ebb__script_absences(script)->due_clock, 0);
    free(script);
    ebb__model_fini(&model);
}

/* Persistent blocks are not sorted by serial, and allocations have the same size. */
static void orders(void **state)
{
    (void)state;
    struct maker maker = {0};
    uint32_t kept[5], temporary[4];
    for (size_t i = 0; i < 4; i++)
        temporary[i] = make_block(&maker, i == 2 ? 100 : 5000);
    for (size_t i = 0; i < 5; i++)
        kept[i] = make_persistent(&maker, 1000 * (i + 1));
    for (uint64_t i = 0; i < 4; i++) {
        make_event(&maker, 100 * i + 10, EBB_EVENT_ALLOC, temporary[i], 0);
        make_event(&maker, 100 * i + 20, EBB_EVENT_ACCESS, kept[i], EBB_ACCESS_READ);
        make_event(&maker, 100 * i + 30, EBB_EVENT_ACCESS, temporary[i], EBB_ACCESS_WRITE);
        make_event(&maker, 100 * i + 40, EBB_EVENT_FREE, temporary[i], 0);
    }
    struct ebb_model model = make_model(&maker, 500);
    static const uint64_t serials[] = {50, 9, 1000, 3, 77};
    for (size_t i = 0; i < 5; i++)
        model.blocks[kept[i]].serial = serials[i];
    struct ebb_plan plan = {0};
    compile_and_check(&model, &plan);
    struct ebb_script *script;
    assert_int_equal(ebb__compile_script(&model, &plan, NULL, &script), EBB_OK);
    assert_int_equal(ebb__script_blocks(script)[0].serial, 3);
    assert_int_equal(ebb__script_blocks(script)[4].serial, 1000);
    static const uint32_t by_size[] = {4, 0, 2, 6};
    assert_memory_equal(ebb__script_allocs(script), by_size, sizeof by_size);
    free(script);
    ebb__model_fini(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_gaps), cmocka_unit_test(real_plans), cmocka_unit_test(orders),
        cmocka_unit_test(ties),     cmocka_unit_test(copies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
