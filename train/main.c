/* ebb-train: trains a network within a memory budget, as a user of Ebb's public interface. */
#include "train/base/fail.h"
#include "train/base/size.h"
#include "train/exec/exec.h"
#include "train/exec/persist.h"
#include "train/options.h"
#include "train/report.h"
#include "train/tiers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Usual values for images: Krizhevsky and others, 2012. */
#define MOMENTUM 0.9f
#define SGD_DECAY 5e-4f
#define ADAM_DECAY 0.01f /* of AdamW: Loshchilov, Hutter, 2019 */

struct session {
    struct ebb_train_options options;
    struct ebb_net *net;
    struct ebb_data *data;
    struct ebb_exec *exec;
    struct ebb_context *context;   /* NULL: with two tiers */
    struct ebb_train_tiers *tiers; /* NULL: with a context */
    uint64_t iterations;           /* stop when so many are done */
    struct ebb_train_figures figures;
};

static double now_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* --- set-up ----------------------------------------------------------------------------------- */

static enum ebb_status make_net(struct session *session, struct ebb_error *error)
{
    const struct ebb_train_options *options = &session->options;
    struct ebb_net_options shape = options->shape;
    if (options->data == EBB_DATA_FASHION) {
        shape.size = 28;
        shape.channels = 1;
        shape.classes = 10;
    }
    enum ebb_status status = ebb__net_named(options->net, &shape, &session->net, error);
    if (status)
        return status;
    const struct ebb_net_options *chosen = &session->net->options;
    struct ebb_data_options data = {.kind = options->data,
                                    .batch = chosen->batch,
                                    .channels = chosen->channels,
                                    .size = chosen->size,
                                    .classes = chosen->classes,
                                    .seed = options->seed};
    status = ebb__data_open(&data, &session->data, error);
    session->iterations = options->iterations;
    if (!status && options->epochs)
        session->iterations = options->epochs * ebb__data_epoch_batches(session->data);
    return status;
}

static enum ebb_status make_exec(struct session *session, struct ebb_error *error)
{
    const struct ebb_train_options *options = &session->options;
    struct ebb_exec_options exec = {.mode = options->mode,
                                    .optimizer = options->optimizer,
                                    .rate = options->rate,
                                    .halving_iterations = options->halving_iterations,
                                    .momentum = MOMENTUM,
                                    .decay = options->optimizer == EBB_OPTIMIZER_SGD ? SGD_DECAY
                                                                                     : ADAM_DECAY,
                                    .seed = options->seed};
    enum ebb_status status =
        ebb__exec_create(session->net, session->data, &exec, &session->exec, error);
    struct ebb_train_figures *figures = &session->figures;
    if (!status)
        status = ebb__exec_static_bytes(session->exec, &figures->static_peak_bytes, error);
    if (status)
        return status;
    figures->net = session->net->name;
    figures->policy = options->policy;
    figures->batch = session->net->options.batch;
    figures->parameters = ebb__net_parameter_values(session->net);
    figures->live_peak_bytes = session->exec->train.peak_bytes;
    figures->test_accuracy = -1;
    return EBB_OK;
}

/* What one layer uses at the same time must be there at the same time. Ebb would find this out,
 * too, but cannot name the layer. */
static enum ebb_status check_budget(const struct session *session, uint64_t budget_bytes,
                                    struct ebb_error *error)
{
    const struct ebb_schedule *train = &session->exec->train;
    if (!budget_bytes || budget_bytes >= train->working_bytes)
        return EBB_OK;
    char given[32], needed[32];
    enum ebb_status status =
        ebb__train_fail(error, EBB_INFEASIBLE, "--budget", "%s is less than %s uses at once: %s",
                        ebb__train_size_format(budget_bytes, given, sizeof given),
                        session->net->layers[train->working_layer].name,
                        ebb__train_size_format(train->working_bytes, needed, sizeof needed));
    ebb__train_remedy(error, "the smallest feasible budget is at least %llu bytes",
                      (unsigned long long)train->working_bytes);
    return status;
}

