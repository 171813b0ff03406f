#include "train/exec/persist.h"

#include <string.h>
#include <xxhash.h>

static const struct ebb_slot *slot_of(void *own, uint32_t tensor)
{
    return &((struct ebb_exec *)own)->train.slots.items[tensor];
}

static uint64_t bytes_of(void *own, uint32_t tensor)
{
    return slot_of(own, tensor)->bytes;
}

/* oneDNN's description is not hashed as a whole: the values of unused fields are not defined. */
static uint64_t description_of(void *own, uint32_t tensor)
{
    const struct ebb_exec *exec = own;
    const struct ebb_slot *slot = slot_of(own, tensor);
    const struct ebb_op_desc *desc = &exec->graph.ops[slot->layer]->buffers[slot->buffer].desc;
    const dnnl_memory_desc_t *layout = &desc->layout;
    const dnnl_blocking_desc_t *blocking = &layout->format_desc.blocking;
    const char *layer = exec->graph.net->layers[slot->layer].name;
    uint64_t sum = XXH64(layer, strlen(layer), 0);
    sum = XXH64(slot->name, strlen(slot->name), sum);
    sum = XXH64(desc->dims, desc->rank * sizeof *desc->dims, sum);
    sum = XXH64(layout->padded_dims, (size_t)layout->ndims * sizeof *layout->padded_dims, sum);
    sum = XXH64(blocking->strides, (size_t)layout->ndims * sizeof *blocking->strides, sum);
    size_t inner = (size_t)blocking->inner_nblks;
    sum = XXH64(blocking->inner_blks, inner * sizeof *blocking->inner_blks, sum);
    return XXH64(blocking->inner_idxs, inner * sizeof *blocking->inner_idxs, sum);
}

static enum ebb_status open_tensor(void *own, uint32_t tensor, enum ebb_use use, void **address,
                                   struct ebb_error *error)
{
    return ebb__exec_open_slot(own, tensor, use, address, error);
}

static enum ebb_status close_tensor(void *own, uint32_t tensor, struct ebb_error *error)
{
    return ebb__exec_close_slot(own, tensor, error);
}

struct ebb_checkpoint_tensors ebb__exec_persistent(struct ebb_exec *exec)
{
    return (struct ebb_checkpoint_tensors){.own = exec,
                                           .count = exec->train.persistent_count,
                                           .bytes = bytes_of,
                                           .description = description_of,
                                           .open = open_tensor,
                                           .close = close_tensor};
}
