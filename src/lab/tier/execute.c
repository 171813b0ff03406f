#include "lab/tier/execute.h"

#include "base/clock.h"
#include "lab/tier/execute_lane.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define STEP 0x9e3779b97f4a7c15ull

/* A copy of the plan: a stay that begins with one. */
struct move {
    const struct ebb_stay *stay, *before;
    bool done;
};

struct execution {
    const struct ebb_tier_request *request;
    const struct ebb_operations *operations;
    const struct ebb_tier_plan *plan;
    struct ebb_tier_execution *run;
    unsigned char *memory[EBB_TIER_COUNT]; /* each block has a place in both */
    size_t *offset, *bytes, size;
    int file;
    uint8_t *tier; /* by block: where it is used */
    bool *live;
    struct move *moves;
    uint32_t move_count;
    struct ebb_tier_lane lanes[2];
    unsigned char *present; /* of mincore(2) */
    uint64_t sum;
};

/* Bytes that a block moves and releases: blocks that share pages do it with the first of them. */
static size_t bytes_of(const struct execution *it, uint32_t block)
{
    return it->bytes[block];
}

static unsigned char *place_of(const struct execution *it, uint32_t block, int tier)
{
    return it->memory[tier] + it->offset[block];
}

static void release(const struct execution *it, uint32_t block, int tier)
{
    if (!bytes_of(it, block))
        return;
    if (tier == EBB_TIER_FAST)
        (void)madvise(place_of(it, block, tier), bytes_of(it, block), MADV_DONTNEED);
    else
        (void)fallocate(it->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                        (off_t)it->offset[block], (off_t)bytes_of(it, block));
}

/* ---- setup ----------------------------------------------------------------------------------- */

struct placed {
    uint32_t block, group, place, pages;
};

static int by_place(const void *left, const void *right)
{
    const struct placed *a = left, *b = right;
    if (a->group != b->group)
        return a->group < b->group ? -1 : 1;
    if (a->pages != b->pages)
        return a->pages < b->pages ? -1 : 1;
    if (a->place != b->place)
        return a->place < b->place ? -1 : 1;
    return (a->block > b->block) - (a->block < b->block);
}

