/* A run with devices, from hello to summary: a process that plays a training through the real ring
 * follows the plans of the real parent. The recorded trace goes through the commands. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "cuda_device.h"
#include "own_folder.h"

#include "../shim/join/join.h"
#include "base/clock.h"
#include "device/device.h"
#include "parent/parent.h"
#include "runtime/ledger.h"
#include "trace/file.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define GIB ((uint64_t)1 << 30)

/* ---- the parent ------------------------------------------------------------------------------ */

struct run {
    struct ebb_parent *parent;
    pthread_t thread;
    _Atomic bool ends;
};

static void *serve(void *context)
{
    struct run *run = context;
    while (!run->ends) {
        struct pollfd polled[16];
        size_t count = ebb__parent_descriptors(run->parent, polled, 16);
        poll(polled, count, 2);
        ebb__parent_step(run->parent);
    }
    return NULL;
}

static void start(struct run *run, const struct ebb_parent_options *options)
{
    struct ebb_error error;
    *run = (struct run){0};
    assert_int_equal(ebb__parent_create(options, &run->parent, &error), EBB_OK);
    const char *environment = ebb__parent_environment(run->parent);
    assert_int_equal(setenv(EBB_PROTOCOL_ENV, strchr(environment, '=') + 1, 1), 0);
    assert_true(ebb__join_read_settings());
    ebb__parent_set_main(run->parent, (int)getpid());
    assert_int_equal(pthread_create(&run->thread, NULL, serve, run), 0);
}

static void stop(struct run *run, struct ebb_parent_result *result)
{
    struct ebb_error error;
    run->ends = true;
    pthread_join(run->thread, NULL);
    assert_int_equal(ebb__parent_finish(run->parent, result, &error), EBB_OK);
    ebb__parent_destroy(run->parent);
    unsetenv(EBB_PROTOCOL_ENV);
}

/* ---- a process ------------------------------------------------------------------------------- */

/* One device of a process. */
struct part {
    struct ebb_join_parent parent;
    struct ebb_ledger_slot *slot;
    int life_line;
    struct device device;
    struct training *training;
    size_t played;
    uint64_t held_bytes, live_bytes, last_ns;
    unsigned scripts;
    bool traces, was_planned;
    uint64_t laps;
};

static enum ebb_status set_script(void *context, const struct ebb_script *script, uint64_t bytes)
{
    struct part *part = context;
    part->scripts++;
    return ebb__follow_set_script(part->device.follow, script, bytes);
}

static void forget_scripts(void *context)
{
    ebb__follow_forget(((struct part *)context)->device.follow);
}

static void write_event(struct part *part, const struct ebb_event *event)
{
    struct ebb_event written = *event;
    part->last_ns = written.time_ns > part->last_ns ? written.time_ns : part->last_ns;
    written.time_ns = part->last_ns;
    ebb__ring_write(part->parent.ring, &written);
}

static void mark(struct part *part, enum ebb_mark mark, uint64_t value)
{
    write_event(part, &(struct ebb_event){
                          .size_bytes = value, .kind = EBB_EVENT_MARK, .mark = (uint8_t)mark});
}

static void set_trace(void *context, enum ebb_observe observe, uint64_t allocations)
{
    struct part *part = context;
    bool on = observe == EBB_OBSERVE_ALWAYS || observe == EBB_OBSERVE_EXACTLY;
    (void)allocations;
    if (on != part->traces)
        mark(part, on ? EBB_MARK_TRACE_ON : EBB_MARK_TRACE_OFF, 0);
    part->traces = on;
}

static const struct ebb_join_orders orders = {
    .set_script = set_script,
    .forget_scripts = forget_scripts,
    .set_trace = set_trace,
};

static struct part *attach(const char *text, uint64_t bytes)
{
    struct part *part = calloc(1, sizeof *part);
    assert_non_null(part);
    const struct ebb_join_introduction introduction = {EBB_HELLO_DEVICE, bytes, text};
    assert_true(ebb__join_hello(&introduction, &part->parent));
    part->life_line =
        ebb__ledger_enter(part->parent.ledger, part->parent.ledger_descriptor, &part->slot);
    close(part->parent.ledger_descriptor);
    struct ebb_counters *counters = &part->parent.ring->counters;
    atomic_store(&counters->has_slot, part->life_line >= 0);
    atomic_store(&counters->mechanism, EBB_DEVICE_CUDA);
    atomic_store(&counters->managing, 1);
    device_init(&part->device);
    part->training = calloc(1, sizeof *part->training);
    assert_non_null(part->training);
    set_trace(part, part->parent.trace ? EBB_OBSERVE_ALWAYS : EBB_OBSERVE_NEVER, 0);
    return part;
}

