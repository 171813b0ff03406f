#include "summary.h"

#include "options.h"
#include "tune.h"

#include "base/size.h"
#include "base/tuning.h"
#include "device/support.h"
#include "runtime/protocol.h"

#include <jansson.h>
#include <sys/wait.h>

/* Writing this much a day is more than a usual drive is rated for (one drive write a day, 1 TB). */
#define WEAR_BYTES_A_DAY 1e12

bool ebb__summary_when(const char *text, enum ebb_summary_when *when)
{
    static const char *const names[] = {"never", "auto", "always"};
    int found = ebb__option_word(text, names, 3);
    if (found >= 0)
        *when = (enum ebb_summary_when)found;
    return found >= 0;
}

bool ebb__summary_budget_exceeded(const struct ebb_summary *summary)
{
    return summary->figures.over_budget_bytes > 0;
}

static int exit_status(const struct ebb_launch_result *launch)
{
    if (launch->exit_code >= 0)
        return launch->exit_code;
    if (WIFSIGNALED(launch->wait_status))
        return 128 + WTERMSIG(launch->wait_status);
    return WEXITSTATUS(launch->wait_status);
}

void ebb__summary_text(const struct ebb_summary *summary, FILE *out)
{
    const struct ebb_parent_result *figures = &summary->figures;
    char a[32], b[32], c[32], d[32];
    if (!figures->managing) {
        fprintf(out, "ebb: no block was large enough to manage; peak RSS %s\n",
                ebb_size_format(summary->launch->peak_rss_bytes, a, sizeof a));
        return;
    }
    if (figures->budget_bytes == UINT64_MAX)
        fprintf(out, "ebb: no budget in force; peak of the program %s\n",
                ebb_size_format(figures->unmanaged_peak_bytes, a, sizeof a));
    else
        fprintf(out, "ebb: budget %s%s%s, most resident %s, without Ebb %s\n",
                ebb_size_format(figures->budget_bytes, a, sizeof a),
                summary->default_budget ? " (90 % of the free memory)" : "",
                ebb__summary_budget_exceeded(summary) ? " (EXCEEDED)" : "",
                ebb_size_format(figures->peak_resident_bytes, b, sizeof b),
                ebb_size_format(figures->unmanaged_peak_bytes, c, sizeof c));
    if (ebb__summary_budget_exceeded(summary) && figures->smallest_feasible_bytes)
        fprintf(out, "ebb: smallest feasible budget: %s\n",
                ebb_size_format(figures->smallest_feasible_bytes, a, sizeof a));
    if (figures->budget_from_iteration > 0)
        fprintf(out, "ebb: the budget is in force from iteration %lld; before: %s\n",
                (long long)figures->budget_from_iteration,
                ebb_size_format(figures->learning_peak_bytes, a, sizeof a));
    if (figures->planned_iterations)
        fprintf(out, "ebb: %llu iterations, planned from %lld%s, median %s; policy %s\n",
                (unsigned long long)figures->iterations, (long long)figures->planned_from_iteration,
                figures->cache == EBB_CACHE_USED ? " (from the plan cache)" : "",
                ebb_duration_format(figures->iteration_median_ns, a, sizeof a), summary->policy);
    else if (figures->iteration_median_ns)
        fprintf(out, "ebb: %llu iterations, median %s; policy %s, which plans nothing\n",
                (unsigned long long)figures->iterations,
                ebb_duration_format(figures->iteration_median_ns, a, sizeof a), summary->policy);
    else
        fprintf(out, "ebb: no repeating iteration was planned: reactive\n");
    fprintf(out, "ebb: moved %s out, %s in; waited %s; %llu demand faults, %llu mismatches\n",
            ebb_size_format(figures->moved_out_bytes, a, sizeof a),
            ebb_size_format(figures->moved_in_bytes, b, sizeof b),
            ebb_duration_format(figures->stall_ns, c, sizeof c),
            (unsigned long long)figures->demand_faults, (unsigned long long)figures->mismatches);
    uint64_t written_bytes = figures->moved_out_bytes > figures->saved_bytes
                                 ? figures->moved_out_bytes - figures->saved_bytes
                                 : 0;
    fprintf(out, "ebb: store: most %s, written %s; peak RSS %s; device %s\n",
            ebb_size_format(figures->store_peak_bytes, a, sizeof a),
            ebb_size_format(written_bytes, b, sizeof b),
            ebb_size_format(summary->launch->peak_rss_bytes, d, sizeof d),
            ebb__device_name((enum ebb_device_kind)figures->device_kind));
    if (summary->setting_count) {
        fprintf(out, "ebb: set for its framework:");
        for (size_t i = 0; i < summary->setting_count; i++)
            fprintf(out, " %s=%s", summary->settings[i].name, summary->settings[i].value);
        fprintf(out, " (--no-env leaves it)\n");
    }
    struct ebb_message welcome;
    if (ebb__tuning_write(welcome.text, sizeof welcome.text) && *welcome.text)
        fprintf(out, "ebb: other tuning than the table's: %s\n", welcome.text);
    if (figures->plan_timed_out)
        fprintf(
            out,
            "ebb: a search ended by the time, not by its effort: this plan is not everybody's\n");
    double seconds = (double)summary->launch->elapsed_ns / 1e9;
    double a_day = seconds > 0 ? (double)written_bytes / seconds * 86400 : 0;
    if (a_day > WEAR_BYTES_A_DAY)
        fprintf(out, "ebb: at this rate %s a day are written: an SSD may wear out\n",
                ebb_size_format((uint64_t)a_day, a, sizeof a));
}

