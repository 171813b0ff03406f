#include "launch.h"

#include "base/clock.h"
#include "runtime/protocol.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *const shim_names[] = {
    [EBB_SHIM_MALLOC] = "libebb_malloc.so",
    [EBB_SHIM_CUDA] = "libebb_cuda.so",
};

/* A program without a hello by then does not run under Ebb: the shim says hello before main(). */
#define HELLO_TIMEOUT_NS ((uint64_t)5000000000)
#define MOST_POLLED 256

void ebb__launch_warn(void *context, const char *message)
{
    (void)context;
    fprintf(stderr, "ebb: %s\n", message);
}

/* Finds the path of this program. Without /proc it is the name by which the program was called. */
static bool find_own_path(char *path, size_t bytes)
{
    ssize_t length = readlink("/proc/self/exe", path, bytes - 1);
    if (length > 0) {
        path[length] = 0;
        return true;
    }
    const char *called = (const char *)(uintptr_t)getauxval(AT_EXECFN);
    char resolved[PATH_MAX];
    return called && realpath(called, resolved) &&
           (size_t)snprintf(path, bytes, "%s", resolved) < bytes;
}

void ebb__launch_command_text(char *const *argv, char *out, size_t bytes)
{
    size_t used = 0;
    out[0] = 0;
    for (int i = 0; argv[i] && used + 1 < bytes; i++) {
        int wrote = snprintf(out + used, bytes - used, "%s%s", i ? " " : "", argv[i]);
        used += wrote > 0 ? (size_t)wrote : 0;
    }
    if (used < bytes)
        return;
    size_t last = bytes - 2; /* a character of UTF-8 is not cut in two */
    while (last && ((unsigned char)out[last] & 0xC0) == 0x80)
        last--;
    unsigned char lead = (unsigned char)out[last];
    size_t whole = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
    if (last + whole > bytes - 1)
        out[last] = 0;
}

bool ebb__launch_find_shim(enum ebb_shim_kind kind, char *path, size_t bytes)
{
    const char *name = shim_names[kind];
    if (!find_own_path(path, bytes))
        return false;
    char *slash = strrchr(path, '/');
    if (!slash || (size_t)(slash + 1 - path) + strlen(name) + 1 > bytes)
        return false;
    strcpy(slash + 1, name);
    return access(path, R_OK) == 0;
}

bool ebb__launch_shim_fits(const char *path)
{
    return !strpbrk(path, " \t\n:");
}

/* Returns false, with a message, if a library to preload has a path that cannot be preloaded. */
static bool check_place(const struct ebb_launch *launch)
{
    char shim[PATH_MAX];
    for (int i = 0; i < EBB_SHIM_COUNT; i++) {
        if (!launch->shims.has[i] ||
            !ebb__launch_find_shim((enum ebb_shim_kind)i, shim, sizeof shim) ||
            ebb__launch_shim_fits(shim))
            continue; /* a missing one is told when the program starts */
        fprintf(stderr,
                "ebb: %s: %s: its path has a blank or a colon, which LD_PRELOAD cannot hold\n"
                "ebb: install Ebb in another folder\n",
                launch->command_name, shim);
        return false;
    }
    return true;
}

/* Puts the shims first in LD_PRELOAD and sets the settings. Removes nothing. */
static bool set_environment(const struct ebb_launch *launch, const struct ebb_parent *parent)
{
    const char *before = getenv("LD_PRELOAD");
    size_t bytes = (before ? strlen(before) : 0) + EBB_SHIM_COUNT * (PATH_MAX + 1) + 1, used = 0;
    char *preload = malloc(bytes);
    if (!preload)
        return false;
    for (int i = 0; i < EBB_SHIM_COUNT; i++) {
        char shim[PATH_MAX];
        if (!launch->shims.has[i])
            continue;
        if (!ebb__launch_find_shim((enum ebb_shim_kind)i, shim, sizeof shim)) {
            free(preload);
            return false;
        }
        used += (size_t)snprintf(preload + used, bytes - used, "%s%s", used ? ":" : "", shim);
    }
    if (before && *before)
        snprintf(preload + used, bytes - used, ":%s", before);
    bool good = setenv("LD_PRELOAD", preload, 1) == 0 &&
                ebb__settings_apply(launch->settings, launch->setting_count) &&
                putenv((char *)(uintptr_t)ebb__parent_environment(parent)) == 0;
    free(preload);
    return good;
}

static const int forwarded[] = {SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGWINCH, SIGCONT};

