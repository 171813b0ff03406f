/* The inputs of `ebb report` and `ebb advise`: traces and summaries, and the machines. */
#ifndef EBB_CLI_INPUTS_H
#define EBB_CLI_INPUTS_H

#include "load.h"
#include "report/report.h"

#define EBB_INPUTS_MOST 8

/* The options that both commands have. */
struct ebb_inputs_options {
    const char *machine, *store; /* as for ebb__planning_machine() */
    const char *budget;          /* as for ebb__planning_budget(); NULL: not given */
    bool is_redacted;
    bool has_frontier;
    bool has_one_machine; /* no forecast for the named ones */
};

/* One run: a trace, a summary, or both. */
struct ebb_input {
    struct ebb_loaded loaded;
    bool has_trace;
    size_t event_count;
    struct ebb_lost lost;
    json_t *summary;
    char name[64];
    struct ebb_report_run run;
};

struct ebb_inputs {
    struct ebb_input items[EBB_INPUTS_MOST];
    uint32_t count;
    struct ebb_machine machines[EBB_REPORT_MACHINES]; /* the user's, then the named ones */
    uint32_t machine_count;
    const struct ebb_policy *policies[EBB_INPUTS_MOST]; /* of the frontier */
    uint32_t policy_count;
};

/* Reads the files `paths`. A summary belongs to the trace before it, if that has none yet. Then
 * gathers what `depth` needs. Every error has a remedy. Release *inputs with ebb__inputs_fini(),
 * even after an error. It is large and must not be moved. */
EBB_NODISCARD enum ebb_status ebb__inputs_read(const struct ebb_inputs_options *options,
                                               char *const *paths, int count,
                                               enum ebb_report_depth depth,
                                               struct ebb_inputs *inputs, struct ebb_error *error);
void ebb__inputs_fini(struct ebb_inputs *inputs);

#endif
