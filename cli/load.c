#include "load.h"

#include "lab.h"
#include "progress.h"

#include <string.h>

static enum ebb_status check_needs(const char *path, enum ebb_load_needs needs,
                                   const struct ebb_analysis *analysis, struct ebb_error *error)
{
    if (needs >= EBB_LOAD_MODEL && !analysis->has_model) {
        ebb__fail(error, EBB_ERR_FORMAT, path, "holds no repeating iteration");
        ebb__error_set_remedy(error, "record at least two whole iterations");
        return EBB_ERR_FORMAT;
    }
    if (needs >= EBB_LOAD_ACCESSES && !analysis->has_accesses) {
        ebb__fail(error, EBB_ERR_FORMAT, path,
                  "holds no accesses: nothing says when a block could be evicted");
        ebb__error_set_remedy(error, "record it with accesses: ebb record -o FILE -- CMD");
        return EBB_ERR_FORMAT;
    }
    return EBB_OK;
}

enum ebb_status ebb__load(const char *path, enum ebb_load_needs needs, struct ebb_loaded *loaded,
                          struct ebb_error *error)
{
    memset(loaded, 0, sizeof *loaded);
    ebb__progress_say("reading %s", path);
    enum ebb_status status = ebb__lab_trace_open(path, &loaded->trace, error);
    if (status) {
        if (error && !error->remedy[0])
            ebb__error_set_remedy(error, "make a trace with 'ebb record -o FILE -- CMD'");
        return status;
    }
    struct ebb_event_span span = {loaded->trace.events, loaded->trace.count};
    ebb__progress_say("finding the iterations of %s", path);
    status = ebb__analyse(span, &loaded->analysis, error);
    if (status && error && !error->remedy[0])
        ebb__error_set_remedy(error, status == EBB_ERR_MEMORY
                                         ? "free memory, or record fewer iterations"
                                         : "record the program again");
    if (!status)
        status = check_needs(path, needs, &loaded->analysis, error);
    if (status) {
        ebb__load_fini(loaded);
        return status;
    }
    loaded->page_bytes = loaded->trace.info.page_bytes ? loaded->trace.info.page_bytes : 1;
    return EBB_OK;
}

void ebb__load_fini(struct ebb_loaded *loaded)
{
    ebb__analysis_fini(&loaded->analysis);
    ebb__trace_fini(&loaded->trace);
    memset(loaded, 0, sizeof *loaded);
}
