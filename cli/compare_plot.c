/* The picture of `ebb compare`: budget against slow-down, as SVG. There is a panel for each trace
 * and machine, and one for the geometric means of several traces.
 *
 * Plans cost nothing, a few percent, or several times the iteration. So the vertical axis is
 * asinh(percent): linear below 1 %, logarithmic above. All panels have the same axes. Policies of
 * one family share a colour and differ in dashes and marks. Points of one budget stand side by
 * side, so that equal ones are all seen. A line ends if the policy does not fit the budget. */
#include "compare.h"

#include "base/size.h"

#include <math.h>

#define PANEL_WIDTH 560
#define PANEL_HEIGHT 360
#define LEFT 74 /* margins of a panel, and of the whole */
#define RIGHT 24
#define TOP 40
#define BOTTOM 58
#define HEAD 44
#define LEGEND_WIDTH 224
#define LEGEND_LINE 21
#define SIDE_STEP 2.4  /* most pixels between points of one budget */
#define SIDE_MOST 14.0 /* most pixels between the first one and the last one */

struct series {
    const char *policy;
    uint32_t family, variant; /* indices */
};

typedef EBB_VEC(struct series) series_list;

struct panel {
    uint32_t machine, trace; /* trace: EBB_ALL_TRACES for the means */
    ebb_compare_points points;
    double x, y; /* its corner */
};

struct plot {
    const struct ebb_comparison *comparison;
    FILE *out;
    series_list series;
    EBB_VEC(struct panel) panels;
    double first, last; /* budget / peak, in percent */
    double most;        /* slow-down, in percent */
    bool bounded;       /* some budget cannot be met without a stall */
};

/* Colours that people with any colour vision can tell apart on white (Okabe and Ito, 2008), without
 * the yellow. */
static const char *const colours[] = {"#d55e00", "#0072b2", "#009e73", "#cc79a7",
                                      "#56b4e9", "#8c6d1f", "#000000", "#7f7f7f"};
static const char *const dashes[] = {"", "7 3", "2 3", "9 3 2 3", "4 2", "12 4"};

#define COLOUR_COUNT (sizeof colours / sizeof colours[0])
#define DASH_COUNT (sizeof dashes / sizeof dashes[0])
#define MARK_COUNT 5

static void text_write(FILE *out, const char *text)
{
    for (; *text; text++) {
        unsigned char letter = (unsigned char)*text;
        if (letter == '&' || letter == '<' || letter == '>')
            fprintf(out, "&#%d;", letter);
        else
            putc(letter < 32 ? '?' : letter, out);
    }
}

/* ---- what is drawn --------------------------------------------------------------------------- */

static size_t family_length(const char *policy)
{
    return strcspn(policy, ":");
}

static enum ebb_status series_add(struct plot *plot, const char *policy, struct ebb_error *error)
{
    struct series fresh = {.policy = policy};
    uint32_t families = 0;
    size_t length = family_length(policy);
    bool found = false;
    for (size_t i = 0; i < plot->series.count; i++) {
        const struct series *other = &plot->series.items[i];
        if (strcmp(other->policy, policy) == 0)
            return EBB_OK;
        families = other->family >= families ? other->family + 1 : families;
        if (family_length(other->policy) == length && strncmp(other->policy, policy, length) == 0) {
            fresh.family = other->family;
            fresh.variant++;
            found = true;
        }
    }
    if (!found)
        fresh.family = families;
    return ebb_vec_push(&plot->series, fresh)
               ? EBB_OK
               : ebb__fail(error, EBB_ERR_MEMORY, "plot", "no memory for it");
}

static double percent(double slowdown)
{
    return slowdown > 1 ? 100 * (slowdown - 1) : 0;
}

