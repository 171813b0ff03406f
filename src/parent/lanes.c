/* The lanes of the run: measured beside the running program once it has enough to move, or known
 * from an earlier run. */
#include "parent/internal.h"

#include "base/tuning.h"

static void measure(const struct ebb_parent *parent, struct fast_memory *memory)
{
    struct lanes *lanes = &memory->lanes;
    uint64_t bytes = ebb__machine_probe_bytes(atomic_load(&memory->ledger->budget_bytes));
    lanes->status =
        ebb__machine_probe(parent->options.store, bytes, &lanes->machine, &lanes->error);
    atomic_store(&lanes->probed, true);
}

/* Only the host's memory has a store, so there is nothing to tell it. */
static void *probe(void *argument)
{
    struct ebb_parent *parent = argument;
    measure(parent, &parent->host);
    return NULL;
}

void ebb__lanes_know(struct ebb_parent *parent, struct fast_memory *memory, bool compressed)
{
    ebb__lanes_set(&memory->lanes.state, LANES_KNOWN);
    memory->lanes.compressed = compressed;
    if (compressed)
        ebb__parent_tell_all(parent, EBB_MESSAGE_COMPRESS, 0);
}

void ebb__lanes_begin(struct ebb_parent *parent, struct fast_memory *memory)
{
    struct lanes *lanes = &memory->lanes;
    if (lanes->state != LANES_UNKNOWN || parent->options.record)
        return;
    if (pthread_create(&lanes->prober, NULL, probe, parent) == 0)
        ebb__lanes_set(&lanes->state, LANES_PROBING);
}

void ebb__lanes_await(struct ebb_parent *parent, struct fast_memory *memory)
{
    struct lanes *lanes = &memory->lanes;
    if (lanes->state == LANES_KNOWN)
        return;
    if (lanes->state == LANES_PROBING)
        pthread_join(lanes->prober, NULL);
    else if (!parent->options.record)
        measure(parent, memory);
    if (lanes->status != EBB_OK) {
        struct ebb_error error;
        ebb__parent_warn(parent, "%s: %s: assuming the lanes of an NVMe drive", lanes->error.what,
                         lanes->error.why);
        if (ebb__machine_named("nvme", &lanes->machine, &error) != EBB_OK)
            lanes->machine = (struct ebb_machine){.out = {1, 0}, .in = {1, 0}};
    }
    bool slow = lanes->machine.out.ns_per_byte > ebb__tuning()->compress_from_ns_per_byte;
    ebb__lanes_know(parent, memory,
                    parent->options.compress == EBB_COMPRESS_ON ||
                        (parent->options.compress == EBB_COMPRESS_AUTO && slow));
}

bool ebb__lanes_known(struct ebb_parent *parent, struct fast_memory *memory)
{
    ebb__lanes_begin(parent, memory);
    if (memory->lanes.state != LANES_PROBING || atomic_load(&memory->lanes.probed))
        ebb__lanes_await(parent, memory);
    return memory->lanes.state == LANES_KNOWN;
}

void ebb__lanes_fini(struct fast_memory *memory)
{
    if (memory->lanes.state == LANES_PROBING)
        pthread_join(memory->lanes.prober, NULL);
}
