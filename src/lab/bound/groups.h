/* The linear program during its construction: its groups of gaps, rows and columns. */
#ifndef EBB_LAB_BOUND_GROUPS_H
#define EBB_LAB_BOUND_GROUPS_H

#include "lab/bound/internal.h"

#define BYTES_UNIT 1048576.0 /* the solver uses MiB and ms, to keep numbers near 1 */
#define NS_UNIT 1e6
#define EBB_BOUND_NONE UINT32_MAX

/* Gaps that contain the same instants, merged into one. It has the sum of their bytes, the least of
 * their costs, the earliest ready_ns and the latest need_ns. That only weakens the bound. Instants
 * are counted from `first`; those from instant_count on are one iteration later. */
struct group {
    uint32_t first, count;
    uint32_t absent_first,
        absent_end; /* instants, from `first`, at which whole blocks may be absent */
    bool drops;
    double bytes, out_cost, in_cost; /* in the units of the solver */
    uint64_t ready_ns, need_ns;
    uint32_t state; /* its first column; it has one for each of its instants */
};

struct builder {
    const struct ebb_bound_program *program;
    const struct ebb_bound *bound;
    uint32_t instants;
    double *cell_ns; /* by instant: length of the cell that ends at it */
    struct group *groups;
    uint32_t group_count;
    uint32_t *group_of; /* by gap; EBB_BOUND_NONE: the gap contains no instant */
    uint32_t *edges;    /* by cell: list of the rows of groups that begin or end within it */
    uint32_t *edge_row, *edge_next;
    uint32_t edge_count;
    /* The linear program, stored by columns. */
    int *column_start, *row;
    double *value;
    double *lower, *upper, *cost;
    double *row_lower, *row_upper;
    int rows, columns, entries;
};

/* Time of instant `k` of a group, unrolled like the times of its gaps. */
uint64_t ebb__bound_instant_ns(const struct builder *builder, const struct group *group,
                               uint32_t k);
/* Puts the gaps into groups. False: out of memory. */
bool ebb__bound_groups_make(struct builder *builder);

static inline double ebb__bound_least(double a, double b)
{
    return a < b ? a : b;
}

#endif
