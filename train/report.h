/* What ebb-train tells: progress, and the figures of a run. */
#ifndef EBB_TRAIN_REPORT_H
#define EBB_TRAIN_REPORT_H

#include "train/base/list.h"

#include "lab/tier/program.h"

#include "ebb/statistics.h"

#include <stdbool.h>
#include <stdint.h>

struct ebb_train_figures {
    const char *net;
    const char *policy;
    uint32_t batch;
    uint64_t parameters;        /* values */
    uint64_t first_iteration;   /* 0, unless it was resumed */
    uint64_t static_peak_bytes; /* if each buffer keeps its memory, as in Caffe */
    uint64_t live_peak_bytes;   /* if each buffer has memory while it is needed */
    EBB_LIST(float) losses;     /* of each iteration */
    EBB_LIST(double) seconds;   /* likewise */
    double test_accuracy;       /* below 0: not tested */
    bool has_tiers;             /* then `statistics` is not set, else `tiers` is not */
    struct ebb_tier_program_figures tiers;
    struct ebb_statistics statistics;
};

/* One line of progress on stderr, after an iteration. On a terminal it replaces the one before. */
void ebb__report_progress(const struct ebb_train_figures *figures, uint64_t iterations);
/* Ends the lines of progress. */
void ebb__report_progress_end(void);

/* The figures on stdout. */
void ebb__report_text(const struct ebb_train_figures *figures);

/* Writes the figures as JSON into the file `path`, or to stdout if it is `-`. EBB_ERR_IO,
 * EBB_ERR_MEMORY. */
EBB_NODISCARD enum ebb_status ebb__report_json(const struct ebb_train_figures *figures,
                                               const char *path, struct ebb_error *error);

#endif
