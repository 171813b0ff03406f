#include "device/runs.h"

#include "device/os.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Such a part of a process's mappings may begin a run in the arena, half of it in staging. */
#define ARENA_DIVISOR 4u
#define MAPPINGS_WHERE_UNKNOWN 65530ul /* the kernel's default */

static struct {
    uintptr_t base;
    uint64_t arena_units, units;
    unsigned char *begins;
    unsigned long most;     /* permitted per process */
    unsigned long count[2]; /* in the arena and in staging */
} runs;

static unsigned long most_mappings(void)
{
    char text[24] = "";
    int file = open("/proc/sys/vm/max_map_count", O_RDONLY | O_CLOEXEC);
    ssize_t got = file >= 0 ? ebb__os_read(file, text, sizeof text - 1) : 0;
    if (file >= 0)
        close(file);
    return got > 0 ? strtoul(text, NULL, 10) : MAPPINGS_WHERE_UNKNOWN;
}

bool ebb__runs_open(const struct ebb_device_layout *layout)
{
    if (runs.begins)
        return true;
    runs.base = layout->arena.base;
    runs.arena_units = layout->arena.bytes / EBB_HUGE_BYTES;
    runs.units = runs.arena_units + layout->staging.bytes / EBB_HUGE_BYTES;
    void *table = mmap(NULL, runs.units, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (table == MAP_FAILED)
        return false;
    runs.begins = table;
    runs.most = most_mappings();
    return true;
}

void ebb__runs_close(void)
{
    if (runs.begins)
        munmap(runs.begins, runs.units);
    memset(&runs, 0, sizeof runs);
}

bool ebb__runs_begins(uintptr_t address)
{
    uint64_t unit = (address - runs.base) / EBB_HUGE_BYTES;
    return unit < runs.units && runs.begins[unit];
}

void ebb__runs_note(uintptr_t address, bool begins)
{
    uint64_t unit = (address - runs.base) / EBB_HUGE_BYTES;
    if (unit >= runs.units || runs.begins[unit] == begins)
        return;
    runs.begins[unit] = begins;
    runs.count[unit >= runs.arena_units] += begins ? 1ul : -1ul;
}

bool ebb__runs_full_in_arena(void)
{
    return runs.count[0] >= runs.most / ARENA_DIVISOR;
}

bool ebb__runs_many_in_staging(void)
{
    return runs.count[1] >= runs.most / (2 * ARENA_DIVISOR) / 2;
}

bool ebb__runs_full_in_staging(void)
{
    return runs.count[1] >= runs.most / (2 * ARENA_DIVISOR);
}
