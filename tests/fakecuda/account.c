/* The bytes that each device holds, at every moment, and the budget that a test sets.
 *
 * A device holds plain allocations, the handles of cuMemCreate on it, and the managed pages that
 * are resident. Plain memory is counted in units of 512 bytes, the alignment of allocations.
 */
#include "fake.h"

size_t fake_bytes_used(int device)
{
    const struct device *d = &fake_devices[device];
    return d->plain_bytes + d->vmm_bytes + d->managed_bytes;
}

void fake_bytes_add(int device, enum bytes_kind kind, long long bytes, const char *why)
{
    struct device *d = &fake_devices[device];
    size_t *held = kind == BYTES_PLAIN ? &d->plain_bytes
                   : kind == BYTES_VMM ? &d->vmm_bytes
                                       : &d->managed_bytes;
    *held = (size_t)((long long)*held + bytes);
    size_t used = fake_bytes_used(device);
    if (used > d->most_bytes)
        d->most_bytes = used;
    if (bytes > 0 && fake_set.budget_bytes && used > fake_set.budget_bytes)
        fake_violation("budget", "device %d: %zu bytes after %s of %lld, the budget is %zu", device,
                       used, why, bytes, fake_set.budget_bytes);
}

/* Plain memory is never paged, so managed pages have to leave for it. */
bool fake_bytes_fit(int device, size_t bytes)
{
    size_t used = fake_bytes_used(device);
    if (used + bytes <= fake_set.memory_bytes)
        return true;
    size_t needed = used + bytes - fake_set.memory_bytes;
    return fake_managed_evict(device, needed) >= needed;
}
