/* Options of the offline commands: a table of rows, each option described once.
 *
 *     struct options { const char *machine; uint64_t smallest_block_bytes; bool json; } options = {0};
 *     static const struct ebb_option known[] = {
 *         {.name = "machine", .kind = EBB_OPTION_TEXT, .argument = "M",
 *          .offset = offsetof(struct options, machine), .help = "host, pcie3, or a JSON file"},
 *         {.name = "json", .kind = EBB_OPTION_FLAG, .offset = offsetof(struct options, json),
 *          .help = "one JSON object on stdout"}};
 *     static const struct ebb_usage usage = {.command = "plan", .options = known, .count = 2,
 *                                            .text = "usage: ebb plan FILE [options]\n"};
 *     int code = ebb__options_parse(&usage, argc, argv, &options);
 *     if (code >= 0) return code;    (operands: argv[optind] to argv[argc - 1])
 *
 * `-h` and `--help` are known to all and print the text and the rows. `ebb run` and `ebb record`, which
 * stop at the first operand and fail with codes of their own, do not use it. */
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
    EBB_OPTION_COUNT,   /* a whole number above 0: uint64_t */
    EBB_OPTION_TUNE     /* as of ebb__tune_take(): no place of its own, any number of times */
};

struct ebb_option {
    const char *name; /* without the dashes */
    char letter;      /* 0: none */
    enum ebb_option_kind kind;
    const char *argument;               /* what follows, for people; NULL for a flag */
    size_t offset;                      /* into the command's struct */
    unsigned commands;                  /* whose it is: bits of the table's own; 0: everybody's */
    const char *help;                   /* lines, without an end of line behind the last */
    const char *(*names)(size_t index); /* words to list behind the help, NULL behind the last */
};

/* How a command is used. */
struct ebb_usage {
    const char *command;
    const char *text;   /* what --help says above the options; lines */
    void (*more)(void); /* prints what stands between text and options; NULL: nothing */
    const struct ebb_option *options;
    size_t count;
    unsigned commands; /* the bit of this command; 0 for a table of its own */
    const char *tail;  /* what --help says below the options; lines, or NULL */
};

/* Which of `words` it is; -1: none. For values that are one of a few words. */
int ebb__option_word(const char *text, const char *const *words, int count);

/* Print `names` after `column` columns, with commas, broken before column 100. */
void ebb__option_names(const char *(*names)(size_t index), int column);

/* Read the options of a command, at most 16, into the struct at `values`; what is not given there
 * keeps its value. -1: go on, the operands begin at argv[optind]; else the exit code: usage was
 * complained about, or help was printed. */
int ebb__options_parse(const struct ebb_usage *usage, int argc, char **argv, void *values);

#endif
