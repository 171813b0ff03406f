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
#define HELP_COLUMN 22 /* the column of an option's help */
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
    }
    return -1;
}

int ebb__option_word(const char *text, const char *const *words, int count)
{
    for (int i = 0; i < count; i++)
        if (strcmp(text, words[i]) == 0)
            return i;
    return -1;
}

static bool is_known(const struct ebb_usage *usage, const struct ebb_option *option)
{
    return !option->commands || (option->commands & usage->commands);
}

void ebb__option_names(const char *(*names)(size_t index), int column)
{
    int at = column;
    for (size_t i = 0; names(i); i++) {
        int length = (int)strlen(names(i)) + 2; /* and the comma */
        if (i && at + length > LINE_COLUMNS) {
            printf("\n%*s", column, "");
            at = column;
        } else if (i) {
            putchar(' ');
        }
        printf("%s%s", names(i), names(i + 1) ? "," : "");
        at += length;
    }
}

static void option_print(const struct ebb_option *option)
{
    char head[64], letter[8] = "";
    if (option->letter)
        snprintf(letter, sizeof letter, "-%c, ", option->letter);
    snprintf(head, sizeof head, "  %s--%s%s%s", letter, option->name, option->argument ? " " : "",
             option->argument ? option->argument : "");
    printf("%-*s", HELP_COLUMN - 1, head);
    for (const char *line = option->help; *line;) {
        size_t length = strcspn(line, "\n");
        printf("%s%.*s", line == option->help ? " " : "", (int)length, line);
        line += length;
        if (*line) {
            printf("\n%*s", HELP_COLUMN, "");
            line++;
        }
    }
    if (option->names) {
        printf("\n%*s", HELP_COLUMN, "");
        ebb__option_names(option->names, HELP_COLUMN);
    }
    putchar('\n');
}

static void help_print(const struct ebb_usage *usage)
{
    fputs(usage->text, stdout);
    if (usage->more)
        usage->more();
    putchar('\n');
    for (size_t i = 0; i < usage->count; i++)
        if (is_known(usage, &usage->options[i]))
            option_print(&usage->options[i]);
    if (usage->tail)
        printf("\n%s", usage->tail);
}

int ebb__options_parse(const struct ebb_usage *usage, int argc, char **argv, void *values)
{
    const struct ebb_option *known[MOST_OPTIONS];
    struct option names[MOST_OPTIONS + 2] = {{"help", no_argument, NULL, HELP}};
    char letters[2 * MOST_OPTIONS + 3] = ":h", *end = letters + 2;
    size_t count = 0;
    for (size_t i = 0; i < usage->count; i++) {
        const struct ebb_option *option = &usage->options[i];
        if (!is_known(usage, option))
            continue;
        if (count == MOST_OPTIONS)
            abort();
        int argument = option->kind == EBB_OPTION_FLAG ? no_argument : required_argument;
        names[count + 1] = (struct option){option->name, argument, NULL, FIRST + (int)count};
        if (option->letter)
            *end++ = option->letter;
        if (option->letter && argument == required_argument)
            *end++ = ':';
        known[count++] = option;
    }
    opterr = 0;
    optind = 1;
    for (int found; (found = getopt_long(argc, argv, letters, names, NULL)) != -1;) {
        if (found == HELP) {
            help_print(usage);
            return 0;
        }
        if (found == ':')
            return ebb__command_usage(usage->command, "%s needs a value", argv[optind - 1]);
        size_t which = found >= FIRST ? (size_t)(found - FIRST) : 0;
        while (found < FIRST && which < count && known[which]->letter != found)
            which++;
        if (which == count)
            return ebb__command_usage(usage->command, "unknown option '%s'", argv[optind - 1]);
        int code = take(usage->command, known[which], (char *)values + known[which]->offset);
        if (code >= 0)
            return code;
    }
    return -1;
}
