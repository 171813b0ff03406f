#include "device/room.h"
#include "device/os.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

static bool read_file(const char *path, char *text, size_t bytes)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = file >= 0 ? ebb__os_read(file, text, bytes - 1) : 0;
    if (file >= 0)
        close(file);
    text[got > 0 ? got : 0] = 0;
    return got > 0;
}

uint64_t ebb__room_within(uint64_t limit_bytes, uint64_t used_bytes, uint64_t memory_bytes)
{
    uint64_t kept = used_bytes + memory_bytes;
    return limit_bytes > kept ? limit_bytes - kept : 0;
}

/* Counts pages of all mappings, and of private writable ones. Without /proc it counts too few. The
 * reserve for all memory makes up for that. */
static void count_used(uint64_t *all_bytes, uint64_t *data_bytes)
{
    char text[256], *at = text;
    unsigned long long pages[6] = {0};
    if (read_file("/proc/self/statm", text, sizeof text))
        for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++)
            pages[i] = strtoull(at, &at, 10);
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    *all_bytes = pages[0] * page_bytes;
    *data_bytes = pages[5] * page_bytes;
}

struct ebb_room ebb__room_look(void)
{
    char mode[8];
    if (read_file("/proc/sys/vm/overcommit_memory", mode, sizeof mode) && mode[0] == '2')
        return (struct ebb_room){0, "vm.overcommit_memory=2, which counts what is only reserved"};
    struct ebb_room room = {UINT64_MAX, NULL};
    struct sysinfo system;
    uint64_t used[2], memory_bytes = (uint64_t)1 << 40;
    count_used(&used[0], &used[1]);
    if (sysinfo(&system) == 0)
        memory_bytes = ((uint64_t)system.totalram + system.totalswap) * system.mem_unit;
    static const char *const names[] = {"a limit of address space (ulimit -v)",
                                        "a limit of data (ulimit -d)"};
    for (int i = 0; i < 2; i++) {
        struct rlimit limit;
        if (getrlimit(i ? RLIMIT_DATA : RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
            continue;
        uint64_t bytes = ebb__room_within(limit.rlim_cur, used[i], memory_bytes);
        if (bytes < room.bytes)
            room = (struct ebb_room){bytes, names[i]};
    }
    return room;
}
