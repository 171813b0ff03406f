#include "lab/check/residency.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define NEVER UINT32_MAX

/* Sums for one block, in positions. A turn is one iteration. */
struct tally {
    uint64_t resident; /* positions at which one instance is resident, over its life */
    int64_t balance;   /* sum of end - begin of its residencies, in positions of one turn */
    uint64_t covered;  /* positions of its non-permanent buffers, over the whole circle */
    uint64_t always;   /* number of its permanent buffers */
    uint64_t rests;    /* for residencies without a buffer of their own: lengths modulo a turn */
    uint32_t missing;  /* number of those residencies */
};

struct check {
    const struct ebb_pool_source *source;
    const struct ebb_pool_blocks *blocks;
    const struct ebb_model *model;
    struct ebb_error *error;
    uint64_t turn;                /* positions */
    uint32_t *tick_at;            /* by tick: its position */
    uint32_t *left_at, *comes_at; /* by absence: position of its copy out's end, copy in's start */
    uint32_t *absence_of;         /* by tick: the absence after the access at it, or NEVER */
    uint32_t *end_of;             /* by position: end of the residency that begins there */
    uint32_t *owner;              /* by position: block whose residency begins there, or NEVER */
    bool *begun;                  /* by position on the whole circle: a buffer begins at it */
    uint64_t *change;             /* by position: change of resident bytes */
    struct tally *tallies;        /* by block */
};

#define VIOLATION(check, ...) ebb__fail((check)->error, EBB_ERR_FORMAT, "packing", __VA_ARGS__)

static uint64_t bytes_of(const struct check *check, uint32_t block)
{
    uint64_t page = check->source->page_bytes > 1 ? check->source->page_bytes : 1;
    uint64_t size = check->model->blocks[block].size_bytes;
    return size % page ? size - size % page + page : size;
}

/* Positions between `from` and `to`, in cyclic order; a whole turn if they are equal. */
static uint64_t ahead(const struct check *check, uint64_t from, uint64_t to)
{
    return (to + check->turn - from - 1) % check->turn + 1;
}

/* ---- the instants ---------------------------------------------------------------------------- */

static enum ebb_status instants_take(struct check *check)
{
    const struct ebb_pool_source *source = check->source;
    uint32_t ticks = 0, copies = 0, wanted = 0;
    memset(check->left_at, 0xff, (source->absence_count + 1u) * sizeof *check->left_at);
    memset(check->comes_at, 0xff, (source->absence_count + 1u) * sizeof *check->comes_at);
    for (uint32_t i = 0; i < source->absence_count; i++)
        wanted += source->absences[i].drops ? 1 : 2;
    for (uint32_t p = 0; p < check->turn; p++) {
        const struct ebb_pool_instant *instant = &check->blocks->instants[p];
        if (instant->kind == EBB_POOL_TICK) {
            if (instant->index != ticks || ticks == check->model->tick_count)
                return VIOLATION(check, "instant %" PRIu32 " is not tick %" PRIu32, p, ticks);
            check->tick_at[ticks++] = p;
            continue;
        }
        bool left = instant->kind == EBB_POOL_EVICTED;
        uint32_t *at = left ? check->left_at : check->comes_at;
        if (instant->kind > EBB_POOL_FETCH || instant->index >= source->absence_count ||
            at[instant->index] != NEVER || (!left && source->absences[instant->index].drops))
            return VIOLATION(check, "instant %" PRIu32 " is none of this plan", p);
        at[instant->index] = p;
        copies++;
    }
    if (ticks != check->model->tick_count || copies != wanted)
        return VIOLATION(check, "an instant of the plan is missing");
    return EBB_OK;
}

/* Checks that the copies between two ticks are sorted by time, and are not outside the ticks'
 * times. */
static enum ebb_status times_check(const struct check *check)
{
    const struct ebb_model *model = check->model;
    uint64_t lap = model->time_ns[model->tick_count], last = 0, room = 0, before = 0;
    uint64_t first = check->tick_at[0];
    for (uint64_t k = 0; k < check->turn; k++) {
        uint32_t p = (uint32_t)((first + k) % check->turn);
        const struct ebb_pool_instant *instant = &check->blocks->instants[p];
        if (instant->kind == EBB_POOL_TICK) {
            uint32_t tick = instant->index;
            before = model->time_ns[tick];
            room = (tick + 1 == model->tick_count ? lap + model->time_ns[0]
                                                  : model->time_ns[tick + 1]) -
                   before;
            last = 0;
            continue;
        }
        const struct ebb_absence *absence = &check->source->absences[instant->index];
        uint64_t at =
            instant->kind == EBB_POOL_EVICTED ? absence->out_end_ns : absence->in_start_ns;
        uint64_t since = (at % lap + 2 * lap - before) % lap;
        if (since < last && since == 0 && room == lap)
            since = lap;
        if (since < last || since > room)
            return VIOLATION(check, "instant %" PRIu32 " is out of its time", p);
        last = since;
    }
    return EBB_OK;
}

