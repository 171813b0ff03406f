/* The memory curve as a picture that needs no script. */
#ifndef EBB_REPORT_SVG_H
#define EBB_REPORT_SVG_H

#include "report/report.h"

void ebb__report_svg(const struct ebb_report_run *run, FILE *out);

#endif
