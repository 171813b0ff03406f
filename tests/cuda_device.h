/* A device of plain numbers: it follows a script, and does at once what is due. Include it after
 * cmocka. */
#ifndef EBB_TESTS_CUDA_DEVICE_H
#define EBB_TESTS_CUDA_DEVICE_H

#include "cuda/follow.h"
#include "cuda_training.h"

struct device {
    struct ebb_cuda_follow *follow;
    bool is_resident[TRAINING_BLOCKS];
    uint64_t bytes[TRAINING_BLOCKS], serials[TRAINING_BLOCKS];
    uint64_t resident_bytes, peak_bytes;
    uint32_t missed, evicted, fetched;
};

static inline void device_init(struct device *device)
{
    *device = (struct device){.follow = ebb__follow_create(TRAINING_BLOCKS)};
    assert_non_null(device->follow);
}

static inline void device_come(struct device *device, uint32_t block, bool comes)
{
    if (device->is_resident[block] == comes)
        return;
    device->is_resident[block] = comes;
    device->resident_bytes += comes ? device->bytes[block] : 0 - device->bytes[block];
    if (device->resident_bytes > device->peak_bytes)
        device->peak_bytes = device->resident_bytes;
}

static inline void device_obey(struct device *device, const struct cuda_action *actions,
                               size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t block = actions[i].block;
        assert_true(block < TRAINING_BLOCKS && device->serials[block]);
        if (actions[i].kind == CUDA_ACTION_EVICT) {
            device->evicted += device->is_resident[block];
            device_come(device, block, false);
        } else {
            device->fetched += !device->is_resident[block];
            device_come(device, block, true);
        }
    }
}

static inline void device_feed(struct device *device, uint32_t block, const struct ebb_event *event)
{
    const struct cuda_event happened = {
        .kind = event->kind, .block = block, .serial = event->block, .bytes = event->size_bytes};
    const struct cuda_action *actions;
    if (event->kind == EBB_EVENT_ALLOC) {
        device->bytes[block] = event->size_bytes;
        device->serials[block] = event->block;
    }
    size_t count = ebb__follow_step(device->follow, &happened, &actions);
    if (event->kind == EBB_EVENT_FREE) {
        device_come(device, block, false);
        device->serials[block] = 0;
    }
    if (event->kind == EBB_EVENT_ALLOC)
        device_come(device, block, true);
    device_obey(device, actions, count);
    if (event->kind == EBB_EVENT_ACCESS && !device->is_resident[block]) {
        device->missed++;
        device_come(device, block, true);
    }
}

#endif
