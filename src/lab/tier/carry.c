#include "lab/tier/carry.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool moves_list(struct ebb_tier_carry *it)
{
    const struct ebb_tier_plan *plan = it->plan;
    it->moves = calloc(plan->stays.count + 1, sizeof *it->moves);
    for (uint32_t b = 0; it->moves && b < plan->block_count; b++) {
        uint32_t from = plan->first_stay[b], to = plan->first_stay[b + 1];
        bool circle = it->operations->blocks[b].persistent && to - from > 1;
        for (uint32_t s = from + !circle; s < to; s++)
            it->moves[it->move_count++] = (struct ebb_tier_move){&plan->stays.items[s], true};
    }
    return it->moves != NULL;
}

enum ebb_status ebb__tier_carry_init(struct ebb_tier_carry *carry,
                                     const struct ebb_tier_request *request,
                                     const struct ebb_tier_plan *plan,
                                     struct ebb_tier_memory *memory, struct ebb_error *error)
{
    *carry = (struct ebb_tier_carry){
        .request = request, .operations = request->operations, .plan = plan, .memory = memory};
    size_t blocks = (size_t)carry->operations->block_count + 1;
    carry->tier = calloc(blocks, sizeof *carry->tier);
    carry->live = calloc(blocks, sizeof *carry->live);
    bool ok = carry->tier && carry->live && moves_list(carry);
    for (int tier = 0; tier < EBB_TIER_COUNT; tier++) {
        carry->levels[tier] = calloc((size_t)carry->operations->count + 1, sizeof(uint64_t));
        ok = ok && carry->levels[tier];
    }
    if (!ok || ebb__tier_lane_init(&carry->lanes[0], plan->stays.count) ||
        ebb__tier_lane_init(&carry->lanes[1], plan->stays.count))
        return ebb__fail(error, EBB_ERR_MEMORY, "tiers", "no memory to carry the plan out");
    return ebb__tiers_levels(request, plan, carry->levels, error);
}

void ebb__tier_carry_fini(struct ebb_tier_carry *carry)
{
    for (int i = 0; i < 2; i++) {
        if (carry->lanes[i].queue)
            ebb__tier_lane_fini(&carry->lanes[i]);
        free(carry->levels[i]);
    }
    free(carry->tier);
    free(carry->live);
    free(carry->moves);
    *carry = (struct ebb_tier_carry){0};
}

/* ---- copies ---------------------------------------------------------------------------------- */

static struct ebb_tier_lane *lane_of(struct ebb_tier_carry *it, const struct ebb_tier_move *move)
{
    return &it->lanes[it->request->machine->duplex && move->stay->tier == EBB_TIER_FAST];
}

/* What a copy takes on its lane. Copies of a run follow each other; the first pays for the call. */
static uint64_t lane_ns(const struct ebb_tier_carry *it, const struct ebb_tier_move *move,
                        bool continues)
{
    const struct ebb_tier_machine *machine = it->request->machine;
    const struct ebb_lane *lane = move->stay->tier ? &machine->out : &machine->in;
    uint64_t ns = ebb__lane_ns(lane, it->memory->bytes[move->stay->block]);
    return continues ? ns - lane->fixed_ns : ns;
}

/* A synchronous copy is over when it returns. `last` is the move that was started before it in this
 * operation, or NULL. */
static enum ebb_status move_start(struct ebb_tier_carry *it, struct ebb_tier_move *move,
                                  const struct ebb_tier_move *last, struct ebb_error *error)
{
    uint32_t b = move->stay->block;
    int to = move->stay->tier;
    size_t bytes = it->memory->bytes[b];
    if (move->stay->drops || !bytes)
        return EBB_OK; /* the slow tier has it already, or it goes with the first of its pages */
    if (to == EBB_TIER_SLOW) {
        enum ebb_status status = ebb__tier_memory_take(it->memory, b, to, error);
        if (status)
            return status;
    } /* fast pages come as the lane writes them */
    bool continues = last && move->stay->run && last->stay->run == move->stay->run;
    uint64_t ns = lane_ns(it, move, continues);
    move->done = false;
    it->predicted_copy_ns += (double)ns;
    it->copies++;
    struct ebb_tier_copy copy = {ebb__tier_place(it->memory, b, to),
                                 ebb__tier_place(it->memory, b, !to), bytes, ns, &move->done};
    if (move->stay->start == move->stay->first)
        ebb__tier_lane_copy(lane_of(it, move), copy);
    else
        ebb__tier_lane_push(lane_of(it, move), copy);
    return EBB_OK;
}

