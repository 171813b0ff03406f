/* Iteration detection: finds the smallest repeating unit of an event stream while it streams.
 *
 * Symbols are pushed one by one. If a program allocates per operation, a symbol is a hash of an
 * allocation's size. If it allocates once, a symbol is block and kind of an access. The detector
 * has a table from the hash of the last K symbols to their last position. The distance is a
 * candidate period. A candidate remains while each symbol equals the one a period earlier. It is
 * *found* after two whole periods, if the live bytes are then back at their old value. (An inner
 * loop of a forward pass repeats as well, but its memory stays allocated.) O(1) amortised per
 * symbol: tens of nanoseconds while a repetition is in force, about a hundred before. */
#ifndef EBB_MODEL_DETECT_H
#define EBB_MODEL_DETECT_H

#include "base/status.h"
#include "model/rolling.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ebb_detector;

struct ebb_detection {
    bool found;
    size_t first_symbol;    /* index of the first symbol of the first of the two periods; if it was
                               announced early: of all that is known to repeat */
    size_t period_symbols;  /* the smallest period */
    size_t found_at_symbol; /* index of the symbol at which it was announced */
};

EBB_NODISCARD enum ebb_status ebb__detector_create(struct ebb_detector **detector);
void ebb__detector_destroy(struct ebb_detector *detector);

/* From now on a repetition of at least `least_period` symbols is announced before its second period
 * is complete: after a `divisor`-th of it. Its load must be exactly back, and it must have come
 * before. It may still turn out to be none. 0: as before. */
void ebb__detector_announce_early(struct ebb_detector *detector, size_t least_period,
                                  size_t divisor);

/* Frees what only a push needs, which is most of the memory. No push is allowed afterwards. */
void ebb__detector_settle(struct ebb_detector *detector);

/* Reserves memory for this total number of symbols, if it is known: pushing is then faster. */
EBB_NODISCARD enum ebb_status ebb__detector_reserve(struct ebb_detector *detector, size_t symbols);

/* Pushes the next symbol. `allocates`: it is the number of bytes that it allocates, which all
 * symbols of a detector are, or none. `live_bytes` is the live load just after it. After
 * EBB_ERR_MEMORY the detector is unusable; 2^32 - 2 symbols give this error, too. */
EBB_NODISCARD enum ebb_status ebb__detector_push(struct ebb_detector *detector, uint64_t symbol,
                                                 bool allocates, uint64_t live_bytes);

/* The repetition in force at the newest symbol (found == false: none, or it broke). */
struct ebb_detection ebb__detector_current(const struct ebb_detector *detector);

/* The number of consecutive symbols, up to the newest, that equal the one a period earlier (0 if no
 * period is in force). */
size_t ebb__detector_run(const struct ebb_detector *detector);

/* The pushed symbols: their hashes, and a single symbol with the live load after it. Valid until
 * the next push. */
const struct ebb_rolling *ebb__detector_rolling(const struct ebb_detector *detector);
uint64_t ebb__detector_symbol(const struct ebb_detector *detector, size_t index,
                              uint64_t *live_bytes);

#endif
