#include "train/op/build.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Dimensions and their product stay far below what overflows an int64_t of bytes. */
static const int64_t count_max = INT64_C(1) << 44;

dnnl_memory_desc_t ebb__layout(uint32_t rank, const int64_t *dims, dnnl_data_type_t type,
                               const int64_t *strides)
{
    /* oneDNN reads arrays of its own length. */
    dnnl_dims_t sizes = {0}, steps = {0};
    for (uint32_t i = 0; i < rank; i++) {
        sizes[i] = dims[i];
        steps[i] = strides ? strides[i] : 0;
    }
    dnnl_memory_desc_t layout;
    dnnl_status_t status =
        strides
            ? dnnl_memory_desc_init_by_strides(&layout, (int)rank, sizes, type, steps)
            : dnnl_memory_desc_init_by_tag(&layout, (int)rank, sizes, type, dnnl_format_tag_any);
    if (status != dnnl_success)
        memset(&layout, 0, sizeof layout);
    return layout;
}

static enum ebb_status describe(uint32_t rank, const int64_t *dims, dnnl_data_type_t type,
                                struct ebb_op_desc *desc, struct ebb_error *error)
{
    if (rank == 0 || rank > EBB_OP_RANK_MAX)
        return ebb__op_fail(error, EBB_ERR_ARGUMENT, NULL,
                            "a description has %" PRIu32 " dimensions, not 1 to %d", rank,
                            EBB_OP_RANK_MAX);
    int64_t count = 1;
    int64_t strides[EBB_OP_RANK_MAX];
    for (uint32_t i = rank; i-- > 0;) {
        strides[i] = count;
        if (dims[i] <= 0 || dims[i] > count_max / count)
            return ebb__op_fail(error, EBB_ERR_ARGUMENT, NULL,
                                "dimension %" PRIu32 " of a description is %" PRId64
                                ", which is out of range",
                                i, dims[i]);
        count *= dims[i];
    }
    dnnl_memory_desc_t layout = ebb__layout(rank, dims, type, strides);
    *desc = ebb__desc_of(&layout);
    return EBB_OK;
}

enum ebb_status ebb_op_desc_floats(uint32_t rank, const int64_t *dims, struct ebb_op_desc *desc,
                                   struct ebb_error *error)
{
    return describe(rank, dims, dnnl_f32, desc, error);
}

enum ebb_status ebb_op_desc_indices(uint32_t rank, const int64_t *dims, struct ebb_op_desc *desc,
                                    struct ebb_error *error)
{
    return describe(rank, dims, dnnl_s32, desc, error);
}

struct ebb_op_desc ebb__desc_floats(uint32_t rank, const int64_t *dims)
{
    struct ebb_op_desc desc;
    if (describe(rank, dims, dnnl_f32, &desc, NULL) != EBB_OK)
        memset(&desc, 0, sizeof desc);
    return desc;
}

struct ebb_op_desc ebb__desc_of(const dnnl_memory_desc_t *layout)
{
    struct ebb_op_desc desc = {.rank = (uint32_t)layout->ndims,
                               .bytes = dnnl_memory_desc_get_size(layout),
                               .layout = *layout};
    for (uint32_t i = 0; i < desc.rank && i < EBB_OP_RANK_MAX; i++)
        desc.dims[i] = layout->dims[i];
    return desc;
}

dnnl_memory_desc_t ebb__desc_any(const struct ebb_op_desc *desc)
{
    return ebb__layout(desc->rank, desc->dims, dnnl_f32, NULL);
}

uint64_t ebb_op_desc_count(const struct ebb_op_desc *desc)
{
    int64_t count = 1;
    for (uint32_t i = 0; i < desc->rank; i++)
        count *= desc->dims[i];
    return (uint64_t)count;
}

uint64_t ebb_op_desc_offset(const struct ebb_op_desc *desc, uint64_t index)
{
    int64_t place[EBB_OP_RANK_MAX];
    int64_t left = (int64_t)index;
    for (uint32_t i = desc->rank; i-- > 0;) {
        place[i] = left % desc->dims[i];
        left /= desc->dims[i];
    }
    /* Inner blocks are dense, the last one innermost. Strides are between whole blocks. */
    const dnnl_blocking_desc_t *blocking = &desc->layout.format_desc.blocking;
    int64_t offset = desc->layout.offset0;
    int64_t stride = 1;
    for (int i = blocking->inner_nblks; i-- > 0;) {
        int64_t *at = &place[blocking->inner_idxs[i]];
        offset += *at % blocking->inner_blks[i] * stride;
        *at /= blocking->inner_blks[i];
        stride *= blocking->inner_blks[i];
    }
    for (uint32_t i = 0; i < desc->rank; i++)
        offset += place[i] * blocking->strides[i];
    return (uint64_t)offset;
}

const char *ebb_op_desc_text(const struct ebb_op_desc *desc, char text[96])
{
    size_t at = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < desc->rank && at < 96; i++) {
        int wrote = snprintf(text + at, 96 - at, i == 0 ? "%" PRId64 : "x%" PRId64, desc->dims[i]);
        at += wrote > 0 ? (size_t)wrote : 0;
    }
    return text;
}

bool ebb__planes_of(const struct ebb_op_desc *desc, struct ebb__planes *planes)
{
    if (desc->rank != 4 || desc->layout.format_kind != dnnl_blocked)
        return false;
    const dnnl_blocking_desc_t *blocking = &desc->layout.format_desc.blocking;
    const dnnl_dim_t *strides = blocking->strides;
    int64_t channels = desc->dims[1], height = desc->dims[2], width = desc->dims[3];
    *planes = (struct ebb__planes){.batch = desc->dims[0],
                                   .groups = channels,
                                   .positions = height * width,
                                   .block = 1,
                                   .channels = channels};
    if (blocking->inner_nblks == 1 && blocking->inner_idxs[0] == 1) {
        planes->block = blocking->inner_blks[0];
        planes->groups = desc->layout.padded_dims[1] / planes->block;
    } else if (blocking->inner_nblks != 0) {
        return false;
    } else if (strides[1] == 1 && channels > 1 && planes->positions > 1) {
        planes->block = channels;
        planes->groups = 1;
    }
    int64_t plane = planes->positions * planes->block;
    return (width == 1 || strides[3] == planes->block) &&
           (height == 1 || strides[2] == width * planes->block) &&
           (planes->groups == 1 || strides[1] == plane) &&
           (planes->batch == 1 || strides[0] == plane * planes->groups);
}
