#include "lab/pool/csv.h"

#include "base/vec.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_MAX ((uint64_t)1 << 62) /* limit of ebb__pool_solve() for the sum of all sizes */

enum column { ID, LOWER, UPPER, SIZE, OFFSET, COLUMNS };

static const char *const column_names[COLUMNS] = {"id", "lower", "upper", "size", "offset"};

struct parser {
    const char *name;
    struct ebb_error *error;
    uint64_t line, period, sum;
    enum column columns[COLUMNS]; /* by position */
    uint32_t column_count;
    EBB_VEC(struct ebb_pool_buffer) buffers;
    EBB_VEC(struct ebb_text) ids;
    EBB_VEC(uint64_t) lines;
    EBB_VEC(uint64_t) offsets;
};

#define BAD(parser, ...) line_fail(parser, (parser)->line, __VA_ARGS__)

EBB_PRINTF(3, 4)
static enum ebb_status line_fail(const struct parser *parser, uint64_t line, const char *format,
                                 ...)
{
    char why[200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, sizeof why, format, arguments);
    va_end(arguments);
    return ebb__fail(parser->error, EBB_ERR_FORMAT, parser->name, "line %" PRIu64 ": %s", line,
                     why);
}

static bool blank(struct ebb_text line)
{
    struct ebb_text word;
    return !ebb__text_word(&line, &word);
}

static enum ebb_status header_parse(struct parser *parser, struct ebb_text line)
{
    char shown[32];
    unsigned seen = 0;
    for (struct ebb_text field; ebb__text_field(&line, &field);) {
        enum column column = ID;
        while (column < COLUMNS && !ebb__text_is(field, column_names[column]))
            column++;
        if (column == COLUMNS)
            return BAD(parser, "no column is called '%s'", ebb__text_show(field, shown));
        if (seen & 1u << column)
            return BAD(parser, "column '%s' is there twice", column_names[column]);
        seen |= 1u << column;
        parser->columns[parser->column_count++] = column;
    }
    for (enum column column = ID; column < OFFSET; column++)
        if (!(seen & 1u << column))
            return BAD(parser, "the header has no column '%s'", column_names[column]);
    return EBB_OK;
}

static enum ebb_status row_check(struct parser *parser, const uint64_t *values)
{
    uint64_t period = parser->period;
    if (values[UPPER] <= values[LOWER])
        return BAD(parser, "upper %" PRIu64 " is not above lower %" PRIu64, values[UPPER],
                   values[LOWER]);
    if (period && values[LOWER] >= period)
        return BAD(parser, "lower %" PRIu64 " is not below the period of %" PRIu64, values[LOWER],
                   period);
    if (period && values[UPPER] - values[LOWER] > period)
        return BAD(parser, "lives for longer than the period of %" PRIu64, period);
    if (values[SIZE] == 0)
        return BAD(parser, "size is 0");
    if (values[SIZE] >= BYTES_MAX - parser->sum)
        return BAD(parser, "size is too large: all together are 2^62 bytes or more");
    if (parser->buffers.count >= UINT32_MAX / 4)
        return BAD(parser, "too many buffers");
    parser->sum += values[SIZE];
    return EBB_OK;
}

static enum ebb_status row_parse(struct parser *parser, struct ebb_text line)
{
    char shown[32];
    uint64_t values[COLUMNS] = {0};
    struct ebb_text id = {0}, field;
    uint32_t count = 0;
    bool has_offset = false;
    for (; ebb__text_field(&line, &field); count++) {
        if (count == parser->column_count)
            return BAD(parser, "more than the %" PRIu32 " columns of the header", count);
        enum column column = parser->columns[count];
        if (column == ID) {
            if (field.size == 0)
                return BAD(parser, "id is empty");
            id = field;
            continue;
        }
        const char *wrong = ebb__text_number(field, &values[column]);
        if (wrong)
            return BAD(parser, "%s '%s' %s", column_names[column], ebb__text_show(field, shown),
                       wrong);
        has_offset = has_offset || column == OFFSET;
    }
    if (count < parser->column_count)
        return BAD(parser, "%" PRIu32 " columns, the header has %" PRIu32, count,
                   parser->column_count);
    enum ebb_status status = row_check(parser, values);
    if (status)
        return status;
    struct ebb_pool_buffer item = {values[LOWER], values[UPPER], values[SIZE]};
    if (!ebb_vec_push(&parser->buffers, item) || !ebb_vec_push(&parser->ids, id) ||
        !ebb_vec_push(&parser->lines, parser->line) ||
        (has_offset && !ebb_vec_push(&parser->offsets, values[OFFSET])))
        return ebb__fail(parser->error, EBB_ERR_MEMORY, parser->name, "out of memory");
    return EBB_OK;
}

