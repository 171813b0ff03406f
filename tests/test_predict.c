/* Prediction of next uses, and its rival: what a repeated stream teaches, and that no stream costs
 * more than LRU by more than the bound. A cache of numbers stands for memory; LRU beside it is
 * counted by other code than the rival's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/reclaim/predict.h"
#include "runtime/reclaim/rival.h"

/* As in src/base/tuning.def. */
#define EXCESS 0.02
#define ALLOWANCE_DIVISOR 8u

static uint32_t draw(uint64_t *state, uint32_t most)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33) % most;
}

static struct predictor *predictor_new(void)
{
    struct predictor *predictor = calloc(1, sizeof *predictor);
    assert_non_null(predictor);
    return predictor;
}

/* ---- what is learnt -------------------------------------------------------------------------- */

#define LAYERS 12u

/* A training: LAYERS equal layers, each with a weight and an activation that is used again in
 * reverse order, and then freed. Distances that were foreseen are compared with the real ones. */
struct training {
    struct predictor *predictor;
    struct outlook weights[LAYERS], activations[LAYERS];
    uint64_t now;
    unsigned foreseen, wrong;
};

/* A use comes now: was it foreseen at the use before? */
static void use(struct training *training, struct outlook *outlook)
{
    training->now++;
    if (outlook->next_at) {
        training->foreseen++;
        training->wrong += outlook->next_at != training->now || outlook->is_last;
    }
    ebb__predict_used(training->predictor, outlook, 0, training->now);
}

static void end(struct training *training, struct outlook *outlook)
{
    training->now++;
    if (outlook->next_at) {
        training->foreseen++;
        training->wrong += outlook->next_at != training->now || !outlook->is_last;
    }
    ebb__predict_freed(training->predictor, outlook, training->now);
}

static void begin(struct training *training, struct outlook *outlook, uint64_t size_bytes)
{
    ebb__predict_alloc(training->predictor, size_bytes);
    ebb__predict_born(training->predictor, outlook, ++training->now);
}

static void iterate(struct training *training)
{
    struct outlook batch = {0}, loss = {0};
    begin(training, &batch, 77777);
    for (unsigned i = 0; i < LAYERS; i++) {
        use(training, &training->weights[i]);
        begin(training, &training->activations[i], 5000);
        use(training, &training->activations[i]);
    }
    begin(training, &loss, 99);
    for (unsigned i = LAYERS; i-- > 0;) {
        struct outlook gradient = {0};
        begin(training, &gradient, 6000);
        use(training, &training->activations[i]);
        use(training, &training->weights[i]);
        end(training, &training->activations[i]);
        end(training, &gradient);
    }
    end(training, &batch);
    end(training, &loss);
}

static struct training training_new(void)
{
    struct training training = {.predictor = predictor_new()};
    for (unsigned i = 0; i < LAYERS; i++)
        begin(&training, &training.weights[i], 4000 + i % 2);
    return training;
}

/* Nothing is foreseen in the first iteration. In the third all that was used before in both is,
 * and correctly: equal layers are told apart by their place. */
static void a_repeated_iteration_is_foreseen(void **state)
{
    (void)state;
    struct training training = training_new();
    iterate(&training);
    assert_int_equal(training.foreseen, 0);
    iterate(&training);
    training.foreseen = training.wrong = 0;
    iterate(&training);
    /* Two uses of a weight, one of an activation and its free, in each layer. The first four places
     * find where the program is. */
    assert_true(training.foreseen >= 4 * LAYERS - 8);
    assert_int_equal(training.wrong, 0);
    free(training.predictor);
}

/* After a break the same iteration is found again by its sizes, but not before that. */
static void a_break_is_no_continuation(void **state)
{
    (void)state;
    struct training training = training_new();
    iterate(&training);
    iterate(&training);
    assert_int_not_equal(training.predictor->match, 0);
    ebb__predict_break(training.predictor);
    assert_int_equal(training.predictor->match, 0);
    for (unsigned i = 0; i < LAYERS; i++)
        training.weights[i].next_at = training.weights[i].key = 0;
    training.foreseen = training.wrong = 0;
    iterate(&training);
    assert_true(training.foreseen >= 2 * LAYERS);
    iterate(&training);
    assert_true(training.foreseen >= 5 * LAYERS);
    free(training.predictor);
}

