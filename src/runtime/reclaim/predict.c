/* Prediction of next uses.
 *
 * Problem: without a plan, which block is used latest? Method: a program that repeats itself
 * allocates the same sizes in the same order, iteration by iteration. The last PREDICT_PLACES sizes
 * are kept. The earlier place that the program repeats is followed from allocation to allocation.
 * If the sizes differ, it is looked up again by its last PREDICT_RUN sizes. A use teaches how long
 * after the use before it came. The lesson is found by the block and the place of that earlier use.
 * A block that lives for long is known by the place of its own allocation. One of this iteration is
 * known by the place that its allocation repeated.
 *
 * Source: our own. The table is that of a branch predictor, as Mockingjay and Hawkeye have it for
 * caches (docs/papers.md). Fails in the first iteration, where nothing is known, and in programs
 * that never repeat; reclaim/rival.h bounds what it costs there. */
#include "runtime/reclaim/predict.h"

/* So many sizes find a place. Three and eight change what is moved by less than 4 % (bench/first,
 * seven recorded trainings). */
#define PREDICT_RUN 4u

/* A gap is stored beside two flags. */
#define MOST_GAP 0x3fffffffu
#define CHANGES 0x40000000u
#define IS_LAST 0x80000000u

static uint64_t mix(uint64_t value)
{
    value = (value ^ (value >> 33)) * 0xff51afd7ed558ccdu;
    value = (value ^ (value >> 33)) * 0xc4ceb9fe1a85ec53u;
    return value ^ (value >> 33);
}

static uint32_t size_at(const struct predictor *predictor, uint32_t place)
{
    return predictor->sizes[place % PREDICT_PLACES];
}

/* Is `place` remembered, with all of its run? */
static bool is_remembered(const struct predictor *predictor, uint32_t place)
{
    return place >= PREDICT_RUN && place < predictor->place &&
           predictor->place - place < PREDICT_PLACES - PREDICT_RUN;
}

static bool has_same_run(const struct predictor *predictor, uint32_t place)
{
    for (uint32_t i = 0; i < PREDICT_RUN; i++)
        if (size_at(predictor, place - i) != size_at(predictor, predictor->place - i))
            return false;
    return true;
}

static uint32_t *newest_like_this(struct predictor *predictor)
{
    uint64_t hash = 0;
    for (uint32_t i = 0; i < PREDICT_RUN; i++)
        hash = mix(hash ^ size_at(predictor, predictor->place - i));
    return &predictor->newest[hash % PREDICT_INDEX];
}

void ebb__predict_break(struct predictor *predictor)
{
    for (uint32_t i = 0; i < PREDICT_RUN; i++)
        predictor->sizes[++predictor->place % PREDICT_PLACES] = 0;
    predictor->match = 0;
}

void ebb__predict_alloc(struct predictor *predictor, uint64_t size_bytes)
{
    predictor->place++;
    predictor->sizes[predictor->place % PREDICT_PLACES] = (uint32_t)mix(size_bytes) | 1;
    if (predictor->match) {
        predictor->match++;
        if (!is_remembered(predictor, predictor->match) ||
            size_at(predictor, predictor->match) != size_at(predictor, predictor->place))
            predictor->match = 0;
    }
    if (predictor->place < PREDICT_RUN)
        return;
    uint32_t *newest = newest_like_this(predictor);
    if (!predictor->match && is_remembered(predictor, *newest) && has_same_run(predictor, *newest))
        predictor->match = *newest;
    *newest = predictor->place;
}

void ebb__predict_born(const struct predictor *predictor, struct outlook *outlook, uint64_t now)
{
    *outlook = (struct outlook){
        .used_at = now, .birth = predictor->place, .birth_match = predictor->match};
}

static uint32_t key_of(uint32_t birth, uint32_t unit, uint32_t place, uint32_t ordinal)
{
    uint64_t block = mix((uint64_t)birth << 32 | unit);
    return (uint32_t)mix(block ^ ((uint64_t)place << 32 | ordinal)) | 1;
}

static struct lesson *lesson_of(struct predictor *predictor, uint32_t key)
{
    return &predictor->lessons[(key >> 1) % PREDICT_LESSONS];
}

/* The use that the last one was waiting for, or the free, has come. */
static void teach(struct predictor *predictor, struct outlook *outlook, bool is_last, uint64_t now)
{
    if (!outlook->key)
        return;
    uint64_t gap = now - outlook->used_at;
    uint32_t flags = (is_last ? IS_LAST : 0) | (outlook->changes ? CHANGES : 0);
    *lesson_of(predictor, outlook->key) = (struct lesson){
        .key = outlook->key, .gap = (gap < MOST_GAP ? (uint32_t)gap : MOST_GAP) | flags};
    outlook->key = 0;
}

void ebb__predict_used(struct predictor *predictor, struct outlook *outlook, uint32_t unit,
                       uint64_t now)
{
    teach(predictor, outlook, false, now);
    outlook->ordinal = outlook->place == predictor->place ? outlook->ordinal + 1 : 0;
    outlook->place = predictor->place;
    outlook->used_at = now;
    outlook->next_at = 0;
    outlook->changes = false;
    if (!outlook->birth)
        return;
    outlook->key = key_of(outlook->birth, unit, predictor->place, outlook->ordinal);
    /* The same block was there if it is older than the place; else one in its role. */
    uint32_t birth = outlook->birth <= predictor->match ? outlook->birth : outlook->birth_match;
    if (!predictor->match || !birth)
        return;
    uint32_t key = key_of(birth, unit, predictor->match, outlook->ordinal);
    const struct lesson *lesson = lesson_of(predictor, key);
    if (lesson->key != key)
        return;
    outlook->next_at = now + (lesson->gap & MOST_GAP);
    outlook->is_last = lesson->gap & IS_LAST;
    outlook->changes = lesson->gap & CHANGES;
}

void ebb__predict_freed(struct predictor *predictor, struct outlook *outlook, uint64_t now)
{
    teach(predictor, outlook, true, now);
    *outlook = (struct outlook){0};
}

uint64_t ebb__predict_distance(const struct outlook *outlook, uint64_t now)
{
    /* Of what is unknown, what was used longest ago is taken to be used latest, as by LRU. */
    if (!outlook->next_at)
        return now - outlook->used_at + 1;
    uint64_t distance = outlook->next_at > now ? outlook->next_at - now : now - outlook->next_at;
    /* An overdue use becomes less likely, the longer it is overdue. A block that is freed next need
     * not be fetched, so it costs half. */
    if (outlook->next_at <= now || outlook->is_last)
        distance *= 2;
    return distance + 1;
}

bool ebb__predict_is_unchanged(struct outlook *outlook)
{
    outlook->kept_key = outlook->changes ? 0 : outlook->key;
    return !outlook->changes;
}

void ebb__predict_changed(struct predictor *predictor, struct outlook *outlook)
{
    struct lesson *lesson = lesson_of(predictor, outlook->kept_key);
    if (outlook->kept_key && outlook->kept_key == outlook->key)
        outlook->changes = true; /* its lesson is not taught yet */
    else if (outlook->kept_key && lesson->key == outlook->kept_key)
        lesson->gap |= CHANGES;
    outlook->kept_key = 0;
}
