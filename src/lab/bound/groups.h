/* The linear program while it is built: its groups of gaps, rows and columns. */
#ifndef EBB_LAB_BOUND_GROUPS_H
#define EBB_LAB_BOUND_GROUPS_H

#include "lab/bound/internal.h"

#define BYTES_UNIT 1048576.0 /* the solver sees MiB and ms: figures near 1 */
#define NS_UNIT 1e6
#define EBB_BOUND_NONE UINT32_MAX

/* Gaps that look the same from the instants, as one: their bytes together, the least of their costs
 * and the widest of their times, which only weakens the bound. Instants are counted from `first`,
 * and those from instant_count on are a lap later. */
struct group {
    uint32_t first, count;
    uint32_t absent_first,
        absent_end; /* instants, from `first`, at which whole blocks may be away */
    bool drops;
    double bytes, out_cost, in_cost; /* in the units of the solver */
    uint64_t ready_ns, need_ns;
    uint32_t state; /* its first column: one for each instant */
};

struct builder {
    const struct ebb_bound_program *program;
    const struct ebb_bound *bound;
    uint32_t instants;
    double *cell_ns; /* by instant: length of the cell that ends there */
    struct group *groups;
    uint32_t group_count;
    uint32_t *group_of; /* by gap; EBB_BOUND_NONE: no instant lies in it */
    uint32_t *edges;    /* by cell: chain of rows of the groups that begin or end within it */
    uint32_t *edge_row, *edge_next;
    uint32_t edge_count;
    /* The program, by columns. */
    int *column_start, *row;
    double *value;
    double *lower, *upper, *cost;
    double *row_lower, *row_upper;
    int rows, columns, entries;
};

/* Time of a group's instant, unrolled like its gaps' own times. */
uint64_t ebb__bound_instant_ns(const struct builder *builder, const struct group *group,
                               uint32_t k);
/* Put the gaps into groups. False: no memory. */
bool ebb__bound_groups_make(struct builder *builder);

static inline double ebb__bound_least(double a, double b)
{
    return a < b ? a : b;
}

#endif
