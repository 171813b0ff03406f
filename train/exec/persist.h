/* The persistent tensors of an executor, as checkpoints see them. */
#ifndef EBB_TRAIN_EXEC_PERSIST_H
#define EBB_TRAIN_EXEC_PERSIST_H

#include "train/checkpoint.h"
#include "train/exec/exec.h"

/* Valid as long as the executor. */
struct ebb_checkpoint_tensors ebb__exec_persistent(struct ebb_exec *exec);

#endif
