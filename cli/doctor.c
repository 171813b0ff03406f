/* `ebb doctor`: what this machine supports, one line per item, with one remedy if something is
 * missing. Every answer comes from the code that a run uses. */
#include "doctor.h"
#include "command.h"
#include "free_memory.h"
#include "launch.h"
#include "options.h"
#include "output.h"
#include "place.h"
#include "store_dir.h"

#include "base/size.h"
#include "device/room.h"
#include "store/store.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#define PROBE_BYTES ((uint64_t)128 << 20) /* per direction; a run measures with more bytes */
/* On slower disks most budgets cost time. */
#define SLOW_BPS 300e6
/* With less space, a training's evicted blocks may not fit. */
#define LITTLE_ROOM_BYTES ((uint64_t)4 << 30)
#define MOST_MEMORY_BYTES ((uint64_t)1 << 56)
#define USUAL_MAPPINGS 65530ul /* the kernel's default */

static int kernel_version(void)
{
    struct utsname system;
    int major = 0, minor = 0;
    if (uname(&system) != 0 || sscanf(system.release, "%d.%d", &major, &minor) != 2)
        return 0;
    return major * 100 + minor;
}

static void check_kernel(struct ebb_doctor *report)
{
    struct utsname system;
    uname(&system);
    int version = kernel_version();
    ebb__doctor_add(report, "kernel", version >= 608 ? EBB_DOCTOR_OK : EBB_DOCTOR_WARN,
                    "Linux 6.8 or later moves pages without changing mappings", "%s %s on %s",
                    system.sysname, system.release, system.machine);
    ebb__doctor_add(report, "page-tables", version >= 614 ? EBB_DOCTOR_OK : EBB_DOCTOR_WARN,
                    "Linux 6.14 or later reclaims empty page tables, so that huge pages stay whole",
                    version >= 614 ? "empty ones are reclaimed"
                                   : "empty ones are kept: huge pages may be split");
}

static void check_place(struct ebb_doctor *report)
{
    const struct ebb_host_support *support = &report->support;
    report->place = ebb__place_look();
    ebb__doctor_add(report, "container", EBB_DOCTOR_OK, "", "%s", ebb__place_name(report->place));
    if (support->filters == 0)
        ebb__doctor_add(report, "seccomp", EBB_DOCTOR_OK, "", "no filter");
    else
        ebb__doctor_add(
            report, "seccomp", support->deaths ? EBB_DOCTOR_WARN : EBB_DOCTOR_OK,
            "let the profile refuse userfaultfd with an error, or permit it: docs/containers.md",
            support->deaths
                ? "%u filters, which kill for %u of the things that Ebb would do: it does "
                  "not"
                : "%u filters, which kill for nothing that Ebb does",
            support->filters, support->deaths);
}

static void check_faults(struct ebb_doctor *report)
{
    const struct ebb_host_support *support = &report->support;
    static const char *const doors[] = {
        [EBB_UFFD_NODE] = "by /dev/userfaultfd: faults of programs and of system calls",
        [EBB_UFFD_CALL] = "by the system call: faults of programs and of system calls",
        [EBB_UFFD_USER_CALL] = "by the system call, for users: faults of programs only, buffers of "
                               "system calls are fetched beforehand",
    };
    /* In a container, the host may have it, even if it is invisible here. */
    bool has_node = access("/dev/userfaultfd", F_OK) == 0 ||
                    (kernel_version() >= 601 && report->place != EBB_PLACE_HOST);
    const char *remedy = kernel_version() < 511 && report->place == EBB_PLACE_HOST
                             ? "run as root, or as root: sysctl vm.unprivileged_userfaultfd=1"
                             : ebb__place_remedy(report->place, has_node);
    if (!support->has_uffd)
        ebb__doctor_add(report, "userfaultfd",
                        support->has_protect ? EBB_DOCTOR_WARN : EBB_DOCTOR_FAIL, remedy,
                        "none: %s", strerror(support->uffd_errno));
    else
        ebb__doctor_add(report, "userfaultfd",
                        support->kernel_faults ? EBB_DOCTOR_OK : EBB_DOCTOR_WARN, remedy, "%s",
                        doors[support->door]);
}

