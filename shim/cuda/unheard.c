#include "unheard.h"

#include "door.h"
#include "engines.h"

/* A launch counts up. So nobody takes for over what was queued after a wait had begun. */
static _Atomic uint64_t noted;
static _Atomic uint64_t over[EBB_DOOR_DEVICES];

void ebb__unheard_note(void)
{
    atomic_fetch_add(&noted, 1);
}

uint64_t ebb__unheard_count(void)
{
    return atomic_load(&noted);
}

void ebb__unheard_over(CUdevice device, uint64_t count)
{
    uint64_t known = atomic_load(&over[device]);
    while (known < count && !atomic_compare_exchange_weak(&over[device], &known, count))
        ;
}

bool ebb__unheard_any(CUdevice device)
{
    return atomic_load(&over[device]) < atomic_load(&noted);
}

bool ebb__unheard_await(CUdevice device)
{
    uint64_t count = ebb__unheard_count();
    CUresult result;
    if (!ebb__engines_await_context(ebb__engines_context(device), &result))
        return true; /* the device's memory is gone */
    /* After any other error no work runs any more. */
    if (result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
        return false;
    ebb__unheard_over(device, count);
    return true;
}
