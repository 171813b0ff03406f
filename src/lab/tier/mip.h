/* Mixed integer programs, solved by CBC (docs/papers.md).
 *
 *     struct ebb_mip mip = {0};
 *     int x = ebb__mip_column(&mip, 0, 1, cost, true);
 *     int row = ebb__mip_row(&mip, -EBB_MIP_FREE, 5);
 *     ebb__mip_entry(&mip, row, x, 2);
 *     status = ebb__mip_solve(&mip, seconds, gap, start, &solution, &error);
 *     ebb__mip_fini(&mip);
 *
 * CBC is loaded when it is needed, so that no build needs it. If it is not installed, solving says
 * so. Building fails silently when memory runs out; solving then says so. */
#ifndef EBB_LAB_TIER_MIP_H
#define EBB_LAB_TIER_MIP_H

#include "base/status.h"
#include "base/vec.h"

#include <stdbool.h>

#define EBB_MIP_FREE 1e30

struct ebb_mip_entry {
    int row, column;
    double value;
};

struct ebb_mip {
    EBB_VEC(double) lower;
    EBB_VEC(double) upper;
    EBB_VEC(double) cost;
    EBB_VEC(bool) whole;
    EBB_VEC(double) row_lower;
    EBB_VEC(double) row_upper;
    EBB_VEC(struct ebb_mip_entry) entries;
    bool no_memory;
};

struct ebb_mip_solution {
    double *values;      /* by column; the caller frees it; NULL if none was found */
    double value, bound; /* of the objective; no solution is below the bound */
    bool optimal;        /* proved, up to the gap that was asked for */
};

int ebb__mip_column(struct ebb_mip *mip, double lower, double upper, double cost, bool whole);
int ebb__mip_row(struct ebb_mip *mip, double lower, double upper);
void ebb__mip_entry(struct ebb_mip *mip, int row, int column, double value);

/* Minimises. `start` is a feasible solution, by column, or NULL. `gap` is relative. Without a
 * solution in time it is EBB_OK with values == NULL. EBB_ERR_UNSUPPORTED if CBC is not installed,
 * EBB_ERR_MEMORY. Single-threaded. */
EBB_NODISCARD enum ebb_status ebb__mip_solve(const struct ebb_mip *mip, double seconds, double gap,
                                             const double *start, struct ebb_mip_solution *solution,
                                             struct ebb_error *error);
void ebb__mip_fini(struct ebb_mip *mip);

/* True if CBC is installed. */
bool ebb__mip_is_here(void);

#endif
