/* A run and `ebb plan` make the same plan. One recorded iteration is passed to the parent of a run
 * and, as a trace, to the command. Both scripts must be equal, byte for byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/geometry.h"
#include "model/analyse.h"
#include "own_folder.h"
#include "parent/internal.h"
#include "plan/file.h"
#include "plan/request/forecast.h"
#include "policies.h"
#include "sim/simulate.h"
#include "synthetic.h"

#include <limits.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define LAYERS 24u
#define WEIGHTS 6u
#define IDLE_BYTES (20 * EBB_MIB)
#define LAPS 3u
#define STEP_NS ((uint64_t)1000000)

/* ---- a recorded program ---------------------------------------------------------------------- */

typedef EBB_VEC(struct ebb_event) events;

static void push(events *made, struct ebb_event event)
{
    event.time_ns = made->count * STEP_NS;
    assert_true(ebb_vec_push(made, event));
}

static void push_alloc(events *made, uint64_t serial, uint64_t bytes)
{
    push(made, (struct ebb_event){.kind = EBB_EVENT_ALLOC, .block = serial, .size_bytes = bytes});
    push(made,
         (struct ebb_event){.kind = EBB_EVENT_ACCESS, .block = serial, .access = EBB_ACCESS_WRITE});
}

static void push_read(events *made, uint64_t serial)
{
    push(made,
         (struct ebb_event){.kind = EBB_EVENT_ACCESS, .block = serial, .access = EBB_ACCESS_READ});
}

static void push_free(events *made, uint64_t serial, uint64_t bytes)
{
    push(made, (struct ebb_event){.kind = EBB_EVENT_FREE, .block = serial, .size_bytes = bytes});
}

/* Some sizes are barely worth moving, some end in most of a huge page. */
static uint64_t output_bytes(unsigned layer)
{
    static const uint64_t kib[] = {320, 3584, 1024, 448, 5632};
    return kib[layer % 5] * EBB_KIB + layer * 4096;
}

static void record(const char *path, uint64_t idle_bytes)
{
    events made = {0};
    uint64_t serial = 0;
    push(&made, (struct ebb_event){.kind = EBB_EVENT_MARK, .mark = EBB_MARK_TRACE_ON});
    while (serial < WEIGHTS) {
        serial++;
        push_alloc(&made, serial, 2 * EBB_MIB + serial * 4096);
    }
    if (idle_bytes)
        push_alloc(&made, ++serial, idle_bytes);
    for (unsigned lap = 0; lap < LAPS; lap++) {
        uint64_t first = serial + 1;
        for (unsigned layer = 0; layer < LAYERS; layer++) {
            push_alloc(&made, ++serial, output_bytes(layer));
            push_read(&made, 1 + layer % WEIGHTS);
        }
        for (unsigned layer = LAYERS; layer-- > 0;) {
            push_alloc(&made, ++serial, 768 * EBB_KIB);
            push_read(&made, first + layer);
            push_read(&made, 1 + layer % WEIGHTS);
            push_free(&made, serial, 768 * EBB_KIB);
            push_free(&made, first + layer, output_bytes(layer));
        }
    }
    const struct ebb_trace_info info = {
        .command = "test", .threshold_bytes = EBB_THRESHOLD_BYTES, .page_bytes = 4096};
    struct ebb_trace_writer *writer;
    assert_int_equal(ebb__trace_writer_open(path, &info, &writer, NULL), EBB_OK);
    assert_int_equal(ebb__trace_writer_append(writer, made.items, made.count, NULL), EBB_OK);
    assert_int_equal(ebb__trace_writer_close(writer, NULL), EBB_OK);
    ebb_vec_free(&made);
}

/* ---- the way of a run ------------------------------------------------------------------------ */

struct stage {
    struct ebb_parent parent;
    struct ebb_ledger ledger;
    struct process process;
    int program; /* the other end of the channel */
};