static void check_move(struct ebb_doctor *report)
{
    const struct ebb_host_support *support = &report->support;
    const struct ebb_move_fault *fault = support->move_fault;
    if (support->move_is_avoided)
        ebb__doctor_add(
            report, "move", EBB_DOCTOR_WARN,
            fault->needs_swap
                ? "swapoff -a; or systemd-run --scope -p MemorySwapMax=0 ebb run ...; or "
                  "EBB_TRUST_MOVE=1 if your distribution has mended this kernel"
                : "another kernel; or EBB_TRUST_MOVE=1 if your distribution has mended "
                  "this one",
            "avoided: UFFDIO_MOVE of this kernel may have %s%s", fault->names,
            fault->needs_swap ? ", and its pages may be swapped out" : "");
    else if (!support->has_move)
        ebb__doctor_add(report, "move", EBB_DOCTOR_WARN,
                        "Linux 6.8 or later with CONFIG_USERFAULTFD moves pages",
                        "no UFFDIO_MOVE: evictions and fetches change mappings");
    else if (fault)
        ebb__doctor_add(report, "move", EBB_DOCTOR_OK, "",
                        "UFFDIO_MOVE; this kernel may have %s: %s", fault->names,
                        fault->needs_swap && !support->may_swap
                            ? "harmless without swap space"
                            : "EBB_TRUST_MOVE says that it has not");
    else
        ebb__doctor_add(report, "move", EBB_DOCTOR_OK, "",
                        "UFFDIO_MOVE: pages move without being copied");
    ebb__doctor_add(report, "device",
                    support->kind == EBB_DEVICE_NONE        ? EBB_DOCTOR_FAIL
                    : support->kind == EBB_DEVICE_UFFD_MOVE ? EBB_DOCTOR_OK
                                                            : EBB_DOCTOR_WARN,
                    "see the lines above; with none of them programs run unmanaged", "%s",
                    ebb__device_name(support->kind));
}

/* Checks limits of addresses and mappings. */
static void check_limits(struct ebb_doctor *report)
{
    struct ebb_room room = ebb__room_look();
    char maps[32] = "", size[32];
    unsigned long most = ebb__doctor_line("/proc/sys/vm/max_map_count", maps, sizeof maps)
                             ? strtoul(maps, NULL, 10)
                             : USUAL_MAPPINGS;
    bool is_counted = room.bytes < EBB_ROOM_LEAST_BYTES;
    if (is_counted)
        ebb__doctor_add(report, "limits", EBB_DOCTOR_FAIL,
                        strstr(room.counted, "overcommit")
                            ? "as root: sysctl vm.overcommit_memory=0"
                        : strstr(room.counted, "-v") ? "ulimit -v unlimited"
                                                     : "ulimit -d unlimited",
                        "there is %s: programs would run unmanaged", room.counted);
    else
        ebb__doctor_add(report, "limits", most < USUAL_MAPPINGS ? EBB_DOCTOR_WARN : EBB_DOCTOR_OK,
                        "as root: sysctl vm.max_map_count=65530", "addresses: %s; mappings: %lu",
                        room.counted ? ebb_size_format(room.bytes, size, sizeof size)
                                     : "as many as there are",
                        most);
}

static void check_huge_pages(struct ebb_doctor *report)
{
    char setting[128];
    bool known =
        ebb__doctor_line("/sys/kernel/mm/transparent_hugepage/enabled", setting, sizeof setting);
    bool good = known && (strstr(setting, "[madvise]") || strstr(setting, "[always]"));
    ebb__doctor_add(
        report, "huge-pages", good ? EBB_DOCTOR_OK : EBB_DOCTOR_WARN,
        "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled: small pages move ten times "
        "slower",
        "transparent huge pages: %s", known ? setting : "not in this kernel");
}

