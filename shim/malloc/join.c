/* Joins a run: says hello to the parent, and takes a slot of the ledger. */
#include "process.h"

#include "device/os.h"

#include <sys/syscall.h>
#include <unistd.h>

/* Takes a slot of the ledger. `descriptor` is the ledger's file or, in a fork, the life line of the
 * forking process. */
static void enter_ledger(int descriptor)
{
    ebb__shim.life_line = ebb__ledger_enter(ebb__shim.ledger, descriptor, &ebb__shim.slot);
    if (ebb__shim.life_line >= 0)
        ebb__shim_protect(ebb__shim.life_line);
}

void ebb__shim_enter_ledger_anew(void)
{
    int parents = ebb__shim.life_line;
    ebb__shim.slot = ebb__shim.ledger->slots;
    ebb__shim.life_line = -1;
    if (parents < 0)
        return;
    ebb__shim_unprotect(parents);
    enter_ledger(parents);
    close(parents);
}

void ebb__shim_unmap(void *memory, size_t bytes)
{
    ebb__os_call(SYS_munmap, (uintptr_t)memory, bytes, 0, 0, 0, 0);
}

bool ebb__shim_join(void)
{
    struct ebb_join_parent parent;
    if (!ebb__join_hello(&(struct ebb_join_introduction){.kind = EBB_HELLO_HOST}, &parent))
        return false;
    ebb__shim_protect(parent.channel);
    ebb__shim.channel = parent.channel;
    ebb__shim.ring = parent.ring;
    if (ebb__shim.ledger) { /* in a child, which has inherited it */
        ebb__shim_unmap(parent.ledger, sizeof *parent.ledger);
    } else {
        ebb__shim.ledger = parent.ledger;
        enter_ledger(parent.ledger_descriptor);
    }
    close(parent.ledger_descriptor);
    atomic_store(&ebb__shim.ring->counters.has_slot, ebb__shim.life_line >= 0);
    atomic_store(&ebb__shim.ring->counters.retired, atomic_load(&ebb__shim.state) == START_RETIRED);
    ebb__shim.store_limit_bytes = parent.store_limit_bytes;
    ebb__shim.trace = parent.trace;
    return true;
}
