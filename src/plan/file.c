#include "plan/file.h"

#include "base/file.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCHEMA "ebb.plan-file/"
/* Members had other names in version 1: its optional ones would be ignored silently. */
#define VERSION "2"

struct reader {
    const char *name;
    const struct ebb_model *model;
    struct ebb_plan_file *file;
    struct ebb_error *error;
};

static enum ebb_status fail(const struct reader *reader, const char *what, const char *why)
{
    return ebb__fail(reader->error, EBB_ERR_FORMAT, reader->name, "%s%s", what, why);
}

/* Reads a whole number from 0 to `limit`. */
static enum ebb_status take_number(const struct reader *reader, const json_t *object,
                                   const char *what, const char *key, uint64_t limit,
                                   uint64_t *value)
{
    const json_t *member = json_object_get(object, key);
    if (!json_is_integer(member) || json_integer_value(member) < 0)
        return ebb__fail(reader->error, EBB_ERR_FORMAT, reader->name,
                         "%smember %s must be a whole number, 0 or more", what, key);
    *value = (uint64_t)json_integer_value(member);
    if (*value > limit)
        return ebb__fail(reader->error, EBB_ERR_FORMAT, reader->name,
                         "%smember %s is %" PRIu64 ", at most %" PRIu64 " is possible", what, key,
                         *value, limit);
    return EBB_OK;
}

static enum ebb_status take_index(const struct reader *reader, const json_t *object,
                                  const char *what, const char *key, uint64_t limit,
                                  uint32_t *value)
{
    uint64_t number = 0;
    enum ebb_status status = take_number(reader, object, what, key, limit, &number);
    *value = (uint32_t)number;
    return status;
}

static enum ebb_status take_boolean(const struct reader *reader, const json_t *object,
                                    const char *what, const char *key, bool *value)
{
    const json_t *member = json_object_get(object, key);
    *value = json_is_true(member);
    return json_is_boolean(member) ? EBB_OK
                                   : ebb__fail(reader->error, EBB_ERR_FORMAT, reader->name,
                                               "%smember %s must be true or false", what, key);
}

static enum ebb_status read_absence(const struct reader *reader, const json_t *object, size_t index,
                                    struct ebb_absence *absence)
{
    const struct ebb_model *model = reader->model;
    char what[48];
    snprintf(what, sizeof what, "absence %zu: ", index);
    if (!model->block_count)
        return fail(reader, what, "the model has no blocks");
    uint64_t bytes, time_limit = ebb__model_iteration_ns(model), last = model->tick_count - 1;
    enum ebb_status status =
        take_index(reader, object, what, "block", model->block_count - 1, &absence->block);
    if (!status)
        status = take_number(reader, object, what, "bytes", INT64_MAX, &bytes);
    if (!status)
        status = take_index(reader, object, what, "from_tick", last, &absence->from_tick);
    if (!status)
        status = take_index(reader, object, what, "to_tick", last, &absence->to_tick);
    if (!status && json_object_get(object, "margin_ticks"))
        status = take_index(reader, object, what, "margin_ticks", last, &absence->margin_ticks);
    if (!status)
        status = take_boolean(reader, object, what, "drops", &absence->drops);
    if (!status)
        status = take_boolean(reader, object, what, "keep_copy", &absence->keep_copy);
    if (!status && json_object_get(object, "out_within"))
        status = take_boolean(reader, object, what, "out_within", &absence->out_within);
    if (!status && json_object_get(object, "passive"))
        status = take_boolean(reader, object, what, "passive", &absence->passive);
    if (!status && json_object_get(object, "in_within"))
        status = take_boolean(reader, object, what, "in_within", &absence->in_within);
    if (!status)
        status =
            take_number(reader, object, what, "out_start_ns", time_limit, &absence->out_start_ns);
    if (!status)
        status = take_number(reader, object, what, "out_end_ns", time_limit, &absence->out_end_ns);
    if (!status && !absence->drops)
        status =
            take_number(reader, object, what, "in_start_ns", time_limit, &absence->in_start_ns);
    if (!status && !absence->drops)
        status = take_number(reader, object, what, "in_end_ns", time_limit, &absence->in_end_ns);
    if (!status && !absence->drops && json_object_get(object, "stall_ns"))
        status = take_number(reader, object, what, "stall_ns", INT64_MAX, &absence->stall_ns);
    if (status)
        return status;
    const struct ebb_plan_request request = {.page_bytes = reader->file->page_bytes};
    const struct ebb_model *sized = ebb__plan_file_model(reader->file, model);
    if (bytes != ebb__plan_block_bytes(&request, &sized->blocks[absence->block]))
        return fail(reader, what, "its block has another size in the trace");
    return EBB_OK;
}

