/* Whether iterations repeat: what the end of one passes on to the next.
 *
 * Two iterations may have the same figures by chance, and the next one others. If an iteration ends
 * in the state in which it began, all later ones are the same. O(absences) an iteration. */
#include "sim/state.h"

#include <xxhash.h>

static void add(XXH64_state_t *hash, uint64_t value)
{
    XXH64_update(hash, &value, sizeof value);
}

/* The absences that wait in this state, in their order. */
static void add_queue(XXH64_state_t *hash, const struct sim *sim, const struct queue *queue,
                      bool in)
{
    for (uint32_t i = queue->first; i < queue->end; i++) {
        uint32_t absence = queue->items[i];
        if (in ? sim->wanted_in[absence] : sim->state[absence] == QUEUED)
            add(hash, absence);
    }
    add(hash, NONE);
}

bool ebb__sim_digest(const struct sim *sim, uint64_t *digest)
{
    XXH64_state_t *hash = XXH64_createState();
    if (!hash)
        return false;
    XXH64_reset(hash, 0);
    XXH64_update(hash, sim->state, sim->request->absence_count * sizeof *sim->state);
    for (uint32_t i = 0; i < sim->request->absence_count; i++)
        XXH64_update(hash, &sim->wanted_in[i], sizeof *sim->wanted_in);
    add_queue(hash, sim, &sim->out_queue, false);
    add_queue(hash, sim, &sim->in_queue, true);
    const struct lane *lanes[] = {&sim->out, &sim->in};
    for (int i = 0; i < 2; i++) {
        add(hash, lanes[i]->absence);
        add(hash, lanes[i]->absence == NONE ? 0 : lanes[i]->half_ns_left);
    }
    add(hash, sim->resident_bytes);
    *digest = XXH64_digest(hash);
    XXH64_freeState(hash);
    return true;
}