static enum ebb_status absences_check(struct check *check)
{
    memset(check->absence_of, 0xff, check->model->tick_count * sizeof *check->absence_of);
    for (uint32_t i = 0; i < check->source->absence_count; i++) {
        const struct ebb_absence *absence = &check->source->absences[i];
        uint32_t from = check->tick_at[absence->from_tick];
        uint64_t to = ahead(check, from, check->tick_at[absence->to_tick]);
        uint64_t left = ahead(check, from, check->left_at[i]);
        uint64_t comes = absence->drops ? left + 1 : ahead(check, from, check->comes_at[i]);
        if (left >= comes || comes > to || (comes == to && !absence->drops))
            return VIOLATION(check, "absence %" PRIu32 " is not between its uses", i);
        check->absence_of[absence->from_tick] = i;
    }
    return EBB_OK;
}

/* ---- expected residencies -------------------------------------------------------------------- */

static void expect(struct check *check, uint32_t block, uint32_t begin, uint32_t end)
{
    uint64_t bytes = bytes_of(check, block);
    check->end_of[begin] = end;
    check->owner[begin] = block;
    check->change[begin] += bytes;
    check->change[end] -= bytes;
    check->tallies[block].balance += (int64_t)end - (int64_t)begin;
}

/* Enters all residencies of the block, from its last access backwards. A residency ends at the
 * first absence after its begin, or with the block. */
static void block_expect(struct check *check, uint32_t b)
{
    const struct ebb_model_block *block = &check->model->blocks[b];
    const struct ebb_model_access *uses = &check->model->accesses[block->first_access];
    bool persistent = block->alloc_tick == EBB_TICK_NONE;
    struct tally *tally = &check->tallies[b];
    uint32_t end = persistent ? NEVER : check->tick_at[block->free_tick];
    tally->resident = check->turn;
    if (!persistent)
        tally->resident = block->span_ticks / check->model->tick_count * check->turn +
                          ahead(check, check->tick_at[block->alloc_tick], end);
    for (uint32_t i = 0; i < block->access_count && persistent && end == NEVER; i++)
        if (check->absence_of[uses[i].tick] != NEVER)
            end = check->left_at[check->absence_of[uses[i].tick]];
    for (uint32_t i = block->access_count; i-- > 0;) {
        uint32_t index = check->absence_of[uses[i].tick];
        if (index == NEVER)
            continue;
        uint32_t left = check->left_at[index], comes = check->comes_at[index];
        if (check->source->absences[index].drops) {
            tally->resident -= ahead(check, left, check->tick_at[block->free_tick]);
        } else {
            tally->resident -= ahead(check, left, comes);
            expect(check, b, comes, end);
        }
        end = left;
    }
    if (!persistent)
        expect(check, b, check->tick_at[block->alloc_tick], end);
}

/* ---- buffers --------------------------------------------------------------------------------- */

static enum ebb_status buffer_take(struct check *check, uint32_t i)
{
    const struct ebb_pool_buffer *buffer = &check->blocks->buffers[i];
    uint32_t b = check->blocks->names[i].block;
    if (b >= check->model->block_count || buffer->size_bytes != bytes_of(check, b))
        return VIOLATION(check, "buffer %" PRIu32 " is no block's", i);
    if (buffer->lower >= check->blocks->period || buffer->upper <= buffer->lower ||
        buffer->upper - buffer->lower > check->blocks->period)
        return VIOLATION(check, "buffer %" PRIu32 " has no lifetime on the circle", i);
    if (buffer->upper - buffer->lower == check->blocks->period) {
        check->tallies[b].always++;
        return EBB_OK;
    }
    uint32_t begin = (uint32_t)(buffer->lower % check->turn);
    if (check->owner[begin] != b || check->begun[buffer->lower])
        return VIOLATION(check, "buffer %" PRIu32 " begins where no residency of its block does",
                         i);
    if (check->end_of[begin] != buffer->upper % check->turn)
        return VIOLATION(check, "buffer %" PRIu32 " does not end with its residency", i);
    check->begun[buffer->lower] = true;
    check->tallies[b].covered += buffer->upper - buffer->lower;
    return EBB_OK;
}

