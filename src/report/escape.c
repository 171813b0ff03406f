#include "report/escape.h"

#include <string.h>

/* The length of the UTF-8 sequence at `at`, 0 if it is none. Overlong forms and surrogates are
 * none, since readers differ about them. */
static size_t sequence(const unsigned char *at)
{
    static const struct {
        unsigned char first, last;     /* of the first byte */
        unsigned char second, highest; /* of the second byte */
        size_t length;
    } forms[] = {{0xC2, 0xDF, 0x80, 0xBF, 2}, {0xE0, 0xE0, 0xA0, 0xBF, 3},
                 {0xE1, 0xEC, 0x80, 0xBF, 3}, {0xED, 0xED, 0x80, 0x9F, 3},
                 {0xEE, 0xEF, 0x80, 0xBF, 3}, {0xF0, 0xF0, 0x90, 0xBF, 4},
                 {0xF1, 0xF3, 0x80, 0xBF, 4}, {0xF4, 0xF4, 0x80, 0x8F, 4}};
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        if (at[0] < forms[i].first || at[0] > forms[i].last)
            continue;
        if (at[1] < forms[i].second || at[1] > forms[i].highest)
            return 0;
        for (size_t k = 2; k < forms[i].length; k++)
            if (at[k] < 0x80 || at[k] > 0xBF)
                return 0;
        return forms[i].length;
    }
    return 0;
}

void ebb__escape_utf8(char *text)
{
    while (*text) {
        size_t length = (unsigned char)*text < 0x80 ? 1 : sequence((const unsigned char *)text);
        if (!length)
            *text = '?';
        text += length ? length : 1;
    }
}

void ebb__escape_html(FILE *out, const char *text)
{
    for (const unsigned char *at = (const unsigned char *)text; *at; at++) {
        size_t length = *at < 0x80 ? 1 : sequence(at);
        if (*at == '&')
            fputs("&amp;", out);
        else if (*at == '<')
            fputs("&lt;", out);
        else if (*at == '>')
            fputs("&gt;", out);
        else if (*at == '"')
            fputs("&quot;", out);
        else if (*at == '\'')
            fputs("&#39;", out);
        else if (*at < 32 || *at == 127 || !length)
            fputc('?', out);
        else
            fwrite(at, 1, length, out);
        at += length ? length - 1 : 0;
    }
}

static int put_json(const char *text, size_t size, void *context)
{
    FILE *out = context;
    for (size_t i = 0; i < size; i++)
        if (text[i] == '<' || text[i] == '>' || text[i] == '&')
            fprintf(out, "\\u%04x", (unsigned)text[i]);
        else
            fputc(text[i], out);
    return ferror(out) ? -1 : 0;
}

bool ebb__escape_json(FILE *out, const json_t *value)
{
    return value &&
           json_dump_callback(value, put_json, out,
                              JSON_ENSURE_ASCII | JSON_COMPACT | JSON_REAL_PRECISION(6)) == 0;
}

void ebb__escape_csv(FILE *out, const char *text)
{
    if (!strpbrk(text, ",\"\r\n")) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (; *text; text++) {
        if (*text == '"')
            fputc('"', out);
        fputc(*text, out);
    }
    fputc('"', out);
}

void ebb__escape_terminal(FILE *out, const char *text)
{
    for (const unsigned char *at = (const unsigned char *)text; *at; at++) {
        size_t length = *at < 0x80 ? 1 : sequence(at);
        /* U+0080 to U+009F are control characters, too. */
        bool is_control = *at < 32 || *at == 127 || (at[0] == 0xC2 && at[1] < 0xA0);
        if (is_control || !length)
            fputc('?', out);
        else
            fwrite(at, 1, length, out);
        at += length ? length - 1 : 0;
    }
}
