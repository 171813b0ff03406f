/* The alarm: warns once if a fault or a transfer takes so long that something must be wrong.
 *
 * A hang gives no reason: the program stops, and its user cannot see that it waits for one block.
 * So the parent reads what the processes say that they wait for (trace/waits.h). It counts a wait
 * from when it first saw it. It does not count time while the process, or the parent, was
 * stopped. */
#include "base/size.h"
#include "base/tuning.h"
#include "parent/internal.h"

#include <stdio.h>
#include <string.h>

#define LOOKS 10u /* looks within the shorter limit */

/* A parent that has not looked for so long was stopped itself, and starts to count anew. */
#define GAP_NS ((uint64_t)3000000000)

struct overdue {
    const struct ebb_wait *wait; /* the oldest; NULL: none */
    uint64_t age_ns;
};

static struct ebb_wait *wait_at(const struct process *process, size_t index)
{
    struct ebb_waits *waits = &process->stream.ring->waits;
    if (index < EBB_WAIT_ANSWERS)
        return &waits->answers[index];
    index -= EBB_WAIT_ANSWERS;
    return index < EBB_WAIT_BLOCKS ? &waits->blocks[index]
                                   : &waits->transfers[index - EBB_WAIT_BLOCKS];
}

/* True if a signal or a debugger has stopped the process. False if /proc does not tell. */
static bool is_stopped(int process_id)
{
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%d/stat", process_id);
    FILE *file = fopen(path, "re");
    bool read = file && fgets(line, sizeof line, file);
    if (file)
        fclose(file);
    const char *name_end = read ? strrchr(line, ')') : NULL;
    return name_end && name_end[1] == ' ' && (name_end[2] == 'T' || name_end[2] == 't');
}

/* Records the current waits and finds the oldest ones. If `anew` is true, all ages restart at 0. */
static void note(struct process *process, uint64_t now_ns, bool anew, struct overdue *fault,
                 struct overdue *transfer)
{
    for (size_t i = 0; i < EBB_ALARM_WAITS; i++) {
        struct seen_wait *seen = &process->alarm.seen[i];
        const struct ebb_wait *wait = wait_at(process, i);
        uint64_t since_ns = atomic_load_explicit(&wait->since_ns, memory_order_acquire);
        if (since_ns == 0 || since_ns == UINT64_MAX) {
            seen->since_ns = 0;
            continue;
        }
        if (seen->since_ns != since_ns || anew)
            *seen = (struct seen_wait){since_ns, now_ns};
        struct overdue *oldest = i < EBB_WAIT_ANSWERS + EBB_WAIT_BLOCKS ? fault : transfer;
        uint64_t age_ns = now_ns - seen->first_ns;
        if (!oldest->wait || age_ns > oldest->age_ns)
            *oldest = (struct overdue){wait, age_ns};
    }
}

/* Returns the current transfer of the block that `wait` is for, or NULL. */
static const struct ebb_wait *transfer_of(const struct process *process,
                                          const struct ebb_wait *wait)
{
    for (size_t i = 0; i < EBB_WAIT_TRANSFERS; i++) {
        const struct ebb_wait *transfer = &process->stream.ring->waits.transfers[i];
        if (atomic_load(&transfer->since_ns) && atomic_load(&transfer->kind) != EBB_WAIT_OPEN &&
            atomic_load(&transfer->subject) == atomic_load(&wait->subject))
            return transfer;
    }
    return NULL;
}

static const char *state_of(const struct process *process, const struct ebb_wait *wait)
{
    const struct ebb_wait *transfer = transfer_of(process, wait);
    uint32_t kind = transfer ? atomic_load(&transfer->kind) : atomic_load(&wait->kind);
    switch (kind) {
    case EBB_WAIT_READ:
        return "is being fetched from the store";
    case EBB_WAIT_WRITE:
        return "is being written back to the store";
    case EBB_WAIT_NEW:
        return "is new and has no memory yet";
    case EBB_WAIT_WRITING_BACK:
        return "was being written back when it was needed";
    default:
        return "is in the store, and its fetch has not begun";
    }
}

static void name_block(const struct ebb_wait *wait, char *name, size_t bytes)
{
    char size[32];
    unsigned long long serial = atomic_load(&wait->serial);
    ebb_size_format(atomic_load(&wait->bytes), size, sizeof size);
    if (serial)
        snprintf(name, bytes, "block %llu (%s)", serial, size);
    else
        snprintf(name, bytes, "a block of small objects (%s)", size);
}

static const char store_remedy[] = "the store does not answer: look at its disk or server (dmesg), "
                                   "or end the program and give another one by --store";
static const char slow_remedy[] =
    "the store is slow, or other transfers are ahead: give a faster store "
    "by --store, or a larger --budget";
static const char runtime_remedy[] = "if it does not go on, end the program, give it a larger "
                                     "--budget, and report this";

