/* What planners see of a program that names its operations (program.h): operations, and events. */
#ifndef EBB_LAB_TIER_PROGRAM_MODEL_H
#define EBB_LAB_TIER_PROGRAM_MODEL_H

#include "model/model.h"
#include "model/operations.h"

/* Sets what follows from blocks' sizes, items' uses, and uses: lives, and orders of uses. Arrays
 * other than `order` are there. EBB_ERR_MEMORY, EBB_ERR_FORMAT if a block is never used. */
EBB_NODISCARD enum ebb_status ebb__tier_program_lives(struct ebb_operations *operations,
                                                      struct ebb_error *error);
/* Makes the events of an iteration, with the operations' times, and sets their first ticks. Release
 * *model with ebb__model_fini() in any case. EBB_ERR_MEMORY. */
EBB_NODISCARD enum ebb_status ebb__tier_program_model(struct ebb_operations *operations,
                                                      struct ebb_model *model,
                                                      struct ebb_error *error);

#endif
