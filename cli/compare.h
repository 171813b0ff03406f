/* `ebb compare`: traces x machines x budgets x policies x seeds.
 *
 * compare_list.c reads what is to be compared. compare_rows.c plans it, compare_files.c reads plans
 * of the user, compare_pools.c packs. compare_front.c has medians, means and the front. The other
 * files show the results (table, JSON, CSV, plot), and compute nothing but units. */
#ifndef EBB_CLI_COMPARE_H
#define EBB_CLI_COMPARE_H

#include "base/vec.h"
#include "lab/peers/peer.h"
#include "load.h"
#include "offline.h"
#include "plan/plan.h"
#include "plan/pool/pool.h"

#include <stdio.h>
#include <string.h>

#define EBB_ZERO_STALL "zero-stall" /* as a budget: the smallest budget without a stall */

typedef EBB_VEC(char *) ebb_words;

/* What the user asks for. */
struct ebb_compare_list {
    struct ebb_offline given;
    char *const *files;
    size_t file_count;
    EBB_VEC(const struct ebb_policy *) policies;
    EBB_VEC(const struct ebb_pool *) pools; /* none: plans are not packed */
    EBB_VEC(double) slowdowns;              /* as shares; none: budgets are compared */
    ebb_words budgets;                      /* none: those of the given plans, else the default */
    EBB_VEC(struct ebb_machine) machines;
};

/* A trace, and what does not depend on plans. */
struct ebb_compare_trace {
    const char *path, *name; /* the name is the last part of the path */
    struct ebb_loaded loaded;
    uint64_t iteration_ns; /* without stalls; this and the next are 0 without accesses */
    uint64_t peak_bytes;   /* without a plan, in whole pages */
    uint64_t cnmem_bytes;  /* what CnMem would hold for the whole trace */
};

/* What no plan for the same request does better. */
struct ebb_compare_bound {
    bool known;
    uint64_t peak_bytes; /* without a stall */
    uint64_t stall_ns;   /* within the budget */
    double gap;          /* of the row: its peak if no stall was asked for, else its iteration */
};

/* One plan. Rows of one trace, machine, budget and policy, which differ by seed, are neighbours. */
struct ebb_compare_row {
    uint32_t trace, machine; /* indices */
    char policy[32];         /* or the last part of the path of a given plan */
    char budget[32];         /* as the user gave it; of a given plan: in percent of the peak */
    const char *path;        /* of a given plan, or NULL */
    const char *ground;      /* of the policy's row; NULL for a given plan */
    uint64_t seed;
    struct ebb_plan plan; /* figures only: absence_count without the absences */
    struct ebb_compare_bound bound;
    double slowdown;
};

/* What a trace needs if it is packed, or served by another allocator. */
struct ebb_compare_held {
    uint32_t trace;
    const char *allocator;
    const char *scope; /* what was replayed: the whole "trace", or the steady "iteration" */
    struct ebb_footprint footprint;
};

/* The height of a pool under the plan of a row. */
struct ebb_compare_height {
    uint32_t row;
    const char *pool;
    uint64_t height_bytes;
};

struct ebb_comparison {
    const struct ebb_compare_list *list;
    EBB_VEC(struct ebb_compare_trace) traces;
    EBB_VEC(struct ebb_compare_row) rows;
    EBB_VEC(struct ebb_compare_held) held;
    EBB_VEC(struct ebb_compare_height) heights;
    bool interrupted; /* something is missing */
};

/* Fills *list from the arguments. Returns -1 to continue, or the exit code after a message. The
 * caller releases the list in any case. */
int ebb__compare_list_parse(int argc, char **argv, struct ebb_compare_list *list);
void ebb__compare_list_fini(struct ebb_compare_list *list);
/* Splits a text at its commas. The parts are in one allocation, which the first one owns. Returns
 * false if out of memory. */
bool ebb__words_split(const char *text, ebb_words *words);
void ebb__words_fini(ebb_words *words);

/* Loads all traces, and replays other allocators over them. */
EBB_NODISCARD enum ebb_status ebb__compare_load(struct ebb_comparison *comparison,
                                                struct ebb_error *error);
/* Makes all rows, until Ctrl-C (interrupt.h). Needs ebb__compare_load() first. */
EBB_NODISCARD enum ebb_status ebb__compare_plan(struct ebb_comparison *comparison,
                                                struct ebb_error *error);
void ebb__comparison_fini(struct ebb_comparison *comparison);

/* ---- compare_files.c ------------------------------------------------------------------------- */

struct ebb_plan_file;

