#include "device/trial.h"

#include "device/os.h"
#include "device/uffd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* The steps, in the order of their trial. */
enum step {
    STEP_NONE,
    STEP_LIMIT,
    STEP_NODE,
    STEP_CALL,
    STEP_USER_CALL,
    STEP_API,
    STEP_REGISTER,
    STEP_FILL,
    STEP_WAKE,
    STEP_COPY,
    STEP_MOVE,
    STEP_UNREGISTER,
    STEP_REMAP,
    STEPS
};

/* The feature that is refused if a step kills or a filter forbids it. */
static const char *const needed_by[STEPS] = {
    [STEP_NODE] = "node",      [STEP_CALL] = "call",     [STEP_USER_CALL] = "call",
    [STEP_API] = "uffd",       [STEP_REGISTER] = "uffd", [STEP_FILL] = "uffd",
    [STEP_WAKE] = "uffd",      [STEP_COPY] = "uffd",     [STEP_MOVE] = "move",
    [STEP_UNREGISTER] = "uffd"};

/* Shared by the process and the child that tries. */
struct notes {
    volatile enum step now;
    volatile unsigned deadly, forbidden; /* one bit per step */
};

#define PAGES 4

unsigned ebb__trial_filters(void)
{
    if (prctl(PR_GET_SECCOMP) != SECCOMP_MODE_FILTER)
        return 0;
    char text[4096];
    int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    ssize_t got = file >= 0 ? ebb__os_read(file, text, sizeof text - 1) : 0;
    if (file >= 0)
        close(file);
    text[got > 0 ? got : 0] = 0;
    const char *line = strstr(text, "\nSeccomp_filters:"); /* Linux 5.9 */
    unsigned count;
    return line && sscanf(line, "\nSeccomp_filters: %u", &count) == 1 && count ? count : 1;
}

static bool is_tried(struct notes *notes, enum step step)
{
    notes->now = step;
    return !(notes->deadly & 1u << step);
}

/* Notes a failure of the last step as forbidden if a filter may return this error. Other errors are
 * the kernel's. */
static void note_failure(struct notes *notes)
{
    if (errno == EPERM || errno == EACCES || errno == ENOSYS)
        notes->forbidden |= 1u << notes->now;
}

static void try_request(struct notes *notes, enum step step, int uffd, unsigned long request,
                        void *argument)
{
    if (is_tried(notes, step) && ioctl(uffd, request, argument) != 0)
        note_failure(notes);
}

/* Agrees upon the API, with MOVE if the kernel has it. */
static bool agree(int uffd, enum ebb_uffd_door door, int *agreed, bool *has_move)
{
    struct uffdio_api api = {.api = UFFD_API};
    if (ioctl(uffd, UFFDIO_API, &api) != 0)
        return false;
    api = (struct uffdio_api){.api = UFFD_API, .features = api.features & UFFD_FEATURE_MOVE};
    *has_move = api.features != 0;
    *agreed = ebb__uffd_enter(door);
    return *agreed >= 0 && ioctl(*agreed, UFFDIO_API, &api) == 0;
}

static void try_descriptor(struct notes *notes, int uffd, enum ebb_uffd_door door, uintptr_t memory)
{
    int agreed = -1;
    bool has_move = false;
    if (!is_tried(notes, STEP_API))
        return;
    if (!agree(uffd, door, &agreed, &has_move)) {
        note_failure(notes);
        return;
    }
    static _Alignas(4096) unsigned char page[EBB_PAGE_BYTES];
    struct uffdio_register all = {.range = {memory, PAGES * EBB_PAGE_BYTES},
                                  .mode = UFFDIO_REGISTER_MODE_MISSING};
    struct uffdio_zeropage zero = {.range = {memory, EBB_PAGE_BYTES}};
    struct uffdio_range whole = all.range;
    struct uffdio_copy copy = {
        .dst = memory + EBB_PAGE_BYTES, .src = (uintptr_t)page, .len = EBB_PAGE_BYTES};
    struct uffdio_move move = {
        .dst = memory + 2 * EBB_PAGE_BYTES, .src = memory + EBB_PAGE_BYTES, .len = EBB_PAGE_BYTES};
    try_request(notes, STEP_REGISTER, agreed, UFFDIO_REGISTER, &all);
    try_request(notes, STEP_FILL, agreed, UFFDIO_ZEROPAGE, &zero);
    try_request(notes, STEP_WAKE, agreed, UFFDIO_WAKE, &whole);
    try_request(notes, STEP_COPY, agreed, UFFDIO_COPY, &copy);
    if (has_move && !ebb__host_refused("move"))
        try_request(notes, STEP_MOVE, agreed, UFFDIO_MOVE, &move);
    try_request(notes, STEP_UNREGISTER, agreed, UFFDIO_UNREGISTER, &whole);
}

