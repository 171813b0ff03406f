/* `ebb pack`: finds addresses for blocks with known lifetimes. */
#include "base/file.h"
#include "base/size.h"
#include "check/check.h"
#include "check/packing.h"
#include "choices.h"
#include "command.h"
#include "interrupt.h"
#include "lab/check/residency.h"
#include "lab/pool/csv.h"
#include "lab/pool/model.h"
#include "load.h"
#include "offline.h"
#include "options.h"
#include "output.h"
#include "plan/file.h"
#include "progress.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXIT_TIME_OUT 4 /* neither a packing within the capacity nor a proof against one */
#define HEAD_BYTES ((size_t)4096) /* enough to see a header */

struct options {
    struct ebb_offline given;
    const char *file;
    const struct ebb_pool *pool;
};

/* The input, and the names of its buffers. */
struct input {
    struct ebb_pool_problem problem;
    struct ebb_file_content content;
    struct ebb_pool_csv csv;   /* if it is a CSV file */
    struct ebb_loaded loaded;  /* if it is a trace */
    struct ebb_plan_file plan; /* if it is a plan for the trace */
    struct ebb_pool_blocks blocks;
};

const struct ebb_usage ebb__usage_pack = {
    .command = "pack",
    .text =
        "usage: ebb pack FILE [options]\n\n"
        "Gives each block an address so that no two that live together overlap, and the whole is\n"
        "low. FILE is a CSV file with the columns id,lower,upper,size (lifetimes half open), or a\n"
        "trace: then the blocks of one iteration, which repeats.\n",
    .options = ebb__offline_options,
    .commands = EBB_OFFLINE_PACK,
    .tail = "exit: 0 packed; 3 proved impossible within the capacity; 4 out of time\n",
    .operands = EBB_OPERANDS_FILES,
};

/* Returns -1 to continue, or the exit code. */
static int options_parse(int argc, char **argv, struct options *options)
{
    *options = (struct options){
        .given = {.pool = ebb__pool_name(0), .capacity_bytes = EBB_POOL_NO_CAPACITY}};
    int code = ebb__offline_parse(&ebb__usage_pack, argc, argv, &options->given);
    if (code >= 0)
        return code;
    if (options->given.capacity_bytes == 0)
        return ebb__command_usage("pack", "--capacity: nothing fits into 0 bytes");
    options->pool = ebb__pool_find(options->given.pool);
    if (!options->pool)
        return ebb__command_usage("pack", "no pool is called '%s'", options->given.pool);
    if (optind + 1 != argc)
        return ebb__command_usage("pack", optind < argc ? "one FILE at a time" : "no FILE given");
    options->file = argv[optind];
    return -1;
}

/* ---- input ----------------------------------------------------------------------------------- */

/* Accepts an empty file: the parser rejects it with a better message. */
static bool accepts(const uint8_t *bytes, size_t size)
{
    return size == 0 || ebb__pool_csv_recognises(bytes, size);
}

/* Loads a plan. It must be valid and belong to this trace. */
static enum ebb_status plan_load(const char *path, const struct ebb_model *model,
                                 struct ebb_plan_file *file, struct ebb_error *error)
{
    enum ebb_status status = ebb__plan_file_read(path, model, file, error);
    if (status)
        return status;
    struct ebb_check_request check = {ebb__plan_file_model(file, model), &file->machine,
                                      file->plan.budget_bytes, file->page_bytes};
    status = ebb__check_plan(&check, &file->plan, error);
    if (status)
        ebb__error_set_remedy(error, "make the plan anew: ebb plan FILE -o PLAN");
    else if (file->plan.rules.share_count || file->plan.rules.keeps_all)
        status = ebb__fail(error, EBB_ERR_UNSUPPORTED, path,
                           "%s says itself which blocks share memory", file->plan.policy);
    return status;
}

static enum ebb_status trace_load(const struct options *options, struct input *input,
                                  struct ebb_error *error)
{
    enum ebb_load_needs needs = options->given.plan_path ? EBB_LOAD_ACCESSES : EBB_LOAD_MODEL;
    enum ebb_status status = ebb__load(options->file, needs, &input->loaded, error);
    if (status)
        return status;
    const struct ebb_model *model = &input->loaded.analysis.model;
    if (options->given.period)
        return ebb__fail(error, EBB_ERR_ARGUMENT, "--period", "a trace has its own, its iteration");
    if (options->given.plan_path)
        status = plan_load(options->given.plan_path, model, &input->plan, error);
    if (status)
        return status;
    struct ebb_pool_source source = {.model = ebb__plan_file_model(&input->plan, model),
                                     .absences = input->plan.plan.absences,
                                     .absence_count = input->plan.plan.absence_count,
                                     .page_bytes = input->plan.page_bytes,
                                     .unroll = options->pool->unrolls};
    status = ebb__pool_from_model(&source, &input->blocks, error);
    if (!status)
        status = ebb__check_residencies(&source, &input->blocks, error);
    input->problem.period = input->blocks.period;
    input->problem.count = input->blocks.count;
    input->problem.buffers = input->blocks.buffers;
    return status;
}

