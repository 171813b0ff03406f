/* SINGA's block logs, as published with AutoSwap and SmartPool. Each line is an event, with blanks
 * between its fields. There are two forms, which differ in their frees.
 *
 *     [index] Malloc|Free|Read|Mutable|Layer POINTER SIZE TIME_NS      the block log
 *     Malloc POINTER SIZE TIME_MS / Free POINTER TIME_MS               the pool log
 *
 * Mutable is a write. Layer means that a layer accesses the block; whether it reads or writes is
 * unknown. A block that is accessed before its Malloc existed before the trace. Linear in the
 * file. */
#include "base/text.h"
#include "lab/import/events.h"
#include "lab/import/kinds.h"

#include <inttypes.h>

enum op { OP_MALLOC, OP_FREE, OP_READ, OP_MUTABLE, OP_LAYER, OP_COUNT };

static const char *const op_names[OP_COUNT] = {"Malloc", "Free", "Read", "Mutable", "Layer"};

static bool find_op(struct ebb_text word, enum op *op)
{
    for (size_t i = 0; i < OP_COUNT; i++) {
        if (ebb__text_is(word, op_names[i])) {
            *op = (enum op)i;
            return true;
        }
    }
    return false;
}

/* The form of a log. The first line or the first Free decides it. */
enum form { FORM_UNKNOWN, FORM_BLOCKS, FORM_POOL };

struct reader {
    struct ebb_import_events events;
    bool has_index;
    enum form form;
};

static bool first_line(const uint8_t *bytes, size_t size, struct ebb_text *line)
{
    struct ebb_text rest = {(const char *)bytes, size}, word;
    while (ebb__text_line(&rest, line)) {
        struct ebb_text look = *line;
        if (ebb__text_word(&look, &word))
            return true;
    }
    return false;
}

bool ebb__singa_recognises(const uint8_t *bytes, size_t size)
{
    struct ebb_text line, word;
    enum op op;
    uint64_t index;
    if (!first_line(bytes, size, &line) || !ebb__text_word(&line, &word))
        return false;
    return find_op(word, &op) ||
           (!ebb__text_number(word, &index) && ebb__text_word(&line, &word) && find_op(word, &op));
}

/* Reads a number of the line; messages call it `what`. */
static enum ebb_status take_number(struct reader *reader, struct ebb_text *line, const char *what,
                                   uint64_t *value)
{
    struct ebb_text word;
    if (!ebb__text_word(line, &word))
        return ebb__import_fail(&reader->events, "ends before its %s", what);
    return ebb__import_number(&reader->events, what, word, value);
}

static size_t word_count(struct ebb_text line)
{
    struct ebb_text word;
    size_t count = 0;
    while (ebb__text_word(&line, &word))
        count++;
    return count;
}

/* Checks that the line has the form of the lines before it. */
static enum ebb_status check_form(struct reader *reader, enum op op, size_t words)
{
    enum form form = reader->form;
    if (op == OP_FREE)
        form = words == 2 ? FORM_POOL : FORM_BLOCKS;
    else if (op != OP_MALLOC)
        form = FORM_BLOCKS;
    if (reader->form != FORM_UNKNOWN && form != reader->form)
        return ebb__import_fail(&reader->events,
                                reader->form == FORM_POOL
                                    ? "'%s' with a size, where frees had none before"
                                    : "'%s' without a size, where there was one before",
                                op_names[op]);
    reader->form = form;
    return EBB_OK;
}

static enum ebb_status read_line(struct reader *reader, struct ebb_text line)
{
    struct ebb_import_events *events = &reader->events;
    struct ebb_text word;
    enum op op;
    uint64_t id, size_bytes = EBB_IMPORT_SIZE_UNKNOWN, index;
    enum ebb_status status = EBB_OK;
    if (reader->has_index)
        status = take_number(reader, &line, "index", &index);
    if (status)
        return status;
    char shown[32];
    if (!ebb__text_word(&line, &word))
        return ebb__import_fail(events, "ends before its operation");
    if (!find_op(word, &op))
        return ebb__import_fail(events, "operation '%s' is not known", ebb__text_show(word, shown));
    size_t words = word_count(line);
    if (words > 3)
        return ebb__import_fail(events, "has %zu fields too many", words - 3);
    status = check_form(reader, op, words);
    if (!status)
        status = take_number(reader, &line, "pointer", &id);
    if (!status && !(op == OP_FREE && reader->form == FORM_POOL))
        status = take_number(reader, &line, "size", &size_bytes);
    if (!status)
        status = take_number(reader, &line, "time", &events->time);
    if (status)
        return status;
    switch (op) {
    case OP_MALLOC:
        return ebb__import_alloc(events, id, size_bytes);
    case OP_FREE:
        return ebb__import_free(events, id, size_bytes);
    case OP_READ:
        return ebb__import_access(events, id, size_bytes, EBB_ACCESS_READ);
    case OP_MUTABLE:
        return ebb__import_access(events, id, size_bytes, EBB_ACCESS_WRITE);
    default:
        return ebb__import_access(events, id, size_bytes, EBB_ACCESS_UNKNOWN);
    }
}

enum ebb_status ebb__singa_read(const uint8_t *bytes, size_t size,
                                struct ebb_import_request *request, struct ebb_trace *trace,
                                struct ebb_error *error)
{
    struct reader reader = {0};
    struct ebb_text rest = {(const char *)bytes, size}, line, word;
    uint64_t index;
    ebb__import_events_init(&reader.events, request->name, "line", error);
    if (first_line(bytes, size, &line) && ebb__text_word(&line, &word))
        reader.has_index = !ebb__text_number(word, &index);
    enum ebb_status status = EBB_OK;
    while (!status && ebb__text_line(&rest, &line)) {
        struct ebb_text look = line;
        reader.events.place++;
        if (ebb__text_word(&look, &word))
            status = read_line(&reader, line);
    }
    uint64_t unit_ns = reader.form == FORM_POOL ? 1000000 : 1;
    if (!status)
        status = ebb__import_finish(&reader.events, unit_ns, trace);
    if (!status && reader.events.begin <= UINT64_MAX / unit_ns)
        trace->info.start_unix_ns = reader.events.begin * unit_ns;
    ebb__import_events_fini(&reader.events);
    return status;
}
