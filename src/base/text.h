/* Lines, fields and numbers of text formats, without copying and without locale. */
#ifndef EBB_BASE_TEXT_H
#define EBB_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A stretch of the source; not NUL-terminated. */
struct ebb_text {
    const char *at;
    size_t size;
};

/* Take the next line off `rest`, without its end (a carriage return before it goes, too); false
 * where nothing is left. */
bool ebb__text_line(struct ebb_text *rest, struct ebb_text *line);

/* Take the next word off `line`: no blanks nor tabs; false where none is left. */
bool ebb__text_word(struct ebb_text *line, struct ebb_text *word);

/* Take the next field off `line`, up to the comma, blanks around it dropped; false where nothing is
 * left. */
bool ebb__text_field(struct ebb_text *line, struct ebb_text *field);

bool ebb__text_is(struct ebb_text text, const char *word);

/* A whole number: decimal digits only, or `0x` and hexadecimal ones. NULL and *value set, else what
 * is wrong: "is empty", "is negative", "is not a whole number", "is too large". */
const char *ebb__text_number(struct ebb_text text, uint64_t *value);
const char *ebb__text_hex(struct ebb_text text, uint64_t *value);

/* For messages: the text, shortened and with what does not print as '?'; `out` is at least 32 bytes
 * and is returned. */
const char *ebb__text_show(struct ebb_text text, char out[32]);

#endif