/* Adds a panel, if there is anything to draw. */
static enum ebb_status panel_add(struct plot *plot, uint32_t machine, uint32_t trace,
                                 struct ebb_error *error)
{
    struct panel panel = {.machine = machine, .trace = trace};
    enum ebb_status status =
        ebb__compare_points(plot->comparison, machine, trace, &panel.points, error);
    bool any = false;
    for (size_t i = 0; !status && i < panel.points.count; i++) {
        const struct ebb_compare_point *point = &panel.points.items[i];
        if (!point->works)
            continue;
        any = true;
        plot->first = fmin(plot->first, 100 * point->memory);
        plot->last = fmax(plot->last, 100 * point->memory);
        plot->most = fmax(plot->most, percent(point->most));
        plot->bounded |= point->bound_slowdown > 1;
        status = series_add(plot, point->policy, error);
    }
    if (!status && any && ebb_vec_push(&plot->panels, panel))
        return EBB_OK;
    ebb_vec_free(&panel.points);
    return any && !status ? ebb__fail(error, EBB_ERR_MEMORY, "plot", "no memory for it") : status;
}

static enum ebb_status plot_make(struct plot *plot, struct ebb_error *error)
{
    const struct ebb_comparison *comparison = plot->comparison;
    enum ebb_status status = EBB_OK;
    for (uint32_t m = 0; !status && m < comparison->list->machines.count; m++) {
        if (comparison->traces.count > 1)
            status = panel_add(plot, m, EBB_ALL_TRACES, error);
        for (uint32_t t = 0; !status && t < comparison->traces.count; t++)
            status = panel_add(plot, m, t, error);
    }
    /* Budgets are whole bytes, so 40 % may be slightly less. */
    plot->first = 10 * floor(plot->first / 10 + 0.01);
    plot->last = 10 * ceil(plot->last / 10 - 0.01);
    if (plot->last - plot->first < 10)
        plot->last = plot->first + 10;
    return status;
}

/* ---- axes ------------------------------------------------------------------------------------ */

static double x_of(const struct plot *plot, const struct panel *panel, double budget)
{
    return panel->x + LEFT +
           (PANEL_WIDTH - LEFT - RIGHT) * (budget - plot->first + 2) /
               (plot->last - plot->first + 4);
}

static double y_of(const struct plot *plot, const struct panel *panel, double slowdown)
{
    double part = asinh(slowdown) / asinh(plot->most);
    return panel->y + PANEL_HEIGHT - BOTTOM - (PANEL_HEIGHT - TOP - BOTTOM - 12) * part;
}

static void label(FILE *out, double x, double y, const char *style, const char *text)
{
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, style);
    text_write(out, text);
    fputs("</text>\n", out);
}

static void axes_draw(const struct plot *plot, const struct panel *panel)
{
    static const double marks[] = {0, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000};
    double left = panel->x + LEFT, right = panel->x + PANEL_WIDTH - RIGHT;
    double bottom = y_of(plot, panel, 0), above = bottom + 100;
    char text[32];
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        double y = y_of(plot, panel, marks[i]);
        if (marks[i] > plot->most * 1.001 || above - y < 15)
            continue;
        above = y;
        fprintf(plot->out, "<path d=\"M%.1f %.1fH%.1f\" class=\"grid\"/>\n", left, y, right);
        snprintf(text, sizeof text, "%g %%", marks[i]);
        label(plot->out, left - 8, y + 4, "text-anchor=\"end\"", text);
    }
    double step = plot->last - plot->first > 60 ? 20 : 10;
    for (double budget = step * ceil(plot->first / step); budget <= plot->last + 0.1;
         budget += step) {
        double x = x_of(plot, panel, budget);
        fprintf(plot->out, "<path d=\"M%.1f %.1fv5\" class=\"axis\"/>\n", x, bottom);
        snprintf(text, sizeof text, "%g %%", budget);
        label(plot->out, x, bottom + 20, "text-anchor=\"middle\"", text);
    }
    fprintf(plot->out, "<path d=\"M%.1f %.1fV%.1fH%.1f\" class=\"axis\"/>\n", left,
            panel->y + TOP - 4, bottom, right);
}