/* Runs in the child. It tries every way to open userfaultfd: one may be closed when the program
 * forks. */
static void try_all(struct notes *notes, uintptr_t memory)
{
    static const struct {
        enum step step;
        enum ebb_uffd_door door;
    } doors[] = {{STEP_NODE, EBB_UFFD_NODE},
                 {STEP_CALL, EBB_UFFD_CALL},
                 {STEP_USER_CALL, EBB_UFFD_USER_CALL}};
    struct rlimit no_core = {0, 0};
    if (is_tried(notes, STEP_LIMIT))
        setrlimit(RLIMIT_CORE, &no_core);
    int uffd = -1;
    enum ebb_uffd_door entered = EBB_UFFD_CLOSED;
    for (size_t i = 0; i < sizeof doors / sizeof doors[0]; i++) {
        int found = is_tried(notes, doors[i].step) ? ebb__uffd_enter(doors[i].door) : -1;
        if (found >= 0 && uffd < 0) {
            uffd = found;
            entered = doors[i].door;
        }
    }
    if (uffd >= 0)
        try_descriptor(notes, uffd, entered, memory);
    if (is_tried(notes, STEP_REMAP))
        ebb__os_remap(memory + 3 * EBB_PAGE_BYTES, memory, EBB_PAGE_BYTES);
    notes->now = STEP_NONE;
}

static void refuse(unsigned steps)
{
    for (unsigned step = 0; step < STEPS; step++) {
        if (steps & 1u << step && step == STEP_REMAP) {
            ebb__host_refuse("remap");
            ebb__host_refuse("protect");
        } else if (steps & 1u << step && needed_by[step]) {
            ebb__host_refuse(needed_by[step]);
        }
    }
}

/* Returns false if no child could be made. */
static bool try_in_child(struct notes *notes, uintptr_t memory, bool *died)
{
    /* No handler of the program sees this fork, and the child's end sends no signal. */
    long child = syscall(SYS_clone, 0ul, NULL, NULL, NULL, NULL);
    if (child == 0) {
        try_all(notes, memory);
        syscall(SYS_exit_group, 0);
    }
    int status = 0;
    long ended = child;
    if (child > 0)
        do
            ended = syscall(SYS_wait4, child, &status, __WALL, NULL);
        while (ended < 0 && errno == EINTR);
    *died = WIFSIGNALED(status);
    return child > 0 && ended == child;
}

struct ebb_trial ebb__trial_run(void)
{
    struct ebb_trial result = {0};
    size_t bytes = EBB_PAGE_BYTES;
    struct notes *notes =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char *memory =
        mmap(NULL, PAGES * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool died = notes != MAP_FAILED && memory != MAP_FAILED;
    /* Each death refuses a step, so there are fewer than STEPS of them. */
    while (died && !result.is_complete) {
        if (!try_in_child(notes, (uintptr_t)memory, &died))
            break;
        result.deaths += died;
        result.is_complete = !died;
        if (died && (notes->now == STEP_NONE || notes->deadly & 1u << notes->now))
            break; /* it died of something else: nothing was learnt */
        if (died)
            notes->deadly |= 1u << notes->now;
    }
    refuse(result.is_complete ? notes->deadly | notes->forbidden : ~0u);
    if (notes != MAP_FAILED)
        munmap(notes, bytes);
    if (memory != MAP_FAILED)
        munmap(memory, PAGES * bytes);
    return result;
}
