/* Fuzzes the parser of packing problems, on a line and on a circle. What is read must keep the
 * promises of plan/pool/csv.h: every buffer is one, ids and lines belong to it; and a small problem
 * that was read can be packed, which the checker confirms. */
#include "check/packing.h"
#include "fuzz.h"
#include "plan/pool/csv.h"

#include <string.h>

#define SMALL 64

static void pack(const struct ebb_pool_csv *csv, uint64_t period)
{
    static const char *const quick[] = {"portfolio", "smartpool", "firstfit"};
    struct ebb_pool_problem problem = {csv->buffers, csv->count, period, EBB_POOL_NO_CAPACITY, 0};
    struct ebb_pool_solution solution;
    struct ebb_error error;
    for (size_t i = 0; i < sizeof quick / sizeof quick[0]; i++) {
        FUZZ_REQUIRE(ebb__pool_solve(quick[i], &problem, &solution, &error) == EBB_OK);
        FUZZ_REQUIRE(ebb__check_packing(&problem, &solution, &error) == EBB_OK);
        ebb__pool_solution_fini(&solution);
    }
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
