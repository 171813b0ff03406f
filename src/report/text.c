#include "report/export.h"

#include "base/size.h"
#include "report/escape.h"

#include <string.h>

#define SPARK_CELLS 80
#define LINE_COLUMNS 100

static void put_bytes(FILE *out, uint64_t bytes, int width)
{
    char text[32];
    fprintf(out, "%*s", width,
            bytes == EBB_REPORT_UNKNOWN ? "-" : ebb_size_format(bytes, text, sizeof text));
}

static void put_ns(FILE *out, uint64_t ns, int width)
{
    char text[32];
    fprintf(out, "%*s", width,
            ns == EBB_REPORT_UNKNOWN ? "-" : ebb_duration_format(ns, text, sizeof text));
}

void ebb__report_text_needs(const struct ebb_report_run *run, FILE *out)
{
    char sentence[LINE_COLUMNS - sizeof "next:"];
    if (!run->need_count) {
        fprintf(out, "forecast     none: %s\n",
                run->has_model ? "the trace has no accesses" : "there is no trace");
        return;
    }
    fprintf(out, "without a budget: ");
    put_bytes(out, run->needs[0].needs.peak_bytes, 0);
    fprintf(out, ", ");
    put_ns(out, run->needs[0].needs.whole_ns, 0);
    fprintf(out, " an iteration\n\n%-16s %12s %12s %12s %12s %9s\n", "predicted", "no loss",
            "at +5 %", "at +20 %", "at least", "slowdown");
    for (uint32_t i = 0; i < run->need_count; i++) {
        const struct ebb_needs *needs = &run->needs[i].needs;
        fprintf(out, "%-16s", run->needs[i].machine);
        for (int n = 0; n < EBB_NEED_COUNT; n++) {
            fputc(' ', out);
            put_bytes(out, needs->points[n].budget_bytes, 12);
        }
        fprintf(out, " %8.2fx\n",
                (double)needs->points[EBB_NEED_LEAST].iteration_ns / (double)needs->whole_ns);
    }
    fputs("\nslowdown: with the smallest budget\n", out);
    if (run->is_coarse)
        fprintf(
            out,
            "large: %u events an iteration, so the forecast plans blocks in groups, less exactly.\n"
            "       'ebb report --budget B' plans each block.\n",
            run->source.analysis->model.tick_count);
    if (ebb__report_sentence(run, sentence, sizeof sentence)) {
        fputs("next: ", out);
        ebb__escape_terminal(out, sentence);
        fputc('\n', out);
    } else {
        fputs("next: a budget saves nothing here\n", out);
    }
}

/* The most of the cells in [from_ns, to_ns). */
static uint64_t most_in(const struct ebb_curve_level *level, uint32_t *at, uint64_t to_ns,
                        bool is_load)
{
    uint64_t most = 0;
    uint32_t i = *at ? *at - 1 : 0; /* the cell that reaches into the span */
    for (; i < level->count && level->cells[i].start_ns < to_ns; i++) {
        uint64_t bytes = is_load ? level->cells[i].load_bytes : level->cells[i].resident_bytes;
        if (bytes > most)
            most = bytes;
    }
    *at = i;
    return most;
}

static void put_spark(const struct ebb_report_run *run, bool is_load, bool has_unicode, FILE *out)
{
    static const char *const blocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char *const letters[] = {" ", ".", ":", "-", "=", "+", "*", "#", "@"};
    const struct ebb_curve_level *level = &run->curve.levels[0];
    uint64_t peak = run->curve.peak_load_bytes;
    uint32_t at = 0;
    for (uint32_t c = 0; c < SPARK_CELLS; c++) {
        uint64_t to_ns = run->timeline.iteration_ns * (c + 1) / SPARK_CELLS;
        uint64_t most = most_in(level, &at, to_ns ? to_ns : 1, is_load);
        size_t step = peak ? (size_t)((double)most / (double)peak * 8 + 0.5) : 0;
        fputs(has_unicode ? blocks[step > 8 ? 8 : step] : letters[step > 8 ? 8 : step], out);
    }
    fputc('\n', out);
}

