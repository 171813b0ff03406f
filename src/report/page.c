#include "report/page.h"

#include "base/size.h"
#include "base/tuning.h"
#include "report/assets.h"
#include "report/data.h"
#include "report/escape.h"
#include "report/svg.h"

#include <inttypes.h>
#include <string.h>

static const char *bytes_text(uint64_t bytes, char out[32])
{
    return bytes == EBB_REPORT_UNKNOWN ? "unknown" : ebb_size_format(bytes, out, 32);
}

static const char *ns_text(uint64_t ns, char out[32])
{
    return ns == EBB_REPORT_UNKNOWN ? "unknown" : ebb_duration_format(ns, out, 32);
}

static void put_asset(FILE *out, const struct ebb_asset *asset)
{
    fwrite(asset->bytes, 1, asset->size, out);
}

/* ---- forecast -------------------------------------------------------------------------------- */

static void put_need(FILE *out, const struct ebb_needs *needs, enum ebb_need which)
{
    const struct ebb_forecast_point *point = &needs->points[which];
    double share = needs->peak_bytes ? (double)point->budget_bytes / (double)needs->peak_bytes : 1;
    double slow = needs->whole_ns ? (double)point->iteration_ns / (double)needs->whole_ns : 1;
    char bytes[32];
    fprintf(out,
            "<td><b>%s</b><span class='bar'><i style='width:%.1f%%'></i></span>"
            "<small>%.0f %% of the peak, %.2f×</small></td>",
            bytes_text(point->budget_bytes, bytes), share > 1 ? 100 : 100 * share, 100 * share,
            slow);
}

static void put_forecast(FILE *out, const struct ebb_report_run *run)
{
    char sentence[512], peak[32];
    fputs("<section class='card forecast'><h2>What it needs <em>predicted</em></h2>\n", out);
    if (!run->need_count) {
        fprintf(out, "<p class='note'>No forecast: %s.</p></section>\n",
                run->has_model ? "the trace has no accesses"
                               : "a summary alone does not tell the accesses");
        return;
    }
    fprintf(out,
            "<p>Without a budget: <b>%s</b>. The smallest budget, by the time that an iteration "
            "may lose:</p>\n<div class='scroll'><table class='needs'><thead><tr><th scope='col'>"
            "lanes of</th><th scope='col'>no loss</th><th scope='col'>+5 %%</th><th "
            "scope='col'>+20 %%</th><th scope='col'>at least</th></tr></thead><tbody>\n",
            bytes_text(run->needs[0].needs.peak_bytes, peak));
    for (uint32_t i = 0; i < run->need_count; i++) {
        fputs("<tr><th scope='row'>", out);
        ebb__escape_html(out, run->needs[i].machine);
        fputs(i == 0 ? " <small>this one</small></th>" : "</th>", out);
        for (int n = 0; n < EBB_NEED_COUNT; n++)
            put_need(out, &run->needs[i].needs, (enum ebb_need)n);
        fputs("</tr>\n", out);
    }
    fputs("</tbody></table></div>\n", out);
    if (run->is_coarse)
        fprintf(out,
                "<p class='note'>The iteration has %u events, so the forecast plans its blocks in "
                "groups, which is less exact.%s</p>\n",
                run->source.analysis->model.tick_count,
                run->has_plan ? ""
                              : " The page shows no plan; for one, give <code>ebb report --budget "
                                "B</code>.");
    if (ebb__report_sentence(run, sentence, sizeof sentence)) {
        fputs("<p>Type next:</p><pre class='next'><code>", out);
        ebb__escape_html(out, sentence);
        fputs("</code></pre>\n", out);
    }
    fputs("</section>\n", out);
}

/* ---- headline -------------------------------------------------------------------------------- */

static void put_tile(FILE *out, const char *name, const char *value, const char *more)
{
    if (strcmp(value, "unknown") == 0)
        return;
    fprintf(out, "<div class='tile'><dt>%s</dt><dd>%s<small>%s</small></dd></div>\n", name, value,
            more);
}

static const char *origin(uint64_t measured, uint64_t value)
{
    return value == EBB_REPORT_UNKNOWN      ? ""
           : measured != EBB_REPORT_UNKNOWN ? "measured"
                                            : "predicted";
}

#define TILE(name, member, format)                                                                 \
    put_tile(out, name, format(EBB_REPORT_BEST(run, member), text),                                \
             origin(run->measured.member, EBB_REPORT_BEST(run, member)))

