/* What a user of ebb-train says on the command line. */
#ifndef EBB_TRAIN_OPTIONS_H
#define EBB_TRAIN_OPTIONS_H

#include "train/data/data.h"
#include "train/exec/schedule.h"
#include "train/net/net.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct ebb_train_options {
    const char *net;
    struct ebb_net_options shape;
    enum ebb_data_kind data;
    enum ebb_mode mode;
    const char *policy;    /* the text of `mode`, or a policy of two tiers */
    uint64_t budget_bytes; /* 0: none, or a share */
    double budget_share;   /* of the peak; 0: none */
    double tiers_share;    /* of the peak that is fast memory, beside a slow tier; 0: one tier */
    double throttle;       /* of two tiers; 0: none */
    uint64_t iterations;   /* 0: by epochs */
    uint64_t epochs;       /* 0: by iterations */
    enum ebb_optimizer optimizer;
    float rate;
    uint64_t halving_iterations; /* the rate is halved after so many; 0: never */
    uint64_t seed;
    const char *store; /* NULL: Ebb's default, as for all below */
    const char *machine;
    const char *checkpoint;
    uint64_t checkpoint_iterations; /* save each so many iterations; 0: at the end only */
    const char *resume;
    const char *record;
    const char *summary;
    bool is_quiet;
    bool wants_help, wants_version; /* then nothing else is set */
};

/* EBB_ERR_ARGUMENT: the error names the option. Strings are those of `argv`. */
EBB_NODISCARD enum ebb_status ebb__train_options(int argc, char **argv,
                                                 struct ebb_train_options *options,
                                                 struct ebb_error *error);
void ebb__train_help(FILE *out);

#endif
