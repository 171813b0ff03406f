/* Iteration detection: the smallest repeating unit of an event stream, found while it streams.
 *
 * Symbols are pushed one by one (for programs that allocate per operation: a hash of each
 * allocation's size; for programs that allocate once: block and kind of each access). The detector
 * keeps a table from the last K symbols' hash to where they stood before; the distance is a
 * candidate period, kept as long as each symbol equals the one a period ago, and *found* once two
 * whole periods have been seen with the live bytes back where they were (an inner loop of a
 * forward pass repeats too, but leaves memory behind). O(1) amortised a symbol: tens of
 * nanoseconds while a repetition is in force, about a hundred before. */
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
    size_t first_symbol;    /* index of the first symbol of the first of the two periods */
    size_t period_symbols;  /* the smallest period */
    size_t found_at_symbol; /* index of the symbol that completed the second period */
};

EBB_NODISCARD enum ebb_status ebb__detector_create(struct ebb_detector **detector);
void ebb__detector_destroy(struct ebb_detector *detector);

/* Make room for so many symbols in all, if their number is known: pushing is faster then. */
EBB_NODISCARD enum ebb_status ebb__detector_reserve(struct ebb_detector *detector, size_t symbols);

/* Push the next symbol. `allocated_bytes` is what it allocates (0: nothing, or not known),
 * `live_bytes` the live load just after it. EBB_ERR_MEMORY leaves the
 * detector unusable; so do 2^32 - 2 symbols. */
EBB_NODISCARD enum ebb_status ebb__detector_push(struct ebb_detector *detector, uint64_t symbol,
                                                 uint64_t allocated_bytes, uint64_t live_bytes);

/* The repetition in force at the newest symbol (found == false: none, or it broke). */
struct ebb_detection ebb__detector_current(const struct ebb_detector *detector);

/* Number of consecutive symbols, ending with the newest, that equal the one a period before
 * (0 where no period is in force). */
size_t ebb__detector_run(const struct ebb_detector *detector);

/* The symbols pushed so far, by hash, and one by one with the live load behind it. Valid until the
 * next push. */
const struct ebb_rolling *ebb__detector_rolling(const struct ebb_detector *detector);
uint64_t ebb__detector_symbol(const struct ebb_detector *detector, size_t index,
                              uint64_t *live_bytes);

#endif