/* Each residency must have a buffer in every iteration of the circle, or in none. */
static enum ebb_status beginnings_check(struct check *check)
{
    for (uint32_t p = 0; p < check->turn; p++) {
        uint32_t begun = 0, b = check->owner[p];
        for (uint32_t k = 0; k < check->blocks->iterations; k++)
            begun += check->begun[k * check->turn + p];
        if (b == NEVER || begun == check->blocks->iterations)
            continue;
        if (begun)
            return VIOLATION(
                check, "a residency of block %" PRIu32 " has a buffer in %" PRIu32 " iterations", b,
                begun);
        check->tallies[b].missing++;
        check->tallies[b].rests += ahead(check, p, check->end_of[p]);
    }
    return EBB_OK;
}

/* A residency without a buffer of its own must be longer than the circle. It must have a permanent
 * buffer for each turn, including the last, partial one. */
static enum ebb_status tally_check(const struct check *check, uint32_t b)
{
    const struct tally *tally = &check->tallies[b];
    uint64_t covered = tally->covered / check->blocks->iterations;
    uint64_t lacking = tally->resident - covered - tally->rests;
    if (covered + tally->rests > tally->resident ||
        tally->covered % check->blocks->iterations != 0 || lacking % check->turn != 0 ||
        lacking / check->turn < (uint64_t)tally->missing * check->blocks->iterations ||
        tally->always != lacking / check->turn + tally->missing)
        return VIOLATION(check, "the buffers of block %" PRIu32 " are not its residencies", b);
    return EBB_OK;
}

static enum ebb_status load_check(const struct check *check)
{
    uint64_t resident = 0, most = 0;
    for (uint32_t b = 0; b < check->model->block_count; b++) {
        const struct tally *tally = &check->tallies[b];
        if (check->model->blocks[b].span_ticks)
            resident +=
                (uint64_t)(((int64_t)tally->resident - tally->balance) / (int64_t)check->turn) *
                bytes_of(check, b);
    }
    for (uint64_t p = 0; p < check->turn; p++) {
        resident += check->change[p];
        most = resident > most ? resident : most;
    }
    if (most != check->blocks->load_bytes)
        return VIOLATION(check, "the load of its blocks is %" PRIu64, most);
    return EBB_OK;
}

static enum ebb_status sweep(struct check *check)
{
    const struct ebb_model *model = check->model;
    enum ebb_status status = instants_take(check);
    if (!status)
        status = times_check(check);
    if (!status)
        status = absences_check(check);
    if (status)
        return status;
    memset(check->owner, 0xff, check->turn * sizeof *check->owner);
    for (uint32_t b = 0; b < model->block_count; b++)
        if (model->blocks[b].size_bytes && model->blocks[b].span_ticks)
            block_expect(check, b);
    for (uint32_t i = 0; i < check->blocks->count && !status; i++)
        status = buffer_take(check, i);
    if (!status)
        status = beginnings_check(check);
    for (uint32_t b = 0; b < model->block_count && !status; b++)
        status = tally_check(check, b);
    return status ? status : load_check(check);
}

enum ebb_status ebb__check_residencies(const struct ebb_pool_source *source,
                                       const struct ebb_pool_blocks *blocks,
                                       struct ebb_error *error)
{
    const struct ebb_model *model = source->model;
    struct check check = {.source = source, .blocks = blocks, .model = model, .error = error};
    check.turn = blocks->instant_count;
    if (check.turn == 0 || blocks->iterations == 0 ||
        blocks->period != check.turn * blocks->iterations)
        return VIOLATION(&check, "the circle is not its iterations");
    check.tick_at = calloc(model->tick_count, sizeof *check.tick_at);
    check.left_at = calloc(source->absence_count + 1u, sizeof *check.left_at);
    check.comes_at = calloc(source->absence_count + 1u, sizeof *check.comes_at);
    check.absence_of = calloc(model->tick_count, sizeof *check.absence_of);
    check.end_of = calloc(check.turn, sizeof *check.end_of);
    check.owner = calloc(check.turn, sizeof *check.owner);
    check.begun = calloc(blocks->period, sizeof *check.begun);
    check.change = calloc(check.turn, sizeof *check.change);
    check.tallies = calloc(model->block_count + 1u, sizeof *check.tallies);
    bool room = check.tick_at && check.left_at && check.comes_at && check.absence_of &&
                check.end_of && check.owner && check.begun && check.change && check.tallies;
    enum ebb_status status =
        room ? sweep(&check) : ebb__fail(error, EBB_ERR_MEMORY, "packing", "out of memory");
    free(check.tick_at);
    free(check.left_at);
    free(check.comes_at);
    free(check.absence_of);
    free(check.end_of);
    free(check.owner);
    free(check.begun);
    free(check.change);
    free(check.tallies);
    return status;
}
