#include "train/report.h"

#include "train/base/fail.h"
#include "train/base/size.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int by_seconds(const void *a, const void *b)
{
    double first = *(const double *)a, second = *(const double *)b;
    return (first > second) - (first < second);
}

/* The median: the first iterations of a process are slower than the others. */
static double median_seconds(const struct ebb_train_figures *figures)
{
    uint32_t count = figures->seconds.count;
    double *sorted = count ? malloc(count * sizeof *sorted) : NULL;
    if (!sorted)
        return 0;
    memcpy(sorted, figures->seconds.items, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, by_seconds);
    double median = (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
    free(sorted);
    return median;
}

void ebb__report_progress(const struct ebb_train_figures *figures, uint64_t iterations)
{
    char resident[32];
    uint32_t newest = figures->losses.count - 1;
    double seconds = figures->seconds.items[newest];
    bool is_terminal = isatty(STDERR_FILENO) == 1;
    uint64_t resident_bytes =
        figures->has_tiers ? figures->tiers.fast_bytes : figures->statistics.resident_bytes;
    fprintf(stderr, "%s%llu/%llu  loss %.6f  %.1f images/s  %s resident%s", is_terminal ? "\r" : "",
            (unsigned long long)(figures->first_iteration + newest + 1),
            (unsigned long long)iterations, (double)figures->losses.items[newest],
            seconds > 0 ? figures->batch / seconds : 0,
            ebb__train_size_format(resident_bytes, resident, sizeof resident),
            is_terminal ? "\033[K" : "\n");
}

void ebb__report_progress_end(void)
{
    if (isatty(STDERR_FILENO) == 1)
        fputc('\n', stderr);
}

static void text_of_tiers(const struct ebb_tier_program_figures *tiers)
{
    char a[32], b[32], c[32];
    if (!tiers->planned_iterations) {
        printf("nothing was planned: too few iterations\n");
        return;
    }
    printf("%s fast of %s, budget %s; sampled, and as planned in %llu of %llu steps\n",
           ebb__train_size_format(tiers->fast_bytes, a, sizeof a),
           ebb__train_size_format(tiers->peak_bytes, b, sizeof b),
           ebb__train_size_format(tiers->budget_bytes, c, sizeof c),
           (unsigned long long)(tiers->sampled_operations - tiers->off_operations),
           (unsigned long long)tiers->sampled_operations);
    printf("an iteration copies %s out and %s in; predicted %.4f s on %s, measured %.4f s\n",
           ebb__train_size_format(tiers->moved_out_bytes, a, sizeof a),
           ebb__train_size_format(tiers->moved_in_bytes, b, sizeof b),
           tiers->predicted_iteration_ns / 1e9, tiers->machine, tiers->iteration_ns / 1e9);
    if (*tiers->note)
        printf("%s\n", tiers->note);
}

static void text_of_statistics(const struct ebb_train_figures *figures)
{
    char a[32], b[32], c[32];
    const struct ebb_statistics *statistics = &figures->statistics;
    printf("most resident %s; needed without Ebb %s, with static buffers %s\n",
           ebb__train_size_format(statistics->peak_resident_bytes, a, sizeof a),
           ebb__train_size_format(figures->live_peak_bytes, b, sizeof b),
           ebb__train_size_format(figures->static_peak_bytes, c, sizeof c));
    printf("wrote back %s, fetched %s, stalled %.3f s\n",
           ebb__train_size_format(statistics->moved_out_bytes, a, sizeof a),
           ebb__train_size_format(statistics->moved_in_bytes, b, sizeof b),
           (double)statistics->stall_ns / 1e9);
}

void ebb__report_text(const struct ebb_train_figures *figures)
{
    printf("%s: %llu parameters, policy %s\n", figures->net,
           (unsigned long long)figures->parameters, figures->policy);
    if (figures->losses.count)
        printf("%u iterations, %.4f s each; last loss %.6f\n", figures->losses.count,
               median_seconds(figures), (double)figures->losses.items[figures->losses.count - 1]);
    if (figures->has_tiers)
        text_of_tiers(&figures->tiers);
    else
        text_of_statistics(figures);
    if (figures->test_accuracy >= 0)
        printf("test accuracy %.2f %%\n", 100 * figures->test_accuracy);
}

static void put(json_t *object, const char *key, uint64_t value)
{
    json_object_set_new(object, key, json_integer((json_int_t)value));
}

/* JSON has no infinity. A loss that is none is null. */
static json_t *real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static void put_ns(json_t *object, const char *key, double ns)
{
    put(object, key, (uint64_t)(ns + 0.5));
}

static json_t *tiers_to_json(const struct ebb_tier_program_figures *tiers)
{
    json_t *object = json_object();
    json_object_set_new(object, "machine", json_string(tiers->machine));
    json_object_set_new(object, "note", json_string(tiers->note));
    put(object, "peak_bytes", tiers->peak_bytes);
    put(object, "budget_bytes", tiers->budget_bytes);
    put(object, "plan_ns", tiers->plan_ns);
    put(object, "planned_iterations", tiers->planned_iterations);
    put(object, "timed_iterations", tiers->timed_iterations);
    put_ns(object, "predicted_iteration_ns", tiers->predicted_iteration_ns);
    put_ns(object, "iteration_ns", tiers->iteration_ns);
    put_ns(object, "predicted_rest_ns", tiers->predicted_rest_ns);
    put_ns(object, "rest_ns", tiers->rest_ns);
    put_ns(object, "predicted_fast_ns", tiers->predicted_fast_ns);
    put_ns(object, "predicted_copy_ns", tiers->predicted_copy_ns);
    put_ns(object, "copy_ns", tiers->copy_ns);
    put(object, "copies", tiers->copies);
    put(object, "moved_out_bytes", tiers->moved_out_bytes);
    put(object, "moved_in_bytes", tiers->moved_in_bytes);
    put(object, "planned_fast_bytes", tiers->planned_fast_bytes);
    put(object, "planned_slow_bytes", tiers->planned_slow_bytes);
    put(object, "fast_bytes", tiers->fast_bytes);
    put(object, "slow_bytes", tiers->slow_bytes);
    put(object, "sampled_operations", tiers->sampled_operations);
    put(object, "same_operations", tiers->same_operations);
    put(object, "off_operations", tiers->off_operations);
    return object;
}

static void put_statistics(json_t *object, const struct ebb_statistics *statistics)
{
    put(object, "budget_bytes", statistics->budget_bytes);
    put(object, "peak_resident_bytes", statistics->peak_resident_bytes);
    put(object, "moved_out_bytes", statistics->moved_out_bytes);
    put(object, "moved_in_bytes", statistics->moved_in_bytes);
    put(object, "stall_ns", statistics->stall_ns);
    put(object, "planned_iterations", statistics->planned_iterations);
    put(object, "smallest_feasible_bytes", statistics->smallest_feasible_bytes);
}

static json_t *to_json(const struct ebb_train_figures *figures)
{
    json_t *object = json_object();
    json_object_set_new(object, "schema", json_string("ebb.train/1"));
    json_object_set_new(object, "net", json_string(figures->net));
    json_object_set_new(object, "policy", json_string(figures->policy));
    put(object, "batch", figures->batch);
    put(object, "parameters", figures->parameters);
    put(object, "first_iteration", figures->first_iteration);
    put(object, "iterations", figures->losses.count);
    put(object, "static_peak_bytes", figures->static_peak_bytes);
    put(object, "live_peak_bytes", figures->live_peak_bytes);
    if (figures->has_tiers)
        json_object_set_new(object, "tiers", tiers_to_json(&figures->tiers));
    else
        put_statistics(object, &figures->statistics);
    json_object_set_new(object, "seconds_an_iteration", real(median_seconds(figures)));
    json_t *losses = json_array(), *seconds = json_array();
    for (uint32_t i = 0; i < figures->losses.count; i++) {
        json_array_append_new(losses, real((double)figures->losses.items[i]));
        json_array_append_new(seconds, real(figures->seconds.items[i]));
    }
    json_object_set_new(object, "losses", losses);
    json_object_set_new(object, "seconds", seconds);
    if (figures->test_accuracy >= 0)
        json_object_set_new(object, "test_accuracy", real(figures->test_accuracy));
    return object;
}

enum ebb_status ebb__report_json(const struct ebb_train_figures *figures, const char *path,
                                 struct ebb_error *error)
{
    json_t *object = to_json(figures);
    if (!object)
        return ebb__train_fail_memory(error, path);
    bool is_stdout = strcmp(path, "-") == 0;
    FILE *file = is_stdout ? stdout : fopen(path, "we");
    enum ebb_status status = EBB_OK;
    if (!file)
        status = ebb__train_fail_io(error, path, "be written");
    else if (json_dumpf(object, file, JSON_INDENT(2)) || fputc('\n', file) < 0 || fflush(file))
        status = ebb__train_fail_io(error, path, "be written");
    if (file && !is_stdout && fclose(file) && !status)
        status = ebb__train_fail_io(error, path, "be written");
    json_decref(object);
    return status;
}