static struct stage *stage_open(const char *policy, const struct ebb_machine *machine,
                                uint64_t budget_bytes)
{
    struct stage *stage = must(calloc(1, sizeof *stage));
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    stage->program = pair[1];
    stage->process.channel = pair[0];
    stage->process.stream.ring = must(calloc(1, sizeof *stage->process.stream.ring));
    assert_int_equal(ebb__watch_create(EBB_WATCH_SHAPES, &stage->process.stream.watch), EBB_OK);
    stage->process.learning.exactly = true; /* the plan is sent even if it does not fit */
    stage->parent.host.ledger = &stage->ledger;
    stage->process.memory = &stage->parent.host;
    stage->parent.options.policy = policy_named(policy);
    stage->parent.host.lanes.state = LANES_KNOWN;
    stage->parent.host.lanes.machine = *machine;
    atomic_store(&stage->ledger.budget_bytes, budget_bytes);
    return stage;
}

static void stage_close(struct stage *stage)
{
    close(stage->program);
    close(stage->process.channel);
    ebb__watch_destroy(stage->process.stream.watch);
    free(stage->process.sent.script);
    free(stage->process.stream.ring);
    free(stage);
}

/* The script that is sent to the process. Release it with free(). */
static struct ebb_script *stage_plan(struct stage *stage, const struct ebb_model *model)
{
    struct ebb_message message;
    int descriptors[EBB_MESSAGE_DESCRIPTORS];
    size_t count;
    assert_true(ebb__parent_plan(&stage->parent, &stage->process, model, 0));
    assert_int_equal(ebb__message_receive(stage->program, &message, descriptors, &count), 1);
    assert_int_equal(message.kind, EBB_MESSAGE_SCRIPT);
    assert_int_equal(count, 1);
    struct ebb_script *script = must(malloc(message.value));
    assert_int_equal(pread(descriptors[0], script, message.value, 0), message.value);
    ebb__message_close(descriptors, count);
    assert_int_equal(script->bytes, message.value);
    return script;
}

/* ---- the way of the command ------------------------------------------------------------------ */

struct offline {
    struct ebb_planned planned;
    struct ebb_script *script;
};

static void run_command(const char *trace, const char *machine, const char *policy,
                        uint64_t budget_bytes, const char *plan)
{
    const char *bin = getenv("EBB_BIN_DIR");
    char command[4 * PATH_MAX];
    snprintf(command, sizeof command,
             "'%s/ebb' plan '%s' --machine '%s' --policy %s --budget %llu -f -o '%s' >'%s/out'",
             bin ? bin : "build/dev/bin", trace, machine, policy, (unsigned long long)budget_bytes,
             plan, folder);
    int status = system(command);
    assert_true(status == 0 || status == 3 << 8); /* the plan fits, or not */
}

/* Reads the plan that the command wrote, and compiles its script. */
static void offline_read(const char *path, const struct ebb_plan_terms *terms,
                         struct offline *offline)
{
    struct ebb_plan_file file;
    struct ebb_error error;
    struct ebb_planned *planned = &offline->planned;
    if (ebb__plan_file_read(path, terms->model, &file, &error) != EBB_OK)
        fail_msg("%s: %s", error.what, error.why);
    assert_int_equal(file.page_bytes, terms->page_bytes);
    *planned = (struct ebb_planned){.model = terms->model,
                                    .request = ebb__plan_request(terms),
                                    .plan = file.plan,
                                    .without_idle = file.without_idle,
                                    .huge_rounded = file.huge_rounded};
    if (planned->without_idle.count)
        planned->request.model = &planned->without_idle.model;
    if (planned->huge_rounded.count)
        planned->request.model = &planned->huge_rounded.model;
    assert_int_equal(ebb__planned_check(planned, &error), EBB_OK);
    const struct ebb_sim_request again = {planned->request.model,     terms->machine,
                                          planned->plan.absences,     planned->plan.absence_count,
                                          planned->plan.budget_bytes, terms->page_bytes,
                                          &planned->plan.rules};
    struct ebb_sim_result result;
    assert_int_equal(ebb__simulate(&again, NULL, &result, NULL), EBB_OK);
    assert_int_equal(result.stall_ns, planned->plan.stall_ns);
    assert_int_equal(result.peak_bytes, planned->plan.peak_bytes);
    assert_int_equal(ebb__planned_script(planned, &offline->script, &error), EBB_OK);
}

