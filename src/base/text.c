#include "base/text.h"

#include <string.h>

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

bool ebb__text_line(struct ebb_text *rest, struct ebb_text *line)
{
    if (!rest->size)
        return false;
    const char *end = memchr(rest->at, '\n', rest->size);
    size_t size = end ? (size_t)(end - rest->at) : rest->size;
    size_t taken = end ? size + 1 : size;
    *line = (struct ebb_text){rest->at, size && rest->at[size - 1] == '\r' ? size - 1 : size};
    *rest = (struct ebb_text){rest->at + taken, rest->size - taken};
    return true;
}

static void skip_blanks(struct ebb_text *text)
{
    while (text->size && is_blank(*text->at)) {
        text->at++;
        text->size--;
    }
}

bool ebb__text_word(struct ebb_text *line, struct ebb_text *word)
{
    skip_blanks(line);
    size_t size = 0;
    while (size < line->size && !is_blank(line->at[size]))
        size++;
    *word = (struct ebb_text){line->at, size};
    *line = (struct ebb_text){line->at + size, line->size - size};
    return size > 0;
}

bool ebb__text_field(struct ebb_text *line, struct ebb_text *field)
{
    if (!line->at)
        return false;
    const char *comma = line->size ? memchr(line->at, ',', line->size) : NULL;
    *field = (struct ebb_text){line->at, comma ? (size_t)(comma - line->at) : line->size};
    /* Nothing is left behind the last field. Behind a comma there is a field, even if it is
     * empty. */
    *line = comma ? (struct ebb_text){comma + 1, line->size - field->size - 1}
                  : (struct ebb_text){NULL, 0};
    skip_blanks(field);
    while (field->size && is_blank(field->at[field->size - 1]))
        field->size--;
    return true;
}

bool ebb__text_is(struct ebb_text text, const char *word)
{
    return strlen(word) == text.size && memcmp(text.at, word, text.size) == 0;
}

static const char *parse(struct ebb_text text, unsigned base, uint64_t *value)
{
    uint64_t sum = 0;
    bool over = false;
    if (!text.size)
        return "is empty";
    for (size_t i = 0; i < text.size; i++) {
        char c = text.at[i];
        unsigned digit = base;
        if (c >= '0' && c <= '9')
            digit = (unsigned)(c - '0');
        else if (c >= 'a' && c <= 'f')
            digit = (unsigned)(c - 'a') + 10;
        else if (c >= 'A' && c <= 'F')
            digit = (unsigned)(c - 'A') + 10;
        if (digit >= base)
            return i == 0 && c == '-' && text.size > 1 && text.at[1] >= '0' && text.at[1] <= '9'
                       ? "is negative"
                       : "is not a whole number";
        over = over || sum > (UINT64_MAX - digit) / base;
        sum = sum * base + digit;
    }
    *value = sum;
    return over ? "is too large" : NULL;
}

const char *ebb__text_hex(struct ebb_text text, uint64_t *value)
{
    if (text.size > 2 && text.at[0] == '0' && (text.at[1] == 'x' || text.at[1] == 'X'))
        text = (struct ebb_text){text.at + 2, text.size - 2};
    return parse(text, 16, value);
}

const char *ebb__text_number(struct ebb_text text, uint64_t *value)
{
    bool hex = text.size > 2 && text.at[0] == '0' && (text.at[1] == 'x' || text.at[1] == 'X');
    return hex ? ebb__text_hex(text, value) : parse(text, 10, value);
}

const char *ebb__text_show(struct ebb_text text, char out[32])
{
    size_t size = text.size < 31 ? text.size : 31;
    for (size_t i = 0; i < size; i++)
        out[i] = text.at[i] >= ' ' && text.at[i] <= '~' ? text.at[i] : '?';
    if (text.size > 31)
        memcpy(out + 28, "...", 3);
    out[size] = 0;
    return out;
}
