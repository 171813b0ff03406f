/* Packing problems as text: `id,lower,upper,size[,offset]`; docs/formats/pack.md is the format. */
#ifndef EBB_LAB_POOL_CSV_H
#define EBB_LAB_POOL_CSV_H

#include "base/text.h"
#include "plan/pool/pool.h"

#include <stdbool.h>
#include <stdio.h>

struct ebb_pool_csv {
    struct ebb_pool_buffer *buffers;
    struct ebb_text *ids; /* in the bytes that were parsed, which must outlive this */
    uint64_t *lines;      /* of the file, from 1 */
    uint64_t *offsets;    /* NULL without that column */
    uint32_t count;
};

/* Does it look like one, by its header? */
bool ebb__pool_csv_recognises(const uint8_t *bytes, size_t size);

/* Parse; `period` as of struct ebb_pool_problem. On failure *csv is empty: EBB_ERR_FORMAT with the
 * line, EBB_ERR_MEMORY. Release with ebb__pool_csv_fini(). */
EBB_NODISCARD enum ebb_status ebb__pool_csv_parse(const uint8_t *bytes, size_t size,
                                                  const char *name, uint64_t period,
                                                  struct ebb_pool_csv *csv,
                                                  struct ebb_error *error);
void ebb__pool_csv_fini(struct ebb_pool_csv *csv);

#endif
