/* What `ebb compare` compares, read from its arguments. */
#include "choices.h"
#include "command.h"
#include "compare.h"
#include "output.h"
#include "planning.h"

#include <stdlib.h>
#include <string.h>

#define MOST_SLOWDOWNS 16 /* a limit: the table has a column for each */
#define MOST_SEEDS 1000   /* a limit: more would take days */

const struct ebb_usage ebb__usage_compare = {
    .command = "compare",
    .text =
        "usage: ebb compare FILE... [options]\n\n"
        "Plans each trace for each machine, budget and policy, checks and simulates each plan, and\n"
        "shows them side by side, with what no plan can do better (bound) and the distance from it\n"
        "(gap). Then come geometric means over several traces, and the plans that no other beats in\n"
        "both memory and time. Below is the memory that other allocators would have held for each\n"
        "trace (cnmem, torch, bfc, which is TensorFlow's, glibc), and what the pools need for its\n"
        "iteration. Policies that need layer marks are left out of a trace without them, unless\n"
        "--policies names them. Ctrl-C ends it and shows what is done.\n",
    .options = ebb__offline_options,
    .commands = EBB_OFFLINE_COMPARE,
    .tail =
        "example: ebb compare run.ebbt --budgets 60%,zero-stall --policies ebb,autoswap --plot p.svg\n",
    .operands = EBB_OPERANDS_FILES,
};

bool ebb__words_split(const char *text, ebb_words *words)
{
    char *copy = strdup(text);
    if (!copy)
        return false;
    bool ok = true;
    for (char *at = copy, *next; ok && at; at = next) {
        next = strchr(at, ',');
        if (next)
            *next++ = 0;
        ok = ebb_vec_push(words, at);
    }
    if (!ok && words->count == 0)
        free(copy);
    return ok;
}

void ebb__words_fini(ebb_words *words)
{
    if (words->count)
        free(words->items[0]);
    ebb_vec_free(words);
}

static int no_memory(void)
{
    struct ebb_error error;
    error.status = ebb__fail(&error, EBB_ERR_MEMORY, "", "no memory for the lists");
    error.remedy[0] = 0;
    return ebb__command_fail("compare", &error);
}

/* The functions below return -1 to continue, or the exit code. */

static int policies_choose(struct ebb_compare_list *list)
{
    ebb_words names = {0};
    const char *text = list->given.policies;
    bool ok = !text || ebb__words_split(text, &names);
    int code = -1;
    for (size_t i = 0; ok && code < 0 && i < names.count; i++) {
        const struct ebb_policy *policy = ebb__policy_choose("compare", names.items[i]);
        if (policy)
            ok = ebb_vec_push(&list->policies, policy);
        else
            code = ebb_status_exit_code(EBB_ERR_ARGUMENT);
    }
    for (size_t i = 0; ok && !text && ebb__policy_at(i); i++)
        ok = ebb_vec_push(&list->policies, ebb__policy_at(i));
    ebb__words_fini(&names);
    return ok ? code : no_memory();
}

static int pools_choose(struct ebb_compare_list *list)
{
    ebb_words names = {0};
    bool ok = !list->given.pools || ebb__words_split(list->given.pools, &names);
    int code = -1;
    for (size_t i = 0; ok && code < 0 && i < names.count; i++) {
        const struct ebb_pool *pool = ebb__pool_find(names.items[i]);
        if (pool)
            ok = ebb_vec_push(&list->pools, pool);
        else
            code = ebb__command_usage("compare", "no pool is called '%s'", names.items[i]);
    }
    ebb__words_fini(&names);
    return ok ? code : no_memory();
}

static int budgets_choose(struct ebb_compare_list *list)
{
    if (!list->given.budgets && list->given.plan_paths.count)
        return -1;
    const char *text = list->given.budgets ? list->given.budgets : EBB_DEFAULT_BUDGETS;
    if (!ebb__words_split(text, &list->budgets))
        return no_memory();
    uint64_t unused;
    for (size_t i = 0; i < list->budgets.count; i++) {
        const char *budget = list->budgets.items[i];
        if (strcmp(budget, EBB_ZERO_STALL) != 0 &&
            ebb__planning_budget(budget, 1, &unused, NULL) != EBB_OK)
            return ebb__command_usage("compare", "'%s' is no budget", budget);
    }
    return -1;
}