/* Reads the given plan `path` for a trace and checks it. *fits is false, with EBB_OK, if it was
 * made for another trace. If it fits, release it with ebb__plan_file_fini(). */
EBB_NODISCARD enum ebb_status ebb__compare_file_read(const char *path,
                                                     const struct ebb_compare_trace *trace,
                                                     struct ebb_plan_file *file, bool *fits,
                                                     struct ebb_error *error);
/* EBB_ERR_FORMAT if a given plan fits none of the traces. */
EBB_NODISCARD enum ebb_status ebb__compare_files_check(const struct ebb_comparison *comparison,
                                                       struct ebb_error *error);
/* Adds the row of a given plan on a machine, simulated, with its own bound. */
EBB_NODISCARD enum ebb_status ebb__compare_file_row(struct ebb_comparison *comparison,
                                                    struct ebb_compare_row *row,
                                                    const struct ebb_plan_file *file,
                                                    struct ebb_error *error);

/* ---- compare_pools.c ------------------------------------------------------------------------- */

/* Replays the allocators of others, and packs the iteration, if there is one. */
EBB_NODISCARD enum ebb_status ebb__compare_hold(struct ebb_comparison *comparison, uint32_t trace,
                                                struct ebb_error *error);

/* A plan with the model and pages that it is for. */
struct ebb_compare_packed {
    const struct ebb_model *model;
    const struct ebb_plan *plan;
    uint64_t page_bytes;
};

/* Packs the residencies of a plan with each pool of the list; adds heights of the last row. Plans
 * that say themselves which blocks share memory are left out. */
EBB_NODISCARD enum ebb_status ebb__compare_pack(struct ebb_comparison *comparison,
                                                const struct ebb_compare_packed *packed,
                                                struct ebb_error *error);

/* ---- compare_front.c ------------------------------------------------------------------------- */

/* The next group of rows that differ by seed, from *at on; *at is then behind it. Returns the
 * number of its rows, 0 at the end. *first is its first row. */
size_t ebb__compare_group(const struct ebb_comparison *comparison, size_t *at,
                          const struct ebb_compare_row **first);
/* The row in the middle of a group, by peak without a stall, else by iteration. */
const struct ebb_compare_row *ebb__compare_median(const struct ebb_compare_row *first,
                                                  size_t count);
static inline bool ebb__compare_is_zero_stall(const struct ebb_compare_row *row)
{
    return strcmp(row->budget, EBB_ZERO_STALL) == 0;
}
/* True if a plan within the budget was found. For the smallest budget without a stall: without a
 * stall. */
bool ebb__compare_works(const struct ebb_compare_row *row);

#define EBB_ALL_TRACES UINT32_MAX

/* A policy at a budget: over one trace, or the geometric means over all that have plans. */
struct ebb_compare_point {
    const char *policy, *budget;
    uint32_t machine, trace_count;
    bool works;      /* on each of the traces; the figures are valid only then */
    bool front;      /* no other point needs less memory and no more time, or less time and no more
                        memory */
    double memory;   /* budget / peak without a plan */
    double slowdown; /* of median rows */
    double least, most;     /* the slow-down over all seeds */
    double bound_slowdown;  /* no plan is below; 0: not known */
    double of_bound_memory; /* peak / lowest peak without a stall; 0: not known */
};

typedef EBB_VEC(struct ebb_compare_point) ebb_compare_points;

/* The points of a machine, in the order of rows, and which are on the front. With EBB_ALL_TRACES
 * only those that each trace with plans has. The caller frees *points. */
EBB_NODISCARD enum ebb_status ebb__compare_points(const struct ebb_comparison *comparison,
                                                  uint32_t machine, uint32_t trace,
                                                  ebb_compare_points *points,
                                                  struct ebb_error *error);

/* ---- results --------------------------------------------------------------------------------- */

/* Print the results, as text or as JSON. EBB_ERR_MEMORY; JSON: EBB_ERR_IO if standard output cannot
 * be written. The text leaves that to the caller, as the next two do for `out`. */
EBB_NODISCARD enum ebb_status ebb__compare_print(const struct ebb_comparison *comparison,
                                                 struct ebb_error *error);
EBB_NODISCARD enum ebb_status ebb__compare_print_json(const struct ebb_comparison *comparison,
                                                      struct ebb_error *error);
void ebb__compare_write_csv(const struct ebb_comparison *comparison, FILE *out);
EBB_NODISCARD enum ebb_status ebb__compare_write_plot(const struct ebb_comparison *comparison,
                                                      FILE *out, struct ebb_error *error);

#endif
