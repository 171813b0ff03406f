/* Sizes as a user writes them, and as messages print them. Thread-safe: no state. */
#ifndef EBB_TRAIN_BASE_SIZE_H
#define EBB_TRAIN_BASE_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Parses `8G`, `8GiB`, `512M` (1024-based), `4GB` (1000-based), `4096`, `1.5G`. No sign, no blanks.
 * Returns false for any other text, or 2^63 and more; *bytes is then untouched. */
bool ebb__train_size_parse(const char *text, uint64_t *bytes);

/* Parses `40%` into a fraction in (0, 10]. Returns false for any other text. */
bool ebb__train_percent_parse(const char *text, double *fraction);

/* Parses a whole number in [least, most]. Returns false for any other text. */
bool ebb__train_number_parse(const char *text, uint64_t least, uint64_t most, uint64_t *number);

/* Writes `3.42 GiB` into `out` (32 bytes are always enough); returns `out`. */
char *ebb__train_size_format(uint64_t bytes, char *out, size_t out_bytes);

#endif