static void put_headline(FILE *out, const struct ebb_report_run *run)
{
    char text[32], ratio[48] = "unknown", more[64];
    uint64_t with = EBB_REPORT_BEST(run, iteration_ns);
    uint64_t without = run->predicted.unlimited_ns;
    fputs("<dl class='tiles'>\n", out);
    TILE("peak in fast memory", peak_bytes, bytes_text);
    TILE("budget", budget_bytes, bytes_text);
    TILE("without a budget", unlimited_bytes, bytes_text);
    if (with != EBB_REPORT_UNKNOWN && without != EBB_REPORT_UNKNOWN && without)
        snprintf(ratio, sizeof ratio, "%.3f×", (double)with / (double)without);
    snprintf(more, sizeof more, "%s an iteration", ns_text(with, text));
    put_tile(out, "slow-down", ratio, more);
    uint64_t moved_out = EBB_REPORT_BEST(run, moved_out_bytes);
    uint64_t moved_in = EBB_REPORT_BEST(run, moved_in_bytes);
    bool is_run = run->measured.moved_out_bytes != EBB_REPORT_UNKNOWN;
    uint64_t moved = moved_out == EBB_REPORT_UNKNOWN ? moved_out : moved_out + moved_in;
    put_tile(out, "bytes moved", bytes_text(moved, text),
             is_run ? "measured, whole run" : "predicted, an iteration");
    put_tile(out, "stall", ns_text(EBB_REPORT_BEST(run, stall_ns), text),
             is_run ? "measured, whole run" : "predicted, an iteration");
    fputs("</dl>\n", out);
}

/* ---- predicted beside measured, and where it comes from -------------------------------------- */

static void put_pair(FILE *out, const char *name, const char *predicted, const char *measured)
{
    fprintf(out, "<tr><th scope='row'>%s</th><td>%s</td><td>%s</td></tr>\n", name, predicted,
            measured);
}

static void put_rate(FILE *out, const json_t *summary, const char *name, const char *assumed,
                     const char *measured)
{
    char a[32], b[32], first[48], second[48];
    json_int_t bps[] = {json_integer_value(json_object_get(summary, assumed)),
                        json_integer_value(json_object_get(summary, measured))};
    snprintf(first, sizeof first, bps[0] > 0 ? "%s/s" : "unknown",
             ebb_size_format((uint64_t)(bps[0] > 0 ? bps[0] : 0), a, sizeof a));
    snprintf(second, sizeof second, bps[1] > 0 ? "%s/s" : "unknown",
             ebb_size_format((uint64_t)(bps[1] > 0 ? bps[1] : 0), b, sizeof b));
    put_pair(out, name, first, second);
}

static void put_outcome(FILE *out, const struct ebb_report_run *run)
{
    char a[32], b[32];
    const struct ebb_report_figures *predicted = &run->predicted, *measured = &run->measured;
    if (!run->has_summary)
        return;
    fputs("<section class='card'><h2>Predicted, and what happened</h2><table class='plain'><thead>"
          "<tr><th></th><th scope='col'>predicted</th><th scope='col'>measured</th></tr></thead>"
          "<tbody>\n",
          out);
    put_pair(out, "peak", bytes_text(predicted->peak_bytes, a),
             bytes_text(measured->peak_bytes, b));
    put_pair(out, "iteration", ns_text(predicted->iteration_ns, a),
             ns_text(measured->iteration_ns, b));
    put_rate(out, run->source.summary, "lane out", "out_bps", "measured_out_bps");
    put_rate(out, run->source.summary, "lane in", "in_bps", "measured_in_bps");
    fputs("</tbody></table></section>\n", out);
}

static void put_fact(FILE *out, const char *name, const char *value)
{
    fprintf(out, "<div><dt>%s</dt><dd>", name);
    ebb__escape_html(out, value);
    fputs("</dd></div>\n", out);
}

