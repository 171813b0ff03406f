/* Managed memory: which processor has each page. In truth all bytes are host memory, so residency
 * is bookkeeping, and the host's view of the address is opened and closed with it. A host access
 * to a page on a device is a fault here, too, and brings the page to the host.
 *
 * A device access to a page elsewhere:
 * - A page on the host is used remotely if the range prefers the host or is accessed by the
 *   device.
 * - Other pages migrate. A device without room evicts its least recently used managed pages.
 */
#include "fake.h"
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>

static uint64_t use_clock; /* under memory_lock, as all here */
static struct sigaction before;

static size_t page_count(const struct range *range)
{
    return (range->bytes + fake_set.page_bytes - 1) / fake_set.page_bytes;
}

static int protection_of(const struct page *page)
{
    if (!fake_set.host_faults)
        return PROT_READ | PROT_WRITE;
    if (!page->host)
        return PROT_NONE;
    return page->devices ? PROT_READ : PROT_READ | PROT_WRITE;
}

/* Opens and closes pages for the host, with one call for each run of equal ones. */
static void protect(const struct range *range, size_t first, size_t count)
{
    size_t end = first + count;
    while (first < end) {
        int protection = protection_of(&range->pages[first]);
        size_t last = first + 1;
        while (last < end && protection_of(&range->pages[last]) == protection)
            last++;
        fake_arena_open(range->address + first * fake_set.page_bytes,
                        (last - first) * fake_set.page_bytes, protection);
        first = last;
    }
}

static void set_devices(struct page *page, unsigned devices, const char *why)
{
    for (int device = 0; device < fake_set.device_count; device++) {
        unsigned bit = 1u << device;
        if ((page->devices ^ devices) & bit) {
            long long bytes = (long long)fake_set.page_bytes;
            fake_bytes_add(device, BYTES_MANAGED, devices & bit ? bytes : -bytes, why);
        }
    }
    page->devices = (uint8_t)devices;
}

/* The range with the least recently used page on a device, and the page. */
static struct range *oldest(int device, size_t *at)
{
    struct range *found = NULL, *range;
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; (range = fake_range_at(i)); i++) {
        if (range->kind != RANGE_MANAGED)
            continue;
        for (size_t page = 0; page < page_count(range); page++) {
            if (range->pages[page].devices >> device & 1 && range->pages[page].used < least) {
                least = range->pages[page].used;
                found = range;
                *at = page;
            }
        }
    }
    return found;
}

/* Evicts whole runs of pages, so that a large need does not search for each page. */
size_t fake_managed_evict(int device, size_t bytes)
{
    size_t evicted = 0, at;
    while (evicted < bytes) {
        struct range *range = oldest(device, &at);
        if (!range)
            break;
        size_t first = at;
        while (at < page_count(range) && evicted < bytes &&
               range->pages[at].devices >> device & 1) {
            struct page *page = &range->pages[at++];
            if (page->devices == 1u << device)
                page->host = true;
            set_devices(page, page->devices & ~(1u << device), "an eviction");
            evicted += fake_set.page_bytes;
        }
        protect(range, first, at - first);
    }
    fake_count(COUNT_EVICTED, evicted);
    return evicted;
}

void fake_managed_free(struct range *range)
{
    for (size_t i = 0; i < page_count(range); i++)
        set_devices(&range->pages[i], 0, "a release");
}

static void move_page(struct page *page, int to, enum counter counter)
{
    bool somewhere = page->host || page->devices;
    bool present = to == CU_DEVICE_CPU ? page->host && !page->devices
                                       : page->devices == 1u << to && !page->host;
    page->used = ++use_clock;
    if (present)
        return;
    if (to == CU_DEVICE_CPU) {
        page->host = true;
        set_devices(page, 0, "a move to the host");
    } else {
        if (!(page->devices >> to & 1) && !fake_bytes_fit(to, fake_set.page_bytes))
            return; /* all of the device is plain memory: the page stays */
        page->host = false;
        set_devices(page, 1u << to,
                    counter == COUNT_PREFETCHED ? "a prefetch to the device"
                                                : "a page fault of the device");
    }
    if (somewhere && !page->discarded)
        fake_count(counter, fake_set.page_bytes);
}

