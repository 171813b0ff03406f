/* A report as JSON: the figures for scripts, and the curves for the page. */
#ifndef EBB_REPORT_DATA_H
#define EBB_REPORT_DATA_H

#include "report/report.h"

/* The figures of a run: an object, new reference. NULL: out of memory. */
json_t *ebb__report_figures_json(const struct ebb_report_run *run);
/* The same with curves, lanes, map and blocks. Bytes and times in these are whole numbers of
 * `unit_bytes` and `unit_ns`, so that they are short. */
json_t *ebb__report_page_json(const struct ebb_report_run *run);

#endif