static void check_store(struct ebb_doctor *report, const char *given)
{
    struct ebb_error error;
    struct ebb_store store;
    char size[32];
    if (ebb__store_dir_find(given, report->store, sizeof report->store, &error) != EBB_OK) {
        report->store[0] = 0;
        ebb__doctor_add(report, "store", EBB_DOCTOR_FAIL,
                        error.remedy[0] ? error.remedy : "name one with --store DIR", "%s: %s",
                        error.what, error.why);
        return;
    }
    if (ebb__store_file_open(report->store, UINT64_MAX, &store, &error) != EBB_OK) {
        ebb__doctor_add(report, "store", EBB_DOCTOR_FAIL,
                        "--store takes a directory that you may write to", "%s: %s", error.what,
                        error.why);
        return;
    }
    int descriptor = -1;
    store.ops->descriptors(store.state, &descriptor, 1);
    bool direct = (fcntl(descriptor, F_GETFL) & O_DIRECT) != 0;
    bool in_memory = ebb__directory_in_memory(report->store);
    struct statfs status = {0};
    uint64_t room = fstatfs(descriptor, &status) == 0
                        ? (uint64_t)status.f_bavail * (uint64_t)status.f_bsize
                        : 0;
    store.ops->close(store.state);
    ebb__doctor_add(
        report, "store",
        !direct || in_memory || room < LITTLE_ROOM_BYTES ? EBB_DOCTOR_WARN : EBB_DOCTOR_OK,
        in_memory                  ? "name a directory on a disk: --store DIR"
        : room < LITTLE_ROOM_BYTES ? "free some space there, or name another: --store DIR"
                                   : "a file system with O_DIRECT (ext4, xfs, btrfs) is faster",
        "%s, %s, %s free", report->store,
        in_memory ? "in memory"
        : direct  ? "past the page cache"
                  : "through the page cache",
        ebb_size_format(room, size, sizeof size));
    report->probed =
        ebb__machine_probe(report->store, PROBE_BYTES, &report->machine, &error) == EBB_OK;
    if (!report->probed) {
        ebb__doctor_add(report, "lanes", EBB_DOCTOR_FAIL,
                        "see that the disk of the store is not full", "%s: %s", error.what,
                        error.why);
        return;
    }
    double out_bps = 1e9 / report->machine.out.ns_per_byte;
    double in_bps = 1e9 / report->machine.in.ns_per_byte;
    ebb__doctor_add(report, "lanes",
                    out_bps < SLOW_BPS || in_bps < SLOW_BPS ? EBB_DOCTOR_WARN : EBB_DOCTOR_OK,
                    "a faster disk costs programs less time: --store DIR",
                    "%.2f GB/s out, %.2f GB/s in, %s", out_bps / 1e9, in_bps / 1e9,
                    report->machine.duplex ? "both at once" : "sharing their bandwidth");
}

static void check_memory(struct ebb_doctor *report)
{
    char size[32], limit[32];
    uint64_t group = ebb__own_cgroup_free_bytes();
    if (group >= MOST_MEMORY_BYTES) /* a version 1 group without a limit has such a number */
        group = UINT64_MAX;
    ebb__doctor_add(report, "memory", EBB_DOCTOR_OK, "", "a run without --budget may take %s%s%s",
                    ebb_size_format(ebb__free_memory_budget(), size, sizeof size),
                    group == UINT64_MAX ? "; no limit of a memory cgroup"
                                        : "; free in the memory cgroup: ",
                    group == UINT64_MAX ? "" : ebb_size_format(group, limit, sizeof limit));
    FILE *file = fopen("/proc/swaps", "re");
    char line[512];
    unsigned areas = 0;
    while (file && fgets(line, sizeof line, file))
        areas++;
    if (file)
        fclose(file);
    areas = areas ? areas - 1 : 0; /* the heading */
    if (areas)
        ebb__doctor_add(report, "swap", EBB_DOCTOR_OK, "",
                        "on: the kernel may swap out what Ebb keeps (areas: %u)", areas);
    else
        ebb__doctor_add(report, "swap", EBB_DOCTOR_OK, "", "off");
}

