/* The common part of the fuzz harnesses. */
#ifndef EBB_TESTS_FUZZ_H
#define EBB_TESTS_FUZZ_H

#include "machine/machine.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Aborts if an invariant that must hold for every input is violated. */
#define FUZZ_REQUIRE(condition)                                                                    \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* An arbitrary machine to plan for. */
static inline const struct ebb_machine *fuzz_machine(void)
{
    static struct ebb_machine machine;
    if (!machine.name[0])
        FUZZ_REQUIRE(ebb__machine_named("autoswap-paper", &machine, NULL) == EBB_OK);
    return &machine;
}

#endif
