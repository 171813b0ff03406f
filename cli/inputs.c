#include "inputs.h"

#include "base/file.h"
#include "choices.h"
#include "lab.h"
#include "planning.h"
#include "progress.h"
#include "report/lost_json.h"

#include <stdlib.h>
#include <string.h>

#define HEAD_BYTES 64

/* A summary is a JSON object; no trace begins like one. */
static bool is_object(const uint8_t *bytes, size_t size)
{
    size_t at = 0;
    while (at < size && (bytes[at] == ' ' || bytes[at] == '\n' || bytes[at] == '\t'))
        at++;
    return at < size && bytes[at] == '{';
}

static enum ebb_status summary_parse(const char *path, const struct ebb_file_content *content,
                                     json_t **summary, struct ebb_error *error)
{
    json_error_t where;
    *summary = json_loadb((const char *)content->bytes, content->size, 0, &where);
    const char *schema = json_string_value(json_object_get(*summary, "schema"));
    if (schema && strcmp(schema, "ebb.run/2") == 0)
        return EBB_OK;
    if (!*summary)
        ebb__fail(error, EBB_ERR_FORMAT, path, "line %d: %s", where.line, where.text);
    else
        ebb__fail(error, EBB_ERR_FORMAT, path, "is no summary of the schema ebb.run/2");
    ebb__error_set_remedy(error, "make one with 'ebb run --summary-json FILE -- CMD'");
    json_decref(*summary);
    *summary = NULL;
    return EBB_ERR_FORMAT;
}

static void set_name(struct ebb_input *input, const char *path, uint32_t number, bool is_redacted)
{
    if (is_redacted)
        snprintf(input->name, sizeof input->name, "run %u", number);
    else
        snprintf(input->name, sizeof input->name, "%s", basename(path));
}

/* Reads a trace. Its events are the largest part and are not needed once it is analysed. */
static enum ebb_status trace_read(const char *path, struct ebb_input *input,
                                  struct ebb_error *error)
{
    enum ebb_status status = ebb__load(path, EBB_LOAD_MODEL, &input->loaded, error);
    if (status)
        return status;
    struct ebb_trace *trace = &input->loaded.trace;
    const struct ebb_analysis *analysis = &input->loaded.analysis;
    input->has_trace = true;
    input->event_count = trace->count;
    ebb__lost_find((struct ebb_event_span){trace->events, trace->count}, analysis->starts,
                   analysis->start_count, &input->lost);
    free(trace->events);
    trace->events = NULL;
    trace->count = 0;
    return EBB_OK;
}

static enum ebb_status input_read(const struct ebb_inputs_options *options, const char *path,
                                  struct ebb_inputs *inputs, struct ebb_error *error)
{
    struct ebb_file_content content;
    json_t *summary = NULL;
    enum ebb_status status =
        ebb__file_read(path, "a summary", HEAD_BYTES, is_object, &content, error);
    bool is_trace = status == EBB_ERR_FORMAT;
    if (!status) {
        status = summary_parse(path, &content, &summary, error);
        free(content.bytes);
    }
    if (status && !is_trace)
        return status;
    struct ebb_input *last = inputs->count ? &inputs->items[inputs->count - 1] : NULL;
    if (summary && last && last->has_trace && !last->summary) {
        last->summary = summary;
        return EBB_OK;
    }
    if (inputs->count == EBB_INPUTS_MOST) {
        json_decref(summary);
        ebb__fail(error, EBB_ERR_ARGUMENT, path, "is one file too many");
        ebb__error_set_remedy(error, "give %d runs at most", EBB_INPUTS_MOST);
        return EBB_ERR_ARGUMENT;
    }
    struct ebb_input *input = &inputs->items[inputs->count++];
    set_name(input, path, inputs->count, options->is_redacted);
    input->summary = summary;
    return is_trace ? trace_read(path, input, error) : EBB_OK;
}

