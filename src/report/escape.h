/* Text of others in HTML, JSON within HTML, and CSV. What a trace says is never trusted. */
#ifndef EBB_REPORT_ESCAPE_H
#define EBB_REPORT_ESCAPE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

/* Writes `text` as HTML, for elements and for attributes in quotes. Control characters and bytes
 * that are not UTF-8 become `?`. */
void ebb__escape_html(FILE *out, const char *text);

/* Writes `value` as JSON that can stand in a script element: it has no `<`, `>` or `&`, and ASCII
 * only. False: out of memory, or `out` cannot be written. */
bool ebb__escape_json(FILE *out, const json_t *value);

/* Writes one field of a CSV file, in quotes if it needs them. */
void ebb__escape_csv(FILE *out, const char *text);

/* Writes `text` for a terminal: control characters become `?`. */
void ebb__escape_terminal(FILE *out, const char *text);

/* Replaces bytes of `text` that are not UTF-8 by `?`. */
void ebb__escape_utf8(char *text);

#endif