/* True if the stay behind this one drops: until then the copy in the slow tier stays. */
static bool keeps_copy(const struct ebb_tier_carry *it, const struct ebb_stay *stay)
{
    const struct ebb_stay *first = &it->plan->stays.items[it->plan->first_stay[stay->block]];
    const struct ebb_stay *end = &it->plan->stays.items[it->plan->first_stay[stay->block + 1]];
    const struct ebb_stay *next = stay + 1 < end ? stay + 1 : first;
    return stay->tier == EBB_TIER_FAST && next != stay && next->drops;
}

/* The block is used in its new tier from now on. */
static void move_end(struct ebb_tier_carry *it, struct ebb_tier_move *move)
{
    uint32_t b = move->stay->block;
    int to = move->stay->tier;
    ebb__tier_lane_wait(lane_of(it, move), &move->done);
    it->tier[b] = (uint8_t)to;
    if (!keeps_copy(it, move->stay))
        ebb__tier_memory_release(it->memory, b, !to);
}

static bool is_synchronous(const struct ebb_tier_carry *it, const struct ebb_tier_move *move,
                           uint32_t at, int tier)
{
    return move->stay->first == at && move->stay->start == at && move->stay->tier == tier &&
           it->live[move->stay->block];
}

/* All synchronous copies in one direction. */
static enum ebb_status moves_wait(struct ebb_tier_carry *it, uint32_t at, int tier,
                                  struct ebb_error *error)
{
    const struct ebb_tier_move *last = NULL;
    for (uint32_t i = 0; i < it->move_count; i++) {
        if (!is_synchronous(it, &it->moves[i], at, tier))
            continue;
        enum ebb_status status = move_start(it, &it->moves[i], last, error);
        if (status)
            return status;
        last = &it->moves[i];
    }
    for (uint32_t i = 0; i < it->move_count; i++)
        if (is_synchronous(it, &it->moves[i], at, tier))
            move_end(it, &it->moves[i]);
    return EBB_OK;
}

enum ebb_status ebb__tier_carry_moves(struct ebb_tier_carry *it, uint32_t at,
                                      struct ebb_error *error)
{
    const struct ebb_tier_move *last = NULL;
    for (uint32_t i = 0; i < it->move_count; i++)
        if (it->moves[i].stay->first == at && it->moves[i].stay->start != at &&
            it->live[it->moves[i].stay->block])
            move_end(it, &it->moves[i]);
    enum ebb_status status = moves_wait(it, at, EBB_TIER_SLOW, error);
    if (!status)
        status = moves_wait(it, at, EBB_TIER_FAST, error);
    for (uint32_t i = 0; !status && i < it->move_count; i++)
        if (it->moves[i].stay->start == at && it->moves[i].stay->first != at &&
            it->live[it->moves[i].stay->block]) {
            status = move_start(it, &it->moves[i], last, error);
            last = &it->moves[i];
        }
    return status;
}

void ebb__tier_carry_settle(struct ebb_tier_carry *it)
{
    for (uint32_t i = 0; i < it->move_count; i++)
        ebb__tier_lane_wait(lane_of(it, &it->moves[i]), &it->moves[i].done);
}

double ebb__tier_carry_copy_ns(const struct ebb_tier_carry *carry)
{
    return carry->lanes[0].busy_ns + carry->lanes[1].busy_ns;
}

/* ---- lives ----------------------------------------------------------------------------------- */

static enum ebb_status block_begin(struct ebb_tier_carry *it, uint32_t block, int tier,
                                   struct ebb_error *error)
{
    it->tier[block] = (uint8_t)tier;
    it->live[block] = true;
    return ebb__tier_memory_take(it->memory, block, tier, error);
}

static void block_end(struct ebb_tier_carry *it, uint32_t block)
{
    ebb__tier_memory_release(it->memory, block, EBB_TIER_FAST);
    ebb__tier_memory_release(it->memory, block, EBB_TIER_SLOW);
    it->live[block] = false;
}

enum ebb_status ebb__tier_carry_lives(struct ebb_tier_carry *it, uint32_t at,
                                      struct ebb_error *error)
{
    enum ebb_status status = EBB_OK;
    for (uint32_t b = 0; b < it->operations->block_count; b++) {
        const struct ebb_operation_block *block = &it->operations->blocks[b];
        if (!block->persistent && it->live[b] &&
            (block->first + block->span) % it->operations->count == at)
            block_end(it, b);
    }
    for (uint32_t b = 0; !status && b < it->operations->block_count; b++) {
        const struct ebb_operation_block *block = &it->operations->blocks[b];
        if (!block->persistent && block->first == at)
            status = block_begin(it, b, it->plan->stays.items[it->plan->first_stay[b]].tier, error);
    }
    return status;
}

