/* The table of blocks: the largest ones, each with its life, its gaps and its history. */
#ifndef EBB_REPORT_BLOCKS_H
#define EBB_REPORT_BLOCKS_H

#include "report/kinds.h"
#include "report/timeline.h"

#define EBB_BLOCK_ROWS 3000  /* arbitrary: more would not be read */
#define EBB_BLOCK_HISTORY 48 /* cells of a history */

struct ebb_block_row {
    uint32_t block; /* index in the model */
    uint64_t serial, size_bytes;
    uint64_t alloc_ns; /* on the model clock; 0 if persistent */
    uint64_t life_ns, longest_gap_ns;
    uint32_t accesses, gaps, absences;
    enum ebb_report_kind kind;
    /* What happens in each part of the iteration: `#` a use, `-` live, `~` absent, a blank: not
     * live. */
    char history[EBB_BLOCK_HISTORY + 1];
};

struct ebb_block_table {
    struct ebb_block_row *rows; /* by size, the largest first */
    uint32_t count;
    uint32_t total; /* of the model */
};

/* `planned` may be NULL: no absences. EBB_ERR_MEMORY. O(blocks log blocks + accesses + gaps). */
EBB_NODISCARD enum ebb_status ebb__block_table_init(const struct ebb_model *model,
                                                    const struct ebb_planned *planned,
                                                    struct ebb_block_table *table,
                                                    struct ebb_error *error);
void ebb__block_table_fini(struct ebb_block_table *table);

#endif