struct named {
    struct ebb_text id;
    uint32_t index;
};

static int named_compare(const void *left, const void *right)
{
    const struct named *a = left, *b = right;
    size_t size = a->id.size < b->id.size ? a->id.size : b->id.size;
    int order = memcmp(a->id.at, b->id.at, size);
    if (order)
        return order;
    if (a->id.size != b->id.size)
        return a->id.size < b->id.size ? -1 : 1;
    return (a->index > b->index) - (a->index < b->index);
}

/* Finds the first line that repeats an id. */
static enum ebb_status ids_check(const struct parser *parser)
{
    char shown[32];
    size_t count = parser->ids.count;
    struct named *sorted = malloc((count + 1) * sizeof *sorted);
    if (!sorted)
        return ebb__fail(parser->error, EBB_ERR_MEMORY, parser->name, "out of memory");
    for (size_t i = 0; i < count; i++)
        sorted[i] = (struct named){parser->ids.items[i], (uint32_t)i};
    qsort(sorted, count, sizeof *sorted, named_compare);
    uint32_t before = 0, again = UINT32_MAX;
    for (size_t i = 1; i < count; i++)
        if (sorted[i].id.size == sorted[i - 1].id.size && sorted[i].index < again &&
            memcmp(sorted[i].id.at, sorted[i - 1].id.at, sorted[i].id.size) == 0) {
            before = sorted[i - 1].index;
            again = sorted[i].index;
        }
    free(sorted);
    if (again == UINT32_MAX)
        return EBB_OK;
    const struct ebb_pool_buffer *a = &parser->buffers.items[before];
    const struct ebb_pool_buffer *b = &parser->buffers.items[again];
    bool together = a->lower < b->upper && b->lower < a->upper;
    return line_fail(parser, parser->lines.items[again],
                     together ? "id '%s' again, with a lifetime that overlaps that of line %" PRIu64
                              : "id '%s' again, after line %" PRIu64,
                     ebb__text_show(parser->ids.items[again], shown), parser->lines.items[before]);
}

static enum ebb_status parse(struct parser *parser, struct ebb_text rest)
{
    enum ebb_status status = EBB_OK;
    for (struct ebb_text line; !status && ebb__text_line(&rest, &line);) {
        parser->line++;
        if (blank(line))
            continue;
        status = parser->column_count ? row_parse(parser, line) : header_parse(parser, line);
    }
    if (!status && parser->buffers.count == 0)
        status = ebb__fail(parser->error, EBB_ERR_FORMAT, parser->name,
                           parser->column_count ? "line %" PRIu64 ": no buffer follows the header"
                                                : "is empty, no packing problem",
                           parser->line);
    return status ? status : ids_check(parser);
}

enum ebb_status ebb__pool_csv_parse(const uint8_t *bytes, size_t size, const char *name,
                                    uint64_t period, struct ebb_pool_csv *csv,
                                    struct ebb_error *error)
{
    struct parser parser = {.name = name, .error = error, .period = period};
    *csv = (struct ebb_pool_csv){0};
    enum ebb_status status = parse(&parser, (struct ebb_text){(const char *)bytes, size});
    *csv = (struct ebb_pool_csv){parser.buffers.items, parser.ids.items, parser.lines.items,
                                 parser.offsets.items, (uint32_t)parser.buffers.count};
    if (status)
        ebb__pool_csv_fini(csv);
    return status;
}

bool ebb__pool_csv_recognises(const uint8_t *bytes, size_t size)
{
    struct ebb_text rest = {(const char *)bytes, size}, line, field;
    while (ebb__text_line(&rest, &line))
        if (!blank(line)) {
            /* A header with a missing or an extra column is recognised, too. */
            unsigned known = 0;
            while (ebb__text_field(&line, &field))
                for (int column = 0; column < COLUMNS; column++)
                    known += ebb__text_is(field, column_names[column]);
            return known >= 2;
        }
    return false;
}

void ebb__pool_csv_fini(struct ebb_pool_csv *csv)
{
    free(csv->buffers);
    free(csv->ids);
    free(csv->lines);
    free(csv->offsets);
    *csv = (struct ebb_pool_csv){0};
}