static const struct ebb_stay *last_stay(const struct ebb_tier_carry *it, uint32_t block)
{
    return &it->plan->stays.items[it->plan->first_stay[block + 1] - 1];
}

enum ebb_status ebb__tier_carry_begin(struct ebb_tier_carry *it, struct ebb_tier_carry *from,
                                      struct ebb_error *error)
{
    enum ebb_status status = EBB_OK;
    for (uint32_t b = 0; !status && b < it->operations->block_count; b++) {
        const struct ebb_operation_block *block = &it->operations->blocks[b];
        if (!block->persistent)
            continue;
        status = block_begin(it, b, last_stay(it, b)->tier, error);
        if (status || !from)
            continue;
        memcpy(ebb__tier_carry_at(it, b), ebb__tier_carry_at(from, b), block->size_bytes);
        ebb__tier_memory_release(from->memory, b, from->tier[b]);
    }
    return status;
}

/* A stay that goes on across the end of the iteration may have kept its copy in the slow tier. */
static enum ebb_status kept_make(struct ebb_tier_carry *it, uint32_t block, struct ebb_error *error)
{
    if (!it->operations->blocks[block].persistent || !keeps_copy(it, last_stay(it, block)))
        return EBB_OK;
    enum ebb_status status = ebb__tier_memory_take(it->memory, block, EBB_TIER_SLOW, error);
    if (!status)
        memcpy(ebb__tier_place(it->memory, block, EBB_TIER_SLOW),
               ebb__tier_place(it->memory, block, EBB_TIER_FAST), it->memory->bytes[block]);
    return status;
}

enum ebb_status ebb__tier_carry_start(struct ebb_tier_carry *it, struct ebb_error *error)
{
    enum ebb_status status = EBB_OK;
    for (uint32_t b = 0; !status && b < it->operations->block_count; b++)
        status = kept_make(it, b, error);
    for (uint32_t i = 0; !status && i < it->move_count; i++)
        if (it->moves[i].stay->start > it->moves[i].stay->first &&
            it->live[it->moves[i].stay->block])
            status = move_start(it, &it->moves[i], NULL, error);
    return status;
}

/* ---- times and residency --------------------------------------------------------------------- */

uint64_t ebb__tier_carry_pace_ns(const struct ebb_tier_carry *it, uint32_t at)
{
    const struct ebb_operation *operation = &it->operations->items[at];
    double bytes_ns = 0, latency_ns = 0;
    for (uint32_t u = 0; u < operation->use_count; u++) {
        const struct ebb_use *use = &it->operations->uses[operation->first_use + u];
        bytes_ns += ebb__use_ns(it->request->machine, use, it->tier[use->block]);
        latency_ns += ebb__use_latency_ns(it->request->machine, it->tier[use->block]);
    }
    return (uint64_t)(fmax((double)operation->ns, bytes_ns) + latency_ns);
}

/* Bytes that are on their way to fast memory. */
static uint64_t coming_bytes(const struct ebb_tier_carry *it, uint32_t at)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < it->move_count; i++) {
        const struct ebb_stay *stay = it->moves[i].stay;
        uint32_t window = ebb__operations_between(it->operations, stay->start, stay->first);
        if (stay->tier == EBB_TIER_FAST && it->live[stay->block] &&
            ebb__operations_between(it->operations, stay->start, at) < window)
            sum += it->memory->bytes[stay->block];
    }
    return sum;
}

void ebb__tier_carry_sample(struct ebb_tier_carry *it, uint32_t at)
{
    uint64_t found[EBB_TIER_COUNT];
    struct ebb_tier_samples *samples = &it->samples;
    if (!ebb__tier_memory_resident(it->memory, found))
        return;
    uint64_t fast = it->levels[EBB_TIER_FAST][at], slow = it->levels[EBB_TIER_SLOW][at];
    bool slow_good = found[1] >= slow && found[1] <= slow + it->memory->slack_bytes;
    samples->operations++;
    samples->same += found[0] == fast && slow_good;
    samples->fast_over += found[0] > fast;
    samples->off += found[0] > fast || found[0] + coming_bytes(it, at) < fast || !slow_good;
    for (int tier = 0; tier < EBB_TIER_COUNT; tier++)
        samples->peak_bytes[tier] =
            found[tier] > samples->peak_bytes[tier] ? found[tier] : samples->peak_bytes[tier];
}
