/* A parent with one process, whose program is the test: it pushes the events and reads the
 * messages. Include it once in a test, behind cmocka.h. */
#ifndef EBB_TEST_PARENT_RIG_H
#define EBB_TEST_PARENT_RIG_H

#include "parent/internal.h"
#include "synthetic.h"

#include <sys/socket.h>
#include <unistd.h>

struct parent_rig {
    struct ebb_parent parent;
    struct ebb_ledger ledger;
    struct process process;
    int program; /* the other end of the channel */
};

/* `rig` is zeroed. Its lanes are known, and its policy is Ebb's. */
static inline void open_rig(struct parent_rig *rig, uint64_t budget_bytes)
{
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair), 0);
    rig->program = pair[1];
    rig->process.channel = pair[0];
    rig->process.learning.reactive_from = -1;
    rig->process.stream.ring = must(calloc(1, sizeof *rig->process.stream.ring));
    assert_int_equal(ebb__watch_create(EBB_WATCH_SHAPES, &rig->process.stream.watch), EBB_OK);
    rig->parent.host.ledger = &rig->ledger;
    rig->process.memory = &rig->parent.host;
    rig->parent.options.policy = ebb__plan_policy("ebb");
    rig->parent.host.lanes.state = LANES_KNOWN;
    rig->parent.host.lanes.machine =
        (struct ebb_machine){"test", {0.5, 20000}, {0.5, 20000}, true, EBB_NO_COSTS};
    atomic_store(&rig->ledger.budget_bytes, budget_bytes);
    atomic_store(&rig->ledger.peak_bytes, budget_bytes); /* the run has needed all of it */
}

static inline void close_rig(struct parent_rig *rig)
{
    close(rig->program);
    close(rig->process.channel);
    ebb__watch_destroy(rig->process.stream.watch);
    ebb__steps_fini(&rig->process.stream.steps);
    ebb__profile_fini(&rig->process.learnt);
    free(rig->process.sent.script);
    free(rig->process.sent.script_before);
    free(rig->process.stream.ring);
}

#endif
