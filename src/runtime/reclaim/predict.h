/* Prediction: when a block is used next, from what followed the last time at the same place of the
 * program. Pure bookkeeping on numbers: no block, no lock, no allocation.
 *
 *     ebb__predict_alloc(predictor, size);                 an allocation: the next place
 *     ebb__predict_born(predictor, &outlook, now);         of its block
 *     ebb__predict_used(predictor, &outlook, unit, now);   each use that is seen
 *     ebb__predict_freed(predictor, &outlook, now);
 *     distance = ebb__predict_distance(&outlook, now);
 *
 * `now` is any count that never falls: here uses and operations seen. Each call is O(1). */
#ifndef EBB_RUNTIME_RECLAIM_PREDICT_H
#define EBB_RUNTIME_RECLAIM_PREDICT_H

#include <stdbool.h>
#include <stdint.h>

/* Powers of two, 88 KiB together. Seven recorded trainings (bench/first) move up to 8 % more with
 * half of the lessons. Twice as many gain less than 1 %. */
#define PREDICT_PLACES 4096u  /* allocations that are remembered */
#define PREDICT_INDEX 2048u   /* runs of allocations by which a place is found */
#define PREDICT_LESSONS 8192u /* uses of which it is known what followed */

/* What followed one use of a block at one place. */
struct lesson {
    uint32_t key; /* of block, place and unit; the full key, since lessons replace each other */
    uint32_t gap; /* until the next use, or the free */
};

struct predictor {
    uint32_t place;                 /* number of the newest allocation, from 1 */
    uint32_t match;                 /* the earlier place that the program repeats; 0: none known */
    uint32_t sizes[PREDICT_PLACES]; /* of allocation i, hashed, at i % PREDICT_PLACES */
    uint32_t newest[PREDICT_INDEX]; /* place behind the newest run of this hash; 0: none */
    struct lesson lessons[PREDICT_LESSONS];
};

/* What is known of one block or part. All zero: nothing. */
struct outlook {
    uint64_t used_at;     /* time of the last use, or of the birth */
    uint64_t next_at;     /* expected time of the next use; 0: unknown */
    uint32_t birth;       /* place of its allocation; 0: unknown */
    uint32_t birth_match; /* the place that was repeated then; 0: none */
    uint32_t place;       /* of the last use */
    uint32_t ordinal;     /* number of uses there before that one */
    uint32_t key;         /* of the lesson that the next use teaches; 0: none */
    uint32_t kept_key;    /* of the use for which it was fetched, its copy being kept; 0: none */
    bool is_last;         /* it is expected to be freed then, not used */
    bool changes;         /* fetched for such a use, it was written before its next eviction */
};

/* The program's stream has a gap: what follows is no continuation. */
void ebb__predict_break(struct predictor *predictor);
/* An allocation of `size_bytes`: the program is at the next place. */
void ebb__predict_alloc(struct predictor *predictor, uint64_t size_bytes);
/* The block of that allocation, or a part of it, begins to exist. */
void ebb__predict_born(const struct predictor *predictor, struct outlook *outlook, uint64_t now);
/* `unit`: position of the part in its block; 0: the block is one. */
void ebb__predict_used(struct predictor *predictor, struct outlook *outlook, uint32_t unit,
                       uint64_t now);
void ebb__predict_freed(struct predictor *predictor, struct outlook *outlook, uint64_t now);
/* The expected distance of the next use, at least 1: a larger one may be evicted first. */
uint64_t ebb__predict_distance(const struct outlook *outlook, uint64_t now);

/* A block is fetched for the use just told. Will it be unchanged when it is evicted again, as far
 * as is known? If so, the answer is noted until ebb__predict_changed() tells that it was wrong. */
bool ebb__predict_is_unchanged(struct outlook *outlook);
void ebb__predict_changed(struct predictor *predictor, struct outlook *outlook);

#endif
