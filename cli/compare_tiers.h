/* `ebb compare --tiers`: policies for two tiers, on traces, machines and shares of fast memory.
 *
 * compare_tiers.c reads what is asked and plans it. compare_tiers_show.c prints it as text and
 * JSON. compare_tiers_plot.c draws it. */
#ifndef EBB_CLI_COMPARE_TIERS_H
#define EBB_CLI_COMPARE_TIERS_H

#include "base/vec.h"
#include "lab/tier/tier.h"
#include "load.h"
#include "options.h"

#include <stdio.h>

/* What the user asks for. */
struct ebb_tiers_asked {
    const char *shares; /* "1:4,20%": fast to slow memory, or of the peak */
    const char *machines, *policies;
    const char *plot_path;
    const char *cost; /* percent of slow-down; NULL: not asked for */
    uint64_t time_billionths, time_limit_ns;
    bool json, force;
};

struct ebb_tiers_trace {
    const char *name;
    const struct ebb_model *model;
    struct ebb_operations operations;
    struct ebb_tier_machine machine;
    uint64_t peak_bytes; /* in whole pages of its machine */
};

/* One plan. */
struct ebb_tiers_row {
    uint32_t trace;     /* index: of a trace on a machine */
    const char *policy; /* name */
    char share[24];     /* as the user gave it, or found */
    uint64_t budget_bytes;
    bool made; /* false: `why` says why not */
    char why[128];
    struct ebb_tier_result result;
    uint64_t plan_ns, profile_ns;
    double bound_ns;
    char note[96];
    double slowdown, price; /* of both tiers */
    double all_fast_price;
};

struct ebb_tiers_comparison {
    const struct ebb_tiers_asked *asked;
    EBB_VEC(struct ebb_loaded *) loaded;    /* the traces */
    EBB_VEC(struct ebb_tiers_trace) traces; /* one for each machine */
    EBB_VEC(struct ebb_tiers_row) rows;
    bool interrupted;
};

int ebb__compare_tiers(int argc, char **argv);

void ebb__tiers_print(const struct ebb_tiers_comparison *comparison);
EBB_NODISCARD enum ebb_status ebb__tiers_print_json(const struct ebb_tiers_comparison *comparison,
                                                    struct ebb_error *error);
/* Draws slow-down by share of fast memory, one panel for each trace and machine. */
void ebb__tiers_write_plot(const struct ebb_tiers_comparison *comparison, FILE *out);

#endif
