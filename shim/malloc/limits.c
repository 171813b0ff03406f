/* Limits of address space and data that a program sets while it runs. The device's reservation must
 * not count, or the program could not map anything. So the kernel's limit is the program's plus the
 * reservation, and the program sees its own value. device/room.h handles limits that exist
 * when Ebb starts.
 *
 * A program that it executes inherits the kernel's limit. */
#include "shim.h"

#include <stdatomic.h>
#include <stdint.h>
#include <sys/resource.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int setrlimit(__rlimit_resource_t resource, const struct rlimit *limit);
EXPORT int setrlimit64(__rlimit_resource_t resource, const struct rlimit64 *limit);
EXPORT int getrlimit(__rlimit_resource_t resource, struct rlimit *limit);
EXPORT int getrlimit64(__rlimit_resource_t resource, struct rlimit64 *limit);
EXPORT int prlimit(pid_t process, __rlimit_resource_t resource, const struct rlimit *limit,
                   struct rlimit *old);
EXPORT int prlimit64(pid_t process, __rlimit_resource_t resource, const struct rlimit64 *limit,
                     struct rlimit64 *old);

_Static_assert(sizeof(struct rlimit) == sizeof(struct rlimit64), "one and the same on x86-64");

/* Limits that are raised by the reservation; one bit per resource. */
static _Atomic unsigned raised;

static rlim_t reserved_bytes(void)
{
    uintptr_t first, last;
    if (!ebb__shim_runtime_now())
        return 0;
    ebb__host_reserved(&first, &last);
    return last - first;
}

static rlim_t with(rlim_t bytes, rlim_t reserved)
{
    return bytes > RLIM_INFINITY - reserved ? RLIM_INFINITY : bytes + reserved;
}

static rlim_t without(rlim_t bytes, rlim_t reserved)
{
    return bytes == RLIM_INFINITY || bytes < reserved ? bytes : bytes - reserved;
}

static int change(pid_t process, __rlimit_resource_t resource, const struct rlimit *limit,
                  struct rlimit *old)
{
    int (*next)(pid_t, __rlimit_resource_t, const struct rlimit *, struct rlimit *);
    EBB_BEHIND(next, prlimit);
    ebb__shim_wait_in(limit, sizeof *limit);
    ebb__shim_wait_in(old, sizeof *old);
    bool is_counted =
        (resource == RLIMIT_AS || resource == RLIMIT_DATA) && (process == 0 || process == getpid());
    rlim_t reserved = is_counted ? reserved_bytes() : 0;
    if (!reserved)
        return next(process, resource, limit, old);
    unsigned bit = 1u << resource;
    bool was_raised = atomic_load(&raised) & bit;
    struct rlimit now, present;
    if (limit && (limit->rlim_cur > limit->rlim_max || next(0, resource, NULL, &present) != 0))
        return next(process, resource, limit, old); /* which sets the error */
    if (limit) {
        rlim_t told = was_raised ? without(present.rlim_max, reserved) : present.rlim_max;
        rlim_t cur = with(limit->rlim_cur, reserved), max = with(limit->rlim_max, reserved);
        if (limit->rlim_max <= told && max > present.rlim_max)
            max = present.rlim_max; /* do not exceed this; it may be forbidden */
        now = (struct rlimit){cur < max ? cur : max, max};
    }
    int result = next(process, resource, limit ? &now : NULL, old);
    if (result != 0)
        return result;
    if (old && was_raised)
        *old = (struct rlimit){without(old->rlim_cur, reserved), without(old->rlim_max, reserved)};
    if (limit)
        atomic_fetch_or(&raised, bit);
    return 0;
}

int setrlimit(__rlimit_resource_t resource, const struct rlimit *limit)
{
    return change(0, resource, limit, NULL);
}

int setrlimit64(__rlimit_resource_t resource, const struct rlimit64 *limit)
{
    return change(0, resource, (const struct rlimit *)limit, NULL);
}

int getrlimit(__rlimit_resource_t resource, struct rlimit *limit)
{
    return change(0, resource, NULL, limit);
}

int getrlimit64(__rlimit_resource_t resource, struct rlimit64 *limit)
{
    return change(0, resource, NULL, (struct rlimit *)limit);
}

int prlimit(pid_t process, __rlimit_resource_t resource, const struct rlimit *limit,
            struct rlimit *old)
{
    return change(process, resource, limit, old);
}

int prlimit64(pid_t process, __rlimit_resource_t resource, const struct rlimit64 *limit,
              struct rlimit64 *old)
{
    return change(process, resource, (const struct rlimit *)limit, (struct rlimit *)old);
}