static void check_cache(struct ebb_doctor *report)
{
    static const char remedy[] = "set XDG_CACHE_HOME to a directory that you may write to: without "
                                 "it every run learns anew";
    if (!ebb__cache_dir_find(report->cache, sizeof report->cache)) {
        report->cache[0] = 0;
        ebb__doctor_add(report, "plan-cache", EBB_DOCTOR_WARN, remedy,
                        "neither XDG_CACHE_HOME nor HOME says where");
        return;
    }
    /* Ebb creates the folder when needed. The nearest existing folder must permit that. */
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s", report->cache);
    struct stat found;
    while (stat(path, &found) != 0 && strrchr(path, '/') > path)
        *strrchr(path, '/') = 0;
    bool good = stat(path, &found) == 0 && S_ISDIR(found.st_mode) && access(path, W_OK | X_OK) == 0;
    ebb__doctor_add(report, "plan-cache", good ? EBB_DOCTOR_OK : EBB_DOCTOR_WARN, remedy, "%s%s",
                    report->cache, good ? "" : ": cannot be written");
}

static void check_shim(struct ebb_doctor *report)
{
    char shim[PATH_MAX] = "";
    bool there = ebb__launch_find_shim(EBB_SHIM_MALLOC, shim, sizeof shim);
    bool fits = ebb__launch_shim_fits(shim);
    ebb__doctor_add(report, "library", there && fits ? EBB_DOCTOR_OK : EBB_DOCTOR_FAIL,
                    there ? "install Ebb in a folder whose path has neither blanks nor colons"
                          : "install Ebb as a whole: its files lie in one folder",
                    "%s%s", shim,
                    !there ? ": missing"
                    : fits ? ""
                           : ": LD_PRELOAD cannot hold a path with blanks or colons");
}

struct options {
    const char *store;
    bool json;
};

static const struct ebb_option known[] = {
    {.name = "store",
     .kind = EBB_OPTION_TEXT,
     .argument = "DIR",
     .offset = offsetof(struct options, store),
     .help = "the directory that `ebb run --store` would be given"},
    {.name = "json",
     .kind = EBB_OPTION_FLAG,
     .offset = offsetof(struct options, json),
     .help = "one object, schema ebb.doctor/1"},
    {0}};

const struct ebb_usage ebb__usage_doctor = {
    .command = "doctor",
    .text = "usage: ebb doctor [--store DIR] [--json]\n\n"
            "Says what this machine supports, one line a thing: ok, warn (Ebb works, with "
            "less) or fail\n"
            "(programs would run unmanaged), with a remedy. Moves 128 MiB each way to measure "
            "the store.\n",
    .options = known,
    .tail = "Exit code: 0, or 1 where something fails.\n"};

int ebb__cmd_doctor(int argc, char **argv)
{
    struct options options = {0};
    int usage = ebb__options_parse(&ebb__usage_doctor, argc, argv, &options);
    if (usage >= 0)
        return usage;
    if (optind != argc)
        return ebb__command_usage("doctor", "takes no file: '%s'", argv[optind]);
    static struct ebb_doctor report;
    ebb__host_support_look(&report.support);
    check_shim(&report);
    check_kernel(&report);
    check_place(&report);
    check_faults(&report);
    check_move(&report);
    check_limits(&report);
    ebb__doctor_moves(&report);
    check_huge_pages(&report);
    check_store(&report, options.store);
    check_memory(&report);
    ebb__doctor_memlock(&report);
    ebb__doctor_numa(&report);
    check_cache(&report);
    ebb__doctor_programs(&report);
    ebb__doctor_cuda(&report);
    bool written = true;
    if (options.json)
        written = !ebb__doctor_json(&report);
    else
        ebb__doctor_text(&report);
    struct ebb_error error;
    if (ebb__output_flush(written, &error))
        return ebb__command_fail("doctor", &error);
    return report.worst == EBB_DOCTOR_FAIL;
}
