#include "device/kernel.h"
#include "device/os.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>

/* https://www.cve.org: the version ranges in the kernel's own records, both ends included. */
static const struct ebb_move_fault huge_fault = {"CVE-2024-27007", false};
static const struct ebb_move_fault swap_faults = {"CVE-2025-21984, CVE-2025-38242", true};
static const struct ebb_move_fault swap_fault = {"CVE-2025-38242", true};

static bool read_version(const char *text, struct ebb_kernel *kernel)
{
    struct ebb_kernel found = {0};
    if (sscanf(text, "%u.%u.%u", &found.major, &found.minor, &found.patch) < 2)
        return false;
    *kernel = found;
    return true;
}

bool ebb__kernel_parse(const char *release, const char *build, const char *signature,
                       struct ebb_kernel *kernel)
{
    static const char debian[] = "Debian ";
    const char *last = strrchr(signature, ' '), *package = strstr(build, debian);
    return (last && read_version(last + 1, kernel)) ||
           (package && read_version(package + strlen(debian), kernel)) ||
           read_version(release, kernel);
}

/* Reads the first line of a small file, at most bytes - 1 of it, or "" if it cannot be read. Uses
 * no stream: the shim calls this before it can serve its own allocations. */
static void read_line(const char *path, char *line, size_t bytes)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = file >= 0 ? ebb__os_read(file, line, bytes - 1) : 0;
    if (file >= 0)
        close(file);
    line[got > 0 ? got : 0] = 0;
    line[strcspn(line, "\n")] = 0;
}

bool ebb__kernel_look(struct ebb_kernel *kernel)
{
    struct utsname system;
    char signature[128];
    read_line("/proc/version_signature", signature, sizeof signature);
    return uname(&system) == 0 &&
           ebb__kernel_parse(system.release, system.version, signature, kernel);
}

const struct ebb_move_fault *ebb__kernel_move_fault(const struct ebb_kernel *kernel)
{
    if (!kernel || kernel->major < 6 || (kernel->major == 6 && kernel->minor < 8))
        return &swap_faults;
    if (kernel->major > 6 || kernel->minor > 15)
        return NULL;
    unsigned minor = kernel->minor, patch = kernel->patch;
    if (minor == 8 && patch < 8)
        return &huge_fault;
    if (minor < 12 || (minor == 12 && patch < 20) || (minor == 13 && patch < 8))
        return &swap_faults;
    bool is_mended = (minor == 12 && patch > 36) || (minor == 15 && patch > 4);
    return is_mended ? NULL : &swap_fault;
}

bool ebb__kernel_must_not_move(const struct ebb_move_fault *fault, bool may_swap, bool is_trusted)
{
    return fault && !is_trusted && (may_swap || !fault->needs_swap);
}

/* True if a cgroup (version 2) of this process, or one above it, forbids swap space. */
static bool group_forbids_swap(void)
{
    char groups[PATH_MAX], path[PATH_MAX + 64], limit[32];
    int file = open("/proc/self/cgroup", O_RDONLY | O_CLOEXEC);
    ssize_t got = file >= 0 ? ebb__os_read(file, groups, sizeof groups - 1) : 0;
    if (file >= 0)
        close(file);
    groups[got > 0 ? got : 0] = 0;
    char *group = strncmp(groups, "0::", 3) == 0 ? groups : strstr(groups, "\n0::");
    if (!group)
        return false;
    group += *group == '\n' ? 4 : 3;
    group[strcspn(group, "\n")] = 0;
    for (;;) {
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.swap.max", group);
        read_line(path, limit, sizeof limit);
        if (strcmp(limit, "0") == 0)
            return true;
        char *slash = strrchr(group, '/');
        if (!slash)
            return false;
        *slash = 0;
    }
}

bool ebb__kernel_may_swap(void)
{
    struct sysinfo system;
    bool has_swap = sysinfo(&system) != 0 || system.totalswap > 0;
    return has_swap && !group_forbids_swap();
}

bool ebb__kernel_is_trusted(void)
{
    const char *said = getenv("EBB_TRUST_MOVE");
    return said && *said && strcmp(said, "0") != 0;
}