static enum ebb_status input_load(const struct options *options, struct input *input,
                                  struct ebb_error *error)
{
    *input = (struct input){.problem = {.period = options->given.period,
                                        .capacity_bytes = options->given.capacity_bytes,
                                        .time_limit_ns = options->given.time_limit_ns,
                                        .stop = ebb__interrupt_flag()}};
    enum ebb_status status = ebb__file_read(options->file, "a packing problem", HEAD_BYTES, accepts,
                                            &input->content, error);
    if (status == EBB_ERR_FORMAT)
        return trace_load(options, input, error);
    if (!status && options->given.plan_path)
        return ebb__fail(error, EBB_ERR_ARGUMENT, "--plan", "is for traces, not for a CSV file");
    if (!status)
        status = ebb__pool_csv_parse(input->content.bytes, input->content.size, options->file,
                                     options->given.period, &input->csv, error);
    if (status == EBB_ERR_FORMAT)
        ebb__error_set_remedy(error, "columns are id,lower,upper,size; lifetimes [lower, upper)");
    input->problem.buffers = input->csv.buffers;
    input->problem.count = input->csv.count;
    return status;
}

static void input_fini(struct input *input)
{
    ebb__pool_csv_fini(&input->csv);
    ebb__plan_file_fini(&input->plan);
    ebb__load_fini(&input->loaded);
    free(input->content.bytes);
    ebb__pool_blocks_fini(&input->blocks);
}

static void name_print(FILE *out, const struct input *input, uint32_t buffer)
{
    if (!input->blocks.names) {
        const struct ebb_text *id = &input->csv.ids[buffer];
        fwrite(id->at, 1, id->size, out);
        return;
    }
    const struct ebb_pool_name *name = &input->blocks.names[buffer];
    const struct ebb_model_block *block = &input->loaded.analysis.model.blocks[name->block];
    fprintf(out, "%" PRIu64, block->serial);
    if (block->part_count)
        fprintf(out, "/%" PRIu32, block->part_first);
    if (name->number)
        fprintf(out, ".%" PRIu32, name->number);
}

/* A single buffer that is too large is probably an error in the input, so its name is printed. */
static enum ebb_status capacity_check(const struct options *options, const struct input *input,
                                      struct ebb_error *error)
{
    char shown[32], size[32], capacity[32];
    for (uint32_t i = 0; i < input->problem.count; i++) {
        if (input->problem.buffers[i].size_bytes <= options->given.capacity_bytes)
            continue;
        ebb_size_format(input->problem.buffers[i].size_bytes, size, sizeof size);
        ebb_size_format(options->given.capacity_bytes, capacity, sizeof capacity);
        if (input->blocks.names)
            ebb__fail(error, EBB_INFEASIBLE, options->file,
                      "a block of %s is larger than the capacity of %s", size, capacity);
        else
            ebb__fail(error, EBB_INFEASIBLE, options->file,
                      "line %" PRIu64 ": buffer '%s' of %s is larger than the capacity of %s",
                      input->csv.lines[i], ebb__text_show(input->csv.ids[i], shown), size,
                      capacity);
        ebb__error_set_remedy(error, "give --capacity at least the largest buffer, or none");
        return EBB_INFEASIBLE;
    }
    return EBB_OK;
}

/* ---- output ---------------------------------------------------------------------------------- */

static enum ebb_status csv_write(const struct ebb_offline *given, const struct input *input,
                                 const struct ebb_pool_solution *solution, struct ebb_error *error)
{
    struct ebb_output output;
    enum ebb_status status = ebb__output_open(given->out_path, &output, error);
    if (status)
        return status;
    fputs("id,lower,upper,size,offset\n", output.stream);
    for (uint32_t i = 0; i < solution->count; i++) {
        const struct ebb_pool_buffer *item = &input->problem.buffers[i];
        name_print(output.stream, input, i);
        fprintf(output.stream, ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 "\n", item->lower,
                item->upper, item->size_bytes, solution->offsets[i]);
    }
    return ebb__output_close(&output, given->force, error);
}

/* For one iteration on the circle, blocks may have a lower load than their buffers, which exist for
 * longer. */
static uint64_t load_of(const struct input *input, const struct ebb_pool_solution *solution)
{
    return input->blocks.names ? input->blocks.load_bytes : solution->load_bytes;
}