static enum ebb_status find_machines(const struct ebb_inputs_options *options,
                                     struct ebb_inputs *inputs, struct ebb_error *error)
{
    static const char *const named[] = {"nvme", "optane", "cxl", "pcie3", "pcie4", "pcie5"};
    enum ebb_status status = ebb__planning_machine(options->machine, options->store,
                                                   &inputs->machines[inputs->machine_count], error);
    if (status)
        return status;
    const char *first = inputs->machines[inputs->machine_count++].name;
    if (options->has_one_machine)
        return EBB_OK;
    for (size_t i = 0; !status && i < sizeof named / sizeof named[0]; i++)
        if (strcmp(named[i], first) != 0)
            status =
                ebb__machine_named(named[i], &inputs->machines[inputs->machine_count++], error);
    return status;
}

/* The policies of ebb itself, and the published one that is cited most. */
static void find_policies(struct ebb_inputs *inputs)
{
    static const char *const wanted[] = {"ebb", "fifo", "lru", "autoswap"};
    for (size_t w = 0; w < sizeof wanted / sizeof wanted[0]; w++)
        for (size_t i = 0; ebb__policy_at(i); i++)
            if (strcmp(ebb__policy_name(i), wanted[w]) == 0)
                inputs->policies[inputs->policy_count++] = ebb__policy_at(i);
}

static enum ebb_status bound(const struct ebb_plan_request *request, const struct ebb_plan *plan,
                             uint64_t *bytes, struct ebb_error *error)
{
    struct ebb_bounds bounds;
    enum ebb_status status = ebb__lab_bounds(request, plan, true, &bounds, error);
    *bytes = status ? 0 : bounds.peak_bytes;
    return status;
}

static enum ebb_status gather(const struct ebb_inputs_options *options, enum ebb_report_depth depth,
                              struct ebb_inputs *inputs, struct ebb_input *input,
                              struct ebb_error *error)
{
    struct ebb_report_source source = {
        .name = input->name, .summary = input->summary, .is_redacted = options->is_redacted};
    /* A trace that was recorded without a budget has no waits. The summary has those of its run. */
    if (!input->lost.has_waits && input->summary &&
        !ebb__lost_from_json(json_object_get(input->summary, "lost"), &input->lost))
        input->lost.count = 0;
    source.lost = &input->lost;
    if (input->has_trace) {
        source.info = &input->loaded.trace.info;
        source.analysis = &input->loaded.analysis;
        source.event_count = input->event_count;
        source.is_complete = input->loaded.trace.complete;
        source.page_bytes = input->loaded.page_bytes;
        source.machines = inputs->machines;
        source.machine_count = inputs->machine_count;
        source.bound = bound;
    }
    if (options->has_frontier) {
        source.policies = inputs->policies;
        source.policy_count = inputs->policy_count;
    }
    if (options->budget && !ebb_percent_parse(options->budget, &source.budget_fraction) &&
        !ebb_size_parse(options->budget, &source.budget_bytes)) {
        ebb__fail(error, EBB_ERR_ARGUMENT, options->budget, "not a size nor a percentage");
        ebb__error_set_remedy(error, "give --budget as 4G, 512MiB or 60%%");
        return EBB_ERR_ARGUMENT;
    }
    return ebb__report_gather(&source, depth, &input->run, error);
}

enum ebb_status ebb__inputs_read(const struct ebb_inputs_options *options, char *const *paths,
                                 int count, enum ebb_report_depth depth, struct ebb_inputs *inputs,
                                 struct ebb_error *error)
{
    memset(inputs, 0, sizeof *inputs);
    enum ebb_status status = EBB_OK;
    for (int i = 0; i < count && !status; i++)
        status = input_read(options, paths[i], inputs, error);
    bool has_trace = false;
    for (uint32_t i = 0; i < inputs->count; i++)
        has_trace |= inputs->items[i].has_trace;
    if (!status && has_trace)
        status = find_machines(options, inputs, error);
    find_policies(inputs);
    for (uint32_t i = 0; i < inputs->count && !status; i++) {
        ebb__progress_say("planning run %u of %u", i + 1, inputs->count);
        status = gather(options, depth, inputs, &inputs->items[i], error);
    }
    return status;
}

void ebb__inputs_fini(struct ebb_inputs *inputs)
{
    for (uint32_t i = 0; i < inputs->count; i++) {
        struct ebb_input *input = &inputs->items[i];
        ebb__report_fini(&input->run);
        json_decref(input->summary);
        if (input->has_trace)
            ebb__load_fini(&input->loaded);
    }
    memset(inputs, 0, sizeof *inputs);
}
