/* Lists as text: one item a line, as the places of a store are handed from the tool to the library in
 * the program and to the probe. */
#ifndef EBB_BASE_LINES_H
#define EBB_BASE_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* The first line of *text into `line`; *text then points behind it. False: none is left, or it does
 * not fit into `bytes`. Empty lines are none. */
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