static const char stuck_remedy[] =
    "unless the program answers its own faults, end it, and report this";

static const char *remedy_for(const struct overdue *fault, const struct overdue *transfer)
{
    if (!transfer->wait)
        return runtime_remedy;
    return transfer->age_ns >= fault->age_ns / 2 ? store_remedy : slow_remedy;
}

static void tell_fault(struct ebb_parent *parent, const struct process *process,
                       const struct overdue *fault, const struct overdue *transfer)
{
    double seconds = (double)fault->age_ns / 1e9;
    uint32_t kind = atomic_load(&fault->wait->kind);
    const char *remedy = remedy_for(fault, transfer);
    char name[80];
    if (kind == EBB_WAIT_ANSWER || kind == EBB_WAIT_MESSAGE) {
        ebb__parent_warn(parent,
                         "process %d: %s 0x%llx has not been looked at for %.1f s, its runtime is "
                         "held up: %s",
                         process->process_id, kind == EBB_WAIT_ANSWER ? "a fault at" : "message",
                         (unsigned long long)atomic_load(&fault->wait->subject), seconds, remedy);
        return;
    }
    name_block(fault->wait, name, sizeof name);
    ebb__parent_warn(parent, "process %d: it has waited %.1f s for %s, which %s: %s",
                     process->process_id, seconds, name, state_of(process, fault->wait), remedy);
}

static void tell_transfer(struct ebb_parent *parent, const struct process *process,
                          const struct overdue *transfer)
{
    double seconds = (double)transfer->age_ns / 1e9;
    uint32_t kind = atomic_load(&transfer->wait->kind);
    char name[80];
    name_block(transfer->wait, name, sizeof name);
    if (kind == EBB_WAIT_OPEN)
        ebb__parent_warn(parent, "process %d: its store has been opened for %.1f s: %s",
                         process->process_id, seconds, store_remedy);
    else
        ebb__parent_warn(parent, "process %d: %s has been %s the store for %.1f s: %s",
                         process->process_id, name,
                         kind == EBB_WAIT_READ ? "read from" : "written to", seconds, store_remedy);
}

/* Records whether waits of this kind take too long. Returns true if they newly do, so that a
 * warning is due. */
static bool turns_late(struct alarm *alarm, enum alarm_kind kind, bool late)
{
    bool told = alarm->states[kind] == ALARM_TOLD;
    ebb__alarm_set(&alarm->states[kind], late ? ALARM_TOLD : ALARM_QUIET);
    return late && !told;
}

void ebb__alarm_look(struct ebb_parent *parent, struct process *process, uint64_t now_ns)
{
    struct alarm *alarm = &process->alarm;
    uint64_t fault_limit_ns = ebb__tuning()->fault_limit_ns;
    uint64_t transfer_limit_ns = ebb__tuning()->transfer_limit_ns;
    uint64_t shorter_ns = fault_limit_ns < transfer_limit_ns ? fault_limit_ns : transfer_limit_ns;
    if (now_ns - alarm->looked_ns < shorter_ns / LOOKS)
        return;
    bool gap = now_ns - alarm->looked_ns > GAP_NS;
    alarm->looked_ns = now_ns;
    struct overdue fault = {0}, transfer = {0};
    note(process, now_ns, gap, &fault, &transfer);
    bool managing = atomic_load(&process->stream.ring->counters.managing);
    uint64_t stuck_ns = managing ? ebb__stuck_look(process, now_ns, gap) : 0;
    uint64_t oldest_ns = fault.age_ns > transfer.age_ns ? fault.age_ns : transfer.age_ns;
    oldest_ns = stuck_ns > oldest_ns ? stuck_ns : oldest_ns;
    if (oldest_ns >= shorter_ns / LOOKS && is_stopped(process->process_id)) {
        note(process, now_ns, true, &fault, &transfer);
        (void)ebb__stuck_look(process, now_ns, true);
        return;
    }
    /* A wait that the runtime knows of explains the thread's sleep. */
    bool is_stuck = stuck_ns >= fault_limit_ns && (!fault.wait || fault.age_ns < stuck_ns / 2);
    if (turns_late(alarm, ALARM_FAULT, fault.wait && fault.age_ns >= fault_limit_ns))
        tell_fault(parent, process, &fault, &transfer);
    if (turns_late(alarm, ALARM_TRANSFER, transfer.wait && transfer.age_ns >= transfer_limit_ns))
        tell_transfer(parent, process, &transfer);
    if (turns_late(alarm, ALARM_STUCK, is_stuck))
        ebb__parent_warn(
            parent,
            "process %d: thread %d has slept %.1f s in a page fault that its runtime does "
            "not know of: %s",
            process->process_id, process->stuck.thread, (double)stuck_ns / 1e9, stuck_remedy);
}
