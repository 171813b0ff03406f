/* The page: one HTML file with everything in it. It asks for nothing from a network, and says so in
 * its content security policy. Without scripts it still has the figures and a picture. */
#ifndef EBB_REPORT_PAGE_H
#define EBB_REPORT_PAGE_H

#include "report/difference.h"
#include "report/report.h"

/* Writes the page of `count` runs. `difference` may be NULL. EBB_ERR_MEMORY; EBB_ERR_IO if `out`
 * cannot be written. */
EBB_NODISCARD enum ebb_status ebb__report_page(const struct ebb_report_run *runs, uint32_t count,
                                               const struct ebb_difference *difference, FILE *out,
                                               struct ebb_error *error);

#endif
