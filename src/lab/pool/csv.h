/* Packing problems as text: `id,lower,upper,size[,offset]`; docs/formats/pack.md has the format. */
#ifndef EBB_LAB_POOL_CSV_H
#define EBB_LAB_POOL_CSV_H

#include "base/text.h"
#include "plan/pool/pool.h"

#include <stdbool.h>
#include <stdio.h>

struct ebb_pool_csv {
    struct ebb_pool_buffer *buffers;
    struct ebb_text *ids; /* point into the parsed bytes, which must outlive this */
    uint64_t *lines;      /* of the file, from 1 */
    uint64_t *offsets;    /* NULL if the column is missing */
    uint32_t count;
};

/* True if the header looks like that of a packing problem. */
bool ebb__pool_csv_recognises(const uint8_t *bytes, size_t size);

/* Parses a problem; `period` is that of struct ebb_pool_problem. Release *csv with
 * ebb__pool_csv_fini(); it is empty on failure. EBB_ERR_FORMAT names the line. EBB_ERR_MEMORY. */
EBB_NODISCARD enum ebb_status ebb__pool_csv_parse(const uint8_t *bytes, size_t size,
                                                  const char *name, uint64_t period,
                                                  struct ebb_pool_csv *csv,
                                                  struct ebb_error *error);
void ebb__pool_csv_fini(struct ebb_pool_csv *csv);

#endif