static void put_figures(const struct ebb_report_run *run, FILE *out)
{
    static const struct {
        const char *name;
        size_t offset;
        bool is_bytes;
    } rows[] = {
        {"budget", offsetof(struct ebb_report_figures, budget_bytes), true},
        {"peak", offsetof(struct ebb_report_figures, peak_bytes), true},
        {"without budget", offsetof(struct ebb_report_figures, unlimited_bytes), true},
        {"iteration", offsetof(struct ebb_report_figures, iteration_ns), false},
        {"  unlimited", offsetof(struct ebb_report_figures, unlimited_ns), false},
        {"stall", offsetof(struct ebb_report_figures, stall_ns), false},
        {"moved out", offsetof(struct ebb_report_figures, moved_out_bytes), true},
        {"moved in", offsetof(struct ebb_report_figures, moved_in_bytes), true},
    };
    fprintf(out, "%-16s %14s%s\n", "an iteration", "predicted",
            run->has_summary ? "       measured" : "");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        fprintf(out, "%-16s ", rows[i].name);
        const struct ebb_report_figures *sources[] = {&run->predicted, &run->measured};
        for (int s = 0; s < (run->has_summary ? 2 : 1); s++) {
            uint64_t value = *(const uint64_t *)((const char *)sources[s] + rows[i].offset);
            if (s)
                fputc(' ', out);
            if (rows[i].is_bytes)
                put_bytes(out, value, 14);
            else
                put_ns(out, value, 14);
        }
        fprintf(out, "%s\n", run->has_summary && i >= 5 ? "  (whole run)" : "");
    }
}

static void put_lost(const struct ebb_lost *lost, FILE *out)
{
    fprintf(out, "\n%-9s %10s", "iteration", "time");
    for (int c = 0; c < EBB_LOST_CAUSES; c++)
        fprintf(out, " %15s", ebb__lost_cause_name((enum ebb_lost_cause)c));
    fputc('\n', out);
    for (uint32_t i = 0; i < lost->count; i++) {
        fprintf(out, "%9u ", i + 1);
        put_ns(out, lost->iterations[i].ns, 10);
        for (int c = 0; c < EBB_LOST_CAUSES; c++) {
            fputc(' ', out);
            put_ns(out, lost->iterations[i].cause_ns[c], 15);
        }
        fputc('\n', out);
    }
}

static void put_run(const struct ebb_report_run *run, bool has_unicode, FILE *out)
{
    ebb__escape_terminal(out, run->source.name);
    fputc('\n', out);
    const struct ebb_trace_info *info = run->source.info;
    if (info && info->command[0] && !run->source.is_redacted) {
        char command[LINE_COLUMNS - sizeof "command:"];
        snprintf(command, sizeof command, "%.*s", (int)sizeof command - 1, info->command);
        fputs("command: ", out);
        ebb__escape_terminal(out, command);
        fputs(strlen(info->command) < sizeof command ? "\n" : "\n         (cut)\n", out);
    }
    if (run->has_model) {
        fputc('\n', out);
        ebb__report_text_needs(run, out);
        fputs("\nload         ", out);
        put_spark(run, true, has_unicode, out);
        if (run->has_plan) {
            fputs("resident     ", out);
            put_spark(run, false, has_unicode, out);
        }
    }
    fputc('\n', out);
    put_figures(run, out);
    if (run->source.lost && run->source.lost->has_waits)
        put_lost(run->source.lost, out);
}

static void put_difference(const struct ebb_difference *difference, FILE *out)
{
    fprintf(out, "\n%-24s %14s %14s %9s\n", "difference", "first", "last", "change");
    for (size_t i = 0; i < EBB_DIFFERENCE_ROWS; i++) {
        const struct ebb_difference_row *row = &difference->rows[i];
        double percent;
        fprintf(out, "%-24s ", row->text);
        (row->is_bytes ? put_bytes : put_ns)(out, row->first, 14);
        fputc(' ', out);
        (row->is_bytes ? put_bytes : put_ns)(out, row->last, 14);
        if (ebb__difference_percent(row, &percent))
            fprintf(out, " %+7.1f %%", percent);
        fputc('\n', out);
    }
}

void ebb__report_text(const struct ebb_report_run *runs, uint32_t count,
                      const struct ebb_difference *difference, bool has_unicode, FILE *out)
{
    for (uint32_t i = 0; i < count; i++) {
        if (i)
            fputc('\n', out);
        put_run(&runs[i], has_unicode, out);
    }
    if (difference)
        put_difference(difference, out);
}
