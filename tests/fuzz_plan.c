/* Fuzzes the reader of plan files with the model of a small program. An accepted plan must be safe
 * to simulate. A refusal must have a reason and leave the plan empty. */
#include "fuzz.h"
#include "lab/import/import.h"
#include "model/analyse.h"
#include "plan/file.h"
#include "sim/simulate.h"

#include <string.h>

/* tests/corpus/plan/ was planned for this program, as `ebb plan` reads it from a file. */
static const char program[] =
    "Malloc 0x1 4194304 100\nMutable 0x1 4194304 200\nMutable 0x2 8388608 300\n"
    "Malloc 0x3 2097152 400\nMutable 0x3 2097152 500\nFree 0x3 2097152 600\n"
    "Read 0x1 4194304 5000000\nFree 0x1 4194304 5000100\n"
    "Malloc 0x1 4194304 10000100\nMutable 0x1 4194304 10000200\nMutable 0x2 8388608 10000300\n"
    "Malloc 0x3 2097152 10000400\nMutable 0x3 2097152 10000500\nFree 0x3 2097152 10000600\n"
    "Read 0x1 4194304 15000000\nFree 0x1 4194304 15000100\n"
    "Malloc 0x1 4194304 20000100\nMutable 0x1 4194304 20000200\nMutable 0x2 8388608 20000300\n"
    "Malloc 0x3 2097152 20000400\nMutable 0x3 2097152 20000500\nFree 0x3 2097152 20000600\n"
    "Read 0x1 4194304 25000000\nFree 0x1 4194304 25000100\n";

static const struct ebb_model *model(void)
{
    static struct ebb_analysis analysis;
    if (analysis.has_model)
        return &analysis.model;
    struct ebb_trace trace;
    struct ebb_import_request request = {.name = "program"};
    FUZZ_REQUIRE(ebb__import_memory(ebb__importer_find("singa"), (const uint8_t *)program,
                                    sizeof program - 1, &request, &trace, NULL) == EBB_OK);
    struct ebb_event_span span = {trace.events, trace.count};
    FUZZ_REQUIRE(ebb__analyse(span, &analysis, NULL) == EBB_OK && analysis.has_model);
    ebb__trace_fini(&trace);
    return &analysis.model;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ebb_plan_file file;
    struct ebb_error error = {0};
    enum ebb_status status =
        ebb__plan_file_read_memory(data, size, "input", model(), &file, &error);
    if (status == EBB_OK) {
        struct ebb_sim_request request = {ebb__plan_file_model(&file, model()),
                                          &file.machine,
                                          file.plan.absences,
                                          file.plan.absence_count,
                                          file.plan.budget_bytes,
                                          file.page_bytes,
                                          &file.plan.rules};
        struct ebb_sim_result result;
        status = ebb__simulate(&request, NULL, &result, &error);
        FUZZ_REQUIRE(status == EBB_OK || status == EBB_ERR_ARGUMENT);
    } else {
        FUZZ_REQUIRE(status == EBB_ERR_FORMAT);
        FUZZ_REQUIRE(error.status == status && error.why[0] && !strcmp(error.what, "input"));
        FUZZ_REQUIRE(!file.plan.absences);
    }
    ebb__plan_file_fini(&file);
    return 0;
}
