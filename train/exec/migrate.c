/* The fourth pass: what Layrub and vDNN migrate, and when.
 *
 * A group is the work of one layer in one phase. An output is away between its last group in
 * forward and its first one in backward. A transfer starts after the barrier that ends the group
 * before. So it overlaps with one group, and the next barrier waits for it.
 *
 * Layrub    All outputs migrate. Each is fetched one group ahead, and each group ends with a
 *           barrier (Jin and others, ACM TACO 2018, inter-layer migration).
 * vDNN      An output is fetched when the group begins that needs the output before it. There is a
 *           barrier only after groups with a transfer. `conv` migrates what convolutions read (Rhu
 *           and others, MICRO 2016). */
#include "train/exec/schedule.h"

#include "train/base/fail.h"

#include <stdlib.h>

/* Fewer groups between two uses are too few: one to evict, one to fetch, and one to be away. */
#define GROUPS_LEAST 4

/* The groups between which a storage is not used. */
struct pause {
    uint32_t storage;
    uint32_t forward, backward; /* EBB_NONE: none */
    uint32_t fetch;             /* the group that begins with the fetch */
    bool feeds_convolution;
};

struct migration {
    struct ebb_schedule *schedule;
    struct pause *pauses; /* [storage]; once chosen, the first `count` */
    uint32_t count;
    uint32_t *first_steps; /* [group] */
    bool *transfers;       /* [group]: does a transfer begin with it? */
    uint32_t group_count;
};

static bool begins_group(const struct ebb_schedule *schedule, uint32_t number)
{
    const struct ebb_step *step = &schedule->steps.items[number];
    return number == 0 || step->layer != step[-1].layer || step->phase != step[-1].phase;
}

/* For each output, the last use in forward and the first one in backward. */
static void find_pauses(struct migration *migration)
{
    const struct ebb_schedule *schedule = migration->schedule;
    for (uint32_t s = 0; s < schedule->storages.count; s++)
        migration->pauses[s] =
            (struct pause){.storage = s, .forward = EBB_NONE, .backward = EBB_NONE};
    for (uint32_t number = 0; number < schedule->steps.count; number++) {
        const struct ebb_step *step = &schedule->steps.items[number];
        bool convolves = schedule->graph->net->layers[step->layer].kind == EBB_LAYER_CONV;
        if (begins_group(schedule, number))
            migration->first_steps[migration->group_count++] = number;
        for (uint32_t h = step->first_hold; h < step->first_hold + step->hold_count; h++) {
            const struct ebb_hold *hold = &schedule->holds.items[h];
            uint32_t storage = schedule->slots.items[hold->slot].storage;
            uint32_t slot = schedule->storages.items[storage].slot;
            struct pause *pause = &migration->pauses[storage];
            if (schedule->slots.items[slot].role != EBB_SLOT_VALUE)
                continue;
            if (step->phase == EBB_PHASE_FORWARD) {
                pause->forward = migration->group_count - 1;
                pause->feeds_convolution |= convolves && hold->use == EBB_USE_READ;
            } else if (pause->backward == EBB_NONE) {
                pause->backward = migration->group_count - 1;
            }
        }
    }
}

static int by_backward(const void *a, const void *b)
{
    const struct pause *first = a, *second = b;
    if (first->backward != second->backward)
        return first->backward < second->backward ? -1 : 1;
    return first->storage < second->storage ? -1 : first->storage > second->storage;
}

/* Keeps the pauses that are long enough for both transfers, in the order in which they end. */
static void choose(struct migration *migration)
{
    bool all = migration->schedule->options.mode != EBB_MODE_VDNN_CONV;
    for (uint32_t s = 0; s < migration->schedule->storages.count; s++) {
        struct pause pause = migration->pauses[s];
        if (pause.forward == EBB_NONE || pause.backward == EBB_NONE ||
            pause.backward - pause.forward < GROUPS_LEAST || !(all || pause.feeds_convolution))
            continue;
        pause.fetch = pause.backward - 1;
        migration->pauses[migration->count++] = pause;
    }
    qsort(migration->pauses, migration->count, sizeof *migration->pauses, by_backward);
}

/* vDNN's fetches. The first output has none before it, so Layrub's rule holds for it. */
static void fetch_earlier(struct migration *migration)
{
    uint32_t before = EBB_NONE, backward = EBB_NONE; /* the distinct need before, and this one */
    for (uint32_t i = 0; i < migration->count; i++) {
        struct pause *pause = &migration->pauses[i];
        if (pause->backward != backward) {
            before = backward;
            backward = pause->backward;
        }
        if (before != EBB_NONE)
            pause->fetch = before > pause->forward + 2 ? before : pause->forward + 2;
    }
}

static bool add_transfer(struct migration *migration, uint32_t group, enum ebb_transfer transfer,
                         uint32_t storage)
{
    struct ebb_transfer_at added = {
        .step = migration->first_steps[group], .transfer = transfer, .storage = storage};
    if (transfer != EBB_TRANSFER_BARRIER)
        migration->transfers[group] = true;
    return ebb__list_push(&migration->schedule->transfers, added);
}

static int by_step(const void *a, const void *b)
{
    const struct ebb_transfer_at *first = a, *second = b;
    if (first->step != second->step)
        return first->step < second->step ? -1 : 1;
    if (first->transfer != second->transfer)
        return first->transfer < second->transfer ? -1 : 1;
    return first->storage < second->storage ? -1 : first->storage > second->storage;
}

static bool add_transfers(struct migration *migration)
{
    struct ebb_schedule *schedule = migration->schedule;
    for (uint32_t i = 0; i < migration->count; i++) {
        const struct pause *pause = &migration->pauses[i];
        if (!add_transfer(migration, pause->forward + 1, EBB_TRANSFER_EVICT, pause->storage) ||
            !add_transfer(migration, pause->fetch, EBB_TRANSFER_PREFETCH, pause->storage))
            return false;
    }
    bool always = !ebb__mode_is_vdnn(schedule->options.mode);
    for (uint32_t g = 1; g < migration->group_count; g++)
        if (schedule->steps.items[migration->first_steps[g]].phase != EBB_PHASE_UPDATE &&
            (always || migration->transfers[g - 1]) &&
            !add_transfer(migration, g, EBB_TRANSFER_BARRIER, 0))
            return false;
    qsort(schedule->transfers.items, schedule->transfers.count, sizeof *schedule->transfers.items,
          by_step);
    return true;
}

enum ebb_status ebb__schedule_migrate(struct ebb_schedule *schedule, struct ebb_error *error)
{
    enum ebb_mode mode = schedule->options.mode;
    bool is_vdnn = ebb__mode_is_vdnn(mode);
    if (!schedule->options.is_training ||
        (mode != EBB_MODE_INTER && mode != EBB_MODE_HYBRID && !is_vdnn))
        return EBB_OK;
    struct migration migration = {.schedule = schedule};
    migration.pauses = malloc((schedule->storages.count + 1) * sizeof *migration.pauses);
    migration.first_steps = malloc(schedule->steps.count * sizeof *migration.first_steps);
    migration.transfers = calloc(schedule->steps.count, sizeof *migration.transfers);
    bool is_good = migration.pauses && migration.first_steps && migration.transfers;
    if (is_good) {
        find_pauses(&migration);
        choose(&migration);
        if (is_vdnn)
            fetch_earlier(&migration);
        is_good = add_transfers(&migration);
    }
    free(migration.pauses);
    free(migration.first_steps);
    free(migration.transfers);
    return is_good ? EBB_OK : ebb__train_fail_memory(error, schedule->graph->net->name);
}
