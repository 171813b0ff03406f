#include "summary.h"

#include "options.h"
#include "tune.h"

#include "base/size.h"
#include "base/tuning.h"
#include "device/support.h"
#include "report/lost_json.h"
#include "runtime/protocol.h"

#include <jansson.h>
#include <sys/wait.h>

/* More bytes written per day than a usual drive is rated for (one drive write per day, 1 TB). */
#define WEAR_BYTES_A_DAY 1e12

const char *ebb__summary_when_name(size_t index)
{
    static const char *const names[] = {"never", "auto", "always"};
    return index < sizeof names / sizeof names[0] ? names[index] : NULL;
}

bool ebb__summary_budget_exceeded(const struct ebb_summary *summary)
{
    return summary->figures.budget.over_bytes > 0;
}

static int exit_status(const struct ebb_launch_result *launch)
{
    if (launch->exit_code >= 0)
        return launch->exit_code;
    if (WIFSIGNALED(launch->wait_status))
        return 128 + WTERMSIG(launch->wait_status);
    return WEXITSTATUS(launch->wait_status);
}

/* Bytes written, without the zeros left out. */
static uint64_t written_bytes(const struct ebb_parent_result *figures)
{
    const struct ebb_transfer_figures *transfers = &figures->transfers;
    return transfers->out_bytes > transfers->saved_bytes
               ? transfers->out_bytes - transfers->saved_bytes
               : 0;
}

/* Are the figures of the run those of a device? */
static bool is_on_device(const struct ebb_parent_result *figures)
{
    return figures->processes.device_kind == EBB_DEVICE_CUDA;
}

static void text_budget(const struct ebb_summary *summary, FILE *out)
{
    const struct ebb_parent_result *figures = &summary->figures;
    char a[32], b[32], c[32];
    if (figures->budget.bytes == UINT64_MAX)
        fprintf(out, "ebb: no budget in force; peak of the program %s\n",
                ebb_size_format(figures->peak.unmanaged_bytes, a, sizeof a));
    else
        fprintf(out, "ebb: budget %s%s%s, most resident %s, without Ebb %s\n",
                ebb_size_format(figures->budget.bytes, a, sizeof a),
                !summary->default_budget ? ""
                : is_on_device(figures)  ? " (90 % of the GPU's memory)"
                                         : " (90 % of the free memory)",
                ebb__summary_budget_exceeded(summary) ? " (EXCEEDED)" : "",
                ebb_size_format(figures->peak.resident_bytes, b, sizeof b),
                ebb_size_format(figures->peak.unmanaged_bytes, c, sizeof c));
    if (ebb__summary_budget_exceeded(summary) && figures->budget.smallest_feasible_bytes)
        fprintf(out, "ebb: smallest feasible budget: %s\n",
                ebb_size_format(figures->budget.smallest_feasible_bytes, a, sizeof a));
    if (figures->budget.from_iteration > 0)
        fprintf(out, "ebb: the budget is in force from iteration %lld; before: %s\n",
                (long long)figures->budget.from_iteration,
                ebb_size_format(figures->peak.learning_bytes, a, sizeof a));
}

static void text_iterations(const struct ebb_summary *summary, FILE *out)
{
    const struct ebb_parent_result *figures = &summary->figures;
    char a[32];
    if (figures->iterations.planned)
        fprintf(out, "ebb: %llu iterations, planned from %lld%s, median %s; policy %s\n",
                (unsigned long long)figures->iterations.count,
                (long long)figures->iterations.planned_from,
                figures->cache == EBB_CACHE_USED ? " (from the plan cache)" : "",
                ebb_duration_format(figures->iterations.median_ns, a, sizeof a), summary->policy);
    else if (figures->iterations.median_ns)
        fprintf(out, "ebb: %llu iterations, median %s; policy %s, which plans nothing\n",
                (unsigned long long)figures->iterations.count,
                ebb_duration_format(figures->iterations.median_ns, a, sizeof a), summary->policy);
    else if (figures->transfers.out_bytes || figures->transfers.in_bytes)
        fprintf(out, "ebb: no repeating iteration was planned: blocks were evicted reactively\n");
    else
        fprintf(out, "ebb: no repeating iteration was planned: nothing had to be evicted\n");
}

