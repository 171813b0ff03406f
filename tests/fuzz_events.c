/* Fuzzes the processing of events. A trace file may have any events that are valid one by one, and
 * the traced program can write to its ring. An input is either raw ring records, or a small program
 * that is repeated, so that there is an iteration to find. The events pass through a ring to a
 * watch, and directly to the analysis. Then the model is planned, checked, simulated and compiled.
 * Contradictory input must be refused. */
#include "check/check.h"
#include "fuzz.h"
#include "model/analyse.h"
#include "model/watch.h"
#include "plan/request/compile.h"
#include "policies.h"
#include "sim/simulate.h"
#include "trace/codec.h"
#include "trace/ring.h"

#include <string.h>

#define MOST_EVENTS 4096u
#define SLOTS 16u
#define EXISTING ((uint64_t)1 << 20) /* serials of blocks older than the program */

struct program {
    const char *policy;
    struct ebb_event events[MOST_EVENTS];
    size_t count;
    uint64_t serial, now_ns;
    uint64_t of_slot[SLOTS];
};

/* Expands a byte to 0 to 2^64. Small numbers are dense. */
static uint64_t number(uint8_t code)
{
    return code < 16 ? code : (uint64_t)(4 + code % 4) << (code / 4 - 2);
}

/* One step of four bytes: what happens, to which block, its size, and when. */
static void step(struct program *program, const uint8_t *code)
{
    uint64_t *block = &program->of_slot[code[1] % SLOTS];
    struct ebb_event event = {.kind = 1 + code[0] % (EBB_EVENT_KIND_COUNT - 1),
                              .flags = code[0] >> 6,
                              .size_bytes = number(code[2]),
                              .time_ns = program->now_ns += number(code[3])};
    if (event.kind == EBB_EVENT_ALLOC)
        *block = ++program->serial;
    else if (event.kind == EBB_EVENT_ACCESS)
        event.access = code[1] / SLOTS % 3;
    else if (event.kind == EBB_EVENT_MARK)
        event.mark = 1 + code[1] % (EBB_MARK_COUNT - 1);
    if (event.kind != EBB_EVENT_MARK && event.kind != EBB_EVENT_LAUNCH)
        event.block = *block ? *block : EXISTING + code[1] % SLOTS;
    if (event.kind == EBB_EVENT_FREE)
        *block = 0;
    program->events[program->count++] = event;
}

static void make_program(const uint8_t *data, size_t size, struct program *program)
{
    static const char *const policies[] = {"fifo", "appobmem", "lru", "ebb"};
    memset(program, 0, sizeof *program);
    program->policy = policies[size ? data[0] / 16 % 4 : 0];
    if (size < 1)
        return;
    bool raw = data[0] & 1;
    unsigned laps = 1 + data[0] / 2 % 8;
    data++, size--;
    if (raw) {
        program->count = size / sizeof *program->events;
        if (program->count > MOST_EVENTS)
            program->count = MOST_EVENTS;
        memcpy(program->events, data, program->count * sizeof *program->events);
        return;
    }
    for (unsigned lap = 0; lap < laps; lap++)
        for (size_t at = 0; at + 4 <= size && program->count < MOST_EVENTS; at += 4)
            step(program, data + at);
}

