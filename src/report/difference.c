#include "report/difference.h"

#include "base/size.h"

#include <stdlib.h>
#include <string.h>

static struct ebb_difference_row row_of(const char *name, const char *text, bool is_bytes,
                                        const uint64_t first[2], const uint64_t last[2])
{
    struct ebb_difference_row row = {.name = name, .text = text, .is_bytes = is_bytes};
    row.first_is_measured = first[0] != EBB_REPORT_UNKNOWN;
    row.last_is_measured = last[0] != EBB_REPORT_UNKNOWN;
    row.first = first[row.first_is_measured ? 0 : 1];
    row.last = last[row.last_is_measured ? 0 : 1];
    return row;
}

static uint64_t need(const struct ebb_report_run *run, enum ebb_need need)
{
    return run->need_count ? run->needs[0].needs.points[need].budget_bytes : EBB_REPORT_UNKNOWN;
}

static uint64_t moved(const struct ebb_report_figures *figures)
{
    return figures->moved_out_bytes == EBB_REPORT_UNKNOWN
               ? EBB_REPORT_UNKNOWN
               : figures->moved_out_bytes + figures->moved_in_bytes;
}

#define ROW(name, text, is_bytes, member)                                                          \
    row_of(name, text, is_bytes,                                                                   \
           (const uint64_t[]){first->measured.member, first->predicted.member},                    \
           (const uint64_t[]){last->measured.member, last->predicted.member})
#define NEED(name, text, which)                                                                    \
    row_of(name, text, true, (const uint64_t[]){EBB_REPORT_UNKNOWN, need(first, which)},           \
           (const uint64_t[]){EBB_REPORT_UNKNOWN, need(last, which)})

void ebb__difference_make(const struct ebb_report_run *first, const struct ebb_report_run *last,
                          struct ebb_difference *difference)
{
    uint64_t moved_first[] = {moved(&first->measured), moved(&first->predicted)};
    uint64_t moved_last[] = {moved(&last->measured), moved(&last->predicted)};
    *difference = (struct ebb_difference){
        {ROW("unlimited", "peak without a budget", true, unlimited_bytes),
         ROW("peak", "peak within the budget", true, peak_bytes),
         ROW("time", "iteration", false, iteration_ns), ROW("stall", "stall", false, stall_ns),
         row_of("moved", "bytes moved", true, moved_first, moved_last),
         NEED("need", "budget at no loss", EBB_NEED_NO_LOSS),
         NEED("least", "smallest budget", EBB_NEED_LEAST)}};
    /* A peak within a budget is only comparable if both are known; the load is, always. */
    struct ebb_difference_row *peak = &difference->rows[1];
    if (peak->first == EBB_REPORT_UNKNOWN || peak->last == EBB_REPORT_UNKNOWN)
        peak->first = difference->rows[0].first, peak->last = difference->rows[0].last,
        peak->text = "peak";
}

bool ebb__difference_percent(const struct ebb_difference_row *row, double *percent)
{
    if (row->first == EBB_REPORT_UNKNOWN || row->last == EBB_REPORT_UNKNOWN || !row->first)
        return false;
    *percent = 100 * ((double)row->last / (double)row->first - 1);
    return true;
}

struct condition {
    const struct ebb_difference_row *row;
    bool is_above, is_relative;
    double percent;
    uint64_t limit;
};

static enum ebb_status refuse(const char *text, const char *why, struct ebb_error *error)
{
    ebb__fail(error, EBB_ERR_ARGUMENT, "--fail-if", "'%s' %s", text, why);
    ebb__error_set_remedy(error, "write NAME>LIMIT, e.g. peak>+2%% or time>1.5s; names: unlimited, "
                                 "peak, time, stall, moved, need, least");
    return EBB_ERR_ARGUMENT;
}

static bool limit_parse(const char *text, struct condition *condition)
{
    size_t length = strlen(text);
    char *end, seconds[32];
    if (length && text[length - 1] == '%') {
        condition->is_relative = true;
        condition->percent = strtod(text, &end);
        return end == text + length - 1 && end != text;
    }
    if (condition->row->is_bytes)
        return ebb_size_parse(text, &condition->limit);
    if (!length || text[length - 1] != 's' || length >= sizeof seconds)
        return false;
    memcpy(seconds, text, length - 1);
    seconds[length - 1] = 0;
    return ebb_seconds_parse(seconds, &condition->limit);
}

static enum ebb_status parse(const struct ebb_difference *difference, const char *text,
                             struct condition *condition, struct ebb_error *error)
{
    size_t name = strcspn(text, "<>");
    *condition = (struct condition){.is_above = text[name] == '>'};
    for (size_t i = 0; i < EBB_DIFFERENCE_ROWS; i++)
        if (strlen(difference->rows[i].name) == name &&
            strncmp(difference->rows[i].name, text, name) == 0)
            condition->row = &difference->rows[i];
    if (!condition->row || !text[name] || !limit_parse(text + name + 1, condition))
        return refuse(text, "is no condition", error);
    return EBB_OK;
}

static enum ebb_status evaluate(const char *text, const struct condition *condition, bool *holds,
                                char *reason, size_t bytes, struct ebb_error *error)
{
    const struct ebb_difference_row *row = condition->row;
    char last[32];
    double percent = 0;
    if (row->last == EBB_REPORT_UNKNOWN ||
        (condition->is_relative && !ebb__difference_percent(row, &percent) &&
         !(row->first == 0 && row->last == 0)))
        return refuse(text, "cannot be told: no such figure here", error);
    if (condition->is_relative)
        *holds = condition->is_above ? percent > condition->percent : percent < condition->percent;
    else
        *holds = condition->is_above ? row->last > condition->limit : row->last < condition->limit;
    if (row->is_bytes)
        ebb_size_format(row->last, last, sizeof last);
    else
        ebb_duration_format(row->last, last, sizeof last);
    if (*holds)
        snprintf(reason, bytes, "%s: %s is %s, %+.1f %%", text, row->text, last, percent);
    return EBB_OK;
}

enum ebb_status ebb__difference_fails(const struct ebb_difference *difference,
                                      const char *conditions, bool *fails, char *reason,
                                      size_t bytes, struct ebb_error *error)
{
    *fails = false;
    for (const char *at = conditions; *at && !*fails;) {
        char text[64];
        size_t length = strcspn(at, ",");
        struct condition condition;
        snprintf(text, sizeof text, "%.*s", (int)length, at);
        enum ebb_status status = parse(difference, text, &condition, error);
        if (!status)
            status = evaluate(text, &condition, fails, reason, bytes, error);
        if (status)
            return status;
        at += length + (at[length] == ',');
    }
    return EBB_OK;
}
