/* A report in other forms: text for a terminal, CSV, and a trace for Perfetto or Chrome. */
#ifndef EBB_REPORT_EXPORT_H
#define EBB_REPORT_EXPORT_H

#include "report/difference.h"
#include "report/report.h"

/* At most 100 columns. `has_unicode`: the sparkline is of block characters, else of ASCII. */
void ebb__report_text(const struct ebb_report_run *runs, uint32_t count,
                      const struct ebb_difference *difference, bool has_unicode, FILE *out);
/* The forecast alone. */
void ebb__report_text_needs(const struct ebb_report_run *run, FILE *out);

/* The memory curve, one line a cell of the finest level: time_ns, load_bytes, resident_bytes and
 * resident bytes by kind and size class. */
void ebb__report_csv(const struct ebb_report_run *run, FILE *out);

/* Trace events of the JSON form: lanes as complete events, memory as counters. */
void ebb__report_chrome_trace(const struct ebb_report_run *run, FILE *out);

#endif
