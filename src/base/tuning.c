#include "base/tuning.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST_NAME 64 /* bytes of a row's name */
#define SUGGESTIONS 3

struct ebb_tuning ebb__tuning_in_force = {
#define EBB_TUNING(kind, name, unit, value, least, most, acts, reason) .name = value,
#include "base/tuning.def"
#undef EBB_TUNING
};

#define IS_WHOLE false
#define IS_REAL true
static const struct ebb_tuning_row rows[] = {
#define EBB_TUNING(kind, name, unit, value, least, most, acts, reason)                             \
    {#name,                                                                                        \
     unit,                                                                                         \
     reason,                                                                                       \
     (double)(value),                                                                              \
     (double)(least),                                                                              \
     (double)(most),                                                                               \
     offsetof(struct ebb_tuning, name),                                                            \
     EBB_TUNING_##acts,                                                                            \
     IS_##kind},
#include "base/tuning.def"
#undef EBB_TUNING
};

#define ROW_COUNT (sizeof rows / sizeof rows[0])

const struct ebb_tuning_row *ebb__tuning_rows(size_t *count)
{
    *count = ROW_COUNT;
    return rows;
}

static void *place_of(const struct ebb_tuning_row *row)
{
    return (char *)&ebb__tuning_in_force + row->offset;
}

double ebb__tuning_value(const struct ebb_tuning_row *row)
{
    return row->real ? *(const double *)place_of(row) : (double)*(const uint64_t *)place_of(row);
}

static void put(const struct ebb_tuning_row *row, double value)
{
    if (row->real)
        *(double *)place_of(row) = value;
    else
        *(uint64_t *)place_of(row) = (uint64_t)value;
}

void ebb__tuning_reset(void)
{
    for (size_t i = 0; i < ROW_COUNT; i++)
        put(&rows[i], rows[i].value);
}

char *ebb__tuning_format(const struct ebb_tuning_row *row, double value, char *text, size_t bytes)
{
    if (!row->real) {
        snprintf(text, bytes, "%llu", (unsigned long long)value);
        return text;
    }
    snprintf(text, bytes, "%.6g", value);
    if (strtod(text, NULL) != value)
        snprintf(text, bytes, "%.17g", value);
    return text;
}

/* ---- names ----------------------------------------------------------------------------------- */

static char small(char letter)
{
    return letter >= 'A' && letter <= 'Z' ? (char)(letter - 'A' + 'a') : letter;
}

/* Levenshtein's distance, ignoring case. */
static size_t distance(const char *a, const char *b)
{
    size_t width = strlen(b), line[LONGEST_NAME + 1];
    if (width > LONGEST_NAME)
        return SIZE_MAX;
    for (size_t i = 0; i <= width; i++)
        line[i] = i;
    for (size_t y = 0; a[y]; y++) {
        size_t corner = line[0]++;
        for (size_t x = 0; x < width; x++) {
            size_t best = corner + (small(a[y]) != b[x]);
            best = line[x] + 1 < best ? line[x] + 1 : best;
            best = line[x + 1] + 1 < best ? line[x + 1] + 1 : best;
            corner = line[x + 1];
            line[x + 1] = best;
        }
    }
    return line[width];
}

static const struct ebb_tuning_row *row_find(const char *name, size_t length)
{
    for (size_t i = 0; i < ROW_COUNT; i++)
        if (strlen(rows[i].name) == length && memcmp(rows[i].name, name, length) == 0)
            return &rows[i];
    return NULL;
}

static enum ebb_status unknown(const char *name, struct ebb_error *error)
{
    size_t best[SUGGESTIONS] = {0, 0, 0}, away[SUGGESTIONS] = {SIZE_MAX, SIZE_MAX, SIZE_MAX};
    for (size_t i = 0; i < ROW_COUNT; i++) {
        /* A spelling that is part of a name is closer than any other spelling. */
        size_t far = *name && strstr(rows[i].name, name) ? 1 : 1 + distance(name, rows[i].name);
        for (size_t k = 0; k < SUGGESTIONS; k++) {
            if (far >= away[k])
                continue;
            memmove(&away[k + 1], &away[k], (SUGGESTIONS - 1 - k) * sizeof away[0]);
            memmove(&best[k + 1], &best[k], (SUGGESTIONS - 1 - k) * sizeof best[0]);
            away[k] = far;
            best[k] = i;
            break;
        }
    }
    return ebb__fail(error, EBB_ERR_ARGUMENT, "--tune",
                     "'%s' is no row of the table; closest: %s, %s, %s", name, rows[best[0]].name,
                     rows[best[1]].name, rows[best[2]].name);
}

/* ---- values ---------------------------------------------------------------------------------- */

/* The multiplier of a suffix; 0 if the unit has no such suffix. */
static double suffix_of(const struct ebb_tuning_row *row, const char *text)
{
    static const struct {
        const char *unit, *suffix;
        double factor;
    } known[] = {
        {"bytes", "K", 0x1p10},   {"bytes", "KiB", 0x1p10}, {"bytes", "M", 0x1p20},
        {"bytes", "MiB", 0x1p20}, {"bytes", "G", 0x1p30},   {"bytes", "GiB", 0x1p30},
        {"bytes", "T", 0x1p40},   {"bytes", "TiB", 0x1p40}, {"ns", "ns", 1},
        {"ns", "us", 1e3},        {"ns", "ms", 1e6},        {"ns", "s", 1e9},
    };
    if (!*text)
        return 1;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(known[i].unit, row->unit) == 0 && strcmp(known[i].suffix, text) == 0)
            return known[i].factor;
    return 0;
}

