/* XLA's buffer assignment as text (--xla_dump_to): which value lies where, from when to when.
 *
 * Values are those of one compiled module. A tick is the place of an instruction in the order in
 * which the module runs. Names point into the source, which must outlive the struct. */
#ifndef EBB_LAB_IMPORT_XLA_TEXT_H
#define EBB_LAB_IMPORT_XLA_TEXT_H

#include "base/map.h"
#include "base/text.h"
#include "base/vec.h"
#include "lab/import/import.h"

struct ebb_xla_allocation {
    uint64_t size_bytes;
    bool is_lasting; /* a parameter or a constant: there before and after each run */
    bool is_local;   /* of a thread, for the scalars of a reduction */
};

struct ebb_xla_value {
    struct ebb_text name; /* without the braces of an array */
    uint32_t allocation;
    uint64_t offset_bytes, size_bytes;
    uint64_t first_tick, last_tick; /* it is read or written at both */
    bool has_range;
};

/* An instruction reads a value. */
struct ebb_xla_use {
    uint32_t value;
    uint64_t tick;
};

struct ebb_xla {
    EBB_VEC(struct ebb_xla_allocation) allocations;
    EBB_VEC(struct ebb_xla_value) values;
    EBB_VEC(struct ebb_xla_use) uses;
    EBB_VEC(struct ebb_text) instructions; /* by tick */
    struct ebb_map value_names;            /* hash -> index */
    struct ebb_map instruction_names;      /* hash -> tick */
    uint64_t tick_count;
    bool has_assignment, has_ranges, has_uses; /* these sections were there */
};

/* Reads all sections that the file has, in any order. EBB_ERR_FORMAT names the line. On failure
 * fini is still to be called. Linear. */
EBB_NODISCARD enum ebb_status ebb__xla_read_text(const uint8_t *bytes, size_t size,
                                                 const char *name, struct ebb_xla *xla,
                                                 struct ebb_error *error);
void ebb__xla_fini(struct ebb_xla *xla);

#endif