static bool print_json(const struct input *input, const struct ebb_pool_solution *solution)
{
    json_t *root = json_pack(
        "{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:b, s:b, s:b, s:I}", "schema", "ebb.pack/1", "pool",
        solution->pool, "buffers", (json_int_t)solution->count, "iterations",
        (json_int_t)input->blocks.iterations, "load_bytes", (json_int_t)load_of(input, solution),
        "height_bytes", (json_int_t)solution->height_bytes, "lower_bound_bytes",
        (json_int_t)solution->lower_bound_bytes, "optimal", solution->optimal, "feasible",
        solution->capacity == EBB_POOL_CAPACITY_MET, "infeasible",
        solution->capacity == EBB_POOL_CAPACITY_IMPOSSIBLE, "solve_ns",
        (json_int_t)solution->solve_ns);
    bool ok = root != NULL;
    if (ok && input->plan.page_bytes)
        ok = json_object_set_new(root, "plan_peak_bytes",
                                 json_integer((json_int_t)input->plan.plan.peak_bytes)) == 0;
    ok = ok && json_dumpf(root, stdout, JSON_INDENT(2)) == 0 && putchar('\n') != EOF;
    json_decref(root);
    return ok;
}

static void print_text(const struct input *input, const struct ebb_pool_solution *solution)
{
    char text[32];
    printf("pool      %s, %" PRIu32 " buffers, solved in %s\n", solution->pool, solution->count,
           ebb_duration_format(solution->solve_ns, text, sizeof text));
    printf("height    %" PRIu64 " bytes (%s)%s\n", solution->height_bytes,
           ebb_size_format(solution->height_bytes, text, sizeof text),
           solution->optimal ? ": no packing is lower" : "");
    printf("load      %" PRIu64 " bytes: the height is %.6f times that\n", load_of(input, solution),
           (double)solution->height_bytes / (double)load_of(input, solution));
    if (input->plan.page_bytes)
        printf("plan      %" PRIu64 " bytes at its peak: the height is %.6f times that\n",
               input->plan.plan.peak_bytes,
               (double)solution->height_bytes / (double)input->plan.plan.peak_bytes);
    if (!solution->optimal)
        printf("bound     %" PRIu64 " bytes: no packing is lower\n", solution->lower_bound_bytes);
    if (ebb__interrupt_seen())
        printf("interrupted the best packing so far; a longer search may find a lower one\n");
    if (solution->capacity == EBB_POOL_CAPACITY_IMPOSSIBLE)
        printf("capacity  no packing is within it: proved\n");
    else if (solution->capacity == EBB_POOL_CAPACITY_OPEN)
        printf("capacity  not reached in time; whether it can be is open\n");
}

static int exit_code_of(enum ebb_pool_capacity capacity)
{
    switch (capacity) {
    case EBB_POOL_CAPACITY_MET:
        return 0;
    case EBB_POOL_CAPACITY_IMPOSSIBLE:
        return ebb_status_exit_code(EBB_INFEASIBLE);
    default:
        return EXIT_TIME_OUT;
    }
}

static enum ebb_status pack(const struct options *options, const struct input *input,
                            int *exit_code, struct ebb_error *error)
{
    struct ebb_pool_solution solution;
    ebb__progress_say("packing with %s (Ctrl-C: the best so far)", options->pool->name);
    ebb__interrupt_expect();
    enum ebb_status status = ebb__pool_solve_by(options->pool, &input->problem, &solution, error);
    if (!status)
        status = ebb__check_packing(&input->problem, &solution, error);
    ebb__progress_end();
    if (!status && options->given.out_path)
        status = csv_write(&options->given, input, &solution, error);
    if (!status) {
        bool written = true;
        if (options->given.json)
            written = print_json(input, &solution);
        else
            print_text(input, &solution);
        status = ebb__output_flush(written, error);
        *exit_code = exit_code_of(solution.capacity);
    }
    ebb__pool_solution_fini(&solution);
    return status;
}

int ebb__cmd_pack(int argc, char **argv)
{
    struct options options;
    int exit_code = options_parse(argc, argv, &options);
    if (exit_code >= 0)
        return exit_code;
    struct ebb_error error = {0};
    struct input input;
    const struct ebb_offline *given = &options.given;
    if (given->out_path && ebb__output_check(given->out_path, given->force, &error))
        return ebb__command_fail("pack", &error);
    ebb__progress_begin("pack");
    ebb__progress_say("reading %s", options.file);
    enum ebb_status status = input_load(&options, &input, &error);
    if (!status)
        status = capacity_check(&options, &input, &error);
    if (!status)
        status = pack(&options, &input, &exit_code, &error);
    input_fini(&input);
    if (status)
        return ebb__command_fail("pack", &error);
    ebb__interrupt_die();
    return exit_code;
}
