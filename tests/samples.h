/* How many random inputs a test tries. */
#ifndef EBB_TESTS_SAMPLES_H
#define EBB_TESTS_SAMPLES_H

#include <stdint.h>
#include <stdlib.h>

/* `most` with EBB_TEST_WHOLE=1 (`make test-whole`), else a half of them. */
static inline uint64_t samples(uint64_t most)
{
    return getenv("EBB_TEST_WHOLE") ? most : (most + 1) / 2;
}

#endif
