/* The numbers that steer Ebb: one table (tuning.def), one struct of the values in force.
 *
 *     if (now - last_ns > ebb__tuning()->pause_ns) ...
 *
 * The struct is the one exception to the rule that state lives in structs handed in: it is set once, as a
 * process starts and before it has threads, and only read from then on. `ebb` sets it from --tune; a
 * program under Ebb from its parent's welcome. A fork has its parent's values. Reading it is a load. */
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

extern struct ebb_tuning ebb__tuning_in_force; /* tuning.c alone writes it */

static inline const struct ebb_tuning *ebb__tuning(void)
{
    return &ebb__tuning_in_force;
}

/* ---- what follows from a row ----------------------------------------------------------------- */

/* Within a stretch that is shorter than a pause no time is worth correcting; within a longer one it is
 * off by this at least. */
static inline uint64_t ebb__tuning_drift_ns(void)
{
    return ebb__tuning()->pause_ns / 4;
}

/* An access that is the clock must not be in use while those before it are awaited. */
static inline uint64_t ebb__tuning_access_clock_rest(void)
{
    return ebb__tuning()->access_clock_armed + 1;
}

static inline uint64_t ebb__tuning_unmanaged_most_ns(void)
{
    return 64 * ebb__tuning()->unmanaged_sample_ns;
}

/* `ebb pack` has more effort than a plan. */
static inline uint64_t ebb__tuning_pack_box_ns(void)
{
    return 6 * ebb__tuning()->plan_box_ns;
}

/* ---- the table ------------------------------------------------------------------------------- */

enum ebb_tuning_acts {
    EBB_TUNING_PLAN, /* on plans */
    EBB_TUNING_RUN,  /* while a program runs */
};

/* Values of both kinds are below 2^53, so that a double holds them. */
struct ebb_tuning_row {
    const char *name, *unit, *reason;
    double value, least, most; /* the default, and the range */
    size_t offset;             /* into struct ebb_tuning */
    enum ebb_tuning_acts acts;
    bool real; /* a double, else a uint64_t */
};

/* *count rows, in the order of tuning.def. */
const struct ebb_tuning_row *ebb__tuning_rows(size_t *count);
/* The value in force. */
double ebb__tuning_value(const struct ebb_tuning_row *row);

/* Set one row from `name=value`. The value is a number in the row's unit; of bytes also with K, M, G, T,
 * of ns also with us, ms, s. EBB_ERR_ARGUMENT for an unknown name, a number that is none, or one outside
 * of the range: `error` says it in one line, and nothing has changed. Before the process has threads. */
EBB_NODISCARD enum ebb_status ebb__tuning_set(const char *assignment, struct ebb_error *error);
/* All rows as in the table again. */
void ebb__tuning_reset(void);

/* The rows that differ from the table as `name=value,...` into `text`, empty if none does. False if that
 * takes more than `bytes`. */
bool ebb__tuning_write(char *text, size_t bytes);
/* Set what ebb__tuning_write() wrote: all of it, or nothing with EBB_ERR_ARGUMENT. */
EBB_NODISCARD enum ebb_status ebb__tuning_read(const char *text, struct ebb_error *error);

/* The value of a row as ebb__tuning_write() has it, into `text`; 32 bytes are enough. Returns it. */
char *ebb__tuning_format(const struct ebb_tuning_row *row, double value, char *text, size_t bytes);

/* A hash of names and defaults: which table this is. */
uint64_t ebb__tuning_table(void);

#endif