static void use(const struct ebb_model *model, const char *policy)
{
    const struct ebb_machine *machine = fuzz_machine();
    for (unsigned newest_only = 0; newest_only < 2; newest_only++) {
        struct ebb_plan_request request = {.model = model,
                                           .machine = machine,
                                           .budget_bytes = model->peak_bytes / 10 * 6,
                                           .page_bytes = 4096,
                                           .smallest_block_bytes = 4096,
                                           .time_limit_ns = 100000,
                                           .newest_only = newest_only};
        struct ebb_plan plan;
        struct ebb_error error = {0};
        const struct ebb_policy *found = policy_named(policy);
        if (!found) /* a policy of src/lab, if that is not in this build */
            found = ebb__plan_policy("fifo");
        enum ebb_status status = ebb__plan_make(found, &request, &plan, &error);
        if (status == EBB_ERR_ARGUMENT && ebb__model_iteration_ns(model) == 0)
            return; /* there is no iteration to plan */
        FUZZ_REQUIRE(status == EBB_OK);
        struct ebb_check_request check = {model, machine, request.budget_bytes, request.page_bytes};
        status = ebb__check_plan(&check, &plan, &error);
        if (status && plan.feasible)
            fprintf(stderr, "%s: %s\n", policy, error.why);
        /* A plan over the budget is the policy's best effort. */
        FUZZ_REQUIRE(status == EBB_OK || (status == EBB_ERR_FORMAT && !plan.feasible));
        struct ebb_sim_request simulated = {model,
                                            machine,
                                            plan.absences,
                                            plan.absence_count,
                                            request.budget_bytes,
                                            request.page_bytes,
                                            &plan.rules};
        struct ebb_sim_result result;
        FUZZ_REQUIRE(ebb__simulate(&simulated, NULL, &result, &error) == EBB_OK);
        struct ebb_script *script;
        if (request.newest_only && ebb__compile_script(model, &plan, NULL, &script) == EBB_OK) {
            FUZZ_REQUIRE(ebb__script_valid(script, script->bytes));
            free(script);
        }
        ebb__plan_fini(&plan);
    }
}

/* The iteration is held as soon as it is found, and whatever comes between is modelled. */
static void hold(struct ebb_watch *watch, const struct program *program)
{
    struct ebb_watch_longer longer;
    struct ebb_watch_gap gap;
    struct ebb_model model;
    if (!ebb__watch_is_held(watch) && ebb__watch_found(watch))
        ebb__watch_hold(watch);
    (void)ebb__watch_longer(watch, &longer);
    while (ebb__watch_next_gap(watch, &gap)) {
        if (ebb__watch_gap_model(watch, &gap, &model, NULL) != EBB_OK)
            continue;
        use(&model, program->policy);
        ebb__model_fini(&model);
        ebb__watch_know_gap(watch, &gap);
    }
}

static void watch(struct program *program)
{
    static struct ebb_ring *ring;
    if (!ring)
        ring = calloc(1, ebb__ring_bytes(EBB_RING_EVENTS));
    FUZZ_REQUIRE(ring);
    struct ebb_watch *watch;
    FUZZ_REQUIRE(ebb__watch_create(EBB_WATCH_SHAPES, &watch) == EBB_OK);
    memcpy(ring->events, program->events, program->count * sizeof *program->events);
    atomic_store(&ring->read, 0);
    atomic_store(&ring->written, program->count);
    struct ebb_event events[64];
    enum ebb_status status = EBB_OK;
    for (size_t count; !status && (count = ebb__ring_read(ring, events, 64)) > 0;)
        for (size_t i = 0; !status && i < count; i++) {
            status = ebb__watch_push(watch, &events[i]);
            if (!status && i % 16 == 0)
                hold(watch, program);
        }
    FUZZ_REQUIRE(status == EBB_OK || status == EBB_ERR_FORMAT);
    struct ebb_model model;
    if (!status && ebb__watch_model(watch, &model, NULL, NULL) == EBB_OK) {
        use(&model, program->policy);
        ebb__model_fini(&model);
    }
    ebb__watch_destroy(watch);
}

static void analyse(struct program *program)
{
    /* Only events that a file's reader accepts. */
    for (size_t i = 0; i < program->count; i++)
        if (!ebb__trace_event_valid(&program->events[i]) ||
            (i && program->events[i].time_ns < program->events[i - 1].time_ns))
            return;
    struct ebb_event_span span = {program->events, program->count};
    struct ebb_analysis analysis;
    struct ebb_error error = {0};
    enum ebb_status status = ebb__analyse(span, &analysis, &error);
    FUZZ_REQUIRE(status == EBB_OK || (status == EBB_ERR_FORMAT && error.why[0]));
    if (!status && analysis.has_model)
        use(&analysis.model, program->policy);
    ebb__analysis_fini(&analysis);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct program program;
    make_program(data, size, &program);
    analyse(&program);
    watch(&program);
    return 0;
}
