/* AutoTM's integer program. autotm_program.c writes it, autotm.c solves it. */
#ifndef EBB_LAB_TIER_AUTOTM_H
#define EBB_LAB_TIER_AUTOTM_H

#include "lab/tier/mip.h"
#include "lab/tier/tier.h"

#include <stdbool.h>
#include <stdint.h>

enum ebb_autotm_kind { EBB_AUTOTM_STATIC, EBB_AUTOTM_SYNC, EBB_AUTOTM_ASYNC };

#define EBB_AUTOTM_NEAR                                                                            \
    2 /* operations behind and before a use in which a copy may be hidden; more
                             makes the program larger than CBC solves */

/* A use of a block and the gap behind it. Columns; -1 where there is none. */
struct ebb_autotm_use {
    uint32_t use;                 /* index into the uses */
    uint32_t gap_first, gap_span; /* operations of the gap */
    int fast;                     /* the block is in fast memory during the use */
    int stays;                    /* and during the whole gap */
    int dirty;                    /* a copy out was made since the block was last written */
    int out[EBB_AUTOTM_NEAR];     /* hidden by operation gap_first + i */
    int in[EBB_AUTOTM_NEAR];      /* hidden by the i-th operation before the gap's end */
};

struct ebb_autotm {
    const struct ebb_tier_request *request;
    enum ebb_autotm_kind kind;
    uint64_t budget_bytes; /* of the program; less than the request's after fragmentation */
    struct ebb_mip mip;
    struct ebb_autotm_use *uses; /* in the operations' order of uses by block */
    const bool *fast, *stays;    /* by use, in that order: a solution to begin from; NULL: none, all
                                    is in the slow tier */
    double *start;               /* that solution, by column */
    double constant_ns;          /* what the objective leaves out */
    bool found;                  /* the solver found a solution of any of the programs */
};

/* Writes the program. Times are in microseconds, sizes in pages. Returns false if out of memory. */
bool ebb__autotm_write(struct ebb_autotm *it);
void ebb__autotm_fini(struct ebb_autotm *it);

#endif
