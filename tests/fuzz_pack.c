/* Fuzzes the parser of packing problems, both linear and cyclic ones. The result must be as
 * lab/pool/csv.h says: buffers are valid, and ids and lines belong to them. A small problem must be
 * solvable, and the checker must accept the solution. */
#include "check/packing.h"
#include "fuzz.h"
#include "lab/lab.h"
#include "lab/pool/csv.h"

#include <string.h>

#define SMALL 64

static void pack_by(const struct ebb_pool *pool, const struct ebb_pool_problem *problem)
{
    struct ebb_pool_solution solution;
    struct ebb_error error;
    FUZZ_REQUIRE(ebb__pool_solve_by(pool, problem, &solution, &error) == EBB_OK);
    FUZZ_REQUIRE(ebb__check_packing(problem, &solution, &error) == EBB_OK);
    ebb__pool_solution_fini(&solution);
}

static void pack(const struct ebb_pool_csv *csv, uint64_t period)
{
    struct ebb_pool_problem problem = {csv->buffers, csv->count, period, EBB_POOL_NO_CAPACITY, 0, 0,
                                       NULL};
    size_t own, more;
    const struct ebb_pool *pools = ebb__pools(&own), *others = ebb__lab_pools(&more);
    for (size_t i = 0; i < own; i++)
        if (strcmp(pools[i].name, "portfolio") == 0 || strcmp(pools[i].name, "firstfit") == 0)
            pack_by(&pools[i], &problem);
    for (size_t i = 0; i < more; i++)
        pack_by(&others[i], &problem);
}

static void parse(const uint8_t *data, size_t size, uint64_t period)
{
    struct ebb_pool_csv csv;
    struct ebb_error error = {0};
    enum ebb_status status = ebb__pool_csv_parse(data, size, "input", period, &csv, &error);
    if (status) {
        FUZZ_REQUIRE(status == EBB_ERR_FORMAT && error.status == status && error.why[0]);
        FUZZ_REQUIRE(!csv.buffers && !csv.ids && !csv.lines && !csv.offsets && !csv.count);
        return;
    }
    uint64_t sum = 0;
    FUZZ_REQUIRE(csv.count > 0);
    for (uint32_t i = 0; i < csv.count; i++) {
        const struct ebb_pool_buffer *item = &csv.buffers[i];
        FUZZ_REQUIRE(item->lower < item->upper && item->size_bytes > 0);
        FUZZ_REQUIRE(!period || (item->lower < period && item->upper - item->lower <= period));
        FUZZ_REQUIRE(csv.ids[i].size > 0 && (const uint8_t *)csv.ids[i].at >= data &&
                     (const uint8_t *)csv.ids[i].at + csv.ids[i].size <= data + size);
        FUZZ_REQUIRE(csv.lines[i] > (i ? csv.lines[i - 1] : 1));
        sum += item->size_bytes;
    }
    FUZZ_REQUIRE(sum < (uint64_t)1 << 62);
    if (csv.count <= SMALL)
        pack(&csv, period);
    ebb__pool_csv_fini(&csv);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    (void)ebb__pool_csv_recognises(data, size);
    parse(data, size, 0);
    parse(data, size, 100);
    return 0;
}
