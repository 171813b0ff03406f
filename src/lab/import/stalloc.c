/* STAlloc's traces of training on a GPU (mem_log_dev*.txt), one record a line:
 *
 *     1 POINTER SIZE STREAM       allocated
 *     0 POINTER SIZE STREAM       freed
 *     Iteration Index : N         iteration N begins; `end`: the last one has ended
 *     micro-batch : F             F, B or W: a forward, backward or weight pass begins
 *     NAME->CLASS Layer : F-start a module begins or ends, in pass F or B
 *
 * Other lines with a colon are ignored. The format has no times: each record counts as 1 us later
 * than the one before. A module whose name contains `layers.N` begins layer N + 1: marks count from
 * 1. A weight pass computes gradients, so it is marked as backward. Source: STAlloc's
 * Allocator/trace.cpp, utils/ and Synthesizer/trace_parser.py. Linear in the file. */
#include "base/text.h"
#include "lab/import/events.h"
#include "lab/import/kinds.h"

#include <string.h>

#define RECORD_NS 1000 /* arbitrary: the format has no times */

static bool starts_with(struct ebb_text text, const char *prefix)
{
    size_t size = strlen(prefix);
    return text.size >= size && memcmp(text.at, prefix, size) == 0;
}

static bool ends_with(struct ebb_text text, const char *suffix)
{
    size_t size = strlen(suffix);
    return text.size >= size && memcmp(text.at + text.size - size, suffix, size) == 0;
}

/* True if the line is an allocation or a free. Sets *word to its first word. */
static bool is_record(struct ebb_text line, struct ebb_text *word)
{
    return ebb__text_word(&line, word) && (ebb__text_is(*word, "0") || ebb__text_is(*word, "1"));
}

bool ebb__stalloc_recognises(const uint8_t *bytes, size_t size)
{
    struct ebb_text rest = {(const char *)bytes, size}, line, word;
    while (ebb__text_line(&rest, &line)) {
        struct ebb_text look = line;
        if (!ebb__text_word(&look, &word))
            continue;
        if (starts_with(line, "Iteration Index :"))
            return true;
        uint64_t value;
        return is_record(line, &word) && ebb__text_word(&look, &word) &&
               !ebb__text_hex(word, &value) && ebb__text_word(&look, &word) &&
               !ebb__text_number(word, &value);
    }
    return false;
}

static enum ebb_status read_record(struct ebb_import_events *events, struct ebb_text line)
{
    static const char *const names[] = {"kind", "pointer", "size", "stream"};
    struct ebb_text words[4], more;
    for (size_t i = 0; i < 4; i++)
        if (!ebb__text_word(&line, &words[i]))
            return ebb__import_fail(events, "ends before its %s", names[i]);
    if (ebb__text_word(&line, &more))
        return ebb__import_fail(events, "has more than 4 fields");
    uint64_t id, size_bytes, stream;
    enum ebb_status status = ebb__import_pointer(events, words[1], &id);
    if (!status)
        status = ebb__import_number(events, "size", words[2], &size_bytes);
    if (!status)
        status = ebb__import_pointer(events, words[3], &stream);
    if (status || !id) /* address 0: a request of 0 bytes */
        return status;
    return ebb__text_is(words[0], "1") ? ebb__import_alloc(events, id, size_bytes)
                                       : ebb__import_free(events, id, size_bytes);
}

/* Reads the number after the first `layers.` of a module's name. */
static bool layer_number(struct ebb_text line, uint64_t *layer)
{
    static const char key[] = "layers.";
    const char *at = memmem(line.at, line.size, key, sizeof key - 1);
    if (!at)
        return false;
    at += sizeof key - 1;
    size_t left = line.size - (size_t)(at - line.at), digits = 0;
    while (digits < left && at[digits] >= '0' && at[digits] <= '9')
        digits++;
    return digits && !ebb__text_number((struct ebb_text){at, digits}, layer);
}

static enum ebb_status read_mark(struct ebb_import_events *events, struct ebb_text line)
{
    const char *colon = memchr(line.at, ':', line.size);
    if (!colon)
        return ebb__import_fail(events, "is neither an event nor a mark");
    size_t taken = (size_t)(colon - line.at) + 1;
    struct ebb_text rest = {colon + 1, line.size - taken}, word;
    bool more = ebb__text_word(&rest, &word);
    uint64_t value = UINT64_MAX;
    if (starts_with(line, "Iteration Index")) {
        if (!more || (!ebb__text_is(word, "end") && ebb__text_number(word, &value)))
            return ebb__import_fail(events, "is no iteration's number");
        return ebb__import_mark(events, EBB_MARK_ITERATION, value);
    }
    if (starts_with(line, "micro-batch")) {
        static const struct {
            const char *name;
            enum ebb_phase phase;
        } passes[] = {
            {"F", EBB_PHASE_FORWARD}, {"B", EBB_PHASE_BACKWARD}, {"W", EBB_PHASE_BACKWARD}};
        for (size_t i = 0; i < 3; i++)
            if (more && ebb__text_is(word, passes[i].name))
                return ebb__import_mark(events, EBB_MARK_PHASE, passes[i].phase);
        return ebb__import_fail(events, "is neither pass F, B nor W");
    }
    if (more && ends_with(word, "-start") && layer_number(line, &value))
        return ebb__import_mark(events, EBB_MARK_LAYER, value + 1);
    return EBB_OK;
}

enum ebb_status ebb__stalloc_read(const uint8_t *bytes, size_t size,
                                  struct ebb_import_request *request, struct ebb_trace *trace,
                                  struct ebb_error *error)
{
    struct ebb_import_events events;
    struct ebb_text rest = {(const char *)bytes, size}, line;
    ebb__import_events_init(&events, request->name, "line", error);
    enum ebb_status status = EBB_OK;
    while (!status && ebb__text_line(&rest, &line)) {
        struct ebb_text look = line, word;
        events.place++;
        if (!ebb__text_word(&look, &word))
            continue;
        events.time++;
        status = word.at[0] >= '0' && word.at[0] <= '9' && !is_record(line, &word)
                     ? ebb__import_fail(&events, "begins with neither 0 nor 1")
                 : is_record(line, &word) ? read_record(&events, line)
                                          : read_mark(&events, line);
    }
    if (!status)
        status = ebb__import_finish(&events, RECORD_NS, trace);
    ebb__import_events_fini(&events);
    return status;
}