/* What is expected soon is nearer than what is expected late. An overdue use, and one that is a
 * free, count twice. What is unknown counts by its age. */
static void distances_are_in_order(void **state)
{
    (void)state;
    struct outlook outlook = {.used_at = 100, .next_at = 150};
    assert_int_equal(ebb__predict_distance(&outlook, 110), 41);
    assert_int_equal(ebb__predict_distance(&outlook, 150), 1);
    assert_int_equal(ebb__predict_distance(&outlook, 160), 21);
    outlook.is_last = true;
    assert_int_equal(ebb__predict_distance(&outlook, 110), 81);
    outlook.next_at = 0;
    assert_int_equal(ebb__predict_distance(&outlook, 110), 11);
}

/* A copy that was kept in vain is not kept at that place in the next iteration, nor in the one
 * after it; others are. */
static void copies_kept_in_vain_are_remembered(void **state)
{
    (void)state;
    for (unsigned late = 0; late < 2; late++) {
        struct training training = training_new();
        struct outlook *first = &training.weights[0], *second = &training.weights[1];
        iterate(&training);
        iterate(&training);
        for (unsigned lap = 0; lap < 3; lap++) {
            for (unsigned i = 0; i < 8; i++) {
                struct outlook temporary = {0};
                begin(&training, &temporary, 300 + i);
            }
            use(&training, second);
            assert_true(ebb__predict_is_unchanged(second));
            use(&training, first);
            assert_int_equal(ebb__predict_is_unchanged(first), lap == 0);
            if (late) /* it is evicted after another use only */
                use(&training, first);
            if (lap == 0)
                ebb__predict_changed(training.predictor, first);
        }
        free(training.predictor);
    }
}

/* ---- what it costs --------------------------------------------------------------------------- */

#define MOST 256u

struct entry {
    struct outlook outlook;
    struct rival_entry rival;
    uint64_t bytes, used_at, lru_used_at;
    bool is_resident, lru_has;
};

struct cache {
    struct predictor *predictor;
    struct rival rival;
    struct entry entries[MOST + 1]; /* from 1 */
    uint32_t count;
    uint64_t now, capacity_bytes, most_bytes; /* the largest block */
    uint64_t held_bytes, lru_held_bytes;
    uint64_t moved_bytes, lru_moved_bytes;
    unsigned led;
    bool trusts; /* the rival is not asked */
};

static void cache_open(struct cache *cache, uint32_t count, uint64_t *seed, bool is_mixed,
                       double share)
{
    memset(cache, 0, sizeof *cache);
    cache->predictor = predictor_new();
    cache->count = count;
    uint64_t all = 0;
    for (uint32_t i = 1; i <= count; i++) {
        cache->entries[i].bytes = is_mixed ? 1 + draw(seed, 16) : 8;
        all += cache->entries[i].bytes;
        if (cache->entries[i].bytes > cache->most_bytes)
            cache->most_bytes = cache->entries[i].bytes;
        ebb__predict_alloc(cache->predictor, 1000 + i);
        ebb__predict_born(cache->predictor, &cache->entries[i].outlook, cache->now);
    }
    cache->capacity_bytes = (uint64_t)((double)all * share);
    ebb__rival_init(&cache->rival, (char *)cache->entries + offsetof(struct entry, rival),
                    sizeof(struct entry));
    cache->rival.capacity_bytes = cache->capacity_bytes;
}

static uint64_t key(const struct cache *cache, const struct entry *entry, bool leads)
{
    return leads ? ebb__predict_distance(&entry->outlook, cache->now)
                 : cache->now - entry->used_at + 1;
}

static void evict_one(struct cache *cache)
{
    bool leads = cache->trusts || ebb__rival_is_beaten(&cache->rival, EXCESS, ALLOWANCE_DIVISOR);
    uint32_t best = 0;
    for (uint32_t i = 1; i <= cache->count; i++)
        if (cache->entries[i].is_resident &&
            (!best ||
             key(cache, &cache->entries[i], leads) > key(cache, &cache->entries[best], leads)))
            best = i;
    struct entry *victim = &cache->entries[best];
    victim->is_resident = false;
    cache->held_bytes -= victim->bytes;
    cache->moved_bytes += victim->bytes;
    cache->led += leads;
    ebb__rival_evicted(&cache->rival, victim->bytes, cache->capacity_bytes);
}

