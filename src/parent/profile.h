/* The profile of a program: what one run has learnt and the next may begin with. Iterations with
 * their accesses and times, the lanes as measured, the peak that the program has without a budget.
 *
 * A profile is a guess until the live stream has confirmed it: learn.c decides, nothing here does.
 * docs/formats/profile.md is the format. No shared state. */
#ifndef EBB_PARENT_PROFILE_H
#define EBB_PARENT_PROFILE_H

#include "base/status.h"
#include "machine/machine.h"
#include "model/model.h"

#include <stddef.h>
#include <stdint.h>

/* As many as an runtime knows scripts (training, evaluation, a partial batch ...). */
#define EBB_PROFILE_ITERATIONS 4

/* Which program a profile is of: a 128-bit hash, see ebb__cache_key(). */
struct ebb_profile_key {
    uint64_t words[2];
};

struct ebb_profile_iteration {
    struct ebb_model model;
    uint64_t first_serial; /* of the first block that the first such iteration allocated */
};

struct ebb_profile {
    uint64_t unmanaged_peak_bytes;
    uint64_t small_bytes; /* what small blocks took of the budget */
    uint64_t store_id;    /* of the store that the lanes are those of: ebb__profile_store_id() */
    struct ebb_machine machine;                                      /* the lanes as measured */
    bool compressed;                                                 /* zeros are not stored */
    struct ebb_profile_iteration iterations[EBB_PROFILE_ITERATIONS]; /* oldest first */
    uint32_t iteration_count;
};

/* A number for a store's directory. */
uint64_t ebb__profile_store_id(const char *directory);

/* Take `model` over as the newest iteration, in place of one with as many events and the same
 * first_serial, else of the oldest where there is no room. */
void ebb__profile_add(struct ebb_profile *profile, struct ebb_model *model, uint64_t first_serial);

/* The profile as malloc'ed bytes, the caller's to free(). EBB_ERR_MEMORY. */
EBB_NODISCARD enum ebb_status ebb__profile_encode(const struct ebb_profile *profile,
                                                  struct ebb_profile_key key, uint8_t **bytes,
                                                  size_t *size);
/* The opposite; `name` stands for the file in errors. What is accepted is sound: every index within
 * bounds, every lifetime and use in the order in which a builder makes them. EBB_ERR_FORMAT where it
 * is no profile, damaged, or that of another key; EBB_ERR_VERSION; EBB_ERR_MEMORY. On failure
 * *profile is empty. */
EBB_NODISCARD enum ebb_status ebb__profile_decode(const uint8_t *bytes, size_t size,
                                                  struct ebb_profile_key key, const char *name,
                                                  struct ebb_profile *profile,
                                                  struct ebb_error *error);
/* The same from the inner bytes, without envelope and checksum: for the fuzzer. */
EBB_NODISCARD enum ebb_status ebb__profile_decode_body(const uint8_t *bytes, size_t size,
                                                       const char *name,
                                                       struct ebb_profile *profile,
                                                       struct ebb_error *error);
void ebb__profile_fini(struct ebb_profile *profile); /* an empty one is fine */

#endif