static size_t rounded(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* Blocks of a group are adjacent, so that a run is one range. Those that share pages have no bytes
 * between them, apart from those that align words. */
static bool places_set(struct execution *it)
{
    uint32_t count = it->operations->block_count, page = it->request->machine->page_bytes;
    struct placed *order = malloc(((size_t)count + 1) * sizeof *order);
    size_t unit = page > 4096 ? page : 4096;
    it->offset = calloc((size_t)count + 1, sizeof *it->offset);
    it->bytes = calloc((size_t)count + 1, sizeof *it->bytes);
    bool ok = order && it->offset && it->bytes;
    for (uint32_t b = 0; ok && b < count; b++)
        order[b] = (struct placed){b, it->plan->group[b], it->plan->place[b], it->plan->pages[b]};
    if (ok)
        qsort(order, count, sizeof *order, by_place);
    for (uint32_t i = 0; ok && i < count; i++) {
        uint32_t b = order[i].block, first = order[i].pages == EBB_NO_GROUP ? b : order[i].pages;
        size_t bytes = rounded(it->operations->blocks[b].size_bytes, sizeof(uint64_t));
        if (i == 0 || order[i].pages == EBB_NO_GROUP || order[i].pages != order[i - 1].pages)
            it->size = rounded(it->size, unit);
        it->offset[b] = it->size;
        it->bytes[first] += bytes;
        it->size += bytes;
    }
    for (uint32_t b = 0; ok && b < count; b++)
        it->bytes[b] = rounded(it->bytes[b], unit);
    it->size = rounded(it->size, unit);
    free(order);
    return ok;
}

static bool moves_list(struct execution *it)
{
    const struct ebb_tier_plan *plan = it->plan;
    it->moves = calloc(plan->stays.count + 1, sizeof *it->moves);
    for (uint32_t b = 0; it->moves && b < plan->block_count; b++) {
        uint32_t from = plan->first_stay[b], to = plan->first_stay[b + 1];
        bool circle = it->operations->blocks[b].persistent && to - from > 1;
        for (uint32_t s = from + !circle; s < to; s++)
            it->moves[it->move_count++] = (struct move){
                &plan->stays.items[s], &plan->stays.items[s == from ? to - 1 : s - 1], true};
    }
    return it->moves != NULL;
}

static enum ebb_status memory_open(struct execution *it, struct ebb_error *error)
{
    const char *folder = it->run->folder;
    it->file = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (it->file < 0 || ftruncate(it->file, (off_t)it->size + 4096) != 0)
        return ebb__fail(error, EBB_ERR_IO, folder, "no file for the slow tier: %s",
                         strerror(errno));
    for (int tier = 0; tier < EBB_TIER_COUNT; tier++) {
        bool slow = tier == EBB_TIER_SLOW;
        void *memory = mmap(NULL, it->size + 4096, PROT_READ | PROT_WRITE,
                            slow ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                            slow ? it->file : -1, 0);
        if (memory == MAP_FAILED)
            return ebb__fail(error, EBB_ERR_MEMORY, folder, "no addresses for the blocks");
        it->memory[tier] = memory;
    }
    (void)madvise(it->memory[0], it->size + 4096, MADV_NOHUGEPAGE); /* pages are counted */
    return EBB_OK;
}

static enum ebb_status execution_init(struct execution *it, struct ebb_error *error)
{
    size_t blocks = (size_t)it->operations->block_count + 1;
    it->tier = calloc(blocks, sizeof *it->tier);
    it->live = calloc(blocks, sizeof *it->live);
    bool ok = it->tier && it->live && places_set(it) && moves_list(it);
    it->present = ok ? malloc(it->size / 4096 + 2) : NULL;
    if (!it->present || ebb__tier_lane_init(&it->lanes[0], it->plan->stays.count) ||
        ebb__tier_lane_init(&it->lanes[1], it->plan->stays.count))
        return ebb__fail(error, EBB_ERR_MEMORY, "tiers", "no memory to carry the plan out");
    return memory_open(it, error);
}

static void execution_fini(struct execution *it)
{
    for (int i = 0; i < 2; i++)
        if (it->lanes[i].queue)
            ebb__tier_lane_fini(&it->lanes[i]);
    for (int tier = 0; tier < EBB_TIER_COUNT; tier++)
        if (it->memory[tier])
            munmap(it->memory[tier], it->size + 4096);
    if (it->file >= 0)
        close(it->file);
    free(it->offset);
    free(it->bytes);
    free(it->tier);
    free(it->live);
    free(it->moves);
    free(it->present);
}

/* ---- copies ---------------------------------------------------------------------------------- */

static struct ebb_tier_lane *lane_of(struct execution *it, const struct move *move)
{
    return &it->lanes[it->request->machine->duplex && move->stay->tier == EBB_TIER_FAST];
}

/* What a copy takes on its lane. Copies of a run follow each other; the first pays for the call. */
static uint64_t lane_ns(const struct execution *it, const struct move *move, bool continues)
{
    const struct ebb_tier_machine *machine = it->request->machine;
    const struct ebb_lane *lane = move->stay->tier ? &machine->out : &machine->in;
    uint64_t ns = ebb__lane_ns(lane, bytes_of(it, move->stay->block));
    return continues ? ns - lane->fixed_ns : ns;
}

static void move_start(struct execution *it, struct move *move, const struct move *last)
{
    uint32_t b = move->stay->block;
    int to = move->stay->tier;
    if (move->stay->drops || !bytes_of(it, b))
        return; /* the slow tier has it already, or it goes with the first of its pages */
    bool continues = last && move->stay->run && last->stay->run == move->stay->run;
    uint64_t ns = lane_ns(it, move, continues);
    move->done = false;
    it->run->predicted_copy_ns += (double)ns;
    it->run->copies++;
    ebb__tier_lane_push(lane_of(it, move),
                        (struct ebb_tier_copy){place_of(it, b, to), place_of(it, b, !to),
                                               bytes_of(it, b), ns, &move->done});
}

/* The block is used in its new tier from now on. */
static void move_end(struct execution *it, struct move *move, bool keeps)
{
    uint32_t b = move->stay->block;
    int to = move->stay->tier;
    ebb__tier_lane_wait(lane_of(it, move), &move->done);
    if (it->tier[b] == to)
        return; /* the first lap begins with it there */
    it->tier[b] = (uint8_t)to;
    if (!keeps)
        release(it, b, !to);
}

/* True if the stay behind this one drops: until then the copy in the slow tier stays. */
static bool keeps_copy(const struct execution *it, const struct ebb_stay *stay)
{
    const struct ebb_stay *first = &it->plan->stays.items[it->plan->first_stay[stay->block]];
    const struct ebb_stay *end = &it->plan->stays.items[it->plan->first_stay[stay->block + 1]];
    const struct ebb_stay *next = stay + 1 < end ? stay + 1 : first;
    return stay->tier == EBB_TIER_FAST && next != stay && next->drops;
}

/* What happens before an operation, in the simulator's order. */
static void moves_before(struct execution *it, uint32_t at)
{
    const struct move *last = NULL;
    for (uint32_t i = 0; i < it->move_count; i++)
        if (it->moves[i].stay->first == at && it->moves[i].stay->start != at &&
            it->live[it->moves[i].stay->block])
            move_end(it, &it->moves[i], keeps_copy(it, it->moves[i].stay));
    for (int out = 1; out >= 0; out--) { /* synchronous: first out, then in */
        for (int pass = 0; pass < 2; pass++)
            for (uint32_t i = 0; i < it->move_count; i++) {
                struct move *move = &it->moves[i];
                if (move->stay->first != at || move->stay->start != at ||
                    (move->stay->tier == EBB_TIER_SLOW) != (out == 1) ||
                    !it->live[move->stay->block])
                    continue;
                if (pass == 0)
                    move_start(it, move, last), last = move;
                else
                    move_end(it, move, keeps_copy(it, move->stay));
            }
    }
    last = NULL;
    for (uint32_t i = 0; i < it->move_count; i++)
        if (it->moves[i].stay->start == at && it->moves[i].stay->first != at &&
            it->live[it->moves[i].stay->block])
            move_start(it, &it->moves[i], last), last = &it->moves[i];
}

/* ---- operations ------------------------------------------------------------------------------ */

static void block_read(struct execution *it, uint32_t block)
{
    const uint64_t *words = (const void *)place_of(it, block, it->tier[block]);
    size_t count = it->operations->blocks[block].size_bytes / sizeof *words;
    uint64_t sum = it->sum;
    for (size_t i = 0; i < count; i++)
        sum += words[i] ^ (sum >> 7);
    it->sum = sum * STEP + block;
}

static void block_write(struct execution *it, uint32_t block)
{
    uint64_t *words = (void *)place_of(it, block, it->tier[block]);
    size_t count = it->operations->blocks[block].size_bytes / sizeof *words;
    for (size_t i = 0; i < count; i++)
        words[i] = it->sum + i * STEP;
}

static void block_begin(struct execution *it, uint32_t block, int tier)
{
    it->tier[block] = (uint8_t)tier;
    it->live[block] = true;
    memset(place_of(it, block, tier), 0, bytes_of(it, block));
}

static void block_end(struct execution *it, uint32_t block)
{
    release(it, block, EBB_TIER_FAST);
    release(it, block, EBB_TIER_SLOW);
    it->live[block] = false;
}

static void lives_change(struct execution *it, uint32_t at)
{
    for (uint32_t b = 0; b < it->operations->block_count; b++) {
        const struct ebb_operation_block *block = &it->operations->blocks[b];
        if (block->persistent)
            continue;
        if (it->live[b] && (block->first + block->span) % it->operations->count == at)
            block_end(it, b);
    }
    for (uint32_t b = 0; b < it->operations->block_count; b++)
        if (!it->operations->blocks[b].persistent && it->operations->blocks[b].first == at)
            block_begin(it, b, it->plan->stays.items[it->plan->first_stay[b]].tier);
}

/* Bytes of fast memory that the plan gives to an operation. */
static uint64_t planned_bytes(const struct execution *it, uint32_t at)
{
    uint64_t sum = 0;
    for (uint32_t b = 0; b < it->operations->block_count; b++)
        if (it->live[b] && it->tier[b] == EBB_TIER_FAST)
            sum += bytes_of(it, b);
    for (uint32_t i = 0; i < it->move_count; i++) {
        const struct ebb_stay *stay = it->moves[i].stay;
        uint32_t window = ebb__operations_between(it->operations, stay->start, stay->first);
        if (stay->tier == EBB_TIER_FAST && it->live[stay->block] &&
            it->tier[stay->block] == EBB_TIER_SLOW &&
            ebb__operations_between(it->operations, stay->start, at) < window)
            sum += bytes_of(it, stay->block);
    }
    return sum;
}

static void sample(struct execution *it, uint32_t at)
{
    uint64_t fast = 0, planned = planned_bytes(it, at);
    struct stat found;
    if (mincore(it->memory[0], it->size, it->present) != 0 || fstat(it->file, &found) != 0)
        return;
    for (size_t page = 0; page < it->size / 4096; page++)
        fast += it->present[page] & 1 ? 4096 : 0;
    uint64_t slow = (uint64_t)found.st_blocks * 512;
    it->run->sampled_operations++;
    it->run->fast_over_operations += fast > planned;
    it->run->fast_same_operations += fast == planned;
    if (fast > it->run->fast_peak_bytes)
        it->run->fast_peak_bytes = fast;
    if (slow > it->run->slow_peak_bytes)
        it->run->slow_peak_bytes = slow;
}

/* What an operation takes on the machine, with its operands where they are. */
static uint64_t pace_ns(const struct execution *it, uint32_t at)
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

static void operation_run(struct execution *it, uint32_t at)
{
    const struct ebb_operation *operation = &it->operations->items[at];
    uint64_t opened_ns = ebb__now_ns();
    lives_change(it, at);
    uint64_t lives_ns = ebb__now_ns() - opened_ns; /* of the operation, too */
    moves_before(it, at);
    uint64_t began_ns = ebb__now_ns() - lives_ns;
    for (uint32_t u = 0; u < operation->use_count; u++) {
        const struct ebb_use *use = &it->operations->uses[operation->first_use + u];
        if (use->read_bytes && it->live[use->block])
            block_read(it, use->block);
    }
    for (uint32_t u = 0; u < operation->use_count; u++) {
        const struct ebb_use *use = &it->operations->uses[operation->first_use + u];
        if (use->write_bytes && it->live[use->block])
            block_write(it, use->block);
    }
    if (it->run->samples)
        sample(it, at);
    if (it->run->paces)
        ebb__tier_until(began_ns + pace_ns(it, at));
    if (it->run->operation_ns)
        it->run->operation_ns[at] = (double)(ebb__now_ns() - began_ns);
}

static void laps_run(struct execution *it)
{
    for (uint32_t b = 0; b < it->operations->block_count; b++)
        if (it->operations->blocks[b].persistent)
            block_begin(it, b, it->plan->stays.items[it->plan->first_stay[b + 1] - 1].tier);
    for (uint32_t lap = 0; lap < it->run->laps; lap++) {
        uint64_t began_ns = ebb__now_ns();
        double before_ns = it->lanes[0].busy_ns + it->lanes[1].busy_ns;
        it->run->predicted_copy_ns = 0;
        it->run->copies = 0;
        for (uint32_t at = 0; at < it->operations->count; at++)
            operation_run(it, at);
        it->run->iteration_ns = (double)(ebb__now_ns() - began_ns);
        it->run->copy_ns = it->lanes[0].busy_ns + it->lanes[1].busy_ns - before_ns;
    }
    for (uint32_t i = 0; i < it->move_count; i++)
        ebb__tier_lane_wait(lane_of(it, &it->moves[i]), &it->moves[i].done);
    it->run->checksum = it->sum;
}

enum ebb_status ebb__tier_execute(const struct ebb_tier_request *request,
                                  const struct ebb_tier_plan *plan, struct ebb_tier_execution *run,
                                  struct ebb_error *error)
{
    struct execution it = {.request = request,
                           .operations = request->operations,
                           .plan = plan,
                           .run = run,
                           .file = -1};
    enum ebb_status status = execution_init(&it, error);
    if (!status)
        laps_run(&it);
    execution_fini(&it);
    return status;
}
