/* Lists as text, one item a line. The tool hands the locations of a store in this form to the
 * preloaded library and to the probe. */
#ifndef EBB_BASE_LINES_H
#define EBB_BASE_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Copies the first line of *text to `line` and advances *text behind it. Empty lines are skipped.
 * Returns false if no line is left, or if it does not fit into `bytes`. */
static inline bool ebb__line_next(const char **text, char *line, size_t bytes)
{
    const char *first = *text + strspn(*text, "\n");
    size_t length = strcspn(first, "\n");
    if (length == 0 || length >= bytes)
        return false;
    memcpy(line, first, length);
    line[length] = 0;
    *text = first + length;
    return true;
}

static inline size_t ebb__line_count(const char *text)
{
    size_t count = 0;
    for (text += strspn(text, "\n"); *text; text += strspn(text, "\n")) {
        text += strcspn(text, "\n");
        count++;
    }
    return count;
}

#endif
