/* The summary of a run: at most 8 lines for people, one JSON object for scripts. */
#ifndef EBB_CLI_SUMMARY_H
#define EBB_CLI_SUMMARY_H

#include "launch.h"
#include "parent/parent.h"

#include <stdbool.h>
#include <stdio.h>

enum ebb_summary_when { EBB_SUMMARY_NEVER, EBB_SUMMARY_AUTO, EBB_SUMMARY_ALWAYS };
/* Their names: never, auto, always; NULL after the last. */
const char *ebb__summary_when_name(size_t index);

struct ebb_summary {
    struct ebb_parent_result figures;
    const struct ebb_launch_result *launch;
    const char *policy;
    bool default_budget;                /* the user gave none */
    bool is_told;                       /* that nothing was managed has been said already */
    const struct ebb_setting *settings; /* set in the program's environment */
    size_t setting_count;
};

bool ebb__summary_budget_exceeded(const struct ebb_summary *summary);
void ebb__summary_text(const struct ebb_summary *summary, FILE *out);
/* Writes `ebb.run/2`. */
void ebb__summary_json(const struct ebb_summary *summary, FILE *out);

#endif
