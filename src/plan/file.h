/* Plan files; docs/formats/plan.md is the reference. The reader trusts no input: it checks every
 * number against the model before it uses it as an index. */
#ifndef EBB_PLAN_FILE_H
#define EBB_PLAN_FILE_H

#include "plan/idle.h"
#include "plan/place/huge_round.h"
#include "plan/plan.h"

#include <stddef.h>
#include <stdint.h>

/* A plan and the request that it answers. */
struct ebb_plan_file {
    struct ebb_plan plan; /* predicted figures and absences; a reactive plan has no absences */
    struct ebb_machine machine;
    uint64_t page_bytes;
    struct ebb_without_idle without_idle; /* idle blocks take no bytes; count 0: they do */
    struct ebb_huge_rounded huge_rounded; /* blocks rounded to whole units under it; count 0:
                                             none */
};

/* `model` with the block sizes under the plan, for the checker and the simulator. Valid as long as
 * both arguments. */
static inline const struct ebb_model *ebb__plan_file_model(const struct ebb_plan_file *file,
                                                           const struct ebb_model *model)
{
    return file->huge_rounded.count   ? &file->huge_rounded.model
           : file->without_idle.count ? &file->without_idle.model
                                      : model;
}

/* Reads the plan `path`, which must be for `model`: same ticks, same sizes of the blocks it names.
 * Release with ebb__plan_file_fini(). On failure *file is empty:
 *   EBB_ERR_IO      it cannot be opened or read
 *   EBB_ERR_FORMAT  it is not a plan, or is for another model; `why` says what is wrong, with the
 *                   line if the JSON itself is malformed
 *   EBB_ERR_MEMORY  it does not fit into memory */
EBB_NODISCARD enum ebb_status ebb__plan_file_read(const char *path, const struct ebb_model *model,
                                                  struct ebb_plan_file *file,
                                                  struct ebb_error *error);

/* The same from memory; errors use `name` as the file name. */
EBB_NODISCARD enum ebb_status ebb__plan_file_read_memory(const void *bytes, size_t size,
                                                         const char *name,
                                                         const struct ebb_model *model,
                                                         struct ebb_plan_file *file,
                                                         struct ebb_error *error);

void ebb__plan_file_fini(struct ebb_plan_file *file);

#endif
