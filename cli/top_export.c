/* What `ebb top` gives to scripts and to Prometheus. */
#include "top.h"

#include "device/support.h"

#include <inttypes.h>

static json_t *integer(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static json_t *rates_json(const struct ebb_top_rates *rates)
{
    if (!rates->known)
        return json_null();
    return json_pack("{s:o, s:o, s:f, s:f, s:f}", "out_bps", integer((uint64_t)rates->out_bps),
                     "in_bps", integer((uint64_t)rates->in_bps), "out_busy", rates->out_busy,
                     "in_busy", rates->in_busy, "stall", rates->stall);
}

static json_t *run_json(const struct ebb_top_run *shown)
{
    const struct ebb_status_packet *run = &shown->now;
    const struct ebb_status_figures *figures = &run->figures;
    json_t *object = json_pack(
        "{s:i, s:i, s:o, s:s, s:s, s:s, s:o, s:o, s:b}", "process_id", run->process_id,
        "main_process_id", run->main_process_id, "command", json_null(), "mode", run->mode,
        "policy", run->policy, "device", ebb__device_name((enum ebb_device_kind)run->device_kind),
        "elapsed_ns", integer(run->now_ns - run->started_ns), "budget_bytes",
        run->budget_bytes == UINT64_MAX ? json_null() : integer(run->budget_bytes), "in_force",
        (int)run->in_force);
    json_object_set_new(object, "command", json_string(run->command));
    const struct {
        const char *name;
        uint64_t value;
    } rows[] = {
        {"processes", run->processes},
        {"resident_bytes", figures->held_bytes},
        {"peak_resident_bytes", figures->peak_bytes},
        {"over_bytes", figures->over_bytes},
        {"moved_out_bytes", figures->out_bytes},
        {"moved_in_bytes", figures->in_bytes},
        {"stall_ns", figures->stall_ns},
        {"demand_faults", figures->demand_faults},
        {"store_peak_bytes", figures->store_peak_bytes},
        {"iterations", figures->iterations},
        {"planned_iterations", figures->planned},
        {"last_iteration_ns", figures->last_iteration_ns},
        {"plans", figures->plans},
        {"predicted_stall_ns_per_iteration", figures->predicted_stall_ns},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        json_object_set_new(object, rows[i].name, integer(rows[i].value));
    json_object_set_new(object, "rates", rates_json(&shown->rates));
    return object;
}

json_t *ebb__top_json(const struct ebb_top *top)
{
    json_t *runs = json_array();
    for (size_t i = 0; i < top->count; i++)
        json_array_append_new(runs, run_json(&top->runs[i]));
    return json_pack("{s:s, s:o, s:o}", "schema", "ebb.top/1", "runs", runs, "hidden_runs",
                     integer(top->hidden));
}

/* ---- Prometheus ------------------------------------------------------------------------------ */

struct metric {
    const char *name, *kind, *help;
    double (*value)(const struct ebb_status_packet *run);
};

#define VALUE(name, expression)                                                                    \
    static double name(const struct ebb_status_packet *run)                                        \
    {                                                                                              \
        return (double)(expression);                                                               \
    }
VALUE(budget, run->budget_bytes)
VALUE(resident, run->figures.held_bytes)
VALUE(peak, run->figures.peak_bytes)
VALUE(exceeded, run->figures.over_bytes)
VALUE(moved_out, run->figures.out_bytes)
VALUE(moved_in, run->figures.in_bytes)
VALUE(stall, (double)run->figures.stall_ns / 1e9)
VALUE(faults, run->figures.demand_faults)
VALUE(iterations, run->figures.iterations)
VALUE(planned, run->figures.planned)
VALUE(last, (double)run->figures.last_iteration_ns / 1e9)
VALUE(processes, run->processes)

static const struct metric metrics[] = {
    {"ebb_budget_bytes", "gauge", "Limit on resident bytes; +Inf: none.", budget},
    {"ebb_resident_bytes", "gauge", "Bytes in fast memory.", resident},
    {"ebb_peak_resident_bytes", "gauge", "Most bytes in fast memory.", peak},
    {"ebb_budget_exceeded_bytes", "gauge", "Largest excess over the budget.", exceeded},
    {"ebb_moved_out_bytes_total", "counter", "Bytes written to the store.", moved_out},
    {"ebb_moved_in_bytes_total", "counter", "Bytes read from the store.", moved_in},
    {"ebb_stall_seconds_total", "counter", "Time that threads waited for transfers.", stall},
    {"ebb_demand_faults_total", "counter", "Accesses to blocks that were absent.", faults},
    {"ebb_iterations_total", "counter", "Iterations of the program.", iterations},
    {"ebb_planned_iterations_total", "counter", "Iterations under a plan.", planned},
    {"ebb_last_iteration_seconds", "gauge", "Time of the newest whole iteration.", last},
    {"ebb_processes", "gauge", "Processes of the run.", processes},
};

/* A label's value: backslash, quote and newline are escaped. Other bytes below 32 are not text. */
static void put_label(const char *text, FILE *out)
{
    for (; *text; text++) {
        if (*text == '\\' || *text == '"')
            fprintf(out, "\\%c", *text);
        else if (*text == '\n')
            fputs("\\n", out);
        else
            putc((unsigned char)*text < 32 ? '?' : *text, out);
    }
}

void ebb__top_prometheus(const struct ebb_top *top, FILE *out)
{
    for (size_t i = 0; i < sizeof metrics / sizeof metrics[0]; i++) {
        const struct metric *metric = &metrics[i];
        fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", metric->name, metric->help, metric->name,
                metric->kind);
        for (size_t k = 0; k < top->count; k++) {
            const struct ebb_status_packet *run = &top->runs[k].now;
            fprintf(out, "%s{pid=\"%d\",command=\"", metric->name, run->process_id);
            put_label(run->command, out);
            if (metric->value == budget && run->budget_bytes == UINT64_MAX)
                fputs("\"} +Inf\n", out);
            else
                fprintf(out, "\"} %.17g\n", metric->value(run));
        }
    }
}
