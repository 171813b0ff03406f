/* Merges gaps that contain the same instants into one group, since the linear program cannot
 * distinguish them. So its size depends on the instants, not on the number of gaps. */
#include "lab/bound/groups.h"

#include <stdlib.h>
#include <string.h>

/* Index of the first instant at or after `tick`; instant_count if there is none. */
static uint32_t instant_at(const struct ebb_bound_program *program, uint32_t tick)
{
    uint32_t low = 0, high = program->instant_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (program->instants[middle] < tick)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

uint64_t ebb__bound_instant_ns(const struct builder *builder, const struct group *group, uint32_t k)
{
    uint32_t place = group->first + k, instants = builder->instants;
    uint32_t tick = builder->program->instants[place % instants];
    return builder->bound->model->time_ns[tick] + place / instants * builder->bound->lap_ns;
}

static struct group group_of_gap(const struct builder *builder, const struct ebb_bound_gap *gap)
{
    uint32_t ticks = builder->bound->model->tick_count, end = gap->first + gap->count;
    double bytes = (double)gap->bytes / BYTES_UNIT;
    struct group group = {.first = instant_at(builder->program, gap->first),
                          .drops = gap->drops,
                          .bytes = bytes,
                          .out_cost = (double)gap->out_ns / NS_UNIT / bytes,
                          .in_cost = (double)gap->in_ns / NS_UNIT / bytes,
                          .ready_ns = gap->ready_ns,
                          .need_ns = gap->need_ns};
    group.count = (end <= ticks ? instant_at(builder->program, end)
                                : builder->instants + instant_at(builder->program, end - ticks)) -
                  group.first;
    group.absent_end = group.count;
    if (builder->program->stalls)
        return group;
    while (group.absent_first < group.count &&
           ebb__bound_instant_ns(builder, &group, group.absent_first) < gap->ready_ns + gap->out_ns)
        group.absent_first++;
    while (group.absent_end > group.absent_first &&
           ebb__bound_instant_ns(builder, &group, group.absent_end - 1) + gap->in_ns > gap->need_ns)
        group.absent_end--;
    return group;
}

struct group_key {
    uint64_t key[2];
    uint32_t gap;
};

static int group_key_compare(const void *left, const void *right)
{
    const struct group_key *a = left, *b = right;
    for (int i = 0; i < 2; i++)
        if (a->key[i] != b->key[i])
            return a->key[i] < b->key[i] ? -1 : 1;
    return (a->gap > b->gap) - (a->gap < b->gap);
}

bool ebb__bound_groups_make(struct builder *builder)
{
    const struct ebb_bound *bound = builder->bound;
    struct group_key *keys = malloc((bound->gap_count + 1u) * sizeof *keys);
    struct group *all = malloc((bound->gap_count + 1u) * sizeof *all);
    bool made = keys && all;
    for (uint32_t g = 0; made && g < bound->gap_count; g++) {
        all[g] = group_of_gap(builder, &bound->gaps[g]);
        keys[g] =
            (struct group_key){{(uint64_t)all[g].first << 32 | all[g].count,
                                (uint64_t)all[g].absent_first << 32 | all[g].absent_end << 2 |
                                    (uint64_t)(bound->gaps[g].out_ns == 0) << 1 | all[g].drops},
                               g};
    }
    if (made)
        qsort(keys, bound->gap_count, sizeof *keys, group_key_compare);
    for (uint32_t i = 0; made && i < bound->gap_count; i++) {
        const struct group *own = &all[keys[i].gap];
        builder->group_of[keys[i].gap] = EBB_BOUND_NONE;
        if (own->count == 0 || own->absent_first >= own->absent_end)
            continue;
        struct group *last = &builder->groups[builder->group_count - 1];
        bool same = i > 0 && builder->group_of[keys[i - 1].gap] != EBB_BOUND_NONE &&
                    memcmp(keys[i].key, keys[i - 1].key, sizeof keys[i].key) == 0;
        if (!same) {
            builder->groups[builder->group_count++] = *own;
        } else {
            last->bytes += own->bytes;
            last->out_cost = ebb__bound_least(last->out_cost, own->out_cost);
            last->in_cost = ebb__bound_least(last->in_cost, own->in_cost);
            last->ready_ns = own->ready_ns < last->ready_ns ? own->ready_ns : last->ready_ns;
            last->need_ns = own->need_ns > last->need_ns ? own->need_ns : last->need_ns;
        }
        builder->group_of[keys[i].gap] = builder->group_count - 1;
    }
    free(keys);
    free(all);
    return made;
}