#define DEVICES_TOLD 3u /* the summary is short */

/* The figures above are those of one of them. */
static void text_devices(const struct ebb_parent_result *figures, FILE *out)
{
    char a[32], b[32], c[32];
    for (size_t i = 0; i < figures->devices.count && i < DEVICES_TOLD; i++) {
        const struct ebb_device_figures *device = &figures->devices.items[i];
        fprintf(out, "ebb: device cuda: %s%s%s, most on it %s of %s%s\n", device->name,
                device->bus[0] ? " at " : "", device->bus,
                ebb_size_format(device->peak_bytes, a, sizeof a),
                ebb_size_format(device->bytes, b, sizeof b),
                device->over_bytes ? " (EXCEEDED)" : "");
    }
    if (figures->devices.count > DEVICES_TOLD)
        fprintf(out, "ebb: and %zu more devices\n", figures->devices.count - DEVICES_TOLD);
    const struct ebb_host_figures *host = &figures->host;
    if (!host->managing)
        return;
    if (host->budget_bytes == UINT64_MAX)
        snprintf(b, sizeof b, "none in force");
    else
        ebb_size_format(host->budget_bytes, b, sizeof b);
    fprintf(out,
            "ebb: host memory, where no device is used: budget %s, most resident %s%s, store: most "
            "%s\n",
            b, ebb_size_format(host->peak_bytes, a, sizeof a),
            host->over_bytes ? " (EXCEEDED)" : "",
            ebb_size_format(host->store_peak_bytes, c, sizeof c));
}

static void text_transfers(const struct ebb_summary *summary, FILE *out)
{
    const struct ebb_parent_result *figures = &summary->figures;
    char a[32], b[32], c[32], d[32];
    fprintf(
        out, "ebb: wrote back %s, fetched %s; stalled %s; %llu demand faults, %llu mismatches\n",
        ebb_size_format(figures->transfers.out_bytes, a, sizeof a),
        ebb_size_format(figures->transfers.in_bytes, b, sizeof b),
        ebb_duration_format(figures->transfers.stall_ns, c, sizeof c),
        (unsigned long long)figures->faults.demand, (unsigned long long)figures->faults.mismatches);
    if (figures->devices.count) {
        text_devices(figures, out);
        uint64_t away_bytes = figures->store.peak_bytes - figures->host.store_peak_bytes;
        fprintf(out, "ebb: blocks in the host's memory: most %s; peak RSS %s\n",
                ebb_size_format(away_bytes, a, sizeof a),
                ebb_size_format(summary->launch->peak_rss_bytes, d, sizeof d));
        return;
    }
    fprintf(out, "ebb: store: most %s, written %s; peak RSS %s; device %s\n",
            ebb_size_format(figures->store.peak_bytes, a, sizeof a),
            ebb_size_format(written_bytes(figures), b, sizeof b),
            ebb_size_format(summary->launch->peak_rss_bytes, d, sizeof d),
            ebb__device_name((enum ebb_device_kind)figures->processes.device_kind));
}

void ebb__summary_text(const struct ebb_summary *summary, FILE *out)
{
    const struct ebb_parent_result *figures = &summary->figures;
    char a[32];
    if (summary->is_told)
        return;
    if (!figures->processes.managing) {
        fprintf(out, "ebb: no block was large enough to manage; peak RSS %s\n",
                ebb_size_format(summary->launch->peak_rss_bytes, a, sizeof a));
        return;
    }
    text_budget(summary, out);
    text_iterations(summary, out);
    text_transfers(summary, out);
    if (summary->setting_count) {
        fprintf(out, "ebb: set for its framework:");
        for (size_t i = 0; i < summary->setting_count; i++)
            fprintf(out, " %s=%s", summary->settings[i].name, summary->settings[i].value);
        fprintf(out, " (--no-env sets nothing)\n");
    }
    struct ebb_message welcome;
    if (ebb__tuning_write(welcome.text, sizeof welcome.text) && *welcome.text)
        fprintf(out, "ebb: other tuning than the table's: %s\n", welcome.text);
    if (figures->plan.timed_out)
        fprintf(
            out,
            "ebb: a search ended by the time, not by its effort: this plan is not everybody's\n");
    double seconds = (double)summary->launch->elapsed_ns / 1e9;
    double a_day = seconds > 0 ? (double)written_bytes(figures) / seconds * 86400 : 0;
    if (a_day > WEAR_BYTES_A_DAY && figures->devices.count == 0)
        fprintf(out, "ebb: at this rate %s a day are written: an SSD may wear out\n",
                ebb_size_format((uint64_t)a_day, a, sizeof a));
}

