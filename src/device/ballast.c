#include "device/ballast.h"

#include "device/device.h"
#include "device/os.h"

/* A pair is a readable page between inaccessible ones. 3 % of the kernel's default, for as many
 * fetched blocks: a limit. */
#define PAIRS 1024u
#define PAIRS_A_CALL 4u /* mremap needs six free mappings */

static struct {
    uintptr_t base;
    unsigned pairs;
} ballast;

static bool set(unsigned pair, int protection)
{
    uintptr_t page = ballast.base + (2 * pair + 1) * EBB_PAGE_BYTES;
    return ebb__os_protect(page, EBB_PAGE_BYTES, protection) == 0;
}

bool ebb__ballast_fill(void)
{
    if (!ballast.base) {
        long base = ebb__os_call(SYS_mmap, 0, (2 * PAIRS + 1) * EBB_PAGE_BYTES, PROT_NONE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, (uintptr_t)-1, 0);
        if (base == -1)
            return false;
        ballast.base = (uintptr_t)base;
    }
    while (ballast.pairs < PAIRS && set(ballast.pairs, PROT_READ))
        ballast.pairs++;
    return ballast.pairs == PAIRS;
}

bool ebb__ballast_give(void)
{
    unsigned before = ballast.pairs;
    while (ballast.pairs > 0 && before - ballast.pairs < PAIRS_A_CALL &&
           set(ballast.pairs - 1, PROT_NONE)) /* merges with its neighbours into one mapping */
        ballast.pairs--;
    return ballast.pairs < before;
}
