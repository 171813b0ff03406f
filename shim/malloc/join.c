/* Joins a run: says hello to the parent, and takes a slot of each ledger. */
#include "process.h"

#include "device/os.h"

#include <sys/syscall.h>
#include <unistd.h>

/* Takes a slot of the ledger. `descriptor` is the ledger's file or, in a fork, the life line of the
 * forking process. */
static void enter(struct shim_ledger *ledger, int descriptor)
{
    ledger->life_line = ebb__ledger_enter(ledger->shared, descriptor, &ledger->slot);
    if (ledger->life_line >= 0)
        ebb__shim_protect(ledger->life_line);
}

static void enter_anew(struct shim_ledger *ledger)
{
    int parents = ledger->life_line;
    if (!ledger->shared)
        return;
    ledger->slot = ledger->shared->slots;
    ledger->life_line = -1;
    if (parents < 0)
        return;
    ebb__shim_unprotect(parents);
    enter(ledger, parents);
    close(parents);
}

void ebb__shim_enter_ledgers_anew(void)
{
    enter_anew(&ebb__shim.budget);
    enter_anew(&ebb__shim.store);
}

struct ebb_ledger *ebb__shim_store_ledger(void)
{
    return ebb__shim.store.life_line >= 0 ? ebb__shim.store.shared : NULL;
}

void ebb__shim_unmap(void *memory, size_t bytes)
{
    ebb__os_call(SYS_munmap, (uintptr_t)memory, bytes, 0, 0, 0, 0);
}

/* A child has inherited the ledger. */
static void take(struct shim_ledger *ledger, struct ebb_ledger *shared, int descriptor)
{
    if (!shared)
        return;
    if (ledger->shared) {
        ebb__shim_unmap(shared, sizeof *shared);
    } else {
        ledger->shared = shared;
        enter(ledger, descriptor);
    }
    close(descriptor);
}

bool ebb__shim_join(void)
{
    struct ebb_join_parent parent;
    if (!ebb__join_hello(&(struct ebb_join_introduction){.kind = EBB_HELLO_HOST}, &parent))
        return false;
    ebb__shim_protect(parent.channel);
    ebb__shim.channel = parent.channel;
    ebb__shim.ring = parent.ring;
    take(&ebb__shim.budget, parent.ledger, parent.ledger_descriptor);
    take(&ebb__shim.store, parent.store_ledger, parent.store_descriptor);
    atomic_store(&ebb__shim.ring->counters.has_slot, ebb__shim.budget.life_line >= 0);
    atomic_store(&ebb__shim.ring->counters.retired, atomic_load(&ebb__shim.state) == START_RETIRED);
    ebb__shim.store_limit_bytes = parent.store_limit_bytes;
    ebb__shim.trace = parent.trace;
    return true;
}
