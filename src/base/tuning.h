/* The numbers that steer Ebb: one table (tuning.def), and one struct of the values in force.
 *
 *     if (now - last_ns > ebb__tuning()->pause_ns) ...
 *
 * Other state is in structs that are passed as arguments; this struct is the one exception. It is
 * set once, at process start before there are threads, and only read afterwards. `ebb` sets it from
 * --tune; a program under Ebb from its parent's welcome message. A fork inherits the values.
 * Reading a value is one load. */
#ifndef EBB_BASE_TUNING_H
#define EBB_BASE_TUNING_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EBB_TUNING_TYPE_WHOLE uint64_t
#define EBB_TUNING_TYPE_REAL double

struct ebb_tuning {
#define EBB_TUNING(kind, name, unit, value, least, most, acts, reason) EBB_TUNING_TYPE_##kind name;
#include "base/tuning.def"
#undef EBB_TUNING
};

extern struct ebb_tuning ebb__tuning_in_force; /* only tuning.c writes it */

static inline const struct ebb_tuning *ebb__tuning(void)
{
    return &ebb__tuning_in_force;
}

/* ---- values derived from a row --------------------------------------------------------------- */

/* The least error to assume for a predicted time in a stretch of pause_ns or more. In a shorter
 * stretch, times are not corrected. */
static inline uint64_t ebb__tuning_drift_ns(void)
{
    return ebb__tuning()->pause_ns / 4;
}

/* An access can be a clock event only if its unit was not used during this many clock events
 * before. */
static inline uint64_t ebb__tuning_access_clock_rest(void)
{
    return ebb__tuning()->access_clock_armed + 1;
}

static inline uint64_t ebb__tuning_unmanaged_most_ns(void)
{
    return 64 * ebb__tuning()->unmanaged_sample_ns;
}

/* `ebb pack` gets more effort than a plan. */
static inline uint64_t ebb__tuning_pack_box_ns(void)
{
    return 6 * ebb__tuning()->plan_box_ns;
}

/* ---- the table ------------------------------------------------------------------------------- */

enum ebb_tuning_acts {
    EBB_TUNING_PLAN, /* affects plans */
    EBB_TUNING_RUN,  /* affects a running program */
};

/* Values of both kinds are below 2^53, so that a double holds them exactly. */
struct ebb_tuning_row {
    const char *name, *unit, *reason;
    double value, least, most; /* the default, and the range */
    size_t offset;             /* in struct ebb_tuning */
    enum ebb_tuning_acts acts;
    bool real; /* a double, otherwise a uint64_t */
};

/* Returns *count rows, in the order of tuning.def. */
const struct ebb_tuning_row *ebb__tuning_rows(size_t *count);
/* The value in force of a row. */
double ebb__tuning_value(const struct ebb_tuning_row *row);

/* Sets one row from `name=value`. The value is a number in the row's unit. Bytes may have a suffix
 * K, M, G or T; ns may have us, ms or s. Returns EBB_ERR_ARGUMENT for an unknown name, an invalid
 * number, or a number out of range. `error` then has one line, and nothing has changed. Must be
 * called before the process has threads. */
EBB_NODISCARD enum ebb_status ebb__tuning_set(const char *assignment, struct ebb_error *error);
/* Resets all rows to the values of the table. */
void ebb__tuning_reset(void);

/* Writes the rows that differ from the table into `text` as `name=value,...`; an empty string if
 * none differs. Returns false if `bytes` are too few. */
bool ebb__tuning_write(char *text, size_t bytes);
/* Sets what ebb__tuning_write() wrote: all of it, or nothing with EBB_ERR_ARGUMENT. */
EBB_NODISCARD enum ebb_status ebb__tuning_read(const char *text, struct ebb_error *error);

/* Formats a row's value as ebb__tuning_write() does. 32 bytes of `text` are enough. Returns
 * `text`. */
char *ebb__tuning_format(const struct ebb_tuning_row *row, double value, char *text, size_t bytes);

/* A hash of all names and defaults, which identifies the table. */
uint64_t ebb__tuning_table(void);

#endif
