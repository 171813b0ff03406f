/* Checkpoints: a training in a file, to go on later with the same bits.
 *
 *     ebb__checkpoint_save(path, &head, &tensors, &error);
 *     ...
 *     ebb__checkpoint_load(path, &head, &tensors, &error);
 *     first_iteration = head.iteration;
 *
 * The format is docs/formats/checkpoint.md. A file is complete or not there. It is written under
 * another name in the same folder, and takes its own once it is on the disk. A file is verified as
 * a whole before any tensor is written. Not thread-safe for one path. */
#ifndef EBB_TRAIN_CHECKPOINT_H
#define EBB_TRAIN_CHECKPOINT_H

#include "ebb/status.h"
#include "ebb/tensor.h"

#include <stdint.h>

/* What must be the same when the training goes on, and where it is. */
struct ebb_checkpoint_head {
    char net[32];
    uint32_t batch, size, channels, classes;
    uint32_t data;
    uint32_t optimizer;
    uint64_t seed;
    uint64_t iteration; /* the next one; also the number of the next batch */
};

/* The tensors to save, in an order that is always the same. */
struct ebb_checkpoint_tensors {
    void *own;
    uint32_t count;
    uint64_t (*bytes)(void *own, uint32_t tensor);
    /* A number that differs if the tensor has another name, shape, or order of elements. */
    uint64_t (*description)(void *own, uint32_t tensor);
    enum ebb_status (*open)(void *own, uint32_t tensor, enum ebb_use use, void **address,
                            struct ebb_error *error);
    enum ebb_status (*close)(void *own, uint32_t tensor, struct ebb_error *error);
};

/* Errors: EBB_ERR_IO: the file cannot be written; an older one of this name stays. EBB_ERR_MEMORY.
 * Those of open(). */
EBB_NODISCARD enum ebb_status ebb__checkpoint_save(const char *path,
                                                   const struct ebb_checkpoint_head *head,
                                                   const struct ebb_checkpoint_tensors *tensors,
                                                   struct ebb_error *error);

/* Fills the tensors, and head->iteration. The rest of *head says what is expected.
 * EBB_ERR_IO: cannot be read. EBB_ERR_FORMAT: no checkpoint, truncated, damaged. EBB_ERR_VERSION.
 * EBB_ERR_ARGUMENT: of another training: the error says what differs. EBB_ERR_MEMORY. Those of
 * open(). */
EBB_NODISCARD enum ebb_status ebb__checkpoint_load(const char *path,
                                                   struct ebb_checkpoint_head *head,
                                                   const struct ebb_checkpoint_tensors *tensors,
                                                   struct ebb_error *error);

#endif
