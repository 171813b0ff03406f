/* Copies: pages that forked relatives no longer share, and that the ledger does not know.
 *
 * After a fork, if parent or child writes a page, the kernel copies it without telling the runtime.
 * If a process evicts or frees a page, a relative still holds it. So while forked relatives live,
 * the parent counts the pages in their arenas by the kernel's data. The sum of their proportional
 * shares is what they really hold. If it exceeds their ledger entries, the difference raises the
 * run's peak. If it exceeds the budget, the user is told.
 *
 * It is only counted: Ebb evicts nothing for it. That would hit the wrong process: a training
 * parent would evict for its idle workers, and each evicted page is copied first.
 *
 * Reading smaps takes a millisecond per thousand mappings. A copy causes a page fault, and the
 * number of page faults is read in microseconds. Without new faults nothing else is read. All this
 * takes at most one part in 100 of the time. Children that only read cost almost nothing. A child
 * that ends before it is examined counts its own pages (shim/malloc/ending.c). Pages that move
 * while smaps is read may count twice. */
#include "base/clock.h"
#include "base/smaps.h"
#include "base/tuning.h"
#include "parent/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

/* Limits: looks are so far apart, and take such a part of the time at most. */
enum { LOOK_NS = 20000000, LOOK_DIVISOR = 100 };

/* Its number in the pid namespace of `ebb`, which may differ from its own. 0: unknown. */
static int process_id(const struct process *process)
{
    struct ucred peer;
    socklen_t bytes = sizeof peer;
    return getsockopt(process->channel, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 ? (int)peer.pid
                                                                                     : 0;
}

static bool has_arena(const struct process *process)
{
    return process->channel >= 0 && !process->memory->is_device &&
           atomic_load(&process->stream.ring->counters.managing) &&
           atomic_load(&process->stream.ring->counters.arena_last);
}

/* Other programs have their arenas elsewhere. */
bool ebb__copies_related(const struct process *one, const struct process *other)
{
    return has_arena(one) && has_arena(other) &&
           atomic_load(&one->stream.ring->counters.arena_first) ==
               atomic_load(&other->stream.ring->counters.arena_first);
}

static bool has_relatives(const struct ebb_parent *parent, const struct process *process)
{
    for (size_t i = 0; i < parent->processes.count; i++)
        if (parent->processes.items[i] != process &&
            ebb__copies_related(process, parent->processes.items[i]))
            return true;
    return false;
}

/* Page faults without a transfer so far. */
static uint64_t faults_of(const struct process *process)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", process_id(process));
    FILE *file = fopen(path, "re");
    size_t length = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file)
        fclose(file);
    text[length] = 0;
    const char *behind_name = strrchr(text, ')');
    uint64_t faults = 0;
    if (!behind_name ||
        sscanf(behind_name + 1, " %*c %*d %*d %*d %*d %*d %*u %" SCNu64, &faults) != 1)
        return 0;
    return faults;
}

void ebb__copies_note(struct ebb_parent *parent, uint64_t copied_bytes)
{
    struct ebb_ledger *ledger = parent->host.ledger;
    uint64_t bytes = atomic_load(&ledger->held_bytes) + copied_bytes;
    uint64_t budget = atomic_load(&ledger->budget_bytes);
    if (copied_bytes == 0)
        return;
    ebb__ledger_note(ledger, bytes);
    if (bytes > budget && atomic_load(&ledger->in_force))
        ebb__ledger_raise(&ledger->over_bytes, bytes - budget);
}

/* Bytes that all relatives hold beyond their ledger entries. */
static uint64_t count(const struct ebb_parent *parent)
{
    uint64_t share_bytes = 0, held_bytes = 0;
    for (size_t i = 0; i < parent->processes.count; i++) {
        const struct process *process = parent->processes.items[i];
        if (!has_arena(process) || !has_relatives(parent, process))
            continue;
        const struct ebb_counters *counters = &process->stream.ring->counters;
        struct ebb_smaps smaps;
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/smaps", process_id(process));
        if (!ebb__smaps_read(path, atomic_load(&counters->arena_first),
                             atomic_load(&counters->arena_last), &smaps))
            continue;
        share_bytes += smaps.share_bytes;
        held_bytes += atomic_load(&counters->held_bytes);
    }
    return share_bytes > held_bytes ? share_bytes - held_bytes : 0;
}

void ebb__copies_look(struct ebb_parent *parent)
{
    uint64_t now = ebb__now_ns(), faults = 0;
    size_t relatives = 0;
    if (now < parent->copies.look_ns)
        return;
    for (size_t i = 0; i < parent->processes.count; i++) {
        struct process *process = parent->processes.items[i];
        if (has_arena(process) && has_relatives(parent, process)) {
            relatives++;
            faults += faults_of(process);
        }
    }
    if (relatives < 2) {
        parent->copies.bytes = 0;
    } else if (relatives != parent->copies.relatives ||
               faults - parent->copies.faults >= ebb__tuning()->fork_least_faults) {
        parent->copies.bytes = count(parent);
        parent->copies.faults = faults;
    }
    parent->copies.relatives = relatives;
    ebb__copies_note(parent, parent->copies.bytes);
    uint64_t end = ebb__now_ns(), pause = (end - now) * LOOK_DIVISOR;
    parent->copies.look_ns = end + (pause > LOOK_NS ? pause : LOOK_NS);
}