static enum ebb_status read_absences(const struct reader *reader, const json_t *array)
{
    struct ebb_plan *plan = &reader->file->plan;
    if (!json_is_array(array))
        return fail(reader, "member absences ", "must be an array");
    size_t count = json_array_size(array);
    if (count > reader->model->access_count)
        return fail(reader, "member absences ", "has more entries than the trace has accesses");
    plan->absences = calloc(count + 1, sizeof *plan->absences);
    if (!plan->absences)
        return ebb__fail_memory(reader->name, count * sizeof *plan->absences, reader->error);
    enum ebb_status status = EBB_OK;
    for (size_t i = 0; !status && i < count; i++)
        status = read_absence(reader, json_array_get(array, i), i, &plan->absences[i]);
    plan->absence_count = (uint32_t)count;
    return status;
}

/* Reads the blocks rounded to whole units; the member may be missing. */
static enum ebb_status read_huge_rounded(const struct reader *reader, const json_t *array)
{
    struct ebb_huge_rounded *huge_rounded = &reader->file->huge_rounded;
    const char *const what = "member huge_rounded_blocks ";
    if (!array)
        return EBB_OK;
    if (!json_is_array(array))
        return fail(reader, what, "must be an array");
    if (json_array_size(array) > reader->model->block_count)
        return fail(reader, what, "has more entries than the trace has blocks");
    if (ebb__huge_rounded_init(reader->model, huge_rounded) != EBB_OK)
        return ebb__fail_memory(
            reader->name, reader->model->block_count * sizeof *huge_rounded->blocks, reader->error);
    for (size_t i = 0; i < json_array_size(array); i++) {
        const json_t *item = json_array_get(array, i);
        json_int_t index = json_is_integer(item) ? json_integer_value(item) : -1;
        if (index < 0 || index >= reader->model->block_count ||
            !ebb__huge_rounded_add(huge_rounded, (uint32_t)index))
            return fail(reader, what, "names a block that cannot take whole units");
    }
    return EBB_OK;
}

/* An array of `object`, of `most` items at most. *count is 0 if it is missing. */
static enum ebb_status take_array(const struct reader *reader, const json_t *root, const char *key,
                                  size_t most, const json_t **array, uint32_t *count)
{
    *array = json_object_get(root, key);
    *count = 0;
    if (*array && !json_is_array(*array))
        return ebb__fail(reader->error, EBB_ERR_FORMAT, reader->name, "member %s must be an array",
                         key);
    if (json_array_size(*array) > most)
        return ebb__fail(reader->error, EBB_ERR_FORMAT, reader->name,
                         "member %s has more than %zu entries", key, most);
    *count = (uint32_t)json_array_size(*array);
    return EBB_OK;
}