static void offline_fini(struct offline *offline)
{
    ebb__planned_fini(&offline->planned);
    free(offline->script);
}

/* ---- tests ----------------------------------------------------------------------------------- */

struct recorded {
    char trace[PATH_MAX], fast[PATH_MAX], slow[PATH_MAX], plan[PATH_MAX];
    struct ebb_trace events;
    struct ebb_analysis analysis;
};

static void write_machine(const char *path, double bytes_per_second)
{
    FILE *file = must(fopen(path, "w"));
    fprintf(file,
            "{\"schema\": \"ebb.machine/1\", \"duplex\": true,\n"
            " \"out\": {\"bytes_per_second\": %.1f, \"fixed_ns\": 20000},\n"
            " \"in\": {\"bytes_per_second\": %.1f, \"fixed_ns\": 20000}}\n",
            bytes_per_second, bytes_per_second);
    assert_int_equal(fclose(file), 0);
}

/* idle_bytes: of a block that no lap uses; 0: there is none. */
static void recorded_init(struct recorded *recorded, uint64_t idle_bytes)
{
    snprintf(recorded->trace, sizeof recorded->trace, "%s/trace.ebbt", folder);
    snprintf(recorded->fast, sizeof recorded->fast, "%s/fast.json", folder);
    snprintf(recorded->slow, sizeof recorded->slow, "%s/slow.json", folder);
    snprintf(recorded->plan, sizeof recorded->plan, "%s/plan.json", folder);
    record(recorded->trace, idle_bytes);
    write_machine(recorded->fast, 4e9);
    write_machine(recorded->slow, 0.5e9);
    assert_int_equal(ebb__trace_read(recorded->trace, &recorded->events, NULL), EBB_OK);
    struct ebb_event_span span = {recorded->events.events, recorded->events.count};
    assert_int_equal(ebb__analyse(span, &recorded->analysis, NULL), EBB_OK);
    assert_true(recorded->analysis.has_model && recorded->analysis.has_accesses);
}

static void recorded_fini(struct recorded *recorded)
{
    ebb__analysis_fini(&recorded->analysis);
    ebb__trace_fini(&recorded->events);
}

struct seen_cases {
    unsigned huge_rounded, stalling, infeasible, small, without_idle;
};

/* Makes one plan in both ways. In the run, another process holds `beside_bytes`. The command gets a
 * budget that is lower by as much. */
static void compare(const struct recorded *recorded, const char *policy, bool fast,
                    unsigned percent, uint64_t beside_bytes, struct seen_cases *seen)
{
    const struct ebb_model *model = &recorded->analysis.model;
    const char *lanes = fast ? recorded->fast : recorded->slow;
    uint64_t budget = model->peak_bytes / 4096 * percent / 100 * 4096;
    struct ebb_machine machine;
    assert_int_equal(ebb__machine_find(lanes, &machine, NULL), EBB_OK);
    struct stage *stage = stage_open(policy, &machine, budget + beside_bytes);
    atomic_store(&stage->ledger.held_bytes, beside_bytes);
    struct ebb_script *sent = stage_plan(stage, model);

    run_command(recorded->trace, lanes, policy, budget, recorded->plan);
    struct ebb_plan_terms terms = ebb__plan_terms(policy_named(policy), model, &machine, budget);
    struct offline offline;
    offline_read(recorded->plan, &terms, &offline);
    const struct ebb_plan *plan = &offline.planned.plan;

    print_message("%s %u %%: %u absences, %u huge-rounded\n", policy, percent, plan->absence_count,
                  offline.planned.huge_rounded.count);
    assert_int_equal(stage->parent.figures.plan.stall_ns, plan->stall_ns);
    assert_int_equal(stage->parent.figures.plan.iteration_ns, plan->iteration_ns);
    assert_int_equal(stage->parent.figures.plan.peak_bytes,
                     offline.planned.places.peak_bytes + beside_bytes);
    assert_int_equal(sent->bytes, offline.script->bytes);
    assert_memory_equal(sent, offline.script, sent->bytes);

    seen->huge_rounded += offline.planned.huge_rounded.count;
    seen->stalling += plan->stall_ns > 0;
    seen->without_idle += offline.planned.without_idle.count > 0 && plan->feasible;
    seen->infeasible += !plan->feasible;
    for (uint32_t i = 0; i < plan->absence_count; i++)
        seen->small += model->blocks[plan->absences[i].block].size_bytes < 512 * EBB_KIB;
    offline_fini(&offline);
    free(sent);
    stage_close(stage);
}