static enum ebb_status make_context(struct session *session, struct ebb_error *error)
{
    const struct ebb_train_options *options = &session->options;
    uint64_t budget_bytes = options->budget_bytes;
    if (options->budget_share > 0)
        budget_bytes = (uint64_t)(options->budget_share * (double)session->exec->train.peak_bytes);
    enum ebb_status status = check_budget(session, budget_bytes, error);
    if (status)
        return status;
    struct ebb_options context = {.budget_bytes = budget_bytes,
                                  .store = options->store,
                                  .machine = options->machine,
                                  .no_plan = options->mode != EBB_MODE_EBB};
    status = ebb_context_create(&context, &session->context, error);
    if (!status && options->record)
        status = ebb_record(session->context, options->record, error);
    if (!status)
        status = ebb__exec_attach(session->exec, session->context, error);
    return status;
}

static enum ebb_status make_tiers(struct session *session, struct ebb_error *error)
{
    const struct ebb_train_options *options = &session->options;
    struct ebb_tier_program_options tiers = {.policy = options->policy,
                                             .machine = options->machine,
                                             .place = options->store,
                                             .share = options->tiers_share,
                                             .throttle = options->throttle};
    session->figures.has_tiers = true;
    return ebb__train_tiers_open(session->exec, &tiers, &session->tiers, error);
}

static struct ebb_checkpoint_head head_of(const struct session *session)
{
    const struct ebb_net_options *shape = &session->net->options;
    struct ebb_checkpoint_head head = {.batch = shape->batch,
                                       .size = shape->size,
                                       .channels = shape->channels,
                                       .classes = shape->classes,
                                       .data = session->options.data,
                                       .optimizer = session->options.optimizer,
                                       .seed = session->options.seed,
                                       .iteration = session->exec->iteration};
    snprintf(head.net, sizeof head.net, "%s", session->net->name);
    return head;
}

static enum ebb_status begin(struct session *session, struct ebb_error *error)
{
    enum ebb_status status = ebb__exec_dry_run(session->exec, error);
    if (!status)
        status = ebb__exec_begin(session->exec, error);
    if (status || !session->options.resume)
        return status;
    struct ebb_checkpoint_head head = head_of(session);
    struct ebb_checkpoint_tensors tensors = ebb__exec_persistent(session->exec);
    status = ebb__checkpoint_load(session->options.resume, &head, &tensors, error);
    if (!status)
        session->exec->iteration = session->figures.first_iteration = head.iteration;
    return status;
}

/* --- training --------------------------------------------------------------------------------- */

static enum ebb_status save(struct session *session, struct ebb_error *error)
{
    struct ebb_checkpoint_head head = head_of(session);
    struct ebb_checkpoint_tensors tensors = ebb__exec_persistent(session->exec);
    return ebb__checkpoint_save(session->options.checkpoint, &head, &tensors, error);
}

/* The figures of what holds the tensors. */
static void look(struct session *session)
{
    if (session->tiers)
        ebb__train_tiers_figures(session->tiers, &session->figures.tiers);
    else
        ebb_statistics(session->context, &session->figures.statistics);
}

static enum ebb_status iterate(struct session *session, struct ebb_error *error)
{
    struct ebb_train_figures *figures = &session->figures;
    struct ebb_exec_result result;
    double begun = now_seconds();
    enum ebb_status status = ebb__exec_iterate(session->exec, &result, error);
    double seconds = now_seconds() - begun;
    if (status)
        return status;
    if (!ebb__list_push(&figures->losses, result.loss) ||
        !ebb__list_push(&figures->seconds, seconds))
        return ebb__train_fail_memory(error, "the list of losses");
    look(session);
    if (!session->options.is_quiet)
        ebb__report_progress(figures, session->iterations);
    return EBB_OK;
}

