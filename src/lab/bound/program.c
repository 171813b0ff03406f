/* The linear program of relaxed absences.
 *
 * Problem: find a lower bound for plans that copy whole blocks one by one on two lanes. Method:
 * blocks become divisible and copies preemptive. For each gap and each chosen **instant** in it, a
 * variable says how many bytes of the block are absent. Between two instants is a **cell**, in
 * which some bytes are copied out and some are copied in. A lane copies no more in a cell than the
 * cell's length allows; stalls lengthen a cell. The fixed cost of a copy is spread over the block's
 * bytes.
 *
 * A real plan is a solution of this linear program if its copies are spread evenly over their time.
 * So the optimum is a bound. Fewer instants mean fewer constraints, which only weakens it. Without
 * stalls, whole blocks add two constraints. No byte is absent before a whole copy out can end after
 * ready_ns, and none after the latest start of a whole copy in.
 *
 * The result is not the solver's value. It is computed from the solver's prices by weak duality,
 * which holds for any prices. So no tolerance of the solver can make it too high. Source: the
 * relaxation is original to Ebb; CLP solves it (docs/papers.md). Size: three columns and a row for
 * each instant of each group of gaps. */
#include "lab/bound/groups.h"

#include <coin/Clp_C_Interface.h>
#include <stdlib.h>
#include <string.h>

#define LARGE_WORK 2e7 /* gaps times ticks that take about a tenth of a second */

static int column_open(struct builder *builder, double upper, double cost)
{
    int column = builder->columns++;
    builder->column_start[column] = builder->entries;
    builder->lower[column] = 0;
    builder->upper[column] = upper;
    builder->cost[column] = cost;
    return column;
}

static void entry_put(struct builder *builder, uint32_t row, double value)
{
    builder->row[builder->entries] = (int)row;
    builder->value[builder->entries++] = value;
}

/* The rows, for K instants: resident bytes at the instants, cells of the out lane [K, 2K), cells of
 * the in lane [2K, 3K). If both share a lane, the third range is missing. Then comes one row for
 * each state of a group after its first. */
static uint32_t row_present(uint32_t instant)
{
    return instant;
}

static uint32_t row_lane(const struct builder *builder, bool in, uint32_t cell)
{
    bool apart = in && builder->bound->request->machine->duplex;
    return builder->instants * (apart ? 2u : 1u) + cell;
}

/* How much of `bytes` a lane can copy in `ns`. */
static double flow_limit(double bytes, double cost, double ns)
{
    return cost > 0 ? ebb__bound_least(bytes, ns / NS_UNIT / cost) : bytes;
}

static void row_open(struct builder *builder, double lower, double upper)
{
    builder->row_lower[builder->rows] = lower;
    builder->row_upper[builder->rows++] = upper;
}

/* Adds a row for a group's copies in the part of `cell` that the group covers. */
static void edge_open(struct builder *builder, uint32_t cell, uint64_t part_ns)
{
    uint32_t edge = builder->edge_count++;
    builder->edge_row[edge] = (uint32_t)builder->rows;
    builder->edge_next[edge] = builder->edges[cell];
    builder->edges[cell] = edge;
    row_open(builder, -1e30, (double)part_ns / NS_UNIT);
}

/* Adds the columns of the copies between a group's instants. */
static void flows_put(struct builder *builder, const struct group *group, uint32_t balance)
{
    uint32_t count = group->count, instants = builder->instants;
    bool stalls = builder->program->stalls;
    for (uint32_t k = 1; k < count; k++) {
        uint32_t cell = (group->first + k) % instants;
        double ns = builder->cell_ns[cell];
        column_open(builder, stalls ? group->bytes : flow_limit(group->bytes, group->out_cost, ns),
                    0);
        entry_put(builder, balance + k - 1, 1);
        entry_put(builder, row_lane(builder, false, cell), group->out_cost);
        if (group->drops)
            continue;
        column_open(builder, stalls ? group->bytes : flow_limit(group->bytes, group->in_cost, ns),
                    0);
        entry_put(builder, balance + k - 1, -1);
        entry_put(builder, row_lane(builder, true, cell), group->in_cost);
    }
}