/* The ledger has what is resident. */
static void account(struct part *part)
{
    struct ebb_counters *counters = &part->parent.ring->counters;
    uint64_t bytes = part->device.resident_bytes;
    if (bytes > part->held_bytes)
        ebb__ledger_force(part->parent.ledger, part->slot, bytes - part->held_bytes);
    else
        ebb__ledger_release(part->parent.ledger, part->slot, part->held_bytes - bytes);
    part->held_bytes = bytes;
    atomic_store(&counters->held_bytes, bytes);
}

static void count_live(struct part *part, const struct ebb_event *event)
{
    struct ebb_counters *counters = &part->parent.ring->counters;
    if (event->kind == EBB_EVENT_ALLOC)
        part->live_bytes += event->size_bytes;
    else if (event->kind == EBB_EVENT_FREE)
        part->live_bytes -= event->size_bytes;
    atomic_store(&counters->live_bytes, part->live_bytes);
    ebb__ledger_raise(&counters->peak_live_bytes, part->live_bytes);
    atomic_fetch_add(&counters->allocations, event->kind == EBB_EVENT_ALLOC);
}

static void tell_plan(struct part *part)
{
    bool is_planned = ebb__follow_is_planned(part->device.follow);
    struct cuda_follow_counts counts = ebb__follow_counts(part->device.follow);
    if (is_planned != part->was_planned)
        mark(part, is_planned ? EBB_MARK_PLAN_ON : EBB_MARK_PLAN_OFF, 0);
    if (counts.laps != part->laps)
        mark(part, EBB_MARK_LAP, counts.laps);
    part->was_planned = is_planned;
    part->laps = counts.laps;
}

/* The uses of the work that ends before event `next`. */
static void end_uses(struct part *part, size_t next)
{
    const struct training *training = part->training;
    for (size_t i = next; i-- > 0 && training->works[i] == training->works[next - 1] &&
                          training->events[i].kind == EBB_EVENT_ACCESS;) {
        struct ebb_event held = training->events[i];
        held.flags = EBB_EVENT_HELD;
        held.time_ns = next < training->count ? training->events[next].time_ns : training->now_ns;
        if (part->device.serials[training->of[i]] == held.block)
            write_event(part, &held);
    }
}

/* Plays what the training has made, in the device's time, and obeys the parent. */
static void play(struct part *part)
{
    const struct training *training = part->training;
    for (; part->played < training->count; part->played++) {
        size_t at = part->played;
        struct ebb_event event = training->events[at];
        if (event.kind == EBB_EVENT_ACCESS)
            event.size_bytes = 0;
        write_event(part, &event);
        device_feed(&part->device, training->of[at], &training->events[at]);
        count_live(part, &event);
        account(part);
        tell_plan(part);
        bool ends = event.kind == EBB_EVENT_ACCESS &&
                    (at + 1 == training->count || training->works[at + 1] != training->works[at] ||
                     training->events[at + 1].kind != EBB_EVENT_ACCESS);
        if (ends && part->traces)
            end_uses(part, at + 1);
    }
    struct pollfd polled = {.fd = part->parent.channel, .events = POLLIN};
    while (poll(&polled, 1, 0) > 0)
        assert_true(ebb__join_serve(part->parent.channel, &orders, part));
}

/* Forgets events that have been played, so that the training may go on. */
static void iterate(struct part *part)
{
    struct training *training = part->training;
    if (training->count > TRAINING_EVENTS - 1000)
        training->count = part->played = 0;
    training_iterate(training);
    play(part);
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
}