/* State of this process that is restored for the program. */
struct inheritance {
    sigset_t mask;
    struct sigaction pipe, child;
    struct rlimit files;
};

/* Raises the limit as far as permitted: this process needs a descriptor for each process of the
 * run. */
static void raise_file_limit(struct rlimit *before)
{
    if (getrlimit(RLIMIT_NOFILE, before) != 0)
        *before = (struct rlimit){RLIM_INFINITY, RLIM_INFINITY};
    struct rlimit most = {before->rlim_max, before->rlim_max};
    setrlimit(RLIMIT_NOFILE, &most);
}

static void hand_back(const struct inheritance *before)
{
    sigaction(SIGPIPE, &before->pipe, NULL);
    sigaction(SIGCHLD, &before->child, NULL);
    sigprocmask(SIG_SETMASK, &before->mask, NULL);
    if (before->files.rlim_cur != RLIM_INFINITY)
        setrlimit(RLIMIT_NOFILE, &before->files);
}

/* Signals that this process reads from a descriptor: those that it forwards, CHLD, and INT and
 * QUIT. The terminal sends these two to the whole group, with the program. SIGPIPE is ignored, so
 * that a closed output does not end this process in place of the program's own end. If CHLD were
 * ignored, the system would not keep how the program ends. */
static int watch_signals(struct inheritance *before)
{
    const struct sigaction ignore = {.sa_handler = SIG_IGN}, usual = {.sa_handler = SIG_DFL};
    sigaction(SIGPIPE, &ignore, &before->pipe);
    sigaction(SIGCHLD, &usual, &before->child);
    raise_file_limit(&before->files);
    sigset_t watched;
    sigemptyset(&watched);
    for (size_t i = 0; i < sizeof forwarded / sizeof forwarded[0]; i++)
        sigaddset(&watched, forwarded[i]);
    sigaddset(&watched, SIGINT);
    sigaddset(&watched, SIGQUIT);
    sigaddset(&watched, SIGCHLD);
    sigprocmask(SIG_BLOCK, &watched, &before->mask);
    /* If a file exceeds the limit (ulimit -f), the write must fail, not kill this process. */
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGXFSZ);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    return signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
}

static void forward_signals(int descriptor, pid_t program)
{
    struct signalfd_siginfo info;
    while (read(descriptor, &info, sizeof info) == (ssize_t)sizeof info) {
        int number = (int)info.ssi_signo;
        if (number == SIGCHLD)
            continue;
        /* INT and QUIT from the terminal (SI_KERNEL) have also reached the program. */
        if ((number == SIGINT || number == SIGQUIT) && info.ssi_code == SI_KERNEL)
            continue;
        kill(program, number);
    }
}

/* True if process `program` runs a statically linked program, into which no shim can be loaded. */
static bool is_static(pid_t program)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/exe", (long)program);
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return false;
    Elf64_Ehdr header;
    bool has_interpreter = false;
    bool good = pread(descriptor, &header, sizeof header, 0) == (ssize_t)sizeof header &&
                memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
                header.e_ident[EI_CLASS] == ELFCLASS64;
    for (int i = 0; good && i < header.e_phnum; i++) {
        Elf64_Phdr segment;
        off_t at = (off_t)(header.e_phoff + (uint64_t)i * sizeof segment);
        if (pread(descriptor, &segment, sizeof segment, at) != (ssize_t)sizeof segment)
            break;
        has_interpreter |= segment.p_type == PT_INTERP;
    }
    close(descriptor);
    return good && !has_interpreter;
}

/* Starts the program. Returns 0 and sets *program, or returns the errno of exec. */
static int start_program(const struct ebb_launch *launch, struct ebb_parent *parent,
                         const struct inheritance *before, pid_t *program)
{
    int report[2];
    *program = -1;
    if (pipe2(report, O_CLOEXEC) != 0)
        return errno;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        hand_back(before);
        fcntl(ebb__parent_inherited(parent), F_SETFD, 0);
        int why = ELIBACC; /* the library to preload is not in its place */
        if (set_environment(launch, parent)) {
            execvp(launch->argv[0], launch->argv);
            why = errno;
        }
        if (write(report[1], &why, sizeof why) < 0)
            _exit(EBB_EXIT_OWN_FAILURE);
        _exit(EBB_EXIT_NOT_FOUND);
    }
    int why = child < 0 ? errno : 0;
    close(report[1]);
    if (child > 0) {
        ebb__parent_set_main(parent, child);
        ssize_t got;
        do
            got = read(report[0], &why, sizeof why);
        while (got < 0 && errno == EINTR);
        if (got == (ssize_t)sizeof why)
            waitpid(child, NULL, 0);
        else
            why = 0;
    }
    close(report[0]);
    *program = child;
    return why;
}