static void group_put(struct builder *builder, struct group *group)
{
    uint32_t count = group->count, instants = builder->instants;
    bool stalls = builder->program->stalls;
    uint64_t first_ns = ebb__bound_instant_ns(builder, group, 0);
    uint64_t last_ns = ebb__bound_instant_ns(builder, group, count - 1);
    uint32_t balance = (uint32_t)builder->rows; /* row of the second state; the first has none */
    group->state = (uint32_t)builder->columns;
    for (uint32_t k = 0; k < count; k++) {
        uint32_t instant = (group->first + k) % instants;
        bool evicts = k == 0, comes = k + 1 == count && !group->drops;
        double limit = group->bytes;
        if (evicts && !stalls)
            limit = flow_limit(limit, group->out_cost, (double)(first_ns - group->ready_ns));
        if (comes && !stalls)
            limit = flow_limit(limit, group->in_cost, (double)(group->need_ns - last_ns));
        column_open(builder, limit, 0);
        if (k >= group->absent_first && k < group->absent_end)
            entry_put(builder, row_present(instant), 1);
        uint32_t out_row = row_lane(builder, false, instant);
        uint32_t in_row = row_lane(builder, true, (instant + 1) % instants);
        if (evicts && comes && out_row == in_row) {
            entry_put(builder, out_row, group->out_cost + group->in_cost);
        } else {
            if (evicts)
                entry_put(builder, out_row, group->out_cost);
            if (comes)
                entry_put(builder, in_row, group->in_cost);
        }
        if (k > 0)
            entry_put(builder, balance + k - 1, -1);
        if (k + 1 < count)
            entry_put(builder, balance + k, 1);
        if (stalls && evicts)
            entry_put(builder, balance + count - 1, group->out_cost);
        if (stalls && comes)
            entry_put(builder, balance + count, group->in_cost);
    }
    flows_put(builder, group, balance);
    for (uint32_t k = 1; k < count; k++)
        row_open(builder, 0, 0);
    if (!stalls)
        return;
    /* Copies can use only the part of the cell that the gap covers, and the cell's stalls. */
    edge_open(builder, group->first % instants, first_ns - group->ready_ns);
    if (!group->drops)
        edge_open(builder, (group->first + count) % instants, group->need_ns - last_ns);
}

/* Adds the columns to be minimised: the peak, or the stall in each cell. */
static void goal_put(struct builder *builder)
{
    const struct ebb_bound *bound = builder->bound;
    uint32_t instants = builder->instants;
    bool duplex = bound->request->machine->duplex;
    if (!builder->program->stalls) {
        double most = 0;
        for (uint32_t t = 0; t < bound->model->tick_count; t++)
            most = (double)bound->load[t] > most ? (double)bound->load[t] : most;
        int peak = column_open(builder, most / BYTES_UNIT, 1);
        builder->lower[peak] = (double)bound->floor_bytes / BYTES_UNIT;
        for (uint32_t k = 0; k < instants; k++)
            entry_put(builder, row_present(k), 1);
        return;
    }
    /* A stall as long as all copies in sequence always suffices. */
    double longest = 0;
    for (uint32_t g = 0; g < bound->gap_count; g++)
        longest += (double)(bound->gaps[g].out_ns + bound->gaps[g].in_ns) / NS_UNIT;
    for (uint32_t c = 0; c < instants; c++) {
        column_open(builder, longest, 1);
        entry_put(builder, row_lane(builder, false, c), -1);
        if (duplex)
            entry_put(builder, row_lane(builder, true, c), -1);
        for (uint32_t e = builder->edges[c]; e != EBB_BOUND_NONE; e = builder->edge_next[e])
            entry_put(builder, builder->edge_row[e], -1);
    }
}

static void rows_put(struct builder *builder)
{
    const struct ebb_bound *bound = builder->bound;
    uint32_t instants = builder->instants;
    double free_bytes = builder->program->stalls ? (double)bound->request->budget_bytes : 0;
    bool duplex = bound->request->machine->duplex;
    for (uint32_t k = 0; k < instants; k++) {
        double load = (double)bound->load[builder->program->instants[k]];
        builder->row_lower[row_present(k)] = (load - free_bytes) / BYTES_UNIT;
        builder->row_upper[row_present(k)] = 1e30;
        for (int lane = 0; lane < (duplex ? 2 : 1); lane++) {
            builder->row_lower[row_lane(builder, lane, k)] = -1e30;
            builder->row_upper[row_lane(builder, lane, k)] = builder->cell_ns[k] / NS_UNIT;
        }
    }
    builder->rows = (int)(instants * (duplex ? 3 : 2));
}

