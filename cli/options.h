/* Options of the offline commands: a table in each command instead of a loop.
 *
 *     struct options { const char *machine; uint64_t smallest_block_bytes; bool json; } options;
 *     static const struct ebb_option known[] = {
 *         {"machine", 0, EBB_OPTION_TEXT, offsetof(struct options, machine)},
 *         {"smallest-block", 0, EBB_OPTION_SIZE, offsetof(struct options, smallest_block_bytes)},
 *         {"json", 0, EBB_OPTION_FLAG, offsetof(struct options, json)}};
 *     int code = ebb__options_parse("plan", known, 3, print_help, argc, argv, &options);
 *     if (code >= 0) return code;    (operands: argv[optind] to argv[argc - 1])
 *
 * `-h` and `--help` are known to all. `ebb run` and `ebb record`, which stop at the first operand and
 * fail with codes of their own, do not use it. */
#ifndef EBB_CLI_OPTIONS_H
#define EBB_CLI_OPTIONS_H

#include <getopt.h> /* optind */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What follows the option, and what it becomes at its offset. */
enum ebb_option_kind {
    EBB_OPTION_FLAG,    /* nothing: bool, true */
    EBB_OPTION_TEXT,    /* anything: const char *, into argv */
    EBB_OPTION_SIZE,    /* as of ebb_size_parse(): uint64_t, bytes */
    EBB_OPTION_SECONDS, /* as of ebb_seconds_parse(): uint64_t, ns */
    EBB_OPTION_COUNT    /* a whole number above 0: uint64_t */
};

struct ebb_option {
    const char *name; /* without the dashes */
    char letter;      /* 0: none */
    enum ebb_option_kind kind;
    size_t offset; /* into the command's struct */
};

/* Which of `words` it is; -1: none. For values that are one of a few words. */
int ebb__option_word(const char *text, const char *const *words, int count);

/* Read the options of `command`, at most 16, into the struct at `values`; what is not given there
 * keeps its value. -1: go on, the operands begin at argv[optind]; else the exit code: usage was
 * complained about, or `print_help` was called. */
int ebb__options_parse(const char *command, const struct ebb_option *known, size_t count,
                       void (*print_help)(void), int argc, char **argv, void *values);

#endif