/* Reads what the plan asks of the program beyond absences; the members may be missing. */
static enum ebb_status read_rules(const struct reader *reader, const json_t *root)
{
    const struct ebb_model *model = reader->model;
    struct ebb_plan_rules *rules = &reader->file->plan.rules;
    const json_t *barriers, *shares;
    enum ebb_status status = EBB_OK;
    if (json_object_get(root, "keeps_all"))
        status = take_boolean(reader, root, "", "keeps_all", &rules->keeps_all);
    rules->passive = json_object_get(root, "passive_least_bytes") != NULL;
    if (!status && rules->passive)
        status = take_number(reader, root, "", "passive_least_bytes", INT64_MAX,
                             &rules->passive_least_bytes);
    if (!status)
        status = take_array(reader, root, "barriers", model->tick_count, &barriers,
                            &rules->barrier_count);
    if (!status)
        status =
            take_array(reader, root, "shares", model->block_count, &shares, &rules->share_count);
    if (status)
        return status;
    rules->barriers = calloc(rules->barrier_count + 1u, sizeof *rules->barriers);
    rules->shares = calloc(rules->share_count + 1u, sizeof *rules->shares);
    if (!rules->barriers || !rules->shares)
        return ebb__fail_memory(reader->name, rules->barrier_count * sizeof *rules->barriers,
                                reader->error);
    for (uint32_t i = 0; i < rules->barrier_count; i++) {
        const json_t *item = json_array_get(barriers, i);
        json_int_t tick = json_is_integer(item) ? json_integer_value(item) : -1;
        if (tick < 0 || tick >= model->tick_count ||
            (i && tick <= (json_int_t)rules->barriers[i - 1]))
            return fail(reader, "member barriers ", "must have ticks of the trace, ascending");
        rules->barriers[i] = (uint32_t)tick;
    }
    for (uint32_t i = 0; !status && i < rules->share_count; i++) {
        const json_t *item = json_array_get(shares, i);
        status = take_index(reader, item, "shares: ", "block", model->block_count - 1,
                            &rules->shares[i].block);
        if (!status)
            status = take_index(reader, item, "shares: ", "host", model->block_count - 1,
                                &rules->shares[i].host);
    }
    return status;
}

static enum ebb_status read_figures(const struct reader *reader, const json_t *root)
{
    struct ebb_plan *plan = &reader->file->plan;
    const struct {
        const char *key;
        uint64_t *value;
    } figures[] = {
        {"budget_bytes", &plan->budget_bytes},
        {"smallest_feasible_bytes", &plan->smallest_feasible_bytes},
        {"peak_bytes", &plan->peak_bytes},
        {"stall_ns", &plan->stall_ns},
        {"iteration_ns", &plan->iteration_ns},
        {"moved_out_bytes", &plan->moved_out_bytes},
        {"moved_in_bytes", &plan->moved_in_bytes},
        {"plan_ns", &plan->plan_ns},
    };
    enum ebb_status status = EBB_OK;
    for (size_t i = 0; !status && i < sizeof figures / sizeof figures[0]; i++)
        status = take_number(reader, root, "", figures[i].key, INT64_MAX, figures[i].value);
    if (!status)
        status = take_boolean(reader, root, "", "feasible", &plan->feasible);
    if (!status && json_object_get(root, "searched_bytes"))
        status = take_number(reader, root, "", "searched_bytes", INT64_MAX, &plan->searched_bytes);
    if (!status && json_object_get(root, "reactive"))
        status = take_boolean(reader, root, "", "reactive", &plan->reactive);
    return status;
}

