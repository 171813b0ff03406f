#include "report/export.h"

#include "report/escape.h"

#include <inttypes.h>

void ebb__report_csv(const struct ebb_report_run *run, FILE *out)
{
    const struct ebb_curve_level *level = &run->curve.levels[run->curve.level_count - 1];
    fputs("time_ns,load_bytes,resident_bytes,persistent_bytes,kept_bytes,short_lived_bytes,"
          "below_1mib_bytes,below_4mib_bytes,below_16mib_bytes,below_64mib_bytes,"
          "from_64mib_bytes\n",
          out);
    for (uint32_t i = 0; i < level->count; i++) {
        const struct ebb_curve_cell *cell = &level->cells[i];
        fprintf(out, "%" PRIu64 ",%" PRIu64 ",%" PRIu64, cell->start_ns, cell->load_bytes,
                cell->resident_bytes);
        for (int k = 0; k < EBB_KIND_COUNT; k++)
            fprintf(out, ",%" PRIu64, cell->kinds[k]);
        for (int s = 0; s < EBB_SIZE_CLASSES; s++)
            fprintf(out, ",%" PRIu64, cell->sizes[s]);
        fputc('\n', out);
    }
}

enum { THREAD_COMPUTE = 1, THREAD_OUT, THREAD_IN };

static void put_name(FILE *out, const char *what, int thread, const char *name)
{
    fprintf(out,
            "{\"ph\":\"M\",\"pid\":1,\"tid\":%d,\"name\":\"%s\",\"args\":{\"name\":\"%s\"}},\n",
            thread, what, name);
}

/* A complete event; times are in us. */
static void put_piece(FILE *out, int thread, const char *name, uint64_t start_ns, uint64_t end_ns,
                      uint64_t serial)
{
    if (end_ns <= start_ns)
        return;
    fprintf(out,
            "{\"ph\":\"X\",\"pid\":1,\"tid\":%d,\"name\":\"%s\",\"ts\":%.3f,\"dur\":%.3f,"
            "\"args\":{\"block\":%" PRIu64 "}},\n",
            thread, name, (double)start_ns / 1e3, (double)(end_ns - start_ns) / 1e3, serial);
}

static void put_compute(const struct ebb_timeline *timeline, FILE *out)
{
    uint64_t from_ns = 0;
    for (uint32_t i = 0; i < timeline->stall_count; i++) {
        const struct ebb_timeline_stall *stall = &timeline->stalls[i];
        put_piece(out, THREAD_COMPUTE, "compute", from_ns, stall->start_ns, 0);
        put_piece(out, THREAD_COMPUTE, "stall", stall->start_ns, stall->start_ns + stall->ns, 0);
        from_ns = stall->start_ns + stall->ns;
    }
    put_piece(out, THREAD_COMPUTE, "compute", from_ns, timeline->iteration_ns, 0);
}

void ebb__report_chrome_trace(const struct ebb_report_run *run, FILE *out)
{
    const struct ebb_timeline *timeline = &run->timeline;
    const struct ebb_curve_level *level = &run->curve.levels[run->curve.level_count - 1];
    const struct ebb_model *model = &run->source.analysis->model;
    fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n", out);
    put_name(out, "thread_name", THREAD_COMPUTE, "compute");
    put_name(out, "thread_name", THREAD_OUT, "out");
    put_name(out, "thread_name", THREAD_IN, "in");
    put_compute(timeline, out);
    for (uint32_t i = 0; i < timeline->copy_count; i++) {
        const struct ebb_timeline_copy *copy = &timeline->copies[i];
        uint64_t serial = model->blocks[run->planned.plan.absences[i].block].serial;
        put_piece(out, THREAD_OUT, "write back", copy->out_start_ns, copy->out_end_ns, serial);
        put_piece(out, THREAD_IN, "fetch", copy->in_start_ns, copy->in_end_ns, serial);
    }
    for (uint32_t i = 0; i < level->count; i++)
        fprintf(
            out,
            "{\"ph\":\"C\",\"pid\":1,\"name\":\"memory\",\"ts\":%.3f,\"args\":{\"load\":%" PRIu64
            ",\"resident\":%" PRIu64 "}},\n",
            (double)level->cells[i].start_ns / 1e3, level->cells[i].load_bytes,
            level->cells[i].resident_bytes);
    fputs("{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{\"name\":\"ebb report\"}}"
          "\n]}\n",
          out);
}
