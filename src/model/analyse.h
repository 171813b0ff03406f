/* From a whole trace to its iterations, the model of one, and the three properties.
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
    size_t iterations;    /* whole ones in the trace */
    size_t period_events; /* events of one iteration, accesses included where any was traced */
    size_t first_periodic_event; /* where the repetition begins */
    size_t found_at_event;       /* where it had been seen twice */
    size_t *starts;              /* event index where each whole iteration begins; they begin where
                                    least memory is live, unless that costs an iteration */
    size_t start_count;
    size_t blocks;           /* blocks in the whole trace, those that existed before it included */
    size_t existing_blocks;  /* existed before the trace, as far as they occur in it */
    uint64_t existing_bytes; /* theirs */
    uint64_t detect_ns;  /* time that finding the iterations took: from the events in memory to the
                            begin and end of each, all symbols, tables and choices included; the
                            model and the properties not */
    uint64_t peak_bytes; /* largest load of the trace */
    struct ebb_properties properties;
    size_t
        model_first; /* the modelled iteration: its first event, its number of events; a traced */
    size_t model_period; /* one if there is one, with others on both sides if possible */
    bool has_accesses;   /* accesses were traced in it */
    struct ebb_model model;
    bool has_model;
};

/* Analyse the trace. On EBB_OK release with ebb__analysis_fini(); on error *analysis is empty.
 * EBB_ERR_MEMORY, EBB_ERR_FORMAT and EBB_ERR_LIMIT as of ebb__model_build(). O(events) time and
 * memory. Thread-safe. */
EBB_NODISCARD enum ebb_status ebb__analyse(struct ebb_event_span trace,
                                           struct ebb_analysis *analysis, struct ebb_error *error);
void ebb__analysis_fini(struct ebb_analysis *analysis);

#endif