static enum ebb_status read_root(const struct reader *reader, const json_t *root)
{
    struct ebb_plan_file *file = reader->file;
    const char *schema = json_string_value(json_object_get(root, "schema"));
    const char *policy = json_string_value(json_object_get(root, "policy"));
    uint64_t ticks, iteration_ns;
    if (!schema || strncmp(schema, SCHEMA, strlen(SCHEMA)) != 0)
        return fail(reader, "member schema ", "is not " SCHEMA VERSION);
    if (strcmp(schema + strlen(SCHEMA), VERSION) != 0) {
        ebb__fail(reader->error, EBB_ERR_FORMAT, reader->name,
                  "a plan file of version %.8s; this Ebb reads version " VERSION,
                  schema + strlen(SCHEMA));
        ebb__error_set_remedy(reader->error, "plan the trace again with 'ebb plan -o'");
        return EBB_ERR_FORMAT;
    }
    if (!policy)
        return fail(reader, "member policy ", "must be a string");
    snprintf(file->plan.policy, sizeof file->plan.policy, "%s", policy);
    enum ebb_status status = read_figures(reader, root);
    if (!status)
        status = take_number(reader, root, "", "page_bytes", (uint64_t)1 << 30, &file->page_bytes);
    if (!status)
        status = take_number(reader, root, "", "model_ticks", EBB_TICK_NONE, &ticks);
    if (!status)
        status = take_number(reader, root, "", "model_iteration_ns", INT64_MAX, &iteration_ns);
    if (status)
        return status;
    if (!file->page_bytes || (file->page_bytes & (file->page_bytes - 1)))
        return fail(reader, "member page_bytes ", "must be a power of two");
    if (ticks != reader->model->tick_count ||
        iteration_ns != ebb__model_iteration_ns(reader->model)) {
        fail(reader, "the plan ", "was made for another trace");
        ebb__error_set_remedy(reader->error, "plan the trace again with 'ebb plan -o'");
        return EBB_ERR_FORMAT;
    }
    status = ebb__machine_from_json(json_object_get(root, "machine"), reader->name, &file->machine,
                                    reader->error);
    if (!status)
        status = read_huge_rounded(reader, json_object_get(root, "huge_rounded_blocks"));
    if (!status)
        status = read_rules(reader, root);
    return status ? status : read_absences(reader, json_object_get(root, "absences"));
}

/* From here on the reader's model is the one without idle blocks, if the plan leaves them out. */
static enum ebb_status leave_idle_out(struct reader *reader, const json_t *root)
{
    struct ebb_without_idle *without = &reader->file->without_idle;
    bool left_out = false;
    enum ebb_status status = EBB_OK;
    if (json_object_get(root, "idle_left_out"))
        status = take_boolean(reader, root, "", "idle_left_out", &left_out);
    if (status || !left_out)
        return status;
    if (ebb__without_idle_init(reader->model, without) != EBB_OK)
        return ebb__fail_memory(reader->name,
                                reader->model->block_count * sizeof *reader->model->blocks,
                                reader->error);
    if (without->count)
        reader->model = &without->model;
    return EBB_OK;
}

enum ebb_status ebb__plan_file_read_memory(const void *bytes, size_t size, const char *name,
                                           const struct ebb_model *model,
                                           struct ebb_plan_file *file, struct ebb_error *error)
{
    struct reader reader = {name, model, file, error};
    memset(file, 0, sizeof *file);
    json_error_t where;
    json_t *root = json_loadb(bytes, size, JSON_REJECT_DUPLICATES, &where);
    if (!root)
        return ebb__fail(error, EBB_ERR_FORMAT, name, "line %d: %s", where.line, where.text);
    enum ebb_status status = leave_idle_out(&reader, root);
    if (!status)
        status = read_root(&reader, root);
    json_decref(root);
    if (status)
        ebb__plan_file_fini(file);
    return status;
}

enum ebb_status ebb__plan_file_read(const char *path, const struct ebb_model *model,
                                    struct ebb_plan_file *file, struct ebb_error *error)
{
    struct ebb_file_content content;
    memset(file, 0, sizeof *file);
    enum ebb_status status = ebb__file_read(path, "a plan", 0, NULL, &content, error);
    if (!status)
        status = ebb__plan_file_read_memory(content.bytes, content.size, path, model, file, error);
    free(content.bytes);
    return status;
}

void ebb__plan_file_fini(struct ebb_plan_file *file)
{
    ebb__plan_fini(&file->plan);
    ebb__huge_rounded_fini(&file->huge_rounded);
    ebb__without_idle_fini(&file->without_idle);
    memset(file, 0, sizeof *file);
}