/* What is linked into a program has no libm. Doubles beyond 2^53 have no fraction. */
static bool is_whole(double value)
{
    return value >= 0x1p53 || value <= -0x1p53 || value == (double)(int64_t)value;
}

static bool value_parse(const struct ebb_tuning_row *row, const char *text, double *value)
{
    char *end;
    if (strspn(text, "0123456789.") == 0 || (text[0] == '0' && (text[1] | 32) == 'x'))
        return false;
    double number = strtod(text, &end);
    double factor = suffix_of(row, end);
    *value = number * factor;
    return end != text && factor > 0 && isfinite(*value) && (row->real || is_whole(*value));
}

static enum ebb_status parse(const char *assignment, const struct ebb_tuning_row **row,
                             double *value, struct ebb_error *error)
{
    char name[LONGEST_NAME], least[32], most[32];
    size_t length = strcspn(assignment, "=");
    snprintf(name, sizeof name, "%.*s", (int)(length < 1000 ? length : 1000), assignment);
    *row = row_find(assignment, length);
    if (!*row)
        return unknown(name, error);
    if (assignment[length] != '=')
        return ebb__fail(error, EBB_ERR_ARGUMENT, "--tune", "'%s' wants a value: %s=%s", name, name,
                         ebb__tuning_format(*row, (*row)->value, least, sizeof least));
    const char *text = assignment + length + 1;
    if (!value_parse(*row, text, value))
        return ebb__fail(error, EBB_ERR_ARGUMENT, "--tune", "%s: '%.40s' is not a number of %s",
                         (*row)->name, text, (*row)->unit);
    if (*value < (*row)->least || *value > (*row)->most)
        return ebb__fail(error, EBB_ERR_ARGUMENT, "--tune", "%s: %.40s is not within %s and %s %s",
                         (*row)->name, text,
                         ebb__tuning_format(*row, (*row)->least, least, sizeof least),
                         ebb__tuning_format(*row, (*row)->most, most, sizeof most), (*row)->unit);
    return EBB_OK;
}

enum ebb_status ebb__tuning_set(const char *assignment, struct ebb_error *error)
{
    const struct ebb_tuning_row *row;
    double value;
    enum ebb_status status = parse(assignment, &row, &value, error);
    if (status == EBB_OK)
        put(row, value);
    return status;
}

/* ---- as text --------------------------------------------------------------------------------- */

bool ebb__tuning_write(char *text, size_t bytes)
{
    size_t at = 0;
    if (bytes)
        text[0] = 0;
    for (size_t i = 0; i < ROW_COUNT; i++) {
        char number[32];
        double value = ebb__tuning_value(&rows[i]);
        if (value == rows[i].value)
            continue;
        int length = snprintf(text + at, bytes - at, "%s%s=%s", at ? "," : "", rows[i].name,
                              ebb__tuning_format(&rows[i], value, number, sizeof number));
        if (length < 0 || (size_t)length >= bytes - at)
            return false;
        at += (size_t)length;
    }
    return bytes > 0;
}

enum ebb_status ebb__tuning_read(const char *text, struct ebb_error *error)
{
    struct ebb_tuning before = ebb__tuning_in_force;
    enum ebb_status status = EBB_OK;
    while (*text && status == EBB_OK) {
        char assignment[2 * LONGEST_NAME];
        size_t length = strcspn(text, ",");
        if (length >= sizeof assignment)
            status = ebb__fail(error, EBB_ERR_ARGUMENT, "--tune", "too long");
        if (status == EBB_OK) {
            memcpy(assignment, text, length);
            assignment[length] = 0;
            status = ebb__tuning_set(assignment, error);
        }
        text += length + (text[length] == ',');
    }
    if (status != EBB_OK)
        ebb__tuning_in_force = before;
    return status;
}

uint64_t ebb__tuning_table(void)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (size_t i = 0; i < ROW_COUNT; i++) {
        char line[LONGEST_NAME + 40], number[32];
        snprintf(line, sizeof line, "%s=%s,", rows[i].name,
                 ebb__tuning_format(&rows[i], rows[i].value, number, sizeof number));
        for (const char *c = line; *c; c++)
            hash = (hash ^ (unsigned char)*c) * 0x100000001b3u;
    }
    return hash;
}
