/* hardware-cache: fast memory as a direct-mapped cache in front of the slow tier, as in Optane's
 * memory mode. The program sees the slow tier alone. Its addresses are those of a packing by size
 * and lifetime, as a caching allocator reaches. Sets are simulated in chunks of CHUNK_BYTES
 * instead of lines. A use sweeps over its whole block, so the lines of a chunk hit or miss
 * together. A write of a whole chunk still fetches it first, as memory mode does. */
#include "lab/tier/policies.h"
#include "plan/pool/pool.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES 65536u
#define LAPS 3 /* the contents are the same in each lap after the first */

struct cache {
    const struct ebb_tier_request *request;
    uint64_t *offsets; /* by block */
    uint64_t sets;
    uint64_t *tag; /* chunk + 1; 0: empty */
    bool *dirty;
    uint64_t missed_bytes, written_bytes; /* of the current operation */
};

static void sweep(struct cache *cache, const struct ebb_use *use)
{
    uint64_t size = cache->request->operations->blocks[use->block].size_bytes;
    uint64_t first = cache->offsets[use->block];
    for (uint64_t at = first; at < first + size; at += CHUNK_BYTES) {
        uint64_t chunk = at / CHUNK_BYTES, set = chunk % cache->sets;
        uint64_t bytes = first + size - at < CHUNK_BYTES ? first + size - at : CHUNK_BYTES;
        if (cache->tag[set] != chunk + 1) {
            if (cache->dirty[set])
                cache->written_bytes += CHUNK_BYTES;
            cache->missed_bytes += bytes;
            cache->tag[set] = chunk + 1;
            cache->dirty[set] = false;
        }
        if (use->write_bytes)
            cache->dirty[set] = true;
    }
}

static double operation_ns(struct cache *cache, const struct ebb_operation *operation)
{
    const struct ebb_operations *operations = cache->request->operations;
    const struct ebb_tier_machine *machine = cache->request->machine;
    double bytes_ns = 0, latency_ns = 0;
    cache->missed_bytes = cache->written_bytes = 0;
    for (uint32_t u = 0; u < operation->use_count; u++) {
        const struct ebb_use *use = &operations->uses[operation->first_use + u];
        uint64_t before = cache->missed_bytes;
        sweep(cache, use);
        bytes_ns += ebb__use_ns(machine, use, 0);
        latency_ns += cache->missed_bytes > before ? ebb__use_latency_ns(machine, 1) : 0;
    }
    bytes_ns += ebb__tier_ns(&machine->tiers[1], cache->missed_bytes, cache->written_bytes);
    return fmax((double)operation->ns, bytes_ns) + latency_ns;
}

/* Gives each block an address. */
static enum ebb_status pack(struct cache *cache, struct ebb_pool_solution *solution,
                            uint64_t *height_bytes, struct ebb_error *error)
{
    const struct ebb_operations *operations = cache->request->operations;
    struct ebb_pool_problem problem = {.count = operations->block_count,
                                       .period = operations->count,
                                       .capacity_bytes = EBB_POOL_NO_CAPACITY};
    struct ebb_pool_buffer *buffers = calloc(problem.count + 1, sizeof *buffers);
    if (!buffers)
        return ebb__fail(error, EBB_ERR_MEMORY, "hardware-cache", "no memory for it");
    for (uint32_t b = 0; b < problem.count; b++) {
        const struct ebb_operation_block *block = &operations->blocks[b];
        uint32_t birth = ebb__tier_birth(operations, b);
        buffers[b] = (struct ebb_pool_buffer){
            .lower = birth,
            .upper = birth + block->span,
            .size_bytes = ebb__tier_bytes(cache->request->machine, block->size_bytes)};
    }
    problem.buffers = buffers;
    enum ebb_status status = ebb__pool_solve("bestfit", &problem, solution, error);
    free(buffers);
    *height_bytes = solution->height_bytes;
    cache->offsets = solution->offsets;
    return status;
}

enum ebb_status ebb__tier_cache(const struct ebb_tier_request *request,
                                struct ebb_tier_result *result, struct ebb_error *error)
{
    const struct ebb_operations *operations = request->operations;
    struct cache cache = {.request = request, .sets = request->budget_bytes / CHUNK_BYTES};
    struct ebb_pool_solution solution = {0};
    *result = (struct ebb_tier_result){.steady = true};
    if (cache.sets == 0)
        return ebb__fail(error, EBB_ERR_ARGUMENT, "hardware-cache", "a cache needs 64 KiB");
    enum ebb_status status = pack(&cache, &solution, &result->slow_peak_bytes, error);
    cache.tag = calloc(cache.sets, sizeof *cache.tag);
    cache.dirty = calloc(cache.sets, sizeof *cache.dirty);
    if (!status && (!cache.tag || !cache.dirty))
        status = ebb__fail(error, EBB_ERR_MEMORY, "hardware-cache", "no memory for it");
    for (int lap = 0; !status && lap < LAPS; lap++) {
        result->compute_ns = 0;
        result->moved_in_bytes = result->moved_out_bytes = 0;
        for (uint32_t i = 0; i < operations->count; i++) {
            result->compute_ns += operation_ns(&cache, &operations->items[i]);
            result->moved_in_bytes += cache.missed_bytes;
            result->moved_out_bytes += cache.written_bytes;
        }
    }
    result->iteration_ns = result->compute_ns;
    result->fast_ns = ebb__tiers_fast_ns(operations, request->machine);
    result->fast_peak_bytes = cache.sets * CHUNK_BYTES;
    free(cache.tag);
    free(cache.dirty);
    ebb__pool_solution_fini(&solution);
    return status;
}
