/* The difference between the first and the last run of a report, and conditions on it, such as
 * `peak>+2%`. */
#ifndef EBB_REPORT_DIFFERENCE_H
#define EBB_REPORT_DIFFERENCE_H

#include "report/report.h"

#define EBB_DIFFERENCE_ROWS 7

struct ebb_difference_row {
    const char *name;     /* of conditions: peak, time ... */
    const char *text;     /* for people */
    bool is_bytes;        /* else ns */
    uint64_t first, last; /* EBB_REPORT_UNKNOWN: not known */
    bool first_is_measured, last_is_measured;
};

struct ebb_difference {
    struct ebb_difference_row rows[EBB_DIFFERENCE_ROWS];
};

void ebb__difference_make(const struct ebb_report_run *first, const struct ebb_report_run *last,
                          struct ebb_difference *difference);

/* The change in percent. False: a value is not known, or the first one is 0. */
bool ebb__difference_percent(const struct ebb_difference_row *row, double *percent);

/* Evaluates `conditions`, separated by commas. Each is NAME, `>` or `<`, and a limit: `+2%` or
 * `-2%` is of the change, `4G` or `1.5s` of the last value. EBB_ERR_ARGUMENT: one cannot be read,
 * or its value is not known. *fails is set if one holds; `reason` (at least 200 bytes) says which
 * one. */
EBB_NODISCARD enum ebb_status ebb__difference_fails(const struct ebb_difference *difference,
                                                    const char *conditions, bool *fails,
                                                    char *reason, size_t bytes,
                                                    struct ebb_error *error);
#endif
