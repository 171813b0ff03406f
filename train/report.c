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
    fprintf(stderr, "%s%llu/%llu  loss %.6f  %.1f images/s  %s resident%s", is_terminal ? "\r" : "",
            (unsigned long long)(figures->first_iteration + newest + 1),
            (unsigned long long)iterations, (double)figures->losses.items[newest],
            seconds > 0 ? figures->batch / seconds : 0,
            ebb__train_size_format(figures->statistics.resident_bytes, resident, sizeof resident),
            is_terminal ? "\033[K" : "\n");
}

void ebb__report_progress_end(void)
{
    if (isatty(STDERR_FILENO) == 1)
        fputc('\n', stderr);
}

void ebb__report_text(const struct ebb_train_figures *figures)
{
    char a[32], b[32], c[32];
    const struct ebb_statistics *statistics = &figures->statistics;
    printf("%s: %llu parameters, policy %s\n", figures->net,
           (unsigned long long)figures->parameters, figures->policy);
    if (figures->losses.count)
        printf("%u iterations, %.4f s each; last loss %.6f\n", figures->losses.count,
               median_seconds(figures), (double)figures->losses.items[figures->losses.count - 1]);
    printf("most resident %s; needed without Ebb %s, with static buffers %s\n",
           ebb__train_size_format(statistics->peak_resident_bytes, a, sizeof a),
           ebb__train_size_format(figures->live_peak_bytes, b, sizeof b),
           ebb__train_size_format(figures->static_peak_bytes, c, sizeof c));
    printf("wrote back %s, fetched %s, stalled %.3f s\n",
           ebb__train_size_format(statistics->moved_out_bytes, a, sizeof a),
           ebb__train_size_format(statistics->moved_in_bytes, b, sizeof b),
           (double)statistics->stall_ns / 1e9);
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

static json_t *to_json(const struct ebb_train_figures *figures)
{
    const struct ebb_statistics *statistics = &figures->statistics;
    json_t *object = json_object();
    json_object_set_new(object, "schema", json_string("ebb.train/1"));
    json_object_set_new(object, "net", json_string(figures->net));
    json_object_set_new(object, "policy", json_string(figures->policy));
    put(object, "batch", figures->batch);
    put(object, "parameters", figures->parameters);
    put(object, "first_iteration", figures->first_iteration);
    put(object, "iterations", figures->losses.count);
    put(object, "budget_bytes", statistics->budget_bytes);
    put(object, "static_peak_bytes", figures->static_peak_bytes);
    put(object, "live_peak_bytes", figures->live_peak_bytes);
    put(object, "peak_resident_bytes", statistics->peak_resident_bytes);
    put(object, "moved_out_bytes", statistics->moved_out_bytes);
    put(object, "moved_in_bytes", statistics->moved_in_bytes);
    put(object, "stall_ns", statistics->stall_ns);
    put(object, "planned_iterations", statistics->planned_iterations);
    put(object, "smallest_feasible_bytes", statistics->smallest_feasible_bytes);
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
