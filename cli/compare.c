/* `ebb compare`: every policy with every budget on the same models and machines, and what other
 * allocators would have held. */
#include "compare.h"
#include "budget_at.h"
#include "command.h"
#include "compare_tiers.h"
#include "interrupt.h"
#include "output.h"
#include "progress.h"

static enum ebb_status write_csv(const struct ebb_comparison *comparison, struct ebb_error *error)
{
    const struct ebb_offline *given = &comparison->list->given;
    struct ebb_output output;
    if (!given->csv_path)
        return EBB_OK;
    enum ebb_status status = ebb__output_open(given->csv_path, &output, error);
    if (status)
        return status;
    ebb__compare_write_csv(comparison, output.stream);
    return ebb__output_close(&output, given->force, error);
}

static enum ebb_status write_plot(const struct ebb_comparison *comparison, struct ebb_error *error)
{
    const struct ebb_offline *given = &comparison->list->given;
    struct ebb_output output;
    if (!given->plot_path)
        return EBB_OK;
    enum ebb_status status = ebb__output_open(given->plot_path, &output, error);
    if (status)
        return status;
    status = ebb__compare_write_plot(comparison, output.stream, error);
    if (!status)
        return ebb__output_close(&output, given->force, error);
    ebb__output_discard(&output);
    return status;
}

static enum ebb_status print(const struct ebb_comparison *comparison, struct ebb_error *error)
{
    enum ebb_status status = comparison->list->given.json
                                 ? ebb__compare_print_json(comparison, error)
                                 : ebb__compare_print(comparison, error);
    return status ? status : ebb__output_flush(true, error);
}

/* Files come first: what standard output says may be lost, and they are what takes hours. */
static enum ebb_status show(const struct ebb_comparison *comparison, struct ebb_error *error)
{
    enum ebb_status status = write_csv(comparison, error);
    if (!status)
        status = write_plot(comparison, error);
    return status ? status : print(comparison, error);
}

/* True if the user asks for tiers, which have options of their own. */
static bool asks_for_tiers(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strncmp(argv[i], "--tiers", strlen("--tiers")) == 0)
            return true;
    return false;
}

int ebb__cmd_compare(int argc, char **argv)
{
    if (asks_for_tiers(argc, argv))
        return ebb__compare_tiers(argc, argv);
    struct ebb_compare_list list;
    struct ebb_comparison comparison = {.list = &list};
    struct ebb_error error = {0};
    int exit_code = ebb__compare_list_parse(argc, argv, &list);
    if (exit_code < 0 && list.slowdowns.count) {
        exit_code = ebb__budget_at(&list);
    } else if (exit_code < 0) {
        ebb__interrupt_expect();
        ebb__progress_begin("compare");
        enum ebb_status status = ebb__compare_load(&comparison, &error);
        if (!status)
            status = ebb__compare_plan(&comparison, &error);
        ebb__progress_end();
        if (!status)
            status = show(&comparison, &error);
        if (comparison.interrupted)
            fprintf(stderr, "ebb: compare: interrupted: only the first %zu plans are shown\n",
                    comparison.rows.count);
        exit_code = status ? ebb__command_fail("compare", &error) : 0;
    }
    ebb__comparison_fini(&comparison);
    ebb__compare_list_fini(&list);
    if (comparison.interrupted)
        ebb__interrupt_die();
    return exit_code;
}
