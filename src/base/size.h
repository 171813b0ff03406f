/* Sizes and durations in human-readable form. Thread-safe: no state. */
#ifndef EBB_BASE_SIZE_H
#define EBB_BASE_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EBB_KIB ((uint64_t)1 << 10)
#define EBB_MIB ((uint64_t)1 << 20)
#define EBB_GIB ((uint64_t)1 << 30)

/* Parses `4G`, `4GiB`, `512MiB` (1024-based), `4GB` (1000-based), `4096`, `1.5G`. No sign, no
 * blanks. Returns false for any other text or more than 2^63 - 1; *bytes is then untouched. */
bool ebb_size_parse(const char *text, uint64_t *bytes);

/* Parses `60%`, `12.5%` into a fraction in (0, 10]. Returns false for any other text. */
bool ebb_percent_parse(const char *text, double *fraction);

/* Parses seconds, `5`, `0.1`, into nanoseconds. Returns false for any other text, a negative
 * number, or more than 10^9; *ns is then untouched. */
bool ebb_seconds_parse(const char *text, uint64_t *ns);

/* Writes `3.42 GiB`, `512 B` into `out` (32 bytes are always enough); returns `out`. */
char *ebb_size_format(uint64_t bytes, char *out, size_t out_bytes);

/* Writes `1.42 s`, `3.1 ms`, `250 ns` into `out` (32 bytes are always enough); returns `out`. */
char *ebb_duration_format(uint64_t ns, char *out, size_t out_bytes);

#endif