static enum ebb_status train(struct session *session, struct ebb_error *error)
{
    const struct ebb_train_options *options = &session->options;
    struct ebb_exec *exec = session->exec;
    uint64_t saved_at = UINT64_MAX;
    enum ebb_status status = EBB_OK;
    while (!status && exec->iteration < session->iterations) {
        status = iterate(session, error);
        uint64_t every = options->checkpoint_iterations;
        if (!status && every && exec->iteration % every == 0) {
            status = save(session, error);
            saved_at = exec->iteration;
        }
    }
    /* Those of the training: a test uses other tensors. */
    look(session);
    if (!options->is_quiet && session->figures.losses.count)
        ebb__report_progress_end();
    if (!status && options->checkpoint && saved_at != exec->iteration)
        status = save(session, error);
    return status;
}

static enum ebb_status test(struct session *session, struct ebb_error *error)
{
    /* On two tiers there is no plan for a test. */
    uint64_t batches = session->tiers ? 0 : ebb__data_test_batches(session->data), correct = 0;
    enum ebb_status status = EBB_OK;
    for (uint64_t b = 0; !status && b < batches; b++) {
        struct ebb_exec_result result = {0};
        status = ebb__exec_evaluate(session->exec, b, &result, error);
        correct += (uint64_t)result.correct;
    }
    if (!status && batches)
        session->figures.test_accuracy =
            (double)correct / (double)ebb__data_test_count(session->data);
    return status;
}

static enum ebb_status run(struct session *session, struct ebb_error *error)
{
    enum ebb_status status = make_net(session, error);
    if (!status)
        status = make_exec(session, error);
    if (!status)
        status = session->options.tiers_share > 0 ? make_tiers(session, error)
                                                  : make_context(session, error);
    if (!status)
        status = begin(session, error);
    if (!status)
        status = train(session, error);
    if (!status)
        status = test(session, error);
    if (status)
        return status;
    look(session);
    if (session->options.summary)
        status = ebb__report_json(&session->figures, session->options.summary, error);
    bool is_json = session->options.summary && strcmp(session->options.summary, "-") == 0;
    if (!status && !session->options.is_quiet && !is_json)
        ebb__report_text(&session->figures);
    return status;
}

static void fini(struct session *session)
{
    ebb__exec_destroy(session->exec);
    ebb__train_tiers_close(session->tiers);
    ebb_context_destroy(session->context);
    ebb__data_close(session->data);
    ebb__net_destroy(session->net);
    ebb__list_free(&session->figures.losses);
    ebb__list_free(&session->figures.seconds);
}

static int fail(const struct ebb_error *error)
{
    fprintf(stderr, "ebb-train: %s%s%s\n", error->what, *error->what ? ": " : "",
            *error->why ? error->why : ebb_status_text(error->status));
    if (*error->remedy)
        fprintf(stderr, "ebb-train: %s\n", error->remedy);
    return ebb_status_exit_code(error->status);
}

/* Threads of OpenMP spin while they wait, and take the processors from the transfers. OpenMP reads
 * its environment when it is loaded, so the program starts itself anew. */
static void wait_without_spinning(char **argv)
{
    if (getenv("OMP_WAIT_POLICY") || setenv("OMP_WAIT_POLICY", "passive", 1) != 0)
        return;
    execv("/proc/self/exe", argv); /* if that fails, transfers are slower */
}

int main(int argc, char **argv)
{
    wait_without_spinning(argv);
    struct session session = {0};
    struct ebb_error error = {0};
    enum ebb_status status = ebb__train_options(argc, argv, &session.options, &error);
    if (!status && session.options.wants_help) {
        ebb__train_help(stdout);
        return 0;
    }
    if (!status && session.options.wants_version) {
        printf("ebb-train %s\n", EBB_VERSION);
        return 0;
    }
    if (!status)
        status = run(&session, &error);
    fini(&session);
    error.status = status;
    return status ? fail(&error) : 0;
}
