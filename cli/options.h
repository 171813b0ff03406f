/* Options of the offline commands: a table of rows, which describes each option once.
 *
 *     struct options { const char *machine; uint64_t smallest_block_bytes; bool json; };
 *     struct options options = {0};
 *     static const struct ebb_option known[] = {
 *         {.name = "machine", .kind = EBB_OPTION_TEXT, .argument = "M",
 *          .offset = offsetof(struct options, machine), .help = "host, pcie3, or a JSON file"},
 *         {.name = "json", .kind = EBB_OPTION_FLAG, .offset = offsetof(struct options, json),
 *          .help = "one JSON object on stdout"},
 *         {0}};
 *     const struct ebb_usage ebb__usage_plan = {.command = "plan", .options = known,
 *                                               .text = "usage: ebb plan FILE [options]\n"};
 *     int code = ebb__options_parse(&ebb__usage_plan, argc, argv, &options);
 *     if (code >= 0) return code;    (operands: argv[optind] to argv[argc - 1])
 *
 * All commands know `-h` and `--help`, which print the text and the rows. The manual pages and the
 * completions of the shells are made from the same tables: describe.h. */
#ifndef EBB_CLI_OPTIONS_H
#define EBB_CLI_OPTIONS_H

#include <getopt.h> /* optind */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The argument of an option, and its type at the offset. */
enum ebb_option_kind {
    EBB_OPTION_FLAG,    /* none: bool, true */
    EBB_OPTION_TEXT,    /* any text: const char *, points into argv */
    EBB_OPTION_SIZE,    /* as in ebb_size_parse(): uint64_t, bytes */
    EBB_OPTION_SECONDS, /* as in ebb_seconds_parse(): uint64_t, ns */
    EBB_OPTION_COUNT,   /* a whole number above 0: uint64_t */
    EBB_OPTION_TEXTS,   /* any text, may be repeated: struct ebb_option_texts */
    EBB_OPTION_TUNE,    /* as in ebb__tune_take(): has no offset, may be repeated */
    EBB_OPTION_WORD     /* one of `words`: int, its index */
};

#define EBB_OPTION_TEXTS_MAX 32 /* a limit, large enough for the plans of one comparison */

struct ebb_option_texts {
    const char *items[EBB_OPTION_TEXTS_MAX]; /* point into argv */
    size_t count;
};

struct ebb_option {
    const char *name; /* without the dashes */
    char letter;      /* 0: none */
    enum ebb_option_kind kind;
    const char *argument;               /* its argument as help shows it; NULL for a flag. FILE,
                                           PLAN and DIR are completed as such */
    size_t offset;                      /* in the command's struct */
    unsigned commands;                  /* that have it: bits defined by the table; 0: all */
    const char *help;                   /* lines, no newline after the last */
    const char *(*names)(size_t index); /* words listed after the help, NULL after the last */
    const char *(*words)(size_t index); /* words that the help already names, likewise */
};

/* What follows the options. */
enum ebb_operands {
    EBB_OPERANDS_NONE,
    EBB_OPERANDS_FILES,
    EBB_OPERANDS_COMMAND, /* a program: options end before it, as it may have its own */
};

/* The usage of a command. */
struct ebb_usage {
    const char *command;
    const char *text;                 /* printed by --help above the options; lines */
    void (*more)(FILE *out);          /* prints lines between text and options; NULL: none */
    const struct ebb_option *options; /* a row without a name after the last */
    unsigned commands;                /* the bit of this command; 0 for a table of its own */
    const char *tail;                 /* printed by --help below the options; lines, or NULL */
    enum ebb_operands operands;
    int column;    /* where the help of an option begins; 0: 22 */
    int exit_code; /* of wrong usage; 0: 2 */
};

/* True if the option is one of this command. */
bool ebb__option_is_known(const struct ebb_usage *usage, const struct ebb_option *option);

/* Prints what --help prints. */
void ebb__options_help(const struct ebb_usage *usage, FILE *out);

/* Reads the options of a command, at most 24, into the struct at `values`. Fields of options that
 * are not given stay unchanged. Returns -1 to continue: the operands begin at argv[optind].
 * Otherwise returns the exit code, after it has printed a usage error or help. */
int ebb__options_parse(const struct ebb_usage *usage, int argc, char **argv, void *values);

#endif
