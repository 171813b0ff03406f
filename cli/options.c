#include "options.h"

#include "base/size.h"
#include "base/text.h"
#include "command.h"
#include "tune.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_OPTIONS 24
#define FIRST 256 /* getopt's value for known[0]: above all letters */
#define HELP 'h'
#define USUAL_COLUMN 22 /* the column of an option's help */
#define LINE_COLUMNS 96

static int take_text(const char *command, const struct ebb_option *option,
                     struct ebb_option_texts *texts)
{
    if (texts->count == EBB_OPTION_TEXTS_MAX)
        return ebb__command_usage(command, "--%s: at most %d times", option->name,
                                  EBB_OPTION_TEXTS_MAX);
    texts->items[texts->count++] = optarg;
    return -1;
}

static int take_word(const char *command, const struct ebb_option *option, int *word)
{
    for (*word = 0; option->words((size_t)*word); ++*word)
        if (strcmp(optarg, option->words((size_t)*word)) == 0)
            return -1;
    char known[128] = "";
    for (size_t i = 0, used = 0; option->words(i) && used < sizeof known; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "",
                                 option->words(i));
    return ebb__command_usage(command, "--%s: '%s' is none of %s", option->name, optarg, known);
}

/* Returns -1 or the exit code. */
static int take(const char *command, const struct ebb_option *option, void *value)
{
    struct ebb_text text = {optarg, optarg ? strlen(optarg) : 0};
    uint64_t *number = value;
    switch (option->kind) {
    case EBB_OPTION_FLAG:
        *(bool *)value = true;
        return -1;
    case EBB_OPTION_TEXT:
        *(const char **)value = optarg;
        return -1;
    case EBB_OPTION_SIZE:
        return ebb_size_parse(optarg, number)
                   ? -1
                   : ebb__command_usage(command, "--%s: '%s' is not a size", option->name, optarg);
    case EBB_OPTION_SECONDS:
        return ebb_seconds_parse(optarg, number)
                   ? -1
                   : ebb__command_usage(command, "--%s: '%s' is no number of seconds", option->name,
                                        optarg);
    case EBB_OPTION_COUNT:
        return !ebb__text_number(text, number) && *number
                   ? -1
                   : ebb__command_usage(command, "--%s: '%s' is not a whole number above 0",
                                        option->name, optarg);
    case EBB_OPTION_TEXTS:
        return take_text(command, option, value);
    case EBB_OPTION_TUNE:
        return ebb__tune_take(command, optarg);
    case EBB_OPTION_WORD:
        return take_word(command, option, value);
    }
    return -1;
}

bool ebb__option_is_known(const struct ebb_usage *usage, const struct ebb_option *option)
{
    return !option->commands || (option->commands & usage->commands);
}

/* Prints the names, separated by commas. */
static void names_print(const char *(*names)(size_t index), int column, FILE *out)
{
    int at = column;
    for (size_t i = 0; names(i); i++) {
        int length = (int)strlen(names(i)) + 2; /* and the comma */
        if (i && at + length > LINE_COLUMNS) {
            fprintf(out, "\n%*s", column, "");
            at = column;
        } else if (i) {
            putc(' ', out);
        }
        fprintf(out, "%s%s", names(i), names(i + 1) ? "," : "");
        at += length;
    }
}

static void option_print(const struct ebb_option *option, int column, bool indents, FILE *out)
{
    char head[64], letter[8] = "";
    if (option->letter)
        snprintf(letter, sizeof letter, "-%c, ", option->letter);
    else if (indents)
        snprintf(letter, sizeof letter, "    ");
    snprintf(head, sizeof head, "  %s--%s%s%s", letter, option->name, option->argument ? " " : "",
             option->argument ? option->argument : "");
    fprintf(out, "%-*s", column - 1, head);
    for (const char *line = option->help; *line;) {
        size_t length = strcspn(line, "\n");
        fprintf(out, "%s%.*s", line == option->help ? " " : "", (int)length, line);
        line += length;
        if (*line) {
            fprintf(out, "\n%*s", column, "");
            line++;
        }
    }
    if (option->names) {
        fprintf(out, "\n%*s", column, "");
        names_print(option->names, column, out);
    }
    putc('\n', out);
}

void ebb__options_help(const struct ebb_usage *usage, FILE *out)
{
    int column = usage->column ? usage->column : USUAL_COLUMN;
    fputs(usage->text, out);
    if (usage->more)
        usage->more(out);
    putc('\n', out);
    for (const struct ebb_option *option = usage->options; option->name; option++)
        if (ebb__option_is_known(usage, option))
            option_print(option, column, usage->column != 0, out);
    if (usage->tail)
        fprintf(out, "\n%s", usage->tail);
}

/* The options of a command as getopt takes them. */
struct known {
    const struct ebb_option *options[MOST_OPTIONS];
    struct option names[MOST_OPTIONS + 2];
    char letters[2 * MOST_OPTIONS + 4];
    size_t count;
};

static void known_fill(const struct ebb_usage *usage, struct known *known)
{
    *known = (struct known){.names = {{"help", no_argument, NULL, HELP}}};
    strcpy(known->letters, usage->operands == EBB_OPERANDS_COMMAND ? "+:h" : ":h");
    char *end = known->letters + strlen(known->letters);
    for (const struct ebb_option *option = usage->options; option->name; option++) {
        if (!ebb__option_is_known(usage, option))
            continue;
        if (known->count == MOST_OPTIONS)
            abort();
        int argument = option->kind == EBB_OPTION_FLAG ? no_argument : required_argument;
        known->names[known->count + 1] =
            (struct option){option->name, argument, NULL, FIRST + (int)known->count};
        if (option->letter)
            *end++ = option->letter;
        if (option->letter && argument == required_argument)
            *end++ = ':';
        known->options[known->count++] = option;
    }
}

/* The option that getopt has found, or NULL. */
static const struct ebb_option *known_find(const struct known *known, int found)
{
    size_t which = found >= FIRST ? (size_t)(found - FIRST) : 0;
    while (found < FIRST && which < known->count && known->options[which]->letter != found)
        which++;
    return which < known->count ? known->options[which] : NULL;
}

static int parse(const struct ebb_usage *usage, int argc, char **argv, void *values)
{
    struct known known;
    known_fill(usage, &known);
    opterr = 0;
    optind = 1;
    for (int found; (found = getopt_long(argc, argv, known.letters, known.names, NULL)) != -1;) {
        if (found == HELP) {
            ebb__options_help(usage, stdout);
            return 0;
        }
        if (found == ':')
            return ebb__command_usage(usage->command, "%s needs a value", argv[optind - 1]);
        const struct ebb_option *option = known_find(&known, found);
        if (!option)
            return ebb__command_usage(usage->command, "unknown option '%s'", argv[optind - 1]);
        int code = take(usage->command, option, (char *)values + option->offset);
        if (code >= 0)
            return code;
    }
    return -1;
}

int ebb__options_parse(const struct ebb_usage *usage, int argc, char **argv, void *values)
{
    int code = parse(usage, argc, argv, values);
    return code > 0 && usage->exit_code ? usage->exit_code : code;
}
