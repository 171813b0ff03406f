#include "device/uffd.h"

#include "base/limits.h"

#include "device/os.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

static const char *const features[] = {"node", "call",  "kernel", "move",
                                       "uffd", "remap", "protect"};
static unsigned refused; /* one bit per feature */
static bool is_settled;  /* the environment is not read any more */
static enum ebb_uffd_door last_door;
static struct {
    int descriptor;
    dev_t device;
} node = {.descriptor = -1};

static bool is_named(const char *feature)
{
    const char *list = getenv("EBB_REFUSE");
    size_t length = strlen(feature);
    while (list && *list) {
        size_t word = strcspn(list, ",");
        if (word == length && memcmp(list, feature, length) == 0)
            return true;
        list += word + (list[word] == ',');
    }
    return false;
}

bool ebb__host_refused(const char *feature)
{
    for (unsigned i = 0; i < sizeof features / sizeof features[0]; i++)
        if (refused & 1u << i && strcmp(features[i], feature) == 0)
            return true;
    return !is_settled && is_named(feature);
}

void ebb__host_settle_refusals(void)
{
    for (unsigned i = 0; !is_settled && i < sizeof features / sizeof features[0]; i++)
        if (is_named(features[i]))
            refused |= 1u << i;
    is_settled = true;
}

void ebb__host_refuse(const char *feature)
{
    for (unsigned i = 0; i < sizeof features / sizeof features[0]; i++)
        if (strcmp(features[i], feature) == 0)
            refused |= 1u << i;
}

/* Gives the descriptor a high number if the limit permits, so that programs that count descriptors
 * do not meet it. */
static int move_high(int descriptor)
{
    return descriptor >= 0 ? ebb__descriptor_high(descriptor) : descriptor;
}

/* False also if the program has closed it by a raw system call and its number now names another
 * file. Then the shim must not close it. */
static bool node_is_open(void)
{
    struct stat status;
    if (node.descriptor >= 0 && ebb__os_status(node.descriptor, &status) == 0 &&
        S_ISCHR(status.st_mode) && status.st_rdev == node.device)
        return true;
    node.descriptor = -1;
    return false;
}

