#include "report/svg.h"

#include "base/size.h"

#define WIDTH 960
#define HEIGHT 260
#define LEFT 80
#define BOTTOM 230
#define TOP 20
#define STEPS 600 /* points of a line; the curve's peaks are kept */

struct frame {
    const struct ebb_report_run *run;
    const struct ebb_curve_level *level;
    double most_bytes, length_ns;
};

static double x_of(const struct frame *frame, uint64_t ns)
{
    return LEFT + (WIDTH - LEFT - 10) * (double)ns / frame->length_ns;
}

static double y_of(const struct frame *frame, double bytes)
{
    return BOTTOM - (BOTTOM - TOP) * bytes / frame->most_bytes;
}

/* The most bytes of the cells that fall on one step of the picture. */
static double most_of(const struct frame *frame, uint32_t first, uint32_t last, int layer)
{
    double most = 0;
    for (uint32_t i = first; i < last; i++) {
        const struct ebb_curve_cell *cell = &frame->level->cells[i];
        double bytes = layer < 0 ? (double)cell->load_bytes : 0;
        for (int kind = 0; kind <= layer; kind++)
            bytes += (double)cell->kinds[kind];
        if (bytes > most)
            most = bytes;
    }
    return most;
}

/* A line of steps. layer -1: the load; else the sum of the kinds up to it. */
static void put_points(const struct frame *frame, int layer, FILE *out)
{
    uint32_t count = frame->level->count, steps = count < STEPS ? count : STEPS;
    for (uint32_t s = 0; s < steps; s++) {
        uint32_t first = (uint32_t)((uint64_t)s * count / steps);
        uint32_t last = (uint32_t)((uint64_t)(s + 1) * count / steps);
        double y = y_of(frame, most_of(frame, first, last, layer));
        uint64_t end_ns =
            last < count ? frame->level->cells[last].start_ns : frame->run->timeline.iteration_ns;
        fprintf(out, "%.1f,%.1f %.1f,%.1f ", x_of(frame, frame->level->cells[first].start_ns), y,
                x_of(frame, end_ns), y);
    }
}

static void put_line(const struct frame *frame, uint64_t bytes, const char *class, const char *text,
                     FILE *out)
{
    if (bytes == EBB_REPORT_UNKNOWN || !bytes)
        return;
    double y = y_of(frame, (double)bytes);
    char size[32];
    fprintf(out,
            "<line class='%s' x1='%d' x2='%d' y1='%.1f' y2='%.1f'/>"
            "<text x='%d' y='%.1f'>%s %s</text>\n",
            class, LEFT, WIDTH - 10, y, y, LEFT + 6, y - 4, text,
            ebb_size_format(bytes, size, sizeof size));
}

void ebb__report_svg(const struct ebb_report_run *run, FILE *out)
{
    struct frame frame = {.run = run,
                          .level = &run->curve.levels[0],
                          .most_bytes = (double)run->curve.peak_load_bytes * 1.08 + 1,
                          .length_ns = (double)run->timeline.iteration_ns + 1};
    char size[32], time[32];
    fprintf(out,
            "<svg class='static' viewBox='0 0 %d %d' role='img' aria-label='Memory over one "
            "iteration'>\n",
            WIDTH, HEIGHT);
    for (int layer = EBB_KIND_COUNT - 1; layer >= 0; layer--) {
        fprintf(out, "<polygon class='kind%d' points='%d,%d ", layer, LEFT, BOTTOM);
        put_points(&frame, layer, out);
        fprintf(out, "%d,%d'/>\n", WIDTH - 10, BOTTOM);
    }
    fputs("<polyline class='load' points='", out);
    put_points(&frame, -1, out);
    fputs("'/>\n", out);
    put_line(&frame, run->predicted.budget_bytes, "budget", "budget", out);
    fprintf(out,
            "<line class='axis' x1='%d' x2='%d' y1='%d' y2='%d'/><text x='4' y='%d'>%s</text>"
            "<text x='4' y='%d'>0</text><text x='%d' y='%d' text-anchor='end'>%s</text></svg>\n",
            LEFT, WIDTH - 10, BOTTOM, BOTTOM, TOP + 4,
            ebb_size_format(run->curve.peak_load_bytes, size, sizeof size), BOTTOM, WIDTH - 10,
            BOTTOM + 18, ebb_duration_format(run->timeline.iteration_ns, time, sizeof time));
}
