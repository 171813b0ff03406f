/* The picture of `ebb compare --tiers`: a panel for each trace and machine, slow-down in percent
 * by share of fast memory. The vertical axis is asinh(percent): linear below 1 %, then
 * logarithmic. */
#include "compare_tiers.h"

#include <math.h>
#include <string.h>

#define WIDTH 420
#define HEIGHT 260
#define LEFT 60
#define TOP 36
#define BOTTOM 40
#define LEGEND 200
#define MOST_POLICIES 16

/* As in compare_plot.c. */
static const char *const colours[] = {"#d55e00", "#0072b2", "#009e73", "#cc79a7",
                                      "#56b4e9", "#8c6d1f", "#000000", "#7f7f7f"};
#define COLOURS (sizeof colours / sizeof colours[0])

struct plot {
    const struct ebb_tiers_comparison *comparison;
    FILE *out;
    const char *policies[MOST_POLICIES];
    size_t policy_count;
    double most; /* percent */
};

static double percent(const struct ebb_tiers_row *row)
{
    return row->slowdown > 1 ? 100 * (row->slowdown - 1) : 0;
}

static double x_of(const struct plot *plot, const struct ebb_tiers_row *row)
{
    const struct ebb_tiers_trace *trace = &plot->comparison->traces.items[row->trace];
    double share = (double)row->budget_bytes / (double)trace->peak_bytes;
    return LEFT + share * (WIDTH - LEFT - 20);
}

static double y_of(const struct plot *plot, double value)
{
    return HEIGHT - BOTTOM - asinh(value) / asinh(plot->most) * (HEIGHT - BOTTOM - TOP);
}

static void plot_init(struct plot *plot)
{
    plot->most = 1;
    for (size_t i = 0; i < plot->comparison->rows.count; i++) {
        const struct ebb_tiers_row *row = &plot->comparison->rows.items[i];
        size_t p = 0;
        if (row->made)
            plot->most = fmax(plot->most, percent(row));
        while (p < plot->policy_count && strcmp(plot->policies[p], row->policy) != 0)
            p++;
        if (p == plot->policy_count && p < MOST_POLICIES)
            plot->policies[plot->policy_count++] = row->policy;
    }
}

static void axes_write(const struct plot *plot, uint32_t trace)
{
    const struct ebb_tiers_trace *of = &plot->comparison->traces.items[trace];
    fprintf(plot->out, "<text x=\"%d\" y=\"20\" font-weight=\"bold\">", LEFT);
    for (const char *at = of->name; *at; at++)
        if (strchr("&<>\"", *at))
            fprintf(plot->out, "&#%d;", *at);
        else
            putc(*at, plot->out);
    fprintf(plot->out, ", %.31s</text>\n", of->machine.name);
    for (double value = 0; value <= plot->most; value = value > 0 ? 10 * value : 1) {
        double y = y_of(plot, value);
        fprintf(plot->out,
                "<path d=\"M%d %.1fH%d\" stroke=\"#ddd\"/><text x=\"%d\" y=\"%.1f\" "
                "text-anchor=\"end\">%g %%</text>\n",
                LEFT, y, WIDTH - 20, LEFT - 6, y + 4, value);
    }
    for (int share = 0; share <= 100; share += 25)
        fprintf(plot->out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%d %%</text>\n",
                LEFT + share / 100.0 * (WIDTH - LEFT - 20), HEIGHT - BOTTOM + 18, share);
}

static void series_write(const struct plot *plot, uint32_t trace, size_t policy)
{
    const char *colour = colours[policy % COLOURS];
    bool drawn = false;
    fprintf(plot->out, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"2\" %sd=\"", colour,
            policy >= COLOURS ? "stroke-dasharray=\"5 3\" " : "");
    for (size_t i = 0; i < plot->comparison->rows.count; i++) {
        const struct ebb_tiers_row *row = &plot->comparison->rows.items[i];
        if (row->trace != trace || !row->made || strcmp(row->policy, plot->policies[policy]) != 0)
            continue;
        fprintf(plot->out, "%c%.1f %.1f", drawn ? 'L' : 'M', x_of(plot, row),
                y_of(plot, percent(row)));
        drawn = true;
    }
    fprintf(plot->out, "\"/>\n");
    for (size_t i = 0; i < plot->comparison->rows.count; i++) {
        const struct ebb_tiers_row *row = &plot->comparison->rows.items[i];
        if (row->trace == trace && row->made && strcmp(row->policy, plot->policies[policy]) == 0)
            fprintf(plot->out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n",
                    x_of(plot, row), y_of(plot, percent(row)), colour);
    }
}

void ebb__tiers_write_plot(const struct ebb_tiers_comparison *comparison, FILE *out)
{
    struct plot plot = {.comparison = comparison, .out = out};
    size_t panels = comparison->traces.count, columns = panels < 2 ? 1 : 2;
    plot_init(&plot);
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%zu\" height=\"%zu\" "
            "font-family=\"sans-serif\" font-size=\"12\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            columns * WIDTH + LEGEND, (panels + columns - 1) / columns * HEIGHT);
    for (size_t t = 0; t < panels; t++) {
        fprintf(out, "<g transform=\"translate(%zu %zu)\">\n", t % columns * WIDTH,
                t / columns * HEIGHT);
        axes_write(&plot, (uint32_t)t);
        for (size_t p = 0; p < plot.policy_count; p++)
            series_write(&plot, (uint32_t)t, p);
        fprintf(out, "</g>\n");
    }
    for (size_t p = 0; p < plot.policy_count; p++)
        fprintf(out, "<text x=\"%zu\" y=\"%zu\" fill=\"%s\">%s</text>\n", columns * WIDTH + 10,
                40 + 20 * p, colours[p % COLOURS], plot.policies[p]);
    fprintf(out,
            "<text x=\"%zu\" y=\"%zu\">slow-down by share</text>\n"
            "<text x=\"%zu\" y=\"%zu\">of fast memory</text>\n</svg>\n",
            columns * WIDTH + 10, 60 + 20 * plot.policy_count, columns * WIDTH + 10,
            76 + 20 * plot.policy_count);
}