/* The page has no contents, and takes no memory (seen on an H200). */
void fake_managed_discard(struct range *range, size_t at)
{
    struct page *page = &range->pages[at];
    page->discarded = true;
    page->host = false;
    set_devices(page, 0, "a discard");
    protect(range, at, 1);
}

void fake_managed_move(struct range *range, size_t first, size_t count, int to,
                       enum counter counter)
{
    for (size_t i = first; i < first + count; i++) {
        struct page *page = &range->pages[i];
        if (to != CU_DEVICE_CPU && page->read_mostly && page->host &&
            fake_bytes_fit(to, fake_set.page_bytes)) {
            page->used = ++use_clock; /* a copy more; the host keeps its own */
            if (!(page->devices >> to & 1))
                fake_count(counter, fake_set.page_bytes);
            set_devices(page, page->devices | 1u << to, "a copy for reads");
        } else {
            move_page(page, to, counter);
        }
    }
    protect(range, first, count);
}

static bool is_remote(const struct page *page, int device)
{
    if (page->devices && !(page->devices >> device & 1))
        return page->accessed_by >> device & 1 && !fake_set.mig; /* at a peer */
    return page->preferred == CU_DEVICE_CPU || page->accessed_by >> device & 1;
}

static void touch_page(struct range *range, size_t at, int device, int mode)
{
    struct page *page = &range->pages[at];
    bool writes = mode & FAKECUDA_WRITE;
    page->used = ++use_clock;
    if (page->devices >> device & 1) {
        if (writes && (page->host || page->devices != 1u << device)) {
            page->host = false; /* the other copies of a read-mostly page are void */
            set_devices(page, 1u << device, "a write");
            protect(range, at, 1);
        }
    } else if (is_remote(page, device)) {
        if (!page->host && !page->devices) {
            page->host = true;
            protect(range, at, 1);
        }
        fake_count(COUNT_REMOTE, 1);
    } else {
        fake_count(COUNT_FAULTS, 1);
        if (writes)
            move_page(page, device, COUNT_MIGRATED);
        else
            fake_managed_move(range, at, 1, device, COUNT_MIGRATED);
        protect(range, at, 1);
    }
    if (writes)
        page->discarded = false;
}

bool fake_managed_touch(struct range *range, CUdeviceptr address, size_t bytes, int device,
                        int mode)
{
    size_t first = (size_t)(address - range->address) / fake_set.page_bytes;
    size_t last = (size_t)(address + bytes - 1 - range->address) / fake_set.page_bytes;
    for (size_t i = first; i <= last; i++)
        touch_page(range, i, device, mode);
    return true;
}

/* --- accesses of the host --------------------------------------------------------------------- */

static bool host_touch(CUdeviceptr address)
{
    bool done = false;
    pthread_mutex_lock(&memory_lock);
    struct range *range = fake_range_find(address);
    if (range && range->kind == RANGE_MANAGED) {
        size_t at = (size_t)(address - range->address) / fake_set.page_bytes;
        if (range->pages[at].devices)
            fake_count(COUNT_HOST_FAULTS, 1);
        range->pages[at].discarded = false;
        fake_managed_move(range, at, 1, CU_DEVICE_CPU, COUNT_MIGRATED);
        done = true;
    }
    pthread_mutex_unlock(&memory_lock);
    return done;
}

/* The fake itself uses the alias only, so the thread holds no lock of the fake here. */
static void on_fault(int number, siginfo_t *information, void *context)
{
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)information->si_addr;
    if (fake_arena_owns(address)) {
        if (host_touch(address))
            return;
        fake_violation("host-access", "the host touches device memory at %#llx", address);
    }
    if (before.sa_flags & SA_SIGINFO && before.sa_sigaction) {
        before.sa_sigaction(number, information, context);
        return;
    }
    signal(number, before.sa_handler == SIG_IGN ? SIG_DFL : before.sa_handler);
}

void fake_managed_watch(void)
{
    static bool watching;
    if (watching)
        return;
    watching = true;
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK};
    action.sa_sigaction = on_fault;
    sigaction(SIGSEGV, &action, &before);
}
