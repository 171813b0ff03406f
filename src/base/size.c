#include "base/size.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Parses a plain decimal number at the start of `text`: digits, at most one point, nothing else. */
static bool number_parse(const char *text, double *number, const char **rest)
{
    if (!isdigit((unsigned char)text[0]))
        return false;
    size_t length = strspn(text, "0123456789");
    if (text[length] == '.')
        length += 1 + strspn(text + length + 1, "0123456789");
    char copy[40];
    if (length >= sizeof copy)
        return false;
    memcpy(copy, text, length);
    copy[length] = 0;
    *number = strtod(copy, NULL);
    *rest = text + length;
    return true;
}

bool ebb_size_parse(const char *text, uint64_t *bytes)
{
    static const char prefixes[] = "KMGTP";
    double number, unit = 1;
    const char *rest;
    if (!number_parse(text, &number, &rest))
        return false;
    const char *prefix = *rest ? strchr(prefixes, toupper((unsigned char)*rest)) : NULL;
    if (prefix) {
        rest++;
        bool decimal = strcmp(rest, "B") == 0;
        if (!decimal && *rest && strcmp(rest, "iB") != 0)
            return false;
        for (long i = prefix - prefixes; i >= 0; i--)
            unit *= decimal ? 1000 : 1024;
    } else if (*rest && strcmp(rest, "B") != 0) {
        return false;
    }
    if (number * unit >= 9223372036854775808.0)
        return false;
    *bytes = (uint64_t)llround(number * unit);
    return true;
}

bool ebb_percent_parse(const char *text, double *fraction)
{
    double number;
    const char *rest;
    if (!number_parse(text, &number, &rest) || strcmp(rest, "%") != 0)
        return false;
    if (!(number > 0) || number > 1000)
        return false;
    *fraction = number / 100;
    return true;
}

bool ebb_seconds_parse(const char *text, uint64_t *ns)
{
    double seconds;
    const char *rest;
    if (!number_parse(text, &seconds, &rest) || *rest || seconds > 1e9)
        return false;
    *ns = (uint64_t)(seconds * 1e9);
    return true;
}

char *ebb_size_format(uint64_t bytes, char *out, size_t out_bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024 && unit + 1 < sizeof units / sizeof units[0]) {
        value /= 1024;
        unit++;
    }
    snprintf(out, out_bytes, unit ? "%.2f %s" : "%.0f %s", value, units[unit]);
    return out;
}

char *ebb_duration_format(uint64_t ns, char *out, size_t out_bytes)
{
    double value = (double)ns;
    if (ns < 1000)
        snprintf(out, out_bytes, "%.0f ns", value);
    else if (ns < 1000000)
        snprintf(out, out_bytes, "%.1f us", value / 1e3);
    else if (ns < 1000000000)
        snprintf(out, out_bytes, "%.1f ms", value / 1e6);
    else
        snprintf(out, out_bytes, "%.2f s", value / 1e9);
    return out;
}
