/* Fuzzes the reader of machine files. With an accepted machine, sums of transfer times must not
 * overflow. A refusal must have a reason. */
#include "fuzz.h"
#include "machine/machine.h"

#include <string.h>

static void require_lane(const struct ebb_lane *lane)
{
    FUZZ_REQUIRE(lane->ns_per_byte > 0);
    uint64_t before = ebb__lane_ns(lane, 0);
    for (unsigned shift = 0; shift < 64; shift += 7) {
        uint64_t ns = ebb__lane_ns(lane, (uint64_t)1 << shift);
        FUZZ_REQUIRE(ns >= before && ns < (uint64_t)1 << 52);
        before = ns;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ebb_machine machine;
    struct ebb_error error = {0};
    enum ebb_status status = ebb__machine_read_memory(data, size, "input", &machine, &error);
    if (status == EBB_OK) {
        FUZZ_REQUIRE(memchr(machine.name, 0, sizeof machine.name));
        require_lane(&machine.out);
        require_lane(&machine.in);
    } else {
        FUZZ_REQUIRE(status == EBB_ERR_FORMAT);
        FUZZ_REQUIRE(error.status == status && error.why[0] && !strcmp(error.what, "input"));
    }
    return 0;
}
