#include "free_memory.h"

#include "base/size.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Names of a version's files, and of the counter of files that the kernel can drop. */
struct version {
    const char *folder, *limit, *usage, *droppable;
};

static const struct version versions[] = {
    {"/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file %llu"},
    {"", "memory.max", "memory.current", "inactive_file %llu"},
};

/* The first line of the file that has this format. */
static bool read_number(const char *folder, const char *name, const char *format, uint64_t *value)
{
    char path[2 * PATH_MAX], line[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    bool found = false;
    while (file && !found && fgets(line, sizeof line, file)) {
        unsigned long long number;
        found = sscanf(line, format, &number) == 1;
        if (found)
            *value = number;
    }
    if (file)
        fclose(file);
    return found;
}

static uint64_t free_of_group(const struct version *version, const char *folder)
{
    uint64_t limit, usage, droppable = 0;
    if (!read_number(folder, version->limit, "%llu", &limit) || /* "max": there is none */
        !read_number(folder, version->usage, "%llu", &usage))
        return UINT64_MAX;
    read_number(folder, "memory.stat", version->droppable, &droppable);
    uint64_t used = usage > droppable ? usage - droppable : 0;
    return limit > used ? limit - used : 0;
}

/* Of this group and all that it lies in. In a container, the path may be that of the host, and not
 * be there. The container's own group is the root then. */
static uint64_t free_of_groups(const struct version *version, const char *root, const char *path)
{
    char folder[2 * PATH_MAX];
    int length = snprintf(folder, sizeof folder, "%s%s%s", root, version->folder, path);
    size_t shortest = strlen(root) + strlen(version->folder);
    uint64_t least = UINT64_MAX;
    if (length < 0 || (size_t)length >= sizeof folder)
        return least;
    for (;;) {
        uint64_t bytes = free_of_group(version, folder);
        if (bytes < least)
            least = bytes;
        char *slash = strrchr(folder, '/');
        if (strlen(folder) <= shortest || !slash)
            return least;
        *slash = 0;
    }
}

uint64_t ebb__cgroup_free_bytes(const char *of, const char *root)
{
    FILE *file = fopen(of, "re");
    char line[PATH_MAX + 64];
    uint64_t least = UINT64_MAX;
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = 0;
        bool unified = controllers[1] == 0;
        if (!unified && !strstr(controllers + 1, "memory"))
            continue;
        uint64_t bytes = free_of_groups(&versions[unified], root, path);
        if (bytes < least)
            least = bytes;
    }
    if (file)
        fclose(file);
    return least;
}

uint64_t ebb__own_cgroup_free_bytes(void)
{
    return ebb__cgroup_free_bytes("/proc/self/cgroup", "/sys/fs/cgroup");
}

uint64_t ebb__free_memory_budget(void)
{
    uint64_t available = UINT64_MAX, kib, limited = ebb__own_cgroup_free_bytes();
    if (read_number("/proc", "meminfo", "MemAvailable: %llu kB", &kib))
        available = kib * EBB_KIB;
    if (limited < available)
        available = limited;
    if (available == UINT64_MAX)
        return available;
    uint64_t budget = available / 10 * 9;
    return budget > EBB_MIB ? budget : EBB_MIB;
}
