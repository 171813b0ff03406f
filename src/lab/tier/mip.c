#include "lab/tier/mip.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY "libCbcSolver.so.3" /* Debian: coinor-libcbc3 */

/* CBC's C interface, as far as it is used. */
struct cbc {
    void *(*create)(void);
    void (*load)(void *model, int columns, int rows, const int *start, const int *index,
                 const double *value, const double *lower, const double *upper, const double *cost,
                 const double *row_lower, const double *row_upper);
    void (*whole)(void *model, int column);
    void (*parameter)(void *model, const char *name, const char *value);
    void (*log_level)(void *model, int level);
    void (*seconds)(void *model, double seconds);
    void (*gap)(void *model, double gap);
    void (*start)(void *model, int count, const int *columns, const double *values);
    int (*solve)(void *model);
    int (*is_optimal)(void *model);
    double (*bound)(void *model);
    double (*value)(void *model);
    int (*solutions)(void *model);
    const double *(*columns)(void *model);
    void (*destroy)(void *model);
};

static const char *const names[] = {"Cbc_newModel",
                                    "Cbc_loadProblem",
                                    "Cbc_setInteger",
                                    "Cbc_setParameter",
                                    "Cbc_setLogLevel",
                                    "Cbc_setMaximumSeconds",
                                    "Cbc_setAllowableFractionGap",
                                    "Cbc_setMIPStartI",
                                    "Cbc_solve",
                                    "Cbc_isProvenOptimal",
                                    "Cbc_getBestPossibleObjValue",
                                    "Cbc_getObjValue",
                                    "Cbc_numberSavedSolutions",
                                    "Cbc_getColSolution",
                                    "Cbc_deleteModel"};

/* The library stays loaded: unloading C++ is not worth its risks. */
static bool cbc_load(struct cbc *cbc)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    _Static_assert(sizeof *cbc == sizeof names, "one name a function");
    char *at = (char *)cbc;
    for (size_t i = 0; library && i < sizeof names / sizeof names[0]; i++, at += sizeof(void *)) {
        void *function = dlsym(library, names[i]);
        if (!function)
            return false;
        memcpy(at, &function, sizeof function);
    }
    return library != NULL;
}

bool ebb__mip_is_here(void)
{
    struct cbc cbc;
    return cbc_load(&cbc);
}

int ebb__mip_column(struct ebb_mip *mip, double lower, double upper, double cost, bool whole)
{
    bool ok = ebb_vec_push(&mip->lower, lower) && ebb_vec_push(&mip->upper, upper) &&
              ebb_vec_push(&mip->cost, cost) && ebb_vec_push(&mip->whole, whole);
    mip->no_memory = mip->no_memory || !ok;
    return (int)mip->lower.count - 1;
}

int ebb__mip_row(struct ebb_mip *mip, double lower, double upper)
{
    bool ok = ebb_vec_push(&mip->row_lower, lower) && ebb_vec_push(&mip->row_upper, upper);
    mip->no_memory = mip->no_memory || !ok;
    return (int)mip->row_lower.count - 1;
}

void ebb__mip_entry(struct ebb_mip *mip, int row, int column, double value)
{
    struct ebb_mip_entry entry = {row, column, value};
    if (!ebb_vec_push(&mip->entries, entry))
        mip->no_memory = true;
}

void ebb__mip_fini(struct ebb_mip *mip)
{
    ebb_vec_free(&mip->lower);
    ebb_vec_free(&mip->upper);
    ebb_vec_free(&mip->cost);
    ebb_vec_free(&mip->whole);
    ebb_vec_free(&mip->row_lower);
    ebb_vec_free(&mip->row_upper);
    ebb_vec_free(&mip->entries);
}

/* The matrix by column. Entries of one row and column are added up, as CBC refuses them twice. */
struct matrix {
    int *start, *row;
    double *value;
};

static int by_place(const void *left, const void *right)
{
    const struct ebb_mip_entry *a = left, *b = right;
    if (a->column != b->column)
        return a->column < b->column ? -1 : 1;
    return (a->row > b->row) - (a->row < b->row);
}

