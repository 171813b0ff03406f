/* Replaces lab.c and the commands for comparison in a build without src/lab. */
#include "base/file.h"
#include "command.h"
#include "lab.h"
#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool ebb__lab_is_here(void)
{
    return false;
}

const struct ebb_policy *ebb__lab_policies(size_t *count)
{
    *count = 0;
    return NULL;
}

const struct ebb_pool *ebb__lab_pools(size_t *count)
{
    *count = 0;
    return NULL;
}

enum ebb_status ebb__lab_trace_open(const char *path, struct ebb_trace *trace,
                                    struct ebb_error *error)
{
    struct ebb_file_content content;
    memset(trace, 0, sizeof *trace);
    enum ebb_status status = ebb__file_read(path, "a trace", 0, NULL, &content, error);
    if (!status && !content.size) {
        status = ebb__fail(error, EBB_ERR_FORMAT, path, "is empty, no trace");
    } else if (!status && !ebb__trace_recognises(content.bytes, content.size)) {
        status = ebb__fail(error, EBB_ERR_FORMAT, path, "not an Ebb trace");
        ebb__error_set_remedy(error, "no trace of another tool is read: " EBB_NO_LAB);
    } else if (!status) {
        status = ebb__trace_read_memory(content.bytes, content.size, path, trace, error);
    }
    free(content.bytes);
    return status;
}

enum ebb_status ebb__lab_bounds(const struct ebb_plan_request *request, const struct ebb_plan *plan,
                                bool zero_stall, struct ebb_bounds *bounds, struct ebb_error *error)
{
    (void)request;
    (void)plan;
    (void)zero_stall;
    (void)error;
    *bounds = (struct ebb_bounds){0};
    return EBB_OK;
}

const struct ebb_usage ebb__usage_compare, ebb__usage_pack, ebb__usage_import;

static int refuse(const char *command)
{
    fprintf(stderr, "ebb: %s: " EBB_NO_LAB "\n", command);
    return 2;
}

int ebb__cmd_compare(int argc, char **argv)
{
    (void)argc;
    return refuse(argv[0]);
}

int ebb__cmd_pack(int argc, char **argv)
{
    (void)argc;
    return refuse(argv[0]);
}

int ebb__cmd_import(int argc, char **argv)
{
    (void)argc;
    return refuse(argv[0]);
}
