/* From a whole trace to its iterations, the model of one iteration, and the three properties.
 *
 *     struct ebb_analysis analysis;
 *     if (ebb__analyse(trace, &analysis, &error) == EBB_OK) {
 *         if (analysis.has_model) use(&analysis.model);
 *         ebb__analysis_fini(&analysis);
 *     }
 *
 * A trace without any repetition is no error: iterations is 0 and has_model false. */
#ifndef EBB_MODEL_ANALYSE_H
#define EBB_MODEL_ANALYSE_H

#include "base/status.h"
#include "model/model.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ebb_analysis {
    size_t iterations;    /* number of whole ones in the trace */
    size_t period_events; /* events of one iteration, including accesses if any were traced */
    size_t first_periodic_event; /* where the repetition begins */
    size_t found_at_event;       /* the event at which the repetition had been seen twice */
    size_t *starts;              /* event index of the start of each whole iteration; it is where
                                    least memory is live, unless that costs an iteration */
    size_t start_count;
    size_t blocks;           /* blocks in the whole trace, including those older than the trace */
    size_t existing_blocks;  /* blocks older than the trace, as far as they occur in it */
    uint64_t existing_bytes; /* their bytes */
    uint64_t detect_ns;  /* time to find the iterations: from the events in memory to the start and
                            end of each, with all symbols, tables and choices. Without model and
                            properties */
    uint64_t peak_bytes; /* largest load of the trace */
    struct ebb_properties properties;
    size_t model_first;  /* first event of the modelled iteration */
    size_t model_period; /* its number of events. It is a traced one if there is one, preferably
                            between two others */
    bool has_accesses;   /* its accesses were traced */
    struct ebb_model model;
    bool has_model;
};

/* Analyses the trace. On EBB_OK release with ebb__analysis_fini(); on error *analysis is empty.
 * EBB_ERR_MEMORY, and EBB_ERR_FORMAT and EBB_ERR_LIMIT as in ebb__model_build(). O(events) time and
 * memory. Thread-safe. */
EBB_NODISCARD enum ebb_status ebb__analyse(struct ebb_event_span trace,
                                           struct ebb_analysis *analysis, struct ebb_error *error);
void ebb__analysis_fini(struct ebb_analysis *analysis);

#endif