static void titles_draw(const struct plot *plot, const struct panel *panel)
{
    const struct ebb_comparison *comparison = plot->comparison;
    const char *machine = comparison->list->machines.items[panel->machine].name;
    char title[256], axis[96] = "budget, % of the peak", size[32];
    if (panel->trace == EBB_ALL_TRACES) {
        snprintf(title, sizeof title, "geometric means of %u traces on %s",
                 panel->points.items[0].trace_count, machine);
    } else {
        const struct ebb_compare_trace *trace = &comparison->traces.items[panel->trace];
        snprintf(title, sizeof title, "%.60s on %s", trace->name, machine);
        snprintf(axis, sizeof axis, "budget, %% of the peak of %s",
                 ebb_size_format(trace->peak_bytes, size, sizeof size));
    }
    double middle = panel->x + (LEFT + PANEL_WIDTH - RIGHT) / 2.0;
    label(plot->out, panel->x + LEFT, panel->y + TOP - 16, "class=\"title\"", title);
    label(plot->out, middle, panel->y + PANEL_HEIGHT - 14, "text-anchor=\"middle\"", axis);
    char turned[128];
    double x = panel->x + 18, y = panel->y + (TOP + PANEL_HEIGHT - BOTTOM) / 2.0;
    snprintf(turned, sizeof turned, "text-anchor=\"middle\" transform=\"rotate(-90 %.1f %.1f)\"", x,
             y);
    label(plot->out, x, y, turned, "slow-down of an iteration");
}

/* ---- lines ----------------------------------------------------------------------------------- */

static const char *colour_of(const struct series *series)
{
    return colours[series->family % COLOUR_COUNT];
}

static void mark_draw(FILE *out, const struct series *series, double x, double y)
{
    static const char *const shapes[MARK_COUNT] = {
        "m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0", "m-3 -3h6v6h-6z", "m0 -4l4 7h-8z",
        "m0 -4.5l4.5 4.5l-4.5 4.5l-4.5 -4.5z", "m0 4l4 -7h-8z"};
    fprintf(out, "<path d=\"M%.1f %.1f%s\" fill=\"%s\"/>\n", x, y,
            shapes[series->variant % MARK_COUNT], colour_of(series));
}

static void line_begin(FILE *out, const struct series *series)
{
    const char *dash = dashes[series->variant % DASH_COUNT];
    fprintf(out, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"%s\"%s%s%s d=\"",
            colour_of(series), series->family ? "1.5" : "2.6",
            dash[0] ? " stroke-dasharray=\"" : "", dash, dash[0] ? "\"" : "");
}

/* The next working point of a policy beyond a budget, or NULL. */
static const struct ebb_compare_point *point_after(const struct panel *panel, const char *policy,
                                                   double memory)
{
    const struct ebb_compare_point *next = NULL;
    for (size_t i = 0; i < panel->points.count; i++) {
        const struct ebb_compare_point *point = &panel->points.items[i];
        if (point->works && point->memory > memory && (!next || point->memory < next->memory) &&
            (!policy || strcmp(point->policy, policy) == 0))
            next = point;
    }
    return next;
}

static void series_draw(const struct plot *plot, const struct panel *panel, size_t index)
{
    const struct series *series = &plot->series.items[index];
    double others = (double)plot->series.count - 1;
    double side = fmin(SIDE_STEP, SIDE_MOST / fmax(others, 1)) * ((double)index - others / 2);
    const struct ebb_compare_point *point = NULL;
    line_begin(plot->out, series);
    for (char pen = 'M'; (point = point_after(panel, series->policy, point ? point->memory : 0));
         pen = 'L')
        fprintf(plot->out, "%c%.1f %.1f", pen, x_of(plot, panel, 100 * point->memory) + side,
                y_of(plot, panel, percent(point->slowdown)));
    fputs("\"/>\n", plot->out);
    while ((point = point_after(panel, series->policy, point ? point->memory : 0))) {
        double x = x_of(plot, panel, 100 * point->memory) + side;
        if (point->most > point->least)
            fprintf(plot->out, "<path d=\"M%.1f %.1fV%.1f\" stroke=\"%s\"/>\n", x,
                    y_of(plot, panel, percent(point->least)),
                    y_of(plot, panel, percent(point->most)), colour_of(series));
        mark_draw(plot->out, series, x, y_of(plot, panel, percent(point->slowdown)));
    }
}