static void put(json_t *object, const char *key, uint64_t value)
{
    json_object_set_new(object, key, json_integer((json_int_t)value));
}

static void put_iteration(json_t *object, const char *key, int64_t number)
{
    json_object_set_new(object, key, number < 0 ? json_null() : json_integer(number));
}

/* What the program needs, and what was planned for it. */
static void put_plan(json_t *object, const struct ebb_summary *summary)
{
    const struct ebb_parent_result *figures = &summary->figures;
    if (figures->budget.bytes == UINT64_MAX)
        json_object_set_new(object, "budget_bytes", json_null());
    else
        put(object, "budget_bytes", figures->budget.bytes);
    put(object, "peak_resident_bytes", figures->peak.resident_bytes);
    put(object, "unmanaged_peak_bytes", figures->peak.unmanaged_bytes);
    put(object, "managed_peak_bytes", figures->peak.managed_bytes);
    put(object, "iterations", figures->iterations.count);
    put(object, "period_events", figures->iterations.period_events);
    put_iteration(object, "planned_from_iteration", figures->iterations.planned_from);
    json_object_set_new(object, "policy", json_string(summary->policy));
    put(object, "predicted_peak_bytes", figures->plan.peak_bytes);
    put(object, "predicted_stall_ns_per_iteration", figures->plan.stall_ns);
    put(object, "predicted_iteration_ns", figures->plan.iteration_ns);
    put(object, "predicted_overhead_ns", figures->plan.overhead_ns);
    put(object, "learnt_iteration_ns", figures->plan.learnt_iteration_ns);
}

static void put_transfers(json_t *object, const struct ebb_parent_result *figures)
{
    put(object, "moved_out_bytes", figures->transfers.out_bytes);
    put(object, "compressed_saved_bytes", figures->transfers.saved_bytes);
    put(object, "moved_in_bytes", figures->transfers.in_bytes);
    put(object, "evicted_clean_bytes", figures->transfers.evicted_clean_bytes);
    put(object, "stall_ns", figures->transfers.stall_ns);
    put(object, "demand_faults", figures->faults.demand);
    put(object, "demand_faults_planned_median", figures->iterations.demand_faults_median);
    put(object, "planned_iterations", figures->iterations.planned);
}

static void put_budget(json_t *object, const struct ebb_summary *summary)
{
    const struct ebb_parent_result *figures = &summary->figures;
    put_iteration(object, "budget_from_iteration", figures->budget.from_iteration);
    put(object, "learning_peak_bytes", figures->peak.learning_bytes);
    json_object_set_new(object, "budget_exceeded",
                        json_boolean(ebb__summary_budget_exceeded(summary)));
    put(object, "over_budget_bytes", figures->budget.over_bytes);
    put(object, "smallest_feasible_bytes", figures->budget.smallest_feasible_bytes);
    put(object, "unmanaged_bytes", figures->small.unmanaged_bytes);
    put(object, "slab_peak_bytes", figures->small.slab_peak_bytes);
    put(object, "slab_used_bytes", figures->small.slab_used_bytes);
    put(object, "store_peak_bytes", figures->store.peak_bytes);
    put(object, "store_error", (uint64_t)figures->store.error);
}

/* Counts of the runtimes, and of the parent's plans. */
static void put_counts(json_t *object, const struct ebb_parent_result *figures)
{
    put(object, "mismatches", figures->faults.mismatches);
    put(object, "observed_faults", figures->faults.observed);
    put(object, "observed_ns", figures->faults.observed_ns);
    put(object, "reactive_evictions", figures->transfers.reactive_evictions);
    put(object, "busy_blocks", figures->transfers.busy_blocks);
    put(object, "away_allocations", figures->transfers.away_allocations);
    put(object, "placement_load_bytes", figures->placement.load_bytes);
    put(object, "placement_peak_bytes", figures->placement.peak_bytes);
    put(object, "placement_blocks", figures->placement.blocks);
    put(object, "placement_misses", figures->placement.misses);
    put(object, "page_moves", figures->transfers.page_moves);
    put(object, "plans", figures->plan.count);
    put(object, "replans", figures->plan.replans);
    json_object_set_new(object, "plan_cache", json_string(ebb__cache_use_name(figures->cache)));
    json_object_set_new(object, "plan_cache_dropped",
                        figures->cache_dropped ? json_string(figures->cache_dropped) : json_null());
    put(object, "events", figures->events.taken);
    put(object, "lost_events", figures->events.lost);
}

