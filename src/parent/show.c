/* The run's own end of status.h: answers who asks for its figures. */
#include "parent/internal.h"
#include "parent/status.h"

#include "base/clock.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define MOST_ANSWERS 16 /* at a step: nobody keeps the parent from its work */

void ebb__show_open(struct ebb_parent *parent)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int length = snprintf(address.sun_path + 1, sizeof address.sun_path - 1,
                          EBB_STATUS_PREFIX "%lu-%ld", (unsigned long)geteuid(), (long)getpid());
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
    parent->started_ns = ebb__now_ns();
    parent->showing = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (parent->showing < 0)
        return;
    if (bind(parent->showing, (struct sockaddr *)&address, bytes) != 0 ||
        listen(parent->showing, MOST_ANSWERS) != 0)
        ebb__show_close(parent); /* somebody has the name: the run is not shown */
}

void ebb__show_close(struct ebb_parent *parent)
{
    if (parent->showing >= 0)
        close(parent->showing);
    parent->showing = -1;
}

static const char *mode_of(const struct ebb_parent *parent, const struct process *process)
{
    static const char *const names[PHASE_COUNT] = {
        [PHASE_OBSERVING] = "observing", [PHASE_RECALLED] = "recalled",
        [PHASE_PLANNED] = "planned",     [PHASE_RELEARNING] = "relearning",
        [PHASE_RESTING] = "resting",     [PHASE_FOLLOWED] = "reactive"};
    if (!process || !atomic_load(&process->stream.ring->counters.managing))
        return "waiting";
    return parent->options.record ? "recording" : names[process->phase];
}

static void add_iterations(const struct process *process, struct ebb_status_figures *figures)
{
    const struct ebb_watch_iteration *iterations;
    if (!process->stream.watch)
        return;
    size_t kept = ebb__watch_kept(process->stream.watch, &iterations);
    figures->iterations = ebb__watch_iterations(process->stream.watch);
    figures->planned = ebb__watch_forgotten(process->stream.watch).planned;
    for (size_t i = 0; i < kept; i++)
        figures->planned += iterations[i].planned;
    if (kept)
        figures->last_iteration_ns = iterations[kept - 1].duration_ns;
}

/* The memory in which the busiest process has its blocks. */
static const struct fast_memory *memory_of(const struct ebb_parent *parent,
                                           const struct process *busiest)
{
    return busiest ? busiest->memory : &parent->host;
}

static void fill_figures(const struct ebb_parent *parent, const struct process *busiest,
                         struct ebb_status_figures *figures)
{
    const struct ebb_ledger *ledger = memory_of(parent, busiest)->ledger;
    struct ebb_parent_result sums = parent->gone;
    for (size_t i = 0; i < parent->processes.count; i++)
        ebb__gone_add(parent->processes.items[i], &sums);
    figures->held_bytes = atomic_load(&ledger->held_bytes);
    figures->peak_bytes = atomic_load(
        atomic_load(&ledger->in_force) ? &ledger->peak_bytes : &ledger->learning_peak_bytes);
    figures->over_bytes = atomic_load(&ledger->over_bytes);
    figures->out_bytes = sums.transfers.out_bytes;
    figures->in_bytes = sums.transfers.in_bytes;
    figures->out_busy_ns = sums.transfers.out_busy_ns;
    figures->in_busy_ns = sums.transfers.in_busy_ns;
    figures->stall_ns = sums.transfers.stall_ns;
    figures->demand_faults = sums.faults.demand;
    figures->store_peak_bytes = sums.store.peak_bytes;
    figures->plans = parent->figures.plan.count;
    figures->predicted_stall_ns = parent->figures.plan.stall_ns;
    if (busiest)
        add_iterations(busiest, figures);
}

static void fill(const struct ebb_parent *parent, struct ebb_status_packet *packet)
{
    const struct process *busiest = ebb__gone_busiest(parent);
    const struct ebb_ledger *ledger = memory_of(parent, busiest)->ledger;
    *packet = (struct ebb_status_packet){
        .magic = EBB_STATUS_MAGIC,
        .bytes = sizeof *packet,
        .process_id = (int32_t)getpid(),
        .main_process_id = (int32_t)parent->main_process_id,
        .now_ns = ebb__now_ns(),
        .started_ns = parent->started_ns,
        .budget_bytes = atomic_load(&ledger->budget_bytes),
        .in_force = atomic_load(&ledger->in_force),
    };
    for (size_t i = 0; i < parent->processes.count; i++)
        packet->processes += parent->processes.items[i]->channel >= 0;
    fill_figures(parent, busiest, &packet->figures);
    snprintf(packet->command, sizeof packet->command, "%s",
             parent->options.command ? parent->options.command : "");
    snprintf(packet->policy, sizeof packet->policy, "%s", parent->options.policy->name);
    snprintf(packet->mode, sizeof packet->mode, "%s", mode_of(parent, busiest));
    if (busiest)
        packet->device_kind = atomic_load(&busiest->stream.ring->counters.mechanism);
}

/* True if the peer is of the same user, or root. */
static bool may_look(int descriptor)
{
    struct ucred peer;
    socklen_t bytes = sizeof peer;
    return getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 &&
           (peer.uid == geteuid() || peer.uid == 0);
}

void ebb__show_answer(struct ebb_parent *parent)
{
    for (int i = 0; parent->showing >= 0 && i < MOST_ANSWERS; i++) {
        int peer = accept4(parent->showing, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (peer < 0)
            return;
        struct ebb_status_packet packet;
        if (may_look(peer)) {
            fill(parent, &packet);
            send(peer, &packet, sizeof packet, MSG_NOSIGNAL | MSG_DONTWAIT);
        }
        close(peer);
    }
}