static int enter_by_node(void)
{
    if (!node_is_open()) {
        struct stat status;
        node.descriptor = move_high(open("/dev/userfaultfd", O_RDWR | O_CLOEXEC));
        if (node.descriptor < 0)
            return -1;
        if (ebb__os_status(node.descriptor, &status) == 0)
            node.device = status.st_rdev;
    }
    int uffd = ioctl(node.descriptor, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
    if (uffd < 0) {
        int why = errno;
        ebb__uffd_close_node();
        errno = why;
    }
    return uffd;
}

int ebb__uffd_enter(enum ebb_uffd_door door)
{
    int flags = O_CLOEXEC | O_NONBLOCK;
    bool is_refused = ebb__host_refused("uffd") ||
                      (door != EBB_UFFD_USER_CALL && ebb__host_refused("kernel")) ||
                      ebb__host_refused(door == EBB_UFFD_NODE ? "node" : "call");
    if (is_refused) {
        errno = ENOSYS;
        return -1;
    }
    if (door == EBB_UFFD_NODE)
        return enter_by_node();
    if (door == EBB_UFFD_USER_CALL)
        flags |= UFFD_USER_MODE_ONLY;
    return (int)ebb__os_call(SYS_userfaultfd, (uintptr_t)flags, 0, 0, 0, 0, 0);
}

enum ebb_uffd_door ebb__uffd_door(void)
{
    return last_door;
}

int ebb__uffd_node(void)
{
    return node_is_open() ? node.descriptor : -1;
}

void ebb__uffd_close_node(void)
{
    if (node_is_open())
        close(node.descriptor);
    node.descriptor = -1;
}

static int open_any(bool *kernel_faults)
{
    static const enum ebb_uffd_door doors[] = {EBB_UFFD_NODE, EBB_UFFD_CALL, EBB_UFFD_USER_CALL};
    int uffd = -1;
    last_door = EBB_UFFD_CLOSED;
    for (size_t i = 0; i < sizeof doors / sizeof doors[0] && uffd < 0; i++) {
        uffd = ebb__uffd_enter(doors[i]);
        if (uffd >= 0)
            last_door = doors[i];
    }
    *kernel_faults = last_door == EBB_UFFD_NODE || last_door == EBB_UFFD_CALL;
    return uffd;
}

int ebb__uffd_open(uint64_t wanted, uint64_t *found, bool *kernel_faults)
{
    /* A first descriptor tells which features the kernel has, since the query fixes the API of a
     * descriptor. */
    struct uffdio_api api = {.api = UFFD_API};
    int uffd = open_any(kernel_faults);
    if (uffd < 0)
        return -1;
    bool good = ioctl(uffd, UFFDIO_API, &api) == 0;
    int why = errno;
    close(uffd);
    if (!good) {
        errno = why;
        return -1;
    }
    *found = api.features & wanted;
    if (ebb__host_refused("move"))
        *found &= ~(uint64_t)UFFD_FEATURE_MOVE;
    api = (struct uffdio_api){.api = UFFD_API, .features = *found};
    uffd = move_high(open_any(kernel_faults));
    if (uffd < 0)
        return -1;
    if (ioctl(uffd, UFFDIO_API, &api) != 0) {
        why = errno;
        close(uffd);
        errno = why;
        return -1;
    }
    return uffd;
}

bool ebb__uffd_register(int uffd, struct ebb_device_range range, uint64_t mode)
{
    struct uffdio_register request = {.range = {.start = range.base, .len = range.bytes},
                                      .mode = mode};
    return ioctl(uffd, UFFDIO_REGISTER, &request) == 0;
}

bool ebb__uffd_register_all(int uffd, struct ebb_device_range range, uint64_t mode)
{
    if (ebb__uffd_register(uffd, range, mode))
        return true;
    if (range.bytes <= EBB_PAGE_BYTES)
        return false;
    /* Halves the pieces, down to a page. A list of mappings would need memory or /proc. */
    uint64_t grain = range.bytes > EBB_HUGE_BYTES ? EBB_HUGE_BYTES : EBB_PAGE_BYTES;
    uint64_t first = (range.bytes / 2 + grain - 1) & ~(grain - 1);
    bool low = ebb__uffd_register_all(uffd, (struct ebb_device_range){range.base, first}, mode);
    struct ebb_device_range rest = {range.base + first, range.bytes - first};
    return (rest.bytes && ebb__uffd_register_all(uffd, rest, mode)) || low;
}

bool ebb__uffd_unregister(int uffd, struct ebb_device_range range)
{
    struct uffdio_range request = {.start = range.base, .len = range.bytes};
    return ioctl(uffd, UFFDIO_UNREGISTER, &request) == 0;
}

bool ebb__uffd_renew(int uffd, uintptr_t address, uint64_t bytes)
{
    if (!ebb__os_map_anew(address, bytes, PROT_READ | PROT_WRITE))
        return false;
    ebb__os_advise(address, bytes, MADV_HUGEPAGE);
    struct ebb_device_range range = {address, bytes};
    return ebb__uffd_register(uffd, range, UFFDIO_REGISTER_MODE_MISSING);
}

void ebb__uffd_wake(int uffd, uintptr_t address, uint64_t bytes)
{
    struct uffdio_range range = {.start = address, .len = bytes};
    if (bytes)
        ioctl(uffd, UFFDIO_WAKE, &range);
}

bool ebb__uffd_copy(int uffd, uintptr_t target, uintptr_t source, uint64_t bytes, uint64_t *copied)
{
    uint64_t piece = bytes;
    for (*copied = 0; *copied < bytes;) {
        if (piece > bytes - *copied)
            piece = bytes - *copied;
        struct uffdio_copy request = {
            .dst = target + *copied, .src = source + *copied, .len = piece};
        if (ioctl(uffd, UFFDIO_COPY, &request) == 0) {
            *copied += piece;
            piece = bytes - *copied;
            continue;
        }
        int why = errno;
        if (request.copy > 0)
            *copied += (uint64_t)request.copy;
        if (why == EAGAIN)
            continue;
        if (why != ENOENT && why != EEXIST && why != EINVAL) {
            errno = why;
            return false;
        }
        if (request.copy > 0)
            continue;
        if (piece > EBB_PAGE_BYTES) { /* several mappings, or some page is present */
            piece = (piece / 2 + EBB_PAGE_BYTES - 1) & ~(EBB_PAGE_BYTES - 1);
            continue;
        }
        ebb__uffd_wake(uffd, target + *copied, EBB_PAGE_BYTES);
        *copied += EBB_PAGE_BYTES;
        piece = bytes - *copied;
    }
    return true;
}

bool ebb__uffd_zeros(int uffd, uintptr_t target, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += EBB_PAGE_BYTES)
        ebb__uffd_fill(uffd, target + at);
    return true;
}

size_t ebb__uffd_faults(int uffd, struct ebb_fault *faults, size_t most)
{
    struct uffd_msg messages[64];
    if (most > sizeof messages / sizeof messages[0])
        most = sizeof messages / sizeof messages[0];
    ssize_t got = ebb__os_read(uffd, messages, most * sizeof messages[0]);
    if (got <= 0)
        return 0;
    size_t count = 0;
    for (size_t i = 0; i < (size_t)got / sizeof messages[0]; i++) {
        if (messages[i].event != UFFD_EVENT_PAGEFAULT)
            continue;
        faults[count].address = messages[i].arg.pagefault.address;
        faults[count].write =
            messages[i].arg.pagefault.flags & (UFFD_PAGEFAULT_FLAG_WRITE | UFFD_PAGEFAULT_FLAG_WP);
        count++;
    }
    return count;
}

bool ebb__uffd_fill(int uffd, uintptr_t address)
{
    struct uffdio_zeropage zero = {
        .range = {.start = address & ~(EBB_PAGE_BYTES - 1), .len = EBB_PAGE_BYTES}};
    while (ioctl(uffd, UFFDIO_ZEROPAGE, &zero) != 0) {
        if (errno == EAGAIN)
            continue;
        ioctl(uffd, UFFDIO_WAKE,
              &zero.range); /* EEXIST: the page is present; wake the waiting thread */
        return false;
    }
    return true;
}
