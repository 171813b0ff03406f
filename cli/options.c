#include "options.h"

#include "base/size.h"
#include "command.h"
#include "trace/import/text.h"

#include <stdlib.h>
#include <string.h>

#define MOST_OPTIONS 16
#define FIRST 256 /* what getopt says for known[0]: above all letters */
#define HELP 'h'

/* -1, or the exit code. */
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

int ebb__options_parse(const char *command, const struct ebb_option *known, size_t count,
                       void (*print_help)(void), int argc, char **argv, void *values)
{
    struct option names[MOST_OPTIONS + 2] = {{"help", no_argument, NULL, HELP}};
    char letters[2 * MOST_OPTIONS + 3] = ":h", *end = letters + 2;
    if (count > MOST_OPTIONS)
        abort();
    for (size_t i = 0; i < count; i++) {
        int argument = known[i].kind == EBB_OPTION_FLAG ? no_argument : required_argument;
        names[i + 1] = (struct option){known[i].name, argument, NULL, FIRST + (int)i};
        if (known[i].letter)
            *end++ = known[i].letter;
        if (known[i].letter && argument == required_argument)
            *end++ = ':';
    }
    opterr = 0;
    optind = 1;
    for (int found; (found = getopt_long(argc, argv, letters, names, NULL)) != -1;) {
        if (found == HELP) {
            print_help();
            return 0;
        }
        if (found == ':')
            return ebb__command_usage(command, "%s needs a value", argv[optind - 1]);
        size_t which = found >= FIRST ? (size_t)(found - FIRST) : 0;
        while (found < FIRST && which < count && known[which].letter != found)
            which++;
        if (which == count)
            return ebb__command_usage(command, "unknown option '%s'", argv[optind - 1]);
        int code = take(command, &known[which], (char *)values + known[which].offset);
        if (code >= 0)
            return code;
    }
    return -1;
}
