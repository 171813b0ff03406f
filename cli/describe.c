#include "describe.h"

#include "options.h"

#include <jansson.h>
#include <stdlib.h>

static const char *kind_name(enum ebb_option_kind kind)
{
    static const char *const names[] = {
        [EBB_OPTION_FLAG] = "flag",   [EBB_OPTION_TEXT] = "text",       [EBB_OPTION_SIZE] = "size",
        [EBB_OPTION_COUNT] = "count", [EBB_OPTION_SECONDS] = "seconds", [EBB_OPTION_TEXTS] = "text",
        [EBB_OPTION_TUNE] = "text",   [EBB_OPTION_WORD] = "word"};
    return names[kind];
}

static json_t *words_of(const char *(*words)(size_t index))
{
    json_t *list = json_array();
    for (size_t i = 0; words && words(i); i++)
        json_array_append_new(list, json_string(words(i)));
    return list;
}

static json_t *option_of(const struct ebb_option *option)
{
    char letter[2] = {option->letter, 0};
    bool repeats = option->kind == EBB_OPTION_TEXTS || option->kind == EBB_OPTION_TUNE;
    return json_pack("{s:s, s:s?, s:s, s:s?, s:b, s:s, s:o, s:o}", "name", option->name, "letter",
                     letter[0] ? letter : NULL, "kind", kind_name(option->kind), "argument",
                     option->argument, "repeats", repeats, "help", option->help, "names",
                     words_of(option->names), "words", words_of(option->words));
}

/* What the command prints between its text and its options. */
static json_t *more_of(const struct ebb_usage *usage)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (out && usage->more)
        usage->more(out);
    if (out)
        fclose(out);
    json_t *more = json_string(text ? text : "");
    free(text);
    return more;
}

static json_t *command_of(const struct ebb_command *command)
{
    static const char *const operands[] = {[EBB_OPERANDS_NONE] = "none",
                                           [EBB_OPERANDS_FILES] = "files",
                                           [EBB_OPERANDS_COMMAND] = "command"};
    const struct ebb_usage *usage = command->usage;
    json_t *options = json_array();
    for (const struct ebb_option *option = usage->options; option->name; option++)
        if (ebb__option_is_known(usage, option))
            json_array_append_new(options, option_of(option));
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:s, s:s}", "name", command->name, "does",
                     command->does, "text", usage->text, "more", more_of(usage), "options", options,
                     "tail", usage->tail ? usage->tail : "", "operands", operands[usage->operands]);
}

int ebb__describe(const struct ebb_command *commands, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        if (commands[i].usage->command)
            json_array_append_new(list, command_of(&commands[i]));
    json_t *root = json_pack("{s:s, s:s, s:o}", "schema", "ebb.describe/1", "version", EBB_VERSION,
                             "commands", list);
    bool failed = !root || json_dumpf(root, stdout, JSON_INDENT(1)) != 0 || fflush(stdout) != 0;
    json_decref(root);
    return failed || putchar('\n') == EOF;
}
