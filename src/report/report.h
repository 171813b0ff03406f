/* A report: what a program's memory does in one iteration, what budgets would cost, and what a run
 * cost. It is gathered once, then written in one of several forms.
 *
 *     struct ebb_report_run run;
 *     if (ebb__report_gather(&source, &run, &error) == EBB_OK) {
 *         status = ebb__report_page(&runs, file, &error);
 *         ebb__report_fini(&run);
 *     }
 *
 * Every figure is either measured, from a summary, or predicted, from a trace; it is shown as such.
 * Curves and tables are reduced here, so that a page stays small however long the trace is. */
#ifndef EBB_REPORT_REPORT_H
#define EBB_REPORT_REPORT_H

#include "base/status.h"
#include "model/analyse.h"
#include "model/lost.h"
#include "plan/request/forecast.h"
#include "report/blocks.h"
#include "report/curve.h"
#include "report/map.h"
#include "report/timeline.h"
#include "trace/file.h"

#include <jansson.h>
#include <stdio.h>

#define EBB_REPORT_UNKNOWN UINT64_MAX
#define EBB_REPORT_MACHINES 8
#define EBB_REPORT_POINTS 128

/* Finds a lower bound on the peak of plans without a stall; 0: unknown. src/report does not know
 * src/lab, which has it. */
typedef enum ebb_status (*ebb_report_bound)(const struct ebb_plan_request *request,
                                            const struct ebb_plan *plan, uint64_t *bytes,
                                            struct ebb_error *error);

/* What a report is made of. The report keeps pointers into it. */
struct ebb_report_source {
    const char *name;                    /* shown: of the file */
    const struct ebb_trace_info *info;   /* NULL: there is no trace, only a summary */
    const struct ebb_analysis *analysis; /* of the trace, with a model */
    size_t event_count;
    bool is_complete; /* the trace has its end */
    uint64_t page_bytes;
    const struct ebb_lost *lost;        /* of the trace or the summary; NULL: not known */
    const json_t *summary;              /* of `ebb run --summary-json`; NULL: none */
    const struct ebb_machine *machines; /* the first one is that of the plan */
    uint32_t machine_count;
    const struct ebb_policy *const *policies; /* of the frontier */
    uint32_t policy_count;
    uint64_t budget_bytes;  /* of the plan; 0: by the next */
    double budget_fraction; /* of the peak; 0: the budget that costs 5 % */
    ebb_report_bound bound; /* may be NULL */
    bool is_redacted;       /* show no name, path or command */
};

/* Figures of one iteration; EBB_REPORT_UNKNOWN: not known. */
struct ebb_report_figures {
    uint64_t peak_bytes; /* most resident bytes */
    uint64_t budget_bytes;
    uint64_t unlimited_bytes; /* the peak without a budget */
    uint64_t iteration_ns;
    uint64_t unlimited_ns; /* without a budget */
    uint64_t stall_ns;     /* measured: of the whole run, like the next two */
    uint64_t moved_out_bytes;
    uint64_t moved_in_bytes;
};

/* The needs on one machine. */
struct ebb_report_needs {
    const char *machine;
    struct ebb_needs needs;
};

/* A point of the frontier. */
struct ebb_report_point {
    const char *policy;
    struct ebb_forecast_point at;
};

struct ebb_report_run {
    struct ebb_report_source source;
    struct ebb_report_figures predicted, measured;
    bool has_model, has_plan, has_summary;
    bool is_coarse;          /* the forecast and the frontier are those of `coarse` */
    struct ebb_model coarse; /* of a large iteration, see model/coarse.h */
    struct ebb_report_needs needs[EBB_REPORT_MACHINES];
    uint32_t need_count;
    struct ebb_report_point points[EBB_REPORT_POINTS];
    uint32_t point_count;
    struct ebb_planned planned;   /* if has_plan */
    uint64_t bound_bytes;         /* 0: unknown */
    struct ebb_timeline timeline; /* this and the rest: if has_model */
    struct ebb_curve curve;
    struct ebb_block_table blocks;
    struct ebb_address_map map;
};

/* How much is gathered: a text needs no curves. */
enum ebb_report_depth {
    EBB_REPORT_NEEDS,   /* the forecast alone */
    EBB_REPORT_FIGURES, /* with the plan and the curve */
    EBB_REPORT_ALL,
};

/* Plans, simulates and reduces. A trace without accesses gets no forecast and no plan. A large
 * iteration gets a forecast of its coarse model, and a plan only if a budget is given. On EBB_OK
 * release with ebb__report_fini(). EBB_INFEASIBLE: the budget given is too small; the remedy names
 * the smallest. EBB_ERR_MEMORY, and errors of planners. *run must not be moved. */
EBB_NODISCARD enum ebb_status ebb__report_gather(const struct ebb_report_source *source,
                                                 enum ebb_report_depth depth,
                                                 struct ebb_report_run *run,
                                                 struct ebb_error *error);
void ebb__report_fini(struct ebb_report_run *run);

/* The measured figure if there is one, else the predicted one. `member` is one of struct
 * ebb_report_figures. */
#define EBB_REPORT_BEST(run, member)                                                               \
    ((run)->measured.member != EBB_REPORT_UNKNOWN ? (run)->measured.member                         \
                                                  : (run)->predicted.member)

/* The command to type next, `ebb run --budget 5.1G -- CMD`. It has the program's own command if
 * that is known and fits into `bytes`. False: no budget is known that saves memory. */
bool ebb__report_sentence(const struct ebb_report_run *run, char *out, size_t bytes);

#endif