static void leave(struct part *part)
{
    account(part);
    close(part->parent.channel);
    close(part->life_line);
    ebb__follow_destroy(part->device.follow);
    free(part->training);
    free(part);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static char warnings[4096];

static void warn(void *context, const char *message)
{
    (void)context;
    snprintf(warnings + strlen(warnings), sizeof warnings - strlen(warnings), "%s\n", message);
}

static struct ebb_parent_options options_for(uint64_t budget_bytes)
{
    warnings[0] = 0;
    return (struct ebb_parent_options){.command = "a training",
                                       .policy = ebb__plan_policy("ebb"),
                                       .store = "memory",
                                       .store_limit_bytes = UINT64_MAX,
                                       .budget_bytes = budget_bytes,
                                       .threshold_bytes = TRAINING_MIB,
                                       .warn = warn};
}

static uint64_t peak_of_training(void)
{
    struct training *training = calloc(1, sizeof *training);
    uint64_t live = 0, peak = 0;
    training_init(training, TRAINING_LAYERS);
    training_iterate(training);
    for (size_t i = 0; i < training->count; i++) {
        const struct ebb_event *event = &training->events[i];
        live += event->kind == EBB_EVENT_ALLOC ? event->size_bytes : 0;
        live -= event->kind == EBB_EVENT_FREE ? event->size_bytes : 0;
        peak = live > peak ? live : peak;
    }
    free(training);
    return peak;
}

/* An iteration is learnt, planned, and followed within the budget. */
static void a_device_is_planned(void **state)
{
    (void)state;
    struct run run;
    struct ebb_parent_result result;
    uint64_t peak = peak_of_training(), budget = peak / 10 * 6;
    struct ebb_parent_options options = options_for(budget);
    struct ebb_join_parent process;
    start(&run, &options);
    assert_true(ebb__join_hello(&(struct ebb_join_introduction){.kind = EBB_HELLO_CUDA}, &process));
    close(process.ledger_descriptor);
    struct part *part = attach("0123\n0000:01:00.0\nNVIDIA H200", 144 * GIB);
    assert_true(part->traces); /* the parent wants to learn */
    training_init(part->training, TRAINING_LAYERS);
    for (unsigned i = 0; i < 100 && part->scripts == 0; i++)
        iterate(part);
    assert_true(part->scripts > 0);
    iterate(part);
    iterate(part);
    assert_true(ebb__follow_is_planned(part->device.follow));
    part->device.peak_bytes = part->device.resident_bytes;
    part->device.missed = 0;
    for (unsigned i = 0; i < 8; i++)
        iterate(part);
    assert_int_equal(part->device.missed, 0);
    assert_true(part->device.peak_bytes <= budget);
    assert_true(part->device.evicted > 0);
    leave(part);
    close(process.channel);
    stop(&run, &result);
    assert_true(result.processes.main_said_hello && result.processes.managing);
    assert_int_equal(result.processes.device_kind, EBB_DEVICE_CUDA);
    assert_int_equal(result.devices.count, 1);
    assert_string_equal(result.devices.items[0].name, "NVIDIA H200");
    assert_string_equal(result.devices.items[0].bus, "0000:01:00.0");
    assert_int_equal(result.devices.items[0].bytes, 144 * GIB);
    assert_int_equal(result.devices.items[0].budget_bytes, budget);
    assert_int_equal(result.budget.bytes, budget);
    assert_int_equal(result.peak.managed_bytes, peak);
    assert_true(result.iterations.planned >= 8);
    assert_true(result.plan.peak_bytes > 0 && result.plan.peak_bytes <= budget);
    assert_string_equal(result.plan.machine.name, "h200");
    assert_string_equal(warnings, "");
}

/* Two devices: each has the whole budget, and its own plans. A third process part on the second one
 * shares that one's ledger. */
static void each_device_has_its_budget(void **state)
{
    (void)state;
    struct run run;
    struct ebb_parent_result result;
    uint64_t budget = peak_of_training() / 10 * 7;
    struct ebb_parent_options options = options_for(budget);
    start(&run, &options);
    struct part *parts[] = {attach("a\n0000:01:00.0\nNVIDIA A100", 40 * GIB),
                            attach("b\n0000:02:00.0\nNVIDIA A100", 40 * GIB)};
    struct part *other = attach("b\n0000:02:00.0\nNVIDIA A100", 40 * GIB);
    for (size_t i = 0; i < 2; i++)
        training_init(parts[i]->training, TRAINING_LAYERS);
    for (unsigned i = 0; i < 100 && (!parts[0]->scripts || !parts[1]->scripts); i++)
        for (size_t k = 0; k < 2; k++)
            iterate(parts[k]);
    for (size_t k = 0; k < 2; k++) {
        iterate(parts[k]);
        iterate(parts[k]);
        assert_true(ebb__follow_is_planned(parts[k]->device.follow));
        assert_true(parts[k]->device.resident_bytes <= budget);
        assert_int_equal(atomic_load(&parts[k]->parent.ledger->held_bytes), parts[k]->held_bytes);
    }
    ebb__ledger_force(other->parent.ledger, other->slot, 5);
    assert_int_equal(atomic_load(&parts[1]->parent.ledger->held_bytes), parts[1]->held_bytes + 5);
    assert_int_equal(atomic_load(&parts[0]->parent.ledger->held_bytes), parts[0]->held_bytes);
    leave(other);
    leave(parts[0]);
    leave(parts[1]);
    stop(&run, &result);
    assert_int_equal(result.devices.count, 2);
    for (size_t k = 0; k < 2; k++)
        assert_int_equal(result.devices.items[k].budget_bytes, budget);
}

/* A budget above the device is the device's memory, and the user is told. */
static void a_budget_fits_its_device(void **state)
{
    (void)state;
    struct run run;
    struct ebb_parent_result result;
    struct ebb_parent_options options = options_for(10 * GIB);
    start(&run, &options);
    struct part *part = attach("c\n\nA small one", 4 * GIB);
    assert_int_equal(atomic_load(&part->parent.ledger->budget_bytes), 4 * GIB);
    leave(part);
    stop(&run, &result);
    assert_non_null(strstr(warnings, "A small one has 4.0 GiB, which is less than the budget"));
}

/* A share of the peak comes into force once the iteration is known. */
static void a_share_of_the_peak_is_learnt(void **state)
{
    (void)state;
    struct run run;
    struct ebb_parent_result result;
    struct ebb_parent_options options = options_for(UINT64_MAX);
    options.budget_fraction = 0.6;
    start(&run, &options);
    struct part *part = attach("0123\n\nNVIDIA L4", 24 * GIB);
    training_init(part->training, TRAINING_LAYERS);
    assert_true(atomic_load(&part->parent.ledger->budget_bytes) == UINT64_MAX);
    for (unsigned i = 0; i < 1000 && part->scripts == 0; i++)
        iterate(part);
    uint64_t peak = peak_of_training(), budget = atomic_load(&part->parent.ledger->budget_bytes);
    assert_true(budget >= peak / 10 * 6 && budget <= peak / 10 * 6 + peak / 100);
    leave(part);
    stop(&run, &result);
    assert_int_equal(result.devices.items[0].budget_bytes, budget);
}

static int command(const char *format, const char *file)
{
    const char *bin = getenv("EBB_BIN_DIR");
    char arguments[3 * PATH_MAX], line[4 * PATH_MAX];
    snprintf(arguments, sizeof arguments, format, file, file);
    snprintf(line, sizeof line, "%s/ebb %s >/dev/null", bin ? bin : "build/dev/bin", arguments);
    return system(line);
}

/* What is recorded is a trace like any other. */
static void the_trace_goes_through_the_commands(void **state)
{
    (void)state;
    struct run run;
    struct ebb_parent_result result;
    struct ebb_parent_options options = options_for(UINT64_MAX);
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/cuda.ebbt", folder);
    options.record = true;
    options.record_path = path;
    start(&run, &options);
    struct part *part = attach("0123\n\nNVIDIA H200", 144 * GIB);
    training_init(part->training, TRAINING_LAYERS);
    for (unsigned i = 0; i < 6; i++)
        iterate(part);
    assert_int_equal(part->scripts, 0);
    leave(part);
    stop(&run, &result);
    assert_true(result.events.taken > 1000);
    assert_int_equal(command("info %s", path), 0);
    assert_int_equal(command("plan %s --budget 60%% --machine h200", path), 0);
#if EBB_LAB
    assert_int_equal(command("compare %s --budgets 60%% --machine h200 --policies ebb,fifo", path),
                     0);
#endif
    assert_int_equal(command("report %s -o %s.html", path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_is_planned),
        cmocka_unit_test(each_device_has_its_budget),
        cmocka_unit_test(a_budget_fits_its_device),
        cmocka_unit_test(a_share_of_the_peak_is_learnt),
        cmocka_unit_test(the_trace_goes_through_the_commands),
    };
    return cmocka_run_group_tests_name("runs with devices", tests, make_folder, remove_folder);
}
