/* Plan files: docs/formats/plan.md is the reference. Reading trusts nothing: every number is checked
 * against the model before it becomes an index. */
#ifndef EBB_PLAN_FILE_H
#define EBB_PLAN_FILE_H

#include "plan/place/huge_round.h"
#include "plan/plan.h"

#include <stddef.h>
#include <stdint.h>

/* A plan with what it was made for. */
struct ebb_plan_file {
    struct ebb_plan plan; /* figures as predicted, absences; reactive: without them */
    struct ebb_machine machine;
    uint64_t page_bytes;
    struct ebb_huge_rounded huge_rounded; /* blocks that take whole units under it; count 0: none */
};

/* `model` with the sizes that its blocks have under the plan: what to check and to simulate. Valid as
 * long as both. */
static inline const struct ebb_model *ebb__plan_file_model(const struct ebb_plan_file *file,
                                                           const struct ebb_model *model)
{
    return file->huge_rounded.count ? &file->huge_rounded.model : model;
}

/* Read the plan `path`, which must be one for `model`: same ticks, same sizes of the blocks it names.
 * Release with ebb__plan_file_fini(). On failure *file is empty:
 *   EBB_ERR_IO      it cannot be opened or read
 *   EBB_ERR_FORMAT  it is no plan, or one for another model; `why` says what is wrong, with the line
 *                   where the JSON itself is
 *   EBB_ERR_MEMORY  it does not fit into memory */
EBB_NODISCARD enum ebb_status ebb__plan_file_read(const char *path, const struct ebb_model *model,
                                                  struct ebb_plan_file *file,
                                                  struct ebb_error *error);

/* The same from memory; `name` stands for the file in errors. */
EBB_NODISCARD enum ebb_status ebb__plan_file_read_memory(const void *bytes, size_t size,
                                                         const char *name,
                                                         const struct ebb_model *model,
                                                         struct ebb_plan_file *file,
                                                         struct ebb_error *error);

void ebb__plan_file_fini(struct ebb_plan_file *file);

#endif