static void put_rates(json_t *object, const struct ebb_parent_result *figures)
{
    json_object_set_new(object, "out_bps", json_integer((json_int_t)figures->lanes.out_bps));
    json_object_set_new(object, "in_bps", json_integer((json_int_t)figures->lanes.in_bps));
    json_object_set_new(object, "machine",
                        figures->plan.iteration_ns ? ebb__machine_to_json(&figures->plan.machine)
                                                   : json_object());
    put(object, "measured_out_bps", (uint64_t)figures->lanes.measured_out_bps);
    put(object, "measured_in_bps", (uint64_t)figures->lanes.measured_in_bps);
    json_t *iteration = json_object();
    put(iteration, "median", figures->iterations.median_ns);
    put(iteration, "min", figures->iterations.min_ns);
    put(iteration, "max", figures->iterations.max_ns);
    json_object_set_new(object, "iteration_ns", iteration);
    json_object_set_new(object, "lost", ebb__lost_to_json(&figures->iterations.lost));
}

static json_t *devices_json(const struct ebb_parent_result *figures)
{
    json_t *devices = json_array();
    for (size_t i = 0; i < figures->devices.count; i++) {
        const struct ebb_device_figures *device = &figures->devices.items[i];
        json_t *object = json_object();
        json_object_set_new(object, "name", json_string(device->name));
        json_object_set_new(object, "bus", json_string(device->bus));
        put(object, "bytes", device->bytes);
        put(object, "budget_bytes", device->budget_bytes == UINT64_MAX ? 0 : device->budget_bytes);
        put(object, "peak_resident_bytes", device->peak_bytes);
        put(object, "over_bytes", device->over_bytes);
        json_array_append_new(devices, object);
    }
    return devices;
}

static json_t *host_json(const struct ebb_host_figures *host)
{
    json_t *object = json_object();
    put(object, "budget_bytes", host->budget_bytes == UINT64_MAX ? 0 : host->budget_bytes);
    put(object, "peak_resident_bytes", host->peak_bytes);
    put(object, "over_bytes", host->over_bytes);
    put(object, "store_peak_bytes", host->store_peak_bytes);
    return object;
}

void ebb__summary_json(const struct ebb_summary *summary, FILE *out)
{
    const struct ebb_parent_result *figures = &summary->figures;
    json_t *object = json_object();
    json_object_set_new(object, "schema", json_string("ebb.run/2"));
    put(object, "exit_status", (uint64_t)exit_status(summary->launch));
    put(object, "elapsed_ns", summary->launch->elapsed_ns);
    put_plan(object, summary);
    put_transfers(object, figures);
    put_budget(object, summary);
    put_counts(object, figures);
    put(object, "peak_rss_bytes", summary->launch->peak_rss_bytes);
    put_rates(object, figures);
    put(object, "processes", figures->processes.count);
    json_object_set_new(
        object, "device",
        json_string(ebb__device_name((enum ebb_device_kind)figures->processes.device_kind)));
    if (figures->devices.count)
        json_object_set_new(object, "devices", devices_json(figures));
    if (figures->devices.count && figures->host.managing)
        json_object_set_new(object, "host", host_json(&figures->host));
    json_t *environment = json_object();
    for (size_t i = 0; i < summary->setting_count; i++)
        json_object_set_new(environment, summary->settings[i].name,
                            json_string(summary->settings[i].value));
    json_object_set_new(object, "environment", environment);
    json_object_set_new(object, "plan_timed_out", json_boolean(figures->plan.timed_out));
    json_object_set_new(object, "tuning", ebb__tune_json());
    json_dumpf(object, out, JSON_INDENT(2));
    fputc('\n', out);
    json_decref(object);
}
