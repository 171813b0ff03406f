#include "top.h"

#include "base/size.h"
#include "device/support.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#define BAR_COLUMNS 20
#define LEAST_COLUMNS 60

/* Prints one line, cut to the width. */
EBB_PRINTF(3, 4)
static void put(FILE *out, int columns, const char *format, ...)
{
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    fprintf(out, "%.*s\n", columns, line);
}

/* A command as a terminal may show it. */
static void make_safe(const char *text, char *out, size_t bytes)
{
    size_t i = 0;
    for (; text[i] && i + 1 < bytes; i++)
        out[i] = (unsigned char)text[i] < 32 || text[i] == 127 ? '?' : text[i];
    out[i] = 0;
}

static void put_resident(const struct ebb_status_packet *run, int columns, FILE *out)
{
    char held[32], budget[32], peak[32], bar[BAR_COLUMNS + 1];
    const struct ebb_status_figures *figures = &run->figures;
    bool limited = run->budget_bytes != UINT64_MAX;
    uint64_t of = limited ? run->budget_bytes : figures->peak_bytes;
    double share = of ? (double)figures->held_bytes / (double)of : 0;
    int full = (int)((share > 1 ? 1 : share) * BAR_COLUMNS + 0.5);
    memset(bar, '-', BAR_COLUMNS);
    memset(bar, '#', (size_t)full);
    bar[BAR_COLUMNS] = 0;
    ebb_size_format(figures->held_bytes, held, sizeof held);
    ebb_size_format(run->budget_bytes, budget, sizeof budget);
    ebb_size_format(figures->peak_bytes, peak, sizeof peak);
    put(out, columns, "  resident   [%s] %s of %s; peak %s%s", bar, held,
        limited ? budget : "no budget", peak,
        figures->over_bytes ? "; THE BUDGET WAS EXCEEDED" : "");
}

static void put_run(const struct ebb_top_run *shown, int columns, FILE *out)
{
    char a[32], b[32], command[256];
    const struct ebb_status_packet *run = &shown->now;
    const struct ebb_status_figures *figures = &run->figures;
    const struct ebb_top_rates *rates = &shown->rates;
    make_safe(run->command, command, sizeof command);
    put(out, columns, "%-7d %s", run->process_id, command);
    put_resident(run, columns, out);
    put(out, columns, "  mode       %s; policy %s; device %s; processes: %" PRIu32 "; runs for %s",
        run->mode, run->policy, ebb__device_name((enum ebb_device_kind)run->device_kind),
        run->processes, ebb_duration_format(run->now_ns - run->started_ns, a, sizeof a));
    put(out, columns, "  iteration  %" PRIu64 ", %" PRIu64 " of them planned; the last took %s",
        figures->iterations, figures->planned,
        figures->last_iteration_ns ? ebb_duration_format(figures->last_iteration_ns, a, sizeof a)
                                   : "an unknown time");
    if (rates->known)
        put(out, columns, "  lanes      out %s/s, busy %.0f %%; in %s/s, busy %.0f %%",
            ebb_size_format((uint64_t)rates->out_bps, a, sizeof a), 100 * rates->out_busy,
            ebb_size_format((uint64_t)rates->in_bps, b, sizeof b), 100 * rates->in_busy);
    else
        put(out, columns, "  lanes      out %s, in %s so far",
            ebb_size_format(figures->out_bytes, a, sizeof a),
            ebb_size_format(figures->in_bytes, b, sizeof b));
    char share[32] = "";
    if (rates->known)
        snprintf(share, sizeof share, "%.1f %% of the time; ", 100 * rates->stall);
    put(out, columns, "  stalls     %s%s so far; demand faults: %" PRIu64, share,
        ebb_duration_format(figures->stall_ns, a, sizeof a), figures->demand_faults);
}

void ebb__top_text(const struct ebb_top *top, int columns, FILE *out)
{
    if (columns < LEAST_COLUMNS)
        columns = LEAST_COLUMNS;
    if (!top->count)
        put(out, columns, "no program runs under Ebb%s", top->hidden ? " that you may see" : "");
    for (size_t i = 0; i < top->count; i++) {
        if (i)
            putc('\n', out);
        put_run(&top->runs[i], columns, out);
    }
    if (top->hidden)
        put(out, columns, "runs of other users, of another version of Ebb, or busy: %zu",
            top->hidden);
}
