/* How long an iteration takes under a plan for two tiers. Every copy is a record with its request,
 * deadline and end; the iteration is repeated a fixed number of times, on a clock. */
#include "check/tiers_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 20 /* more than the simulator's laps */

struct copy {
    uint32_t request, deadline, far, run, block; /* far: operations from request to deadline */
    bool leaves;
    uint64_t bytes;
    double done_ns;
};

static uint64_t pages_of(const struct ebb__tier_case *it, uint32_t block)
{
    uint64_t bytes = 0, page = it->machine->page_bytes;
    if (it->plan->pages[block] == EBB_NO_GROUP)
        bytes = it->operations->blocks[block].size_bytes;
    else if (it->plan->pages[block] != block)
        return 0;
    else
        for (uint32_t b = 0; b < it->operations->block_count; b++)
            if (it->plan->pages[b] == block)
                bytes += it->operations->blocks[b].size_bytes;
    return bytes % page ? bytes - bytes % page + page : bytes;
}

static bool same_transfer(const struct copy *a, const struct copy *b)
{
    return a->run != 0 && a->run == b->run && a->request == b->request &&
           a->deadline == b->deadline && a->leaves == b->leaves;
}

/* Copies that are one transfer are one record, which holds the place of its lowest block. */
static bool copies_list(const struct ebb__tier_case *it, struct copy **copies, uint32_t *count)
{
    const struct ebb_tier_plan *plan = it->plan;
    struct copy *list = calloc(plan->stays.count + 1, sizeof *list);
    *copies = list;
    *count = 0;
    for (uint32_t b = 0; list && b < plan->block_count; b++) {
        uint32_t stays = plan->first_stay[b + 1] - plan->first_stay[b];
        uint64_t bytes = pages_of(it, b);
        for (uint32_t s = 0; s < stays; s++) {
            const struct ebb_stay *stay = &plan->stays.items[plan->first_stay[b] + s];
            bool is_birth = s == 0 && (stays == 1 || !it->operations->blocks[b].persistent);
            if (is_birth || stay->drops || !bytes)
                continue;
            struct copy copy = {.request = stay->start,
                                .deadline = stay->first,
                                .far = (stay->first + it->operations->count - stay->start) %
                                       it->operations->count,
                                .run = stay->run,
                                .block = b,
                                .leaves = stay->tier == EBB_TIER_SLOW,
                                .bytes = bytes};
            uint32_t same = 0;
            while (same < *count && (!copy.run || !same_transfer(&list[same], &copy)))
                same++;
            if (same < *count)
                list[same].bytes += bytes;
            else
                list[(*count)++] = copy;
        }
    }
    return list != NULL;
}

/* True if a is served before b. */
static bool is_before(const struct copy *a, const struct copy *b)
{
    if (a->request != b->request)
        return a->request < b->request;
    if ((a->far == 0) != (b->far == 0))
        return a->far == 0;
    if (a->far == 0 && a->leaves != b->leaves)
        return a->leaves;
    if (a->far != b->far)
        return a->far < b->far;
    if (a->leaves != b->leaves)
        return b->leaves;
    if (a->run != b->run)
        return a->run < b->run;
    return a->block < b->block;
}

static int by_service(const void *left, const void *right)
{
    return is_before(left, right) ? -1 : is_before(right, left);
}

/* Compute time of operation `at`, if each block is where `tier_at` says. */
static double busy_ns(const struct ebb__tier_case *it, uint32_t at)
{
    const struct ebb_operation *operation = &it->operations->items[at];
    double memory_ns = 0, first_ns = 0;
    for (uint32_t i = 0; i < operation->use_count; i++) {
        const struct ebb_use *use = &it->operations->uses[operation->first_use + i];
        int where = ebb__tier_case_at(it, use->block, at);
        memory_ns += ebb__tier_ns(&it->machine->tiers[where], use->read_bytes, use->write_bytes);
        if (where == EBB_TIER_SLOW)
            first_ns +=
                fmax(0, it->machine->tiers[1].latency_ns - it->machine->tiers[0].latency_ns);
    }
    return ((double)operation->ns > memory_ns ? (double)operation->ns : memory_ns) + first_ns;
}

static void serve(const struct ebb__tier_case *it, struct copy *copy, double free_ns[2],
                  double now_ns)
{
    int lane = it->machine->duplex && !copy->leaves ? 1 : 0;
    const struct ebb_lane *rate = copy->leaves ? &it->machine->out : &it->machine->in;
    double begin_ns = free_ns[lane] > now_ns ? free_ns[lane] : now_ns;
    copy->done_ns = free_ns[lane] = begin_ns + (double)ebb__lane_ns(rate, copy->bytes);
}

/* One operation, with what comes before it. Returns the time at its end. */
static double step(const struct ebb__tier_case *it, struct copy *copies, uint32_t count,
                   uint32_t at, double compute_ns, double free_ns[2], double now_ns)
{
    uint32_t i = 0;
    for (uint32_t c = 0; c < count; c++)
        if (copies[c].deadline == at && copies[c].request != at && copies[c].done_ns > now_ns)
            now_ns = copies[c].done_ns;
    while (i < count && copies[i].request < at)
        i++;
    double left_ns = now_ns, all_ns = now_ns;
    for (; i < count && copies[i].request == at && copies[i].deadline == at; i++) {
        serve(it, &copies[i], free_ns, copies[i].leaves ? now_ns : left_ns);
        all_ns = fmax(all_ns, copies[i].done_ns);
        if (copies[i].leaves)
            left_ns = all_ns;
    }
    for (; i < count && copies[i].request == at; i++)
        serve(it, &copies[i], free_ns, all_ns);
    return all_ns + compute_ns;
}

bool ebb__tier_case_ns(const struct ebb__tier_case *it, double *iteration_ns)
{
    struct copy *copies;
    uint32_t count, operations = it->operations->count;
    double *compute_ns = malloc((operations + 1) * sizeof *compute_ns);
    bool ok = copies_list(it, &copies, &count) && compute_ns;
    double free_ns[2] = {0, 0}, now_ns = 0;
    if (ok) {
        qsort(copies, count, sizeof *copies, by_service);
        for (uint32_t at = 0; at < operations; at++)
            compute_ns[at] = busy_ns(it, at);
    }
    for (int round = 0; ok && round < ROUNDS; round++) {
        double began_ns = now_ns;
        for (uint32_t at = 0; at < operations; at++)
            now_ns = step(it, copies, count, at, compute_ns[at], free_ns, now_ns);
        bool steady = fabs(now_ns - began_ns - *iteration_ns) < 0.5 && round > 0;
        *iteration_ns = now_ns - began_ns;
        if (steady)
            break;
    }
    free(copies);
    free(compute_ns);
    return ok;
}