static void a_run_plans_as_the_command_does(void **state)
{
    (void)state;
    /* The default's search has a time limit, but with fast lanes it ends long before. */
    static const char *const policies[] = {"fifo", "appobmem", "autoswap:vote", "vdnn:all"};
    struct recorded recorded = {0};
    struct seen_cases seen = {0};
    recorded_init(&recorded, 0);
    for (unsigned percent = 90; percent >= 50; percent -= 20) {
        compare(&recorded, "ebb", true, percent, 0, &seen);
        for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
            if (!policy_named(policies[i]))
                continue; /* a policy of src/lab, which is not in this build */
            compare(&recorded, policies[i], true, percent, 0, &seen);
            compare(&recorded, policies[i], false, percent, 0, &seen);
        }
    }
    compare(&recorded, "ebb", true, 60, 3 * EBB_MIB, &seen);
    compare(&recorded, "fifo", false, 70, 5 * EBB_MIB, &seen);
    compare(&recorded, "fifo", false, 10, 0, &seen);
    recorded_fini(&recorded);
    recorded_init(&recorded, IDLE_BYTES);
    compare(&recorded, "ebb", true, 20, 0, &seen);
    compare(&recorded, "fifo", false, 20, 0, &seen);
    /* Every kind of plan occurred. */
    assert_true(seen.huge_rounded > 0);
    assert_true(seen.stalling > 0);
    assert_true(seen.infeasible > 0);
    assert_true(seen.small > 0);
    assert_int_equal(seen.without_idle, 2);
    recorded_fini(&recorded);
}

/* The terms of a run differ from those of the command only by what only a run knows. */
static void terms_of_a_run(void **state)
{
    (void)state;
    const struct ebb_machine machine = {"test", {0.5, 20000}, {0.5, 20000}, true, EBB_NO_COSTS};
    struct ebb_model model = make_training(6, 40 * EBB_MIB, 80000000, 3);
    struct stage *stage = stage_open("ebb", &machine, 30 * EBB_MIB);
    struct ebb_counters *counters = &stage->process.stream.ring->counters;
    atomic_store(&stage->ledger.held_bytes, 9 * EBB_MIB); /* 2 MiB belong to another process */
    atomic_store(&counters->held_bytes, 7 * EBB_MIB);
    atomic_store(&counters->small_bytes, EBB_MIB);
    stage->process.sent.margin_bytes = EBB_MIB / 4;
    struct ebb_plan_terms found = ebb__parent_terms(&stage->parent, &stage->process, &model);
    struct ebb_plan_terms plain =
        ebb__plan_terms(ebb__plan_policy("ebb"), &model, &machine, 30 * EBB_MIB);
    assert_ptr_equal(found.policy, plain.policy);
    assert_ptr_equal(found.model, plain.model);
    assert_int_equal(found.budget_bytes, plain.budget_bytes);
    assert_int_equal(found.page_bytes, plain.page_bytes);
    assert_int_equal(found.smallest_block_bytes, plain.smallest_block_bytes);
    assert_int_equal(found.time_limit_ns, plain.time_limit_ns);
    assert_int_equal(found.effort_steps, plain.effort_steps);
    assert_int_equal(found.beside_bytes, 3 * EBB_MIB);
    assert_int_equal(found.margin_bytes, EBB_MIB / 4);
    assert_int_equal(ebb__plan_request(&found).budget_bytes, 27 * EBB_MIB);
    assert_true(ebb__plan_request(&found).newest_only && ebb__plan_request(&plain).newest_only);
    /* A trace of another tool has no information about the runtime. */
    plain.page_bytes = 1;
    assert_false(ebb__plan_request(&plain).newest_only);
    /* The margin may not ruin the plan. Without a budget there is no margin. */
    assert_int_equal(ebb__plan_slack(&found), EBB_MIB / 4);
    found.margin_bytes = 20 * EBB_MIB;
    assert_int_equal(ebb__plan_slack(&found), 27 * EBB_MIB / 6);
    model.slack_bytes = EBB_MIB;
    assert_int_equal(ebb__plan_slack(&plain), EBB_MIB + EBB_MIB / 2);
    atomic_store(&stage->ledger.budget_bytes, UINT64_MAX);
    found = ebb__parent_terms(&stage->parent, &stage->process, &model);
    assert_int_equal(ebb__plan_request(&found).budget_bytes, UINT64_MAX);
    assert_int_equal(ebb__plan_slack(&found), 0);
    stage_close(stage);
    ebb__model_fini(&model);
}