static void stop_program(pid_t program, int *wait_status)
{
    kill(program, SIGTERM);
    for (int i = 0; i < 20; i++) {
        if (waitpid(program, wait_status, WNOHANG) == program)
            return;
        usleep(50000);
    }
    kill(program, SIGKILL);
    waitpid(program, wait_status, 0);
}

/* Warns once that the program runs without the shim. Returns true if it must stop for that. */
static bool complain(const struct ebb_launch *launch, bool is_static)
{
    const char *why = is_static ? "statically linked" : "no hello from its main process";
    if (!launch->quiet || launch->strict)
        fprintf(stderr, "ebb: %s: %s: %s is not under Ebb, the budget is NOT enforced\n",
                launch->command_name, why, launch->argv[0]);
    return launch->strict;
}

static void serve_to_the_end(const struct ebb_launch *launch, struct ebb_parent *parent,
                             pid_t program, int signals, struct ebb_launch_result *result)
{
    uint64_t began = ebb__now_ns();
    bool complained = false, was_static = false;
    struct rusage usage = {0};
    for (;;) {
        int wait_ms = ebb__parent_step(parent);
        pid_t ended = wait4(program, &result->wait_status, WNOHANG, &usage);
        if (ended == program || (ended < 0 && errno == ECHILD))
            break;
        bool is_awaited = !complained && !ebb__parent_main_said_hello(parent);
        if (is_awaited)
            was_static = is_static(program); /* it may still start one that is not */
        if (is_awaited && ebb__now_ns() - began > HELLO_TIMEOUT_NS) {
            complained = true;
            if (complain(launch, was_static)) {
                stop_program(program, &result->wait_status);
                result->exit_code = EBB_EXIT_OWN_FAILURE;
                return;
            }
        }
        struct pollfd polled[MOST_POLLED];
        polled[0] = (struct pollfd){.fd = signals, .events = POLLIN};
        size_t count = 1 + ebb__parent_descriptors(parent, polled + 1, MOST_POLLED - 1);
        poll(polled, (nfds_t)count, wait_ms);
        forward_signals(signals, program);
    }
    ebb__parent_step(parent);
    result->peak_rss_bytes = (uint64_t)usage.ru_maxrss * 1024;
    if (!complained && !ebb__parent_main_said_hello(parent) && complain(launch, was_static))
        result->exit_code = EBB_EXIT_OWN_FAILURE;
}

struct ebb_launch_result ebb__launch(const struct ebb_launch *launch, struct ebb_parent *parent)
{
    struct ebb_launch_result result = {.exit_code = -1};
    struct inheritance before;
    if (!check_place(launch)) {
        result.exit_code = EBB_EXIT_OWN_FAILURE;
        return result;
    }
    int signals = watch_signals(&before);
    /* A fixed threshold, so that freed windows of events return to the system, whatever their
     * size. */
    mallopt(M_MMAP_THRESHOLD, 16 << 10);
    uint64_t began = ebb__now_ns();
    pid_t program = -1;
    int why = start_program(launch, parent, &before, &program);
    if (why) {
        fprintf(stderr, "ebb: %s: %s: %s\n", launch->command_name, launch->argv[0], strerror(why));
        result.exit_code = program < 0 || why == ELIBACC     ? EBB_EXIT_OWN_FAILURE
                           : why == ENOENT || why == ENOTDIR ? EBB_EXIT_NOT_FOUND
                                                             : EBB_EXIT_NOT_EXECUTABLE;
        return result;
    }
    serve_to_the_end(launch, parent, program, signals, &result);
    result.elapsed_ns = ebb__now_ns() - began;
    close(signals);
    return result;
}

void ebb__launch_exit(const struct ebb_launch_result *result)
{
    fflush(NULL);
    if (result->exit_code >= 0)
        exit(result->exit_code);
    if (WIFSIGNALED(result->wait_status)) {
        int number = WTERMSIG(result->wait_status);
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none); /* the program has dumped its own core */
        signal(number, SIG_DFL);
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, number);
        raise(number);
        sigprocmask(SIG_UNBLOCK, &set, NULL);
        exit(128 + number);
    }
    exit(WEXITSTATUS(result->wait_status));
}
