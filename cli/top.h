/* The parts of `ebb top`: runs are looked at twice, since rates need that, and shown in four
 * ways. */
#ifndef EBB_CLI_TOP_H
#define EBB_CLI_TOP_H

#include "parent/status.h"

#include <jansson.h>
#include <stdio.h>

#define EBB_TOP_MOST_RUNS 64 /* a limit: more do not fit on a screen */
#define EBB_TOP_INTERVAL_MS 500
#define EBB_TOP_COLUMNS 100

/* What happened between two looks, in shares of the time between them and bytes a second. */
struct ebb_top_rates {
    bool known;
    double out_bps, in_bps, out_busy, in_busy;
    double stall; /* of all threads together: may be above 1 */
};

struct ebb_top_run {
    struct ebb_status_packet now;
    struct ebb_top_rates rates;
};

struct ebb_top {
    int only; /* the process id of one run, or of its program; 0: all */
    struct ebb_top_run runs[EBB_TOP_MOST_RUNS];
    size_t count;
    size_t hidden; /* runs that do not answer: of other users, of another version, or busy */
    struct ebb_error silent; /* why run `only` does not answer; empty: it does, or there is none */
};

/* Looks at all runs. Rates are against the look before. EBB_ERR_IO as ebb__status_list(). */
EBB_NODISCARD enum ebb_status ebb__top_look(struct ebb_top *top, struct ebb_error *error);

/* Prints the runs as lines of at most `columns`, at least 60, each ended by a newline. */
void ebb__top_text(const struct ebb_top *top, int columns, FILE *out);

/* ebb.top/1; the caller owns it. NULL: no memory. */
json_t *ebb__top_json(const struct ebb_top *top);

/* Prometheus' text format, version 0.0.4. */
void ebb__top_prometheus(const struct ebb_top *top, FILE *out);

/* The view on a terminal, until the user ends it. EBB_ERR_IO if the terminal cannot show it. */
EBB_NODISCARD enum ebb_status ebb__top_view(struct ebb_top *top, struct ebb_error *error);

#endif