/* A block that no lap uses does not make a budget too small. It stays if there is room. */
static void idle_blocks_give_way(void **state)
{
    (void)state;
    struct recorded recorded = {0};
    recorded_init(&recorded, IDLE_BYTES);
    const struct ebb_model *model = &recorded.analysis.model;
    const struct ebb_machine machine = {"test", {0.5, 20000}, {0.5, 20000}, true, EBB_NO_COSTS};
    struct ebb_planned planned;
    struct ebb_error error;
    for (unsigned mib = 10; mib <= 40; mib += 15) {
        struct ebb_plan_terms terms =
            ebb__plan_terms(ebb__plan_policy("fifo"), model, &machine, mib * EBB_MIB);
        struct ebb_plan_request request = ebb__plan_request(&terms);
        struct ebb_plan all;
        assert_int_equal(ebb__plan_make(terms.policy, &request, &all, &error), EBB_OK);
        bool has_room = all.feasible;
        assert_int_equal(has_room, mib * EBB_MIB >= all.smallest_feasible_bytes);
        assert_in_range(all.smallest_feasible_bytes, IDLE_BYTES, IDLE_BYTES + 10 * EBB_MIB);
        ebb__plan_fini(&all);
        assert_int_equal(ebb__planned_make(&terms, &planned, &error), EBB_OK);
        assert_true(planned.plan.feasible);
        assert_true(planned.plan.peak_bytes <= mib * EBB_MIB);
        assert_int_equal(planned.without_idle.count, has_room ? 0 : 1);
        assert_int_equal(ebb__planned_check(&planned, &error), EBB_OK);
        ebb__planned_fini(&planned);
        struct ebb_forecast_point point;
        assert_int_equal(ebb__forecast_at(&terms, mib * EBB_MIB, &point, &error), EBB_OK);
        assert_true(point.feasible);
    }
    /* Without idle blocks too, this is too little. Other tools' runtimes evict nothing unasked. */
    struct ebb_plan_terms terms =
        ebb__plan_terms(ebb__plan_policy("fifo"), model, &machine, 4 * EBB_MIB);
    assert_int_equal(ebb__planned_make(&terms, &planned, &error), EBB_OK);
    assert_false(planned.plan.feasible);
    assert_true(planned.plan.smallest_feasible_bytes < 10 * EBB_MIB);
    ebb__planned_fini(&planned);
    terms.budget_bytes = 15 * EBB_MIB;
    terms.page_bytes = 1;
    assert_int_equal(ebb__planned_make(&terms, &planned, &error), EBB_OK);
    assert_false(planned.plan.feasible);
    assert_int_equal(planned.without_idle.count, 0);
    ebb__planned_fini(&planned);
    recorded_fini(&recorded);
}