/* LRU, by its own time stamps. */
static void lru_use(struct cache *cache, struct entry *entry)
{
    if (!entry->lru_has) {
        cache->lru_moved_bytes += entry->lru_used_at ? entry->bytes : 0;
        while (cache->lru_held_bytes + entry->bytes > cache->capacity_bytes) {
            struct entry *oldest = NULL;
            for (uint32_t i = 1; i <= cache->count; i++)
                if (cache->entries[i].lru_has &&
                    (!oldest || cache->entries[i].lru_used_at < oldest->lru_used_at))
                    oldest = &cache->entries[i];
            oldest->lru_has = false;
            cache->lru_held_bytes -= oldest->bytes;
            cache->lru_moved_bytes += oldest->bytes;
        }
        entry->lru_has = true;
        cache->lru_held_bytes += entry->bytes;
    }
    entry->lru_used_at = cache->now;
}

static void cache_use(struct cache *cache, uint32_t index)
{
    struct entry *entry = &cache->entries[index];
    cache->now++;
    bool is_absent = !entry->is_resident && entry->used_at;
    if (!entry->is_resident) {
        cache->moved_bytes += is_absent ? entry->bytes : 0;
        while (cache->held_bytes + entry->bytes > cache->capacity_bytes)
            evict_one(cache);
        entry->is_resident = true;
        cache->held_bytes += entry->bytes;
    }
    lru_use(cache, entry);
    entry->used_at = cache->now;
    ebb__predict_used(cache->predictor, &entry->outlook, 0, cache->now);
    ebb__rival_used(&cache->rival, index, entry->bytes, is_absent);
    /* The rival is LRU. */
    assert_int_equal(cache->rival.moved_bytes, cache->lru_moved_bytes);
    assert_int_equal(cache->rival.really_bytes, cache->moved_bytes);
    if (!cache->trusts)
        assert_true((double)cache->moved_bytes <=
                    (1 + EXCESS) * (double)cache->lru_moved_bytes +
                        (double)cache->capacity_bytes / ALLOWANCE_DIVISOR +
                        2 * (double)(cache->capacity_bytes + cache->most_bytes));
}

/* Orders of use that a program may have. UNRELATED: allocations repeat, uses do not. TURNING: each
 * lap is the reverse of the one before. LYING: the lessons of each lap are wrong in the next. What
 * is used once in one lap, and followed by much else, is used again and again in the next. */
enum stream { RANDOM, CYCLIC, REVERSED, PHASES, UNRELATED, TURNING, LYING, STREAMS };

#define HOT 16u /* blocks that LYING uses in each lap */

static uint32_t next_index(enum stream stream, const struct cache *cache, uint32_t at,
                           uint64_t *seed)
{
    uint32_t count = cache->count, lap = at / count, within = at % count;
    switch (stream) {
    case CYCLIC:
        return 1 + within;
    case REVERSED:
        return count - within;
    case TURNING:
        return lap % 2 ? count - within : 1 + within;
    case LYING:
        if (within < HOT || (lap % 2 && within >= 2 * HOT))
            return 1 + within % HOT;
        return 1 + HOT + (lap / 2 * count + lap % 2 * (count - HOT) + within - HOT) % (count - HOT);
    case PHASES: /* each some laps long: random, cyclic, reverse, turning */
        return next_index((const enum stream[]){RANDOM, CYCLIC, REVERSED, TURNING}[lap / 5 % 4],
                          cache, at, seed);
    default:
        return 1 + draw(seed, count);
    }
}

static void run(struct cache *cache, enum stream stream, uint32_t uses, uint64_t *seed)
{
    for (uint32_t at = 0; at < uses; at++) {
        bool repeats = stream != RANDOM;
        ebb__predict_alloc(cache->predictor,
                           repeats ? 5000 + at % cache->count : 5000 + draw(seed, 1000));
        cache->now++;
        cache_use(cache, next_index(stream, cache, at, seed));
    }
}

