/* Lines, fields and numbers of text formats, without copies and independent of the locale. */
#ifndef EBB_BASE_TEXT_H
#define EBB_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A part of the source text; not NUL-terminated. */
struct ebb_text {
    const char *at;
    size_t size;
};

/* Removes the next line from `rest`. `line` excludes the line end and a carriage return before it.
 * Returns false if nothing is left. */
bool ebb__text_line(struct ebb_text *rest, struct ebb_text *line);

/* Removes the next word from `line`; blanks and tabs separate words. Returns false if none is
 * left. */
bool ebb__text_word(struct ebb_text *line, struct ebb_text *word);

/* Removes the next field from `line`, up to the comma, without surrounding blanks. Returns false if
 * nothing is left. */
bool ebb__text_field(struct ebb_text *line, struct ebb_text *field);

bool ebb__text_is(struct ebb_text text, const char *word);

/* Parses a whole number: decimal digits only, or `0x` and hexadecimal digits. Returns NULL and sets
 * *value, else returns the problem: "is empty", "is negative", "is not a whole number", "is too
 * large". */
const char *ebb__text_number(struct ebb_text text, uint64_t *value);
const char *ebb__text_hex(struct ebb_text text, uint64_t *value);

/* The text for a message: shortened, with '?' for each byte that is not printable. `out` has at
 * least 32 bytes and is returned. */
const char *ebb__text_show(struct ebb_text text, char out[32]);

#endif
