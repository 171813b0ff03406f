#include "train/base/size.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Parses digits with at most one point at the start of `text`. strtod() alone would take signs,
 * blanks, hexadecimal numbers and infinities. */
static bool decimal_parse(const char *text, double *number, const char **rest)
{
    if (!isdigit((unsigned char)*text))
        return false;
    size_t length = strspn(text, "0123456789");
    if (text[length] == '.')
        length += 1 + strspn(text + length + 1, "0123456789");
    char digits[40];
    if (length >= sizeof digits)
        return false;
    memcpy(digits, text, length);
    digits[length] = '\0';
    *number = strtod(digits, NULL);
    *rest = text + length;
    return true;
}

bool ebb__train_size_parse(const char *text, uint64_t *bytes)
{
    static const char units[] = "KMGT";
    double number;
    const char *rest;
    if (!decimal_parse(text, &number, &rest))
        return false;
    const char *unit = *rest ? strchr(units, toupper((unsigned char)*rest)) : NULL;
    double base = 1024;
    if (unit) {
        rest++;
        if (strcmp(rest, "B") == 0)
            base = 1000;
        else if (*rest && strcmp(rest, "iB") != 0)
            return false;
        number *= pow(base, (double)(unit - units + 1));
    } else if (*rest && strcmp(rest, "B") != 0) {
        return false;
    }
    if (number >= 9223372036854775808.0)
        return false;
    *bytes = (uint64_t)number;
    return true;
}

bool ebb__train_percent_parse(const char *text, double *fraction)
{
    double number;
    const char *rest;
    if (!decimal_parse(text, &number, &rest) || strcmp(rest, "%") != 0)
        return false;
    if (!(number > 0 && number <= 1000))
        return false;
    *fraction = number / 100;
    return true;
}

bool ebb__train_number_parse(const char *text, uint64_t least, uint64_t most, uint64_t *number)
{
    if (!isdigit((unsigned char)*text))
        return false;
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno || *end || value < least || value > most)
        return false;
    *number = value;
    return true;
}

char *ebb__train_size_format(uint64_t bytes, char *out, size_t out_bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024 && unit + 1 < sizeof units / sizeof *units) {
        value /= 1024;
        unit++;
    }
    snprintf(out, out_bytes, unit ? "%.2f %s" : "%.0f %s", value, units[unit]);
    return out;
}