/* The area that no plan reaches. */
static void bound_draw(const struct plot *plot, const struct panel *panel)
{
    const struct ebb_compare_point *point = NULL;
    double x = 0, first = 0, zero = y_of(plot, panel, 0);
    while ((point = point_after(panel, NULL, point ? point->memory : 0))) {
        if (point->bound_slowdown <= 0 || strcmp(point->budget, EBB_ZERO_STALL) == 0)
            continue;
        x = x_of(plot, panel, 100 * point->memory);
        double y = y_of(plot, panel, percent(point->bound_slowdown));
        if (first > 0)
            fprintf(plot->out, "L%.1f %.1f", x, y);
        else
            fprintf(plot->out, "<path class=\"bound\" d=\"M%.1f %.1fV%.1f", x, zero, y);
        first = first > 0 ? first : x;
    }
    if (first > 0)
        fprintf(plot->out, "V%.1fH%.1fz\"/>\n", zero, first);
}

static void legend_draw(const struct plot *plot, double x, double y)
{
    for (size_t i = 0; i < plot->series.count; i++, y += LEGEND_LINE) {
        const struct series *series = &plot->series.items[i];
        line_begin(plot->out, series);
        fprintf(plot->out, "M%.1f %.1fh34\"/>\n", x, y);
        mark_draw(plot->out, series, x + 17, y);
        label(plot->out, x + 44, y + 4, "", series->policy);
    }
    if (!plot->bounded)
        return;
    fprintf(plot->out, "<path class=\"bound\" d=\"M%.1f %.1fh34v10h-34z\"/>\n", x, y - 5);
    label(plot->out, x + 44, y + 4, "", "bound: no plan is there");
}

/* A line of panels for each machine, if that is not too wide. */
static size_t columns_of(const struct plot *plot)
{
    size_t same = 0;
    while (same < plot->panels.count && plot->panels.items[same].machine == 0)
        same++;
    if (plot->panels.count < 2)
        return 1;
    return same == 3 ? 3 : 2;
}

static void draw(struct plot *plot)
{
    size_t columns = columns_of(plot);
    size_t lines = (plot->panels.count + columns - 1) / columns;
    double legend = HEAD + TOP + LEGEND_LINE * (double)(plot->series.count + 2);
    double width = (double)columns * PANEL_WIDTH + LEGEND_WIDTH;
    double height = fmax(HEAD + (double)lines * PANEL_HEIGHT, legend);
    fprintf(plot->out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
            "viewBox=\"0 0 %.0f %.0f\" font-family=\"Helvetica, Arial, sans-serif\" "
            "font-size=\"13\" fill=\"#222\">\n"
            "<style>.grid{stroke:#ddd}.axis{fill:none;stroke:#444}.title{font-size:14px;"
            "font-weight:bold}.head{font-size:17px;font-weight:bold}.bound{fill:#e4e4e4;"
            "stroke:#999;stroke-dasharray:3 2}</style>\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
            width, height, width, height);
    label(plot->out, 18, 28, "class=\"head\"", "Slow-down of an iteration by memory budget");
    for (size_t i = 0; i < plot->panels.count; i++) {
        struct panel *panel = &plot->panels.items[i];
        panel->x = (double)(i % columns) * PANEL_WIDTH;
        panel->y = HEAD + (double)(i / columns) * PANEL_HEIGHT;
        bound_draw(plot, panel);
        axes_draw(plot, panel);
        titles_draw(plot, panel);
        for (size_t s = plot->series.count; s-- > 0;) /* the first ones are on top */
            series_draw(plot, panel, s);
    }
    if (plot->panels.count)
        legend_draw(plot, (double)columns * PANEL_WIDTH + 12, HEAD + TOP + 8);
    else
        label(plot->out, 18, HEAD + 40, "", "no plan is within its budget");
    fputs("</svg>\n", plot->out);
}

enum ebb_status ebb__compare_write_plot(const struct ebb_comparison *comparison, FILE *out,
                                        struct ebb_error *error)
{
    struct plot plot = {
        .comparison = comparison, .out = out, .first = INFINITY, .last = 0, .most = 1};
    enum ebb_status status = plot_make(&plot, error);
    if (!status)
        draw(&plot);
    for (size_t i = 0; i < plot.panels.count; i++)
        ebb_vec_free(&plot.panels.items[i].points);
    ebb_vec_free(&plot.panels);
    ebb_vec_free(&plot.series);
    return status;
}