static bool builder_allocate(struct builder *builder)
{
    size_t states = 0, groups = builder->group_count, instants = builder->instants;
    for (size_t g = 0; g < groups; g++)
        states += builder->groups[g].count;
    size_t columns = 3 * states + instants + 1, rows = 3 * instants + states + 2 * groups + 1;
    size_t entries = 8 * states + 6 * groups + 3 * instants + 1;
    if (entries > INT32_MAX)
        return false;
    builder->edges = malloc(instants * sizeof *builder->edges);
    builder->edge_row = malloc((2 * groups + 1) * sizeof *builder->edge_row);
    builder->edge_next = malloc((2 * groups + 1) * sizeof *builder->edge_next);
    builder->column_start = malloc((columns + 1) * sizeof *builder->column_start);
    builder->row = malloc(entries * sizeof *builder->row);
    builder->value = malloc(entries * sizeof *builder->value);
    builder->lower = malloc(columns * sizeof *builder->lower);
    builder->upper = malloc(columns * sizeof *builder->upper);
    builder->cost = malloc(columns * sizeof *builder->cost);
    builder->row_lower = malloc(rows * sizeof *builder->row_lower);
    builder->row_upper = malloc(rows * sizeof *builder->row_upper);
    if (builder->edges)
        memset(builder->edges, 0xff, instants * sizeof *builder->edges);
    return builder->edges && builder->edge_row && builder->edge_next && builder->column_start &&
           builder->row && builder->value && builder->lower && builder->upper && builder->cost &&
           builder->row_lower && builder->row_upper;
}

static void builder_release(struct builder *builder)
{
    free(builder->cell_ns);
    free(builder->edges);
    free(builder->edge_row);
    free(builder->edge_next);
    free(builder->column_start);
    free(builder->row);
    free(builder->value);
    free(builder->lower);
    free(builder->upper);
    free(builder->cost);
    free(builder->row_lower);
    free(builder->row_upper);
    free(builder->groups);
    free(builder->group_of);
}

/* The bound that the prices prove. The sign of a row's price selects the row's lower or upper
 * limit. Each column is at the end of its range that minimises the sum. */
static double value_certify(const struct builder *builder, const double *price)
{
    double sum = 0;
    for (int r = 0; r < builder->rows; r++) {
        double side = price[r] > 0 ? builder->row_lower[r] : builder->row_upper[r];
        if (price[r] > 0 ? side > -1e29 : side < 1e29)
            sum += price[r] * side;
    }
    for (int c = 0; c < builder->columns; c++) {
        double reduced = builder->cost[c];
        for (int e = builder->column_start[c]; e < builder->column_start[c + 1]; e++) {
            int r = builder->row[e];
            double side = price[r] > 0 ? builder->row_lower[r] : builder->row_upper[r];
            if (price[r] > 0 ? side > -1e29 : side < 1e29)
                reduced -= price[r] * builder->value[e];
        }
        sum += reduced * (reduced > 0 ? builder->lower[c] : builder->upper[c]);
    }
    return sum;
}

/* Computes the absent bytes at each tick. At instants they are the solution's; each gap has its
 * share of its group. Between instants they are interpolated by time. */
static void absent_read(const struct builder *builder, const double *solution, double *absent)
{
    const struct ebb_bound *bound = builder->bound;
    const struct ebb_model *model = bound->model;
    uint32_t ticks = model->tick_count;
    memset(absent, 0, ticks * sizeof *absent);
    for (uint32_t g = 0; g < bound->gap_count; g++) {
        const struct ebb_bound_gap *gap = &bound->gaps[g];
        if (builder->group_of[g] == EBB_BOUND_NONE)
            continue;
        const struct group *group = &builder->groups[builder->group_of[g]];
        const double *state = &solution[group->state];
        double from = 0, from_ns = (double)gap->ready_ns;
        for (uint32_t i = 0, next = 0; i < gap->count; i++) {
            uint32_t tick = (gap->first + i) % ticks;
            double at_ns = (double)(model->time_ns[tick] + (tick < gap->first ? bound->lap_ns : 0));
            bool inside = next < group->count;
            double to = inside ? state[next] : group->drops ? from : 0;
            double to_ns =
                inside ? (double)ebb__bound_instant_ns(builder, group, next) : (double)gap->need_ns;
            double share = to_ns > from_ns ? (at_ns - from_ns) / (to_ns - from_ns) : 1;
            bool is_absent =
                builder->program->stalls || (at_ns >= (double)(gap->ready_ns + gap->out_ns) &&
                                             at_ns + (double)gap->in_ns <= (double)gap->need_ns);
            if (is_absent)
                absent[tick] += (from + (to - from) * share) / group->bytes * (double)gap->bytes;
            if (inside &&
                builder->program->instants[(group->first + next) % builder->instants] == tick) {
                from = to;
                from_ns = to_ns;
                next++;
            }
        }
    }
}

