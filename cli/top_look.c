#include "top.h"

#include "report/escape.h"

#include <string.h>

static struct ebb_top_rates rates_of(const struct ebb_status_packet *before,
                                     const struct ebb_status_packet *now)
{
    const struct ebb_status_figures *old = &before->figures, *new = &now->figures;
    if (before->started_ns != now->started_ns || now->now_ns <= before->now_ns)
        return (struct ebb_top_rates){0};
    double ns = (double)(now->now_ns - before->now_ns);
    return (struct ebb_top_rates){
        .known = true,
        .out_bps = (double)(new->out_bytes - old->out_bytes) * 1e9 / ns,
        .in_bps = (double)(new->in_bytes - old->in_bytes) * 1e9 / ns,
        .out_busy = (double)(new->out_busy_ns - old->out_busy_ns) / ns,
        .in_busy = (double)(new->in_busy_ns - old->in_busy_ns) / ns,
        .stall = (double)(new->stall_ns - old->stall_ns) / ns,
    };
}

static const struct ebb_top_run *find(const struct ebb_top *top, int process_id)
{
    for (size_t i = 0; i < top->count; i++)
        if (top->runs[i].now.process_id == process_id)
            return &top->runs[i];
    return NULL;
}

static bool is_wanted(const struct ebb_top *top, const struct ebb_status_packet *packet)
{
    return !top->only || packet->process_id == top->only || packet->main_process_id == top->only;
}

static void sort(int *ids, size_t count)
{
    for (size_t i = 1; i < count; i++)
        for (size_t at = i; at && ids[at - 1] > ids[at]; at--) {
            int id = ids[at];
            ids[at] = ids[at - 1];
            ids[at - 1] = id;
        }
}

enum ebb_status ebb__top_look(struct ebb_top *top, struct ebb_error *error)
{
    static struct ebb_top before; /* too large for a stack; its contents end with the call */
    int ids[EBB_TOP_MOST_RUNS];
    size_t count;
    enum ebb_status status = ebb__status_list(ids, EBB_TOP_MOST_RUNS, &count, error);
    if (status)
        return status;
    sort(ids, count);
    memcpy(&before, top, sizeof before);
    top->count = top->hidden = 0;
    top->silent = (struct ebb_error){0};
    for (size_t i = 0; i < count; i++) {
        struct ebb_top_run run = {0};
        struct ebb_error silent;
        if (ebb__status_ask(ids[i], &run.now, &silent) != EBB_OK) {
            top->hidden++;
            if (ids[i] == top->only)
                top->silent = silent;
            continue;
        }
        ebb__escape_utf8(run.now.command);
        const struct ebb_top_run *old = find(&before, ids[i]);
        if (old)
            run.rates = rates_of(&old->now, &run.now);
        if (is_wanted(top, &run.now))
            top->runs[top->count++] = run;
    }
    return EBB_OK;
}