/* The program's peak grows while the plan is made: its share is of the peak before. */
static void a_peak_that_grows_meanwhile(void **state)
{
    (void)state;
    const struct ebb_machine machine = {"test", {0.5, 20000}, {0.5, 20000}, true, EBB_NO_COSTS};
    struct stage *stage = stage_open("ebb", &machine, UINT64_MAX);
    struct process *process = &stage->process;
    struct ebb_counters *counters = &process->stream.ring->counters;
    stage->parent.options.budget_fraction = 0.6;
    process->memory->budget.state = BUDGET_OPEN;
    atomic_store(&counters->peak_live_bytes, 100 * EBB_MIB);
    uint64_t budget = ebb__budget_of(&stage->parent, process);
    assert_int_equal(budget, 60 * EBB_MIB);
    atomic_store(&counters->peak_live_bytes, 200 * EBB_MIB);
    ebb__budget_enforce(&stage->parent, process, budget);
    assert_true(ebb__budget_follow(&stage->parent, process)); /* it is planned again */
    assert_int_equal(ebb__budget_of(&stage->parent, process), 120 * EBB_MIB);
    /* If it has not grown, nothing follows. */
    ebb__budget_enforce(&stage->parent, process, 120 * EBB_MIB);
    assert_false(ebb__budget_follow(&stage->parent, process));
    assert_int_equal(ebb__budget_of(&stage->parent, process), 120 * EBB_MIB);
    stage_close(stage);
}

/* Plan files list the huge-rounded blocks. Readers refuse impossible ones. */
static void huge_rounded_blocks_in_plan_files(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool good;
    } cases[] = {{"[]", true},        {"[%u]", true},   {"[%u, %u]", false},
                 {"[100000]", false}, {"[-1]", false},  {"7", false},
                 {"[\"7\"]", false},  {"[0.5]", false}, {"[[]]", false}};
    struct recorded recorded = {0};
    recorded_init(&recorded, 0);
    const struct ebb_model *model = &recorded.analysis.model;
    uint32_t huge_rounded = 0;
    while (model->blocks[huge_rounded].alloc_tick == EBB_TICK_NONE ||
           model->blocks[huge_rounded].size_bytes % (2 * EBB_MIB) < EBB_MIB * 3 / 2)
        huge_rounded++;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char list[64], text[1024];
        snprintf(list, sizeof list, cases[i].text, huge_rounded, huge_rounded);
        int bytes = snprintf(
            text, sizeof text,
            "{\"schema\": \"ebb.plan-file/2\", \"policy\": \"x\", \"budget_bytes\": 1,"
            " \"smallest_feasible_bytes\": 1, \"peak_bytes\": 1, \"stall_ns\": 0,"
            " \"iteration_ns\": 1, \"moved_out_bytes\": 0, \"moved_in_bytes\": 0, \"plan_ns\": 0,"
            " \"feasible\": false, \"page_bytes\": 4096, \"model_ticks\": %u,"
            " \"model_iteration_ns\": %llu, \"absences\": [], \"machine\": {\"schema\":"
            " \"ebb.machine/1\", \"name\": \"m\", \"duplex\": true,"
            " \"out\": {\"ns_per_byte\": 1.0, \"fixed_ns\": 0},"
            " \"in\": {\"ns_per_byte\": 1.0, \"fixed_ns\": 0}}, \"huge_rounded_blocks\": %s}",
            model->tick_count, (unsigned long long)ebb__model_iteration_ns(model), list);
        struct ebb_plan_file file;
        struct ebb_error error = {0};
        enum ebb_status status =
            ebb__plan_file_read_memory(text, (size_t)bytes, "plan", model, &file, &error);
        if (status != (cases[i].good ? EBB_OK : EBB_ERR_FORMAT))
            fail_msg("%s: %s", list, error.why);
        if (cases[i].good && strchr(list, 'u') == NULL && list[1] != ']') {
            uint64_t bytes_now =
                ebb__plan_file_model(&file, model)->blocks[huge_rounded].size_bytes;
            assert_int_equal(bytes_now % (2 * EBB_MIB), 0);
            assert_true(bytes_now > model->blocks[huge_rounded].size_bytes);
        }
        ebb__plan_file_fini(&file);
    }
    recorded_fini(&recorded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_plans_as_the_command_does),
        cmocka_unit_test(terms_of_a_run),
        cmocka_unit_test(idle_blocks_give_way),
        cmocka_unit_test(a_peak_that_grows_meanwhile),
        cmocka_unit_test(huge_rounded_blocks_in_plan_files),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
