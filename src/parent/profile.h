/* The profile of a program: what one run has learnt for the next. It holds iterations with accesses
 * and times, the measured lanes, and the peak without a budget.
 *
 * A profile is a guess until the live stream has confirmed it. learn.c decides that, not this file.
 * docs/formats/profile.md is the format. No shared state. */
#ifndef EBB_PARENT_PROFILE_H
#define EBB_PARENT_PROFILE_H

#include "base/status.h"
#include "machine/machine.h"
#include "model/model.h"

#include <stddef.h>
#include <stdint.h>

/* As many scripts as a runtime can hold (training, evaluation, a partial batch ...). */
#define EBB_PROFILE_ITERATIONS 4

/* Identifies the program of a profile: 128-bit hashes, see ebb__cache_key(). */
struct ebb_profile_key {
    uint64_t words[2];   /* of the program with its arguments */
    uint64_t program[2]; /* the same for any arguments */
};

struct ebb_profile_iteration {
    struct ebb_model model;
    uint64_t first_serial; /* of the first block that the first such iteration allocated */
};

struct ebb_profile {
    uint64_t unmanaged_peak_bytes;
    uint64_t small_bytes;       /* part of the budget that small blocks held */
    uint64_t store_id;          /* of the store that was measured: ebb__profile_store_id() */
    struct ebb_machine machine; /* the lanes as measured */
    bool compressed;            /* the store leaves out zeros */
    struct ebb_profile_iteration iterations[EBB_PROFILE_ITERATIONS]; /* oldest first */
    uint32_t iteration_count;
};

/* A number that identifies a store's directory. */
uint64_t ebb__profile_store_id(const char *directory);

/* Takes ownership of `model` as the newest iteration. It replaces the one with as many events and
 * the same first_serial. If there is none and the table is full, it replaces the oldest. */
void ebb__profile_add(struct ebb_profile *profile, struct ebb_model *model, uint64_t first_serial);

/* Encodes the profile into malloc'ed bytes, which the caller must free(). EBB_ERR_MEMORY. */
EBB_NODISCARD enum ebb_status ebb__profile_encode(const struct ebb_profile *profile,
                                                  struct ebb_profile_key key, uint8_t **bytes,
                                                  size_t *size);
/* Decodes a profile; `name` is the file's name for errors. An accepted profile is sound: every
 * index is within bounds, lifetimes and uses are in a builder's order. EBB_ERR_FORMAT if it is no
 * profile, is damaged, or has another key; EBB_ERR_VERSION; EBB_ERR_MEMORY. On failure *profile is
 * empty. */
EBB_NODISCARD enum ebb_status ebb__profile_decode(const uint8_t *bytes, size_t size,
                                                  struct ebb_profile_key key, const char *name,
                                                  struct ebb_profile *profile,
                                                  struct ebb_error *error);
/* For the fuzzer: decodes the body, without envelope and checksum. */
EBB_NODISCARD enum ebb_status ebb__profile_decode_body(const uint8_t *bytes, size_t size,
                                                       const char *name,
                                                       struct ebb_profile *profile,
                                                       struct ebb_error *error);
void ebb__profile_fini(struct ebb_profile *profile); /* may be empty */

#endif