/* Like absent_read(), but interpolates the sum over all groups. It is used if the time for all gaps
 * would exceed that of the solution. */
static void absent_read_together(const struct builder *builder, const double *solution,
                                 double *absent)
{
    const struct ebb_bound_program *program = builder->program;
    const struct ebb_model *model = builder->bound->model;
    uint32_t instants = builder->instants, next = 0;
    double *total = calloc(instants, sizeof *total);
    memset(absent, 0, model->tick_count * sizeof *absent);
    if (!total)
        return;
    for (uint32_t g = 0; g < builder->group_count; g++) {
        const struct group *group = &builder->groups[g];
        for (uint32_t k = group->absent_first; k < group->absent_end; k++)
            total[(group->first + k) % instants] += solution[group->state + k] * BYTES_UNIT;
    }
    for (uint32_t t = 0; t < model->tick_count; t++) {
        uint32_t from = (next + instants - 1) % instants, to = next % instants;
        double from_ns = (double)model->time_ns[program->instants[from]];
        double into_ns = (double)model->time_ns[t] - from_ns;
        into_ns += from_ns > (double)model->time_ns[t] ? (double)builder->bound->lap_ns : 0;
        double share = builder->cell_ns[to] > 0 ? into_ns / builder->cell_ns[to] : 1;
        absent[t] = total[from] + (total[to] - total[from]) * ebb__bound_least(share, 1);
        if (next < instants && program->instants[next] == t)
            next++;
    }
    free(total);
}

static void solver_run(struct builder *builder, struct ebb_bound_program *program)
{
    Clp_Simplex *solver = Clp_newModel();
    Clp_setLogLevel(solver, 0);
    uint64_t size = (uint64_t)builder->rows + (uint64_t)builder->columns + 1;
    uint64_t most = program->steps / size + 1;
    Clp_setMaximumIterations(solver, most < INT32_MAX ? (int)most : INT32_MAX);
    Clp_setMaximumSeconds(solver, program->box_s);
    Clp_loadProblem(solver, builder->columns, builder->rows, builder->column_start, builder->row,
                    builder->value, builder->lower, builder->upper, builder->cost,
                    builder->row_lower, builder->row_upper);
    Clp_initialDualSolve(solver);
    program->solved = Clp_status(solver) == 0;
    program->spent = (uint64_t)Clp_getIterationCount(solver) * size;
    double unit = program->stalls ? NS_UNIT : BYTES_UNIT;
    program->value = value_certify(builder, Clp_dualRowSolution(solver)) * unit;
    double work = (double)builder->bound->gap_count * builder->bound->model->tick_count;
    if (program->absent)
        (work > LARGE_WORK ? absent_read_together : absent_read)(
            builder, Clp_primalColumnSolution(solver), program->absent);
    Clp_deleteModel(solver);
}

enum ebb_status ebb__bound_solve(struct ebb_bound_program *program, struct ebb_error *error)
{
    const struct ebb_bound *bound = program->bound;
    const uint64_t *time_ns = bound->model->time_ns;
    uint32_t instants = program->instant_count;
    struct builder builder = {.program = program, .bound = bound, .instants = instants};
    size_t gaps = bound->gap_count + 1u;
    enum ebb_status status = EBB_ERR_MEMORY;
    program->value = 0;
    program->solved = true;
    if (instants == 0)
        return EBB_OK;
    builder.cell_ns = malloc(instants * sizeof *builder.cell_ns);
    builder.groups = malloc(gaps * sizeof *builder.groups);
    builder.group_of = malloc(gaps * sizeof *builder.group_of);
    if (!builder.cell_ns || !builder.groups || !builder.group_of)
        goto out;
    for (uint32_t k = 0; k < instants; k++) {
        uint64_t from_ns = time_ns[program->instants[k ? k - 1 : instants - 1]];
        builder.cell_ns[k] =
            (double)(time_ns[program->instants[k]] + (k ? 0 : bound->lap_ns) - from_ns);
    }
    if (!ebb__bound_groups_make(&builder) || !builder_allocate(&builder))
        goto out;
    rows_put(&builder);
    for (uint32_t g = 0; g < builder.group_count; g++)
        group_put(&builder, &builder.groups[g]);
    goal_put(&builder);
    builder.column_start[builder.columns] = builder.entries;
    solver_run(&builder, program);
    status = EBB_OK;
out:
    builder_release(&builder);
    return status ? ebb__fail(error, status, "bound", "out of memory") : EBB_OK;
}
