/* Fuzzes the parsers of sizes, percentages and seconds on command lines. An accepted value must be
 * in its range, and equal the same value written as a plain number. */
#include "base/size.h"
#include "fuzz.h"

#include <inttypes.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), plain[32];
    FUZZ_REQUIRE(text);
    if (size)
        memcpy(text, data, size);
    text[size] = 0;
    uint64_t value, again;
    double fraction;
    if (ebb_size_parse(text, &value)) {
        FUZZ_REQUIRE(value <= INT64_MAX && text[0] >= '0' && text[0] <= '9');
        snprintf(plain, sizeof plain, "%" PRIu64, value);
        if (value < (uint64_t)1 << 53)
            FUZZ_REQUIRE(ebb_size_parse(plain, &again) && again == value);
        FUZZ_REQUIRE(strlen(ebb_size_format(value, plain, sizeof plain)) < sizeof plain - 1);
    }
    if (ebb_percent_parse(text, &fraction))
        FUZZ_REQUIRE(fraction > 0 && fraction <= 10 && !ebb_size_parse(text, &value));
    if (ebb_seconds_parse(text, &value)) {
        FUZZ_REQUIRE(value <= UINT64_C(1000000000000000000));
        FUZZ_REQUIRE(strlen(ebb_duration_format(value, plain, sizeof plain)) < sizeof plain - 1);
        FUZZ_REQUIRE(text[0] == '.' || (text[0] >= '0' && text[0] <= '9'));
    }
    free(text);
    return 0;
}