static void put(json_t *object, const char *key, uint64_t value)
{
    json_object_set_new(object, key, json_integer((json_int_t)value));
}

void ebb__summary_json(const struct ebb_summary *summary, FILE *out)
{
    const struct ebb_parent_result *figures = &summary->figures;
    json_t *object = json_object();
    json_object_set_new(object, "schema", json_string("ebb.run/1"));
    put(object, "exit_status", (uint64_t)exit_status(summary->launch));
    put(object, "elapsed_ns", summary->launch->elapsed_ns);
    if (figures->budget_bytes == UINT64_MAX)
        json_object_set_new(object, "budget_bytes", json_null());
    else
        put(object, "budget_bytes", figures->budget_bytes);
    put(object, "peak_resident_bytes", figures->peak_resident_bytes);
    put(object, "unmanaged_peak_bytes", figures->unmanaged_peak_bytes);
    put(object, "managed_peak_bytes", figures->managed_peak_bytes);
    put(object, "iterations", figures->iterations);
    put(object, "period_events", figures->period_events);
    json_object_set_new(object, "planned_from_iteration",
                        figures->planned_from_iteration < 0
                            ? json_null()
                            : json_integer(figures->planned_from_iteration));
    json_object_set_new(object, "policy", json_string(summary->policy));
    put(object, "predicted_peak_bytes", figures->predicted_peak_bytes);
    put(object, "predicted_stall_ns_per_iteration", figures->predicted_stall_ns);
    put(object, "predicted_iteration_ns", figures->predicted_iteration_ns);
    put(object, "moved_out_bytes", figures->moved_out_bytes);
    put(object, "compressed_saved_bytes", figures->saved_bytes);
    put(object, "moved_in_bytes", figures->moved_in_bytes);
    put(object, "dropped_clean_bytes", figures->dropped_bytes);
    put(object, "stall_ns", figures->stall_ns);
    put(object, "demand_faults", figures->demand_faults);
    put(object, "demand_faults_planned_median", figures->demand_faults_planned_median);
    put(object, "planned_iterations", figures->planned_iterations);
    json_object_set_new(object, "budget_from_iteration",
                        figures->budget_from_iteration < 0
                            ? json_null()
                            : json_integer(figures->budget_from_iteration));
    put(object, "learning_peak_bytes", figures->learning_peak_bytes);
    json_object_set_new(object, "budget_exceeded",
                        json_boolean(ebb__summary_budget_exceeded(summary)));
    put(object, "over_budget_bytes", figures->over_budget_bytes);
    put(object, "smallest_feasible_bytes", figures->smallest_feasible_bytes);
    put(object, "unmanaged_bytes", figures->unmanaged_bytes);
    put(object, "slab_peak_bytes", figures->slab_peak_bytes);
    put(object, "slab_used_bytes", figures->slab_used_bytes);
    put(object, "store_peak_bytes", figures->store_peak_bytes);
    put(object, "store_error", (uint64_t)figures->store_error);
    put(object, "mismatches", figures->mismatches);
    put(object, "reactive_evictions", figures->reactive_evictions);
    put(object, "busy_blocks", figures->busy_blocks);
    put(object, "placement_load_bytes", figures->placement_load_bytes);
    put(object, "placement_peak_bytes", figures->placement_peak_bytes);
    put(object, "placement_blocks", figures->placement_blocks);
    put(object, "placement_misses", figures->placement_misses);
    put(object, "page_moves", figures->page_moves);
    put(object, "plans", figures->plans);
    put(object, "replans", figures->replans);
    json_object_set_new(object, "plan_cache", json_string(ebb__cache_use_name(figures->cache)));
    put(object, "events", figures->events);
    put(object, "lost_events", figures->lost_events);
    put(object, "peak_rss_bytes", summary->launch->peak_rss_bytes);
    json_object_set_new(object, "out_bps", json_integer((json_int_t)figures->out_bps));
    json_object_set_new(object, "in_bps", json_integer((json_int_t)figures->in_bps));
    put(object, "measured_out_bps", (uint64_t)figures->measured_out_bps);
    put(object, "measured_in_bps", (uint64_t)figures->measured_in_bps);
    json_t *iteration = json_object();
    put(iteration, "median", figures->iteration_median_ns);
    put(iteration, "min", figures->iteration_min_ns);
    put(iteration, "max", figures->iteration_max_ns);
    json_object_set_new(object, "iteration_ns", iteration);
    put(object, "processes", figures->processes);
    json_object_set_new(object, "device",
                        json_string(ebb__device_name((enum ebb_device_kind)figures->device_kind)));
    json_t *environment = json_object();
    for (size_t i = 0; i < summary->setting_count; i++)
        json_object_set_new(environment, summary->settings[i].name,
                            json_string(summary->settings[i].value));
    json_object_set_new(object, "environment", environment);
    json_object_set_new(object, "plan_timed_out", json_boolean(figures->plan_timed_out));
    json_object_set_new(object, "tuning", ebb__tune_json());
    json_dumpf(object, out, JSON_INDENT(2));
    fputc('\n', out);
    fclose(out);
    json_decref(object);
}