static void put_origin(FILE *out, const struct ebb_report_run *run)
{
    const struct ebb_trace_info *info = run->source.info;
    char text[512], out_rate[32], in_rate[32];
    fputs("<section class='card'><h2>Where this comes from</h2><dl class='facts'>\n", out);
    put_fact(out, "command",
             run->source.is_redacted            ? "(redacted)"
             : info && info->command[0] != '\0' ? info->command
                                                : "(not recorded)");
    if (info) {
        snprintf(text, sizeof text, "%zu events%s, %zu iterations, %u blocks an iteration",
                 run->source.event_count, run->source.is_complete ? "" : " (its end is missing)",
                 run->source.analysis->iterations, run->source.analysis->model.block_count);
        put_fact(out, "trace", text);
    }
    if (run->source.machine_count) {
        const struct ebb_machine *machine = &run->source.machines[0];
        snprintf(text, sizeof text, "%s: %s/s out, %s/s in", machine->name,
                 ebb_size_format((uint64_t)(1e9 / machine->out.ns_per_byte), out_rate, 32),
                 ebb_size_format((uint64_t)(1e9 / machine->in.ns_per_byte), in_rate, 32));
        put_fact(out, "machine", text);
    }
    if (run->has_plan)
        put_fact(out, "policy", run->planned.plan.policy);
    put_fact(out, "version", "ebb " EBB_VERSION);
    put_fact(out, "seed", "fixed: the same trace and machine give the same plan");
    snprintf(text, sizeof text, "table %016" PRIx64, ebb__tuning_table());
    put_fact(out, "tuning", text);
    fputs("</dl></section>\n", out);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void put_difference(FILE *out, const struct ebb_difference *difference)
{
    fputs("<section class='card difference'><h2>Difference, first to last</h2><table "
          "class='plain'><thead><tr><th></th><th scope='col'>first</th><th scope='col'>last</th>"
          "<th scope='col'>change</th></tr></thead><tbody>\n",
          out);
    for (size_t i = 0; i < EBB_DIFFERENCE_ROWS; i++) {
        const struct ebb_difference_row *row = &difference->rows[i];
        char a[32], b[32], change[32] = "";
        double percent;
        if (ebb__difference_percent(row, &percent))
            snprintf(change, sizeof change, "%+.1f %%", percent);
        fprintf(out, "<tr><th scope='row'>%s</th><td>%s</td><td>%s</td><td>%s</td></tr>\n",
                row->text, row->is_bytes ? bytes_text(row->first, a) : ns_text(row->first, a),
                row->is_bytes ? bytes_text(row->last, b) : ns_text(row->last, b), change);
    }
    fputs("</tbody></table></section>\n", out);
}

static void put_run(FILE *out, const struct ebb_report_run *run, uint32_t index)
{
    fprintf(out, "<article class='run' data-run='%u'><h1>", index);
    ebb__escape_html(out, run->source.name);
    fputs("</h1>\n", out);
    put_forecast(out, run);
    put_headline(out, run);
    if (run->has_model) {
        fputs("<noscript><section class='card'><h2>Memory over one iteration</h2>\n", out);
        ebb__report_svg(run, out);
        fputs(
            "</section></noscript>\n<div class='charts'><p class='note'>The charts could not be drawn in this browser.</p></div>\n",
            out);
    }
    put_outcome(out, run);
    put_origin(out, run);
    fputs("</article>\n", out);
}

static void put_head(FILE *out, const char *nonce)
{
    fprintf(out,
            "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>\n"
            "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; "
            "style-src 'unsafe-inline'; script-src 'nonce-%s'; img-src data:; base-uri 'none'; "
            "form-action 'none'\">\n"
            "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
            "<meta name='color-scheme' content='light dark'>\n"
            "<meta name='referrer' content='no-referrer'>\n<title>Ebb report</title>\n<style>\n",
            nonce);
    put_asset(out, &ebb__asset_dygraphs_style);
    put_asset(out, &ebb__asset_style);
    fputs("</style></head><body>\n<header class='top'><span class='brand'>ebb "
          "report</span></header>\n<main>\n",
          out);
}

/* The script is allowed by a number that depends on all data: text in the data cannot name it. */
static void put_scripts(FILE *out, const json_t *data, const char *nonce, bool *ok)
{
    fputs("</main>\n<template id='charts'>", out);
    put_asset(out, &ebb__asset_charts);
    fputs("</template>\n<script type='application/json' id='data'>", out);
    *ok = ebb__escape_json(out, data);
    fprintf(out, "</script>\n<script nonce='%s'>\n/*\n", nonce);
    put_asset(out, &ebb__asset_dygraphs_licence);
    fputs("*/\n", out);
    put_asset(out, &ebb__asset_dygraphs);
    fprintf(out, "\n</script>\n<script nonce='%s'>\n", nonce);
    put_asset(out, &ebb__asset_script);
    fputs("</script>\n</body></html>\n", out);
}

/* FNV-1a, 64 bits. */
static int hash_piece(const char *text, size_t size, void *context)
{
    uint64_t *hash = context;
    for (size_t i = 0; i < size; i++)
        *hash = (*hash ^ (unsigned char)text[i]) * 0x100000001b3u;
    return 0;
}

enum ebb_status ebb__report_page(const struct ebb_report_run *runs, uint32_t count,
                                 const struct ebb_difference *difference, FILE *out,
                                 struct ebb_error *error)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < count; i++)
        json_array_append_new(list, ebb__report_page_json(&runs[i]));
    json_t *data = json_pack("{s:s, s:o}", "schema", "ebb.report-page/1", "runs", list);
    if (!data)
        return ebb__fail(error, EBB_ERR_MEMORY, "the page", "out of memory");
    uint64_t hash = 0xcbf29ce484222325u;
    json_dump_callback(data, hash_piece, &hash, JSON_COMPACT);
    char nonce[32];
    snprintf(nonce, sizeof nonce, "%016" PRIx64, hash);
    put_head(out, nonce);
    if (difference)
        put_difference(out, difference);
    for (uint32_t i = 0; i < count; i++)
        put_run(out, &runs[i], i);
    bool ok = true;
    put_scripts(out, data, nonce, &ok);
    json_decref(data);
    if (!ok || ferror(out))
        return ebb__fail(error, EBB_ERR_IO, "the page", "cannot be written");
    return EBB_OK;
}