static bool matrix_make(const struct ebb_mip *mip, struct matrix *matrix)
{
    size_t count = mip->entries.count, columns = mip->lower.count;
    struct ebb_mip_entry *sorted = malloc((count + 1) * sizeof *sorted);
    int kept = 0;
    matrix->start = calloc(columns + 2, sizeof *matrix->start);
    matrix->row = malloc((count + 1) * sizeof *matrix->row);
    matrix->value = malloc((count + 1) * sizeof *matrix->value);
    bool ok = sorted && matrix->start && matrix->row && matrix->value;
    if (ok && count) {
        memcpy(sorted, mip->entries.items, count * sizeof *sorted);
        qsort(sorted, count, sizeof *sorted, by_place);
    }
    for (size_t i = 0; ok && i < count; i++) {
        if (i && by_place(&sorted[i - 1], &sorted[i]) == 0) {
            matrix->value[kept - 1] += sorted[i].value;
            continue;
        }
        matrix->row[kept] = sorted[i].row;
        matrix->value[kept++] = sorted[i].value;
        matrix->start[sorted[i].column + 1] = kept;
    }
    for (size_t c = 0; ok && c < columns; c++)
        if (matrix->start[c + 1] < matrix->start[c])
            matrix->start[c + 1] = matrix->start[c];
    free(sorted);
    return ok;
}

static bool model_fill(const struct cbc *cbc, void *model, const struct ebb_mip *mip,
                       const double *start)
{
    struct matrix matrix = {0};
    int columns = (int)mip->lower.count;
    bool ok = matrix_make(mip, &matrix);
    if (ok)
        cbc->load(model, columns, (int)mip->row_lower.count, matrix.start, matrix.row, matrix.value,
                  mip->lower.items, mip->upper.items, mip->cost.items, mip->row_lower.items,
                  mip->row_upper.items);
    for (int c = 0; ok && c < columns; c++)
        if (mip->whole.items[c])
            cbc->whole(model, c);
    if (ok && start) {
        int *indices = malloc((size_t)columns * sizeof *indices);
        for (int c = 0; indices && c < columns; c++)
            indices[c] = c;
        if (indices)
            cbc->start(model, columns, indices, start);
        ok = indices != NULL;
        free(indices);
    }
    free(matrix.start);
    free(matrix.row);
    free(matrix.value);
    return ok;
}

static enum ebb_status solution_take(const struct cbc *cbc, void *model, size_t columns,
                                     struct ebb_mip_solution *solution, struct ebb_error *error)
{
    const double *values = cbc->columns(model);
    solution->bound = cbc->bound(model);
    solution->value = cbc->value(model);
    if (!values || !(fabs(solution->value) < 1e40) ||
        (!cbc->is_optimal(model) && cbc->solutions(model) == 0))
        return EBB_OK;
    solution->values = malloc((columns + 1) * sizeof *solution->values);
    if (!solution->values)
        return ebb__fail(error, EBB_ERR_MEMORY, "cbc", "no memory for a solution");
    memcpy(solution->values, values, columns * sizeof *values);
    solution->optimal = cbc->is_optimal(model);
    return EBB_OK;
}

enum ebb_status ebb__mip_solve(const struct ebb_mip *mip, double seconds, double gap,
                               const double *start, struct ebb_mip_solution *solution,
                               struct ebb_error *error)
{
    struct cbc cbc;
    *solution = (struct ebb_mip_solution){0};
    if (!cbc_load(&cbc)) {
        ebb__fail(error, EBB_ERR_UNSUPPORTED, LIBRARY, "the solver CBC is not installed");
        ebb__error_set_remedy(error, "install it: apt-get install coinor-libcbc3");
        return EBB_ERR_UNSUPPORTED;
    }
    void *model = mip->no_memory ? NULL : cbc.create();
    if (!model)
        return ebb__fail(error, EBB_ERR_MEMORY, "cbc", "no memory for the program");
    enum ebb_status status = EBB_OK;
    if (model_fill(&cbc, model, mip, start)) {
        cbc.log_level(model, 0);
        cbc.parameter(model, "log", "0");
        cbc.parameter(model, "slog", "0");
        cbc.seconds(model, seconds);
        cbc.gap(model, gap);
        (void)cbc.solve(model);
        status = solution_take(&cbc, model, mip->lower.count, solution, error);
    } else {
        status = ebb__fail(error, EBB_ERR_MEMORY, "cbc", "no memory for the program");
    }
    cbc.destroy(model);
    return status;
}