static int slowdowns_choose(struct ebb_compare_list *list)
{
    ebb_words words = {0};
    bool ok = !list->given.budget_at || ebb__words_split(list->given.budget_at, &words);
    int code = -1;
    for (size_t i = 0; ok && code < 0 && i < words.count; i++) {
        char *rest;
        double percent = strtod(words.items[i], &rest);
        if (rest == words.items[i] || *rest || !(percent >= 0) || percent > 10000 ||
            i == MOST_SLOWDOWNS)
            code = ebb__command_usage("compare", "'%s' is no list of percentages",
                                      list->given.budget_at);
        else
            ok = ebb_vec_push(&list->slowdowns, percent / 100);
    }
    ebb__words_fini(&words);
    return ok ? code : no_memory();
}

/* Two machines of one name could not be told apart in the results. */
static enum ebb_status add_machine(struct ebb_compare_list *list, const struct ebb_machine *machine,
                                   const char *spec, struct ebb_error *error)
{
    for (size_t i = 0; i < list->machines.count; i++)
        if (strcmp(list->machines.items[i].name, machine->name) == 0)
            return ebb__fail(error, EBB_ERR_ARGUMENT, spec, "another machine is called '%s', too",
                             machine->name);
    return ebb_vec_push(&list->machines, *machine)
               ? EBB_OK
               : ebb__fail(error, EBB_ERR_MEMORY, spec, "no memory for it");
}

static int machines_choose(struct ebb_compare_list *list)
{
    ebb_words specs = {0};
    struct ebb_error error = {0};
    if (!ebb__words_split(list->given.machine, &specs))
        return no_memory();
    enum ebb_status status = EBB_OK;
    for (size_t i = 0; !status && i < specs.count; i++) {
        struct ebb_machine machine;
        status = ebb__planning_machine(specs.items[i], list->given.store, &machine, &error);
        if (!status)
            status = add_machine(list, &machine, specs.items[i], &error);
    }
    ebb__words_fini(&specs);
    return status ? ebb__command_fail("compare", &error) : -1;
}

static int outputs_check(const struct ebb_offline *given)
{
    const char *const paths[] = {given->csv_path, given->plot_path};
    struct ebb_error error = {0};
    if (given->budget_at && (paths[0] || paths[1]))
        return ebb__command_usage("compare",
                                  "--at-slowdown has no %s: its results are text or JSON",
                                  paths[0] ? "--csv" : "--plot");
    for (int i = 0; i < 2; i++)
        if (paths[i] && ebb__output_check(paths[i], given->force, &error))
            return ebb__command_fail("compare", &error);
    if (paths[0] && paths[1] && strcmp(paths[0], paths[1]) == 0)
        return ebb__command_usage("compare", "--csv and --plot name the same file");
    return -1;
}

int ebb__compare_list_parse(int argc, char **argv, struct ebb_compare_list *list)
{
    *list = (struct ebb_compare_list){.given = {.machine = "host",
                                                .store = ".",
                                                .seeds = 1,
                                                .smallest_block_bytes = EBB_OFFLINE_TUNED}};
    int code = ebb__offline_parse(&ebb__usage_compare, argc, argv, &list->given);
    if (code >= 0)
        return code;
    if (optind == argc)
        return ebb__command_usage("compare", "no FILE given");
    if (list->given.seeds > MOST_SEEDS)
        return ebb__command_usage("compare", "--seeds: at most %d", MOST_SEEDS);
    list->files = argv + optind;
    list->file_count = (size_t)(argc - optind);
    int (*const steps[])(struct ebb_compare_list *) = {policies_choose, pools_choose,
                                                       budgets_choose, slowdowns_choose};
    for (size_t i = 0; code < 0 && i < sizeof steps / sizeof steps[0]; i++)
        code = steps[i](list);
    if (code < 0)
        code = outputs_check(&list->given);
    return code < 0 ? machines_choose(list) : code; /* measures, which takes seconds */
}

void ebb__compare_list_fini(struct ebb_compare_list *list)
{
    ebb_vec_free(&list->policies);
    ebb_vec_free(&list->pools);
    ebb_vec_free(&list->machines);
    ebb_vec_free(&list->slowdowns);
    ebb__words_fini(&list->budgets);
}
