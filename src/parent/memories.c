/* The memories of a run, each with a budget of its own: the host's, and that of each device. */
#include "parent/internal.h"

#include "base/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct fast_memory *ebb__memory_at(struct ebb_parent *parent, size_t index)
{
    if (index == 0)
        return &parent->host;
    return index <= parent->devices.count ? parent->devices.items[index - 1] : NULL;
}

/* A ledger in a file of its own. No process of the run can truncate it while others use it. */
static enum ebb_status open_ledger(uint64_t budget_bytes, struct ebb_ledger **opened,
                                   int *descriptor, struct ebb_error *error)
{
    uint64_t bytes = sizeof(struct ebb_ledger);
    int file = memfd_create("ebb-ledger", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file >= 0 && !ebb__memory_file_size(file, bytes))
        bytes = EBB_LEDGER_LEAST_BYTES;
    *descriptor = file;
    if (file < 0 || !ebb__memory_file_size(file, bytes) ||
        fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
        return ebb__fail(error, EBB_ERR_IO, "memfd", "%s", strerror(errno));
    struct ebb_ledger *ledger =
        mmap(NULL, sizeof *ledger, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (ledger == MAP_FAILED)
        return ebb__fail(error, EBB_ERR_MEMORY, "ledger", "%s", strerror(errno));
    ebb__ledger_init(ledger, (bytes - offsetof(struct ebb_ledger, slots)) / sizeof ledger->slots[0],
                     budget_bytes);
    *opened = ledger;
    return EBB_OK;
}

static void close_ledger(struct ebb_ledger *ledger, int descriptor)
{
    if (ledger)
        munmap(ledger, sizeof *ledger);
    if (descriptor >= 0)
        close(descriptor);
}

enum ebb_status ebb__memory_open(const struct ebb_parent *parent, struct fast_memory *memory,
                                 struct ebb_error *error)
{
    bool known = parent->options.budget_fraction <= 0;
    uint64_t budget = memory->is_device && parent->options.device_budget_bytes
                          ? parent->options.device_budget_bytes
                          : parent->options.budget_bytes;
    memory->budget.state = known ? BUDGET_GIVEN : BUDGET_OPEN;
    return open_ledger(known ? budget : UINT64_MAX, &memory->ledger, &memory->ledger_descriptor,
                       error);
}

void ebb__memory_close(struct fast_memory *memory)
{
    ebb__lanes_fini(memory);
    close_ledger(memory->ledger, memory->ledger_descriptor);
}

int ebb__store_limit_open(struct store_limit *limit, uint64_t bytes)
{
    if (!limit->ledger &&
        open_ledger(bytes, &limit->ledger, &limit->ledger_descriptor, NULL) != EBB_OK)
        ebb__store_limit_close(limit);
    return limit->ledger ? limit->ledger_descriptor : -1;
}

void ebb__store_limit_close(struct store_limit *limit)
{
    close_ledger(limit->ledger, limit->ledger_descriptor);
    *limit = (struct store_limit){.ledger_descriptor = -1};
}

/* The speed of each wire of the device's link, in GT/s. 0: unknown. */
static double link_speed(const char *bus)
{
    char path[128], text[64] = "";
    size_t length = strlen(bus);
    if (length == 0 || length > 32 || strspn(bus, "0123456789abcdefABCDEF:.") != length)
        return 0;
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/max_link_speed", bus);
    for (char *letter = path; *letter; letter++)
        *letter = (char)(*letter >= 'A' && *letter <= 'F' ? *letter + 'a' - 'A' : *letter);
    FILE *file = fopen(path, "re");
    if (file && !fgets(text, sizeof text, file))
        text[0] = 0;
    if (file)
        fclose(file);
    return strtod(text, NULL);
}

/* The machine that is assumed until transfers have been measured. */
static const char *likely_machine(const struct fast_memory *memory)
{
    double speed = link_speed(memory->bus);
    if (strstr(memory->name, "GH200") || strstr(memory->name, "GB200"))
        return "nvlink";
    if (strstr(memory->name, "H200"))
        return "h200";
    return speed >= 32 ? "pcie5" : speed >= 16 || speed == 0 ? "pcie4" : "pcie3";
}

/* The link's rates are those of copies. With managed memory, one thread moves both ways, and the
 * driver takes longer (docs/results/README.md, "prefetch"). With mappings, a transfer begins and
 * ends when the mover looks, and a piece is mapped or unmapped. */
#define MANAGED_OUT 3.4
#define MANAGED_IN 1.15
#define MAPPED_FIXED_NS 100000u

static void assume_backing(struct ebb_machine *machine, enum ebb_gpu_backing backing)
{
    if (backing == EBB_GPU_MANAGED) {
        machine->out.ns_per_byte *= MANAGED_OUT;
        machine->in.ns_per_byte *= MANAGED_IN;
        machine->duplex = false;
    } else {
        machine->out.fixed_ns = machine->in.fixed_ns = MAPPED_FIXED_NS;
    }
}

/* The lines of a device's introduction. */
static void take_lines(struct fast_memory *memory, const char *text)
{
    const struct {
        char *to;
        size_t bytes;
    } lines[] = {{memory->id, sizeof memory->id},
                 {memory->bus, sizeof memory->bus},
                 {memory->name, sizeof memory->name}};
    for (size_t i = 0; i < 3; i++) {
        size_t length = strcspn(text, "\n");
        snprintf(lines[i].to, lines[i].bytes, "%.*s", (int)length, text);
        text += length + (text[length] == '\n');
    }
    for (size_t i = 0; i < 3; i++) /* it is shown to people */
        for (char *letter = lines[i].to; *letter; letter++)
            *letter = (char)(*letter < ' ' || *letter > '~' ? '?' : *letter);
}

/* Nobody can hold more than the device has. */
static void limit_budget(struct ebb_parent *parent, struct fast_memory *memory)
{
    uint64_t budget = atomic_load(&memory->ledger->budget_bytes);
    if (budget == UINT64_MAX || budget <= memory->bytes || memory->bytes == 0)
        return;
    ebb__parent_warn(parent, "%s has %.1f GiB, which is less than the budget", memory->name,
                     (double)memory->bytes / (double)((uint64_t)1 << 30));
    atomic_store(&memory->ledger->budget_bytes, memory->bytes);
}

void ebb__memory_look(struct fast_memory *memory)
{
    struct ebb_ledger *ledger = memory->ledger;
    uint64_t budget = atomic_load(&ledger->budget_bytes);
    if (memory->is_device && budget != UINT64_MAX && !atomic_load(&ledger->in_force) &&
        atomic_load(&ledger->held_bytes) <= budget)
        atomic_store(&ledger->in_force, 1);
}

struct fast_memory *ebb__memory_of_device(struct ebb_parent *parent,
                                          const struct ebb_message *hello)
{
    struct ebb_error error;
    char text[sizeof hello->text];
    struct fast_memory *memory = calloc(1, sizeof *memory);
    if (!memory)
        return NULL;
    snprintf(text, sizeof text, "%.*s", (int)sizeof hello->text - 1, hello->text);
    memory->is_device = true;
    memory->bytes = hello->limit_bytes;
    memory->ledger_descriptor = -1;
    take_lines(memory, text);
    for (size_t i = 0; i < parent->devices.count; i++)
        if (strcmp(parent->devices.items[i]->id, memory->id) == 0) {
            free(memory);
            return parent->devices.items[i];
        }
    if (parent->devices.count >= EBB_MOST_DEVICES ||
        ebb__memory_open(parent, memory, &error) != EBB_OK ||
        ebb__machine_named(likely_machine(memory), &memory->lanes.machine, &error) != EBB_OK ||
        !ebb_vec_push(&parent->devices, memory)) {
        ebb__memory_close(memory);
        free(memory);
        return NULL;
    }
    assume_backing(&memory->lanes.machine, parent->options.gpu_backing);
    ebb__lanes_set(&memory->lanes.state, LANES_KNOWN);
    limit_budget(parent, memory);
    return memory;
}