/* In bytes moved, over several seeds, with blocks of one size and of several. */
static void no_stream_costs_more_than_a_twentieth(void **state)
{
    (void)state;
    for (uint64_t first = 1; first <= 6; first++) {
        for (unsigned stream = 0; stream < STREAMS; stream++) {
            uint64_t seed = first * 977 + stream;
            struct cache cache;
            cache_open(&cache, 64, &seed, first % 2, 0.6);
            run(&cache, stream, 64 * 150, &seed);
            if ((double)cache.moved_bytes > 1.05 * (double)cache.lru_moved_bytes)
                fail_msg("stream %u, seed %u: %u bytes moved, LRU moves %u", stream,
                         (unsigned)first, (unsigned)cache.moved_bytes,
                         (unsigned)cache.lru_moved_bytes);
            free(cache.predictor);
        }
    }
}

/* And without the rival some of these would: the test above can fail. */
static void without_the_rival_some_would(void **state)
{
    (void)state;
    uint64_t seed = 5;
    struct cache cache;
    cache_open(&cache, 64, &seed, false, 0.6);
    cache.trusts = true;
    run(&cache, LYING, 64 * 150, &seed);
    assert_true((double)cache.moved_bytes > 1.05 * (double)cache.lru_moved_bytes);
    free(cache.predictor);
}

/* A walk round and round over more than fits: LRU misses each use, and prediction keeps what it
 * can. */
static void a_walk_over_more_than_fits_moves_half(void **state)
{
    (void)state;
    uint64_t seed = 3;
    struct cache cache;
    cache_open(&cache, 64, &seed, false, 0.75);
    run(&cache, CYCLIC, 64 * 20, &seed);
    assert_true(2 * cache.moved_bytes < cache.lru_moved_bytes);
    assert_true(cache.led > 0);
    free(cache.predictor);
}

/* What is freed leaves the rival's list, and its place is free for another. */
static void the_rival_forgets_what_is_freed(void **state)
{
    (void)state;
    struct entry entries[4] = {0};
    struct rival rival;
    ebb__rival_init(&rival, (char *)entries + offsetof(struct entry, rival), sizeof(struct entry));
    assert_true(ebb__rival_is_beaten(&rival, EXCESS, ALLOWANCE_DIVISOR));
    for (uint32_t i = 1; i <= 3; i++)
        ebb__rival_used(&rival, i, 10, false);
    ebb__rival_freed(&rival, 2);
    assert_int_equal(rival.resident_bytes, 20);
    ebb__rival_evicted(&rival, 10, 20);
    ebb__rival_used(&rival, 2, 10, false); /* another block: not fetched, 1 is evicted */
    assert_int_equal(rival.moved_bytes, 10);
    assert_int_equal(entries[1].rival.place, RIVAL_ABSENT);
    ebb__rival_freed(&rival, 1);
    ebb__rival_used(&rival, 1, 10, false);
    assert_int_equal(rival.moved_bytes, 20);
    assert_false(ebb__rival_is_beaten(&(struct rival){.capacity_bytes = 80, .really_bytes = 11},
                                      EXCESS, ALLOWANCE_DIVISOR));
    ebb__rival_recalled(&rival, 10);
    assert_int_equal(rival.really_bytes, 0);
    ebb__rival_freed(&rival, 3);
    ebb__rival_used(&rival, 3, 10, true); /* never seen, and absent: both fetch it, 2 is evicted */
    assert_int_equal(rival.really_bytes, 10);
    assert_int_equal(rival.moved_bytes, 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_repeated_iteration_is_foreseen),
        cmocka_unit_test(a_break_is_no_continuation),
        cmocka_unit_test(distances_are_in_order),
        cmocka_unit_test(copies_kept_in_vain_are_remembered),
        cmocka_unit_test(no_stream_costs_more_than_a_twentieth),
        cmocka_unit_test(without_the_rival_some_would),
        cmocka_unit_test(a_walk_over_more_than_fits_moves_half),
        cmocka_unit_test(the_rival_forgets_what_is_freed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
