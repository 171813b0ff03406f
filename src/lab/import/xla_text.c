/* The sections, and the lines that are read of them:
 *
 *     BufferAssignment:
 *     allocation 0: size 65536, parameter 0, shape ...
 *      value: <145 NAME @0> (size=32768,offset=0): f32[64,128]{1,0}
 *     Used values:
 *     <145 NAME @0>
 *      uses:
 *       INSTRUCTION, operand 0
 *     HloLiveRange (max 42):
 *       InstructionSequence:
 *         0:INSTRUCTION
 *       BufferLiveRange:
 *         NAME{}:11-12
 *
 * Uses and live ranges name what other sections define, and sections may be in any order. So the
 * file is read in two passes, the second for these two sections. Source: the functions that print
 * them in buffer_assignment.cc, hlo_value.cc and hlo_live_range.cc of openxla/xla. */
#include "lab/import/xla_text.h"

#include <inttypes.h>
#include <string.h>
#include <xxhash.h>

#define TICK_LIMIT ((uint64_t)1 << 32) /* arbitrary: instructions of a module */

enum section { SECTION_NONE, SECTION_ASSIGNMENT, SECTION_VALUES, SECTION_SEQUENCE, SECTION_RANGES };

struct reader {
    struct ebb_xla *xla;
    const char *name;
    struct ebb_error *error;
    uint64_t line;
    enum section section;
    bool in_uses;     /* of the value below */
    uint64_t current; /* value in the section of uses; UINT64_MAX: none that has memory */
};

static enum ebb_status fail(const struct reader *r, const char *why)
{
    return ebb__fail(r->error, EBB_ERR_FORMAT, r->name, "line %" PRIu64 ": %s", r->line, why);
}

static enum ebb_status fail_memory(const struct reader *r)
{
    return ebb__fail(r->error, EBB_ERR_MEMORY, r->name, "no memory for its values");
}

static bool starts(struct ebb_text text, const char *with)
{
    return text.size >= strlen(with) && !memcmp(text.at, with, strlen(with));
}

static bool contains(struct ebb_text text, const char *word)
{
    return text.size && memmem(text.at, text.size, word, strlen(word));
}

static bool same(struct ebb_text a, struct ebb_text b)
{
    return a.size == b.size && (!a.size || !memcmp(a.at, b.at, a.size));
}

/* Cuts `text` at the first `mark`: returns what is before it, and leaves what is behind. */
static struct ebb_text cut(struct ebb_text *text, char mark)
{
    const char *at = text->size ? memchr(text->at, mark, text->size) : NULL;
    struct ebb_text before = {text->at, at ? (size_t)(at - text->at) : text->size};
    size_t taken = at ? before.size + 1 : before.size;
    *text = (struct ebb_text){text->at + taken, text->size - taken};
    return before;
}

/* The number behind `key`, for example size=NUMBER. */
static bool number_after(struct ebb_text text, const char *key, uint64_t *number)
{
    const char *at = text.size ? memmem(text.at, text.size, key, strlen(key)) : NULL;
    if (!at)
        return false;
    struct ebb_text digits = {at + strlen(key), 0};
    const char *end = text.at + text.size;
    while (digits.at + digits.size < end && digits.at[digits.size] >= '0' &&
           digits.at[digits.size] <= '9')
        digits.size++;
    return !ebb__text_number(digits, number);
}

/* A name without the braces of an array, "x{}", which only some sections have. */
static struct ebb_text bare(struct ebb_text name)
{
    if (name.size > 2 && name.at[name.size - 2] == '{' && name.at[name.size - 1] == '}')
        name.size -= 2;
    return name;
}

/* Takes the name out of "<145 NAME (phi) @0>...". Empty if it is not like this. */
static struct ebb_text value_name(struct ebb_text *line)
{
    struct ebb_text inside = cut(line, '>');
    cut(&inside, '<');
    cut(&inside, ' ');
    return bare(cut(&inside, ' '));
}

/* The key that a name has in the map, or would get. */
static uint64_t key_of(const struct ebb_xla *xla, const struct ebb_map *map, struct ebb_text name)
{
    uint64_t key = XXH3_64bits(name.at, name.size), index;
    for (;; key++) {
        if (key == EBB_MAP_NO_KEY)
            key = 0;
        if (!ebb__map_get(map, key, &index))
            return key;
        struct ebb_text known = map == &xla->value_names ? xla->values.items[index].name
                                                         : xla->instructions.items[index];
        if (same(known, name))
            return key;
    }
}

static uint64_t find(const struct ebb_xla *xla, const struct ebb_map *map, struct ebb_text name)
{
    uint64_t index;
    return name.size && ebb__map_get(map, key_of(xla, map, name), &index) ? index : UINT64_MAX;
}

static enum ebb_status read_allocation(struct reader *r, struct ebb_text line)
{
    struct ebb_xla_allocation allocation = {.is_lasting = contains(line, ", parameter ") ||
                                                          contains(line, ", constant"),
                                            .is_local = contains(line, ", thread-local")};
    if (!number_after(line, ": size ", &allocation.size_bytes))
        return fail(r, "an allocation has no size");
    return ebb_vec_push(&r->xla->allocations, allocation) ? EBB_OK : fail_memory(r);
}

static enum ebb_status read_value(struct reader *r, struct ebb_text line)
{
    struct ebb_xla *xla = r->xla;
    struct ebb_xla_value value = {.name = value_name(&line)};
    if (!xla->allocations.count)
        return fail(r, "a value stands before any allocation");
    value.allocation = (uint32_t)(xla->allocations.count - 1);
    uint64_t whole = xla->allocations.items[value.allocation].size_bytes;
    if (!value.name.size || !number_after(line, "(size=", &value.size_bytes) ||
        !number_after(line, ",offset=", &value.offset_bytes))
        return fail(r, "a value lacks its name, size or offset");
    if (value.offset_bytes > whole || value.size_bytes > whole - value.offset_bytes)
        return fail(r, "a value lies outside of its allocation");
    uint64_t key = key_of(xla, &xla->value_names, value.name);
    if (ebb__map_get(&xla->value_names, key, NULL))
        return fail(r, "a value has two places");
    return ebb_vec_push(&xla->values, value) &&
                   ebb__map_put(&xla->value_names, key, xla->values.count - 1)
               ? EBB_OK
               : fail_memory(r);
}

static enum ebb_status read_instruction(struct reader *r, struct ebb_text line)
{
    struct ebb_xla *xla = r->xla;
    uint64_t tick;
    if (ebb__text_number(cut(&line, ':'), &tick) || tick != xla->instructions.count ||
        tick >= TICK_LIMIT)
        return fail(r, "instructions are not numbered from 0");
    uint64_t key = key_of(xla, &xla->instruction_names, line);
    if (!ebb_vec_push(&xla->instructions, line) ||
        !ebb__map_put(&xla->instruction_names, key, tick))
        return fail_memory(r);
    if (tick >= xla->tick_count)
        xla->tick_count = tick + 1;
    return EBB_OK;
}

static enum ebb_status read_range(struct reader *r, struct ebb_text line)
{
    struct ebb_xla *xla = r->xla;
    size_t colon = line.size;
    while (colon && line.at[colon - 1] != ':')
        colon--;
    if (!colon)
        return fail(r, "a live range has no colon");
    struct ebb_text name = {line.at, colon - 1};
    struct ebb_text last = {line.at + colon, line.size - colon};
    struct ebb_text first = cut(&last, '-');
    uint64_t first_tick, last_tick;
    if (ebb__text_number(first, &first_tick) || ebb__text_number(last, &last_tick) ||
        last_tick < first_tick || last_tick >= TICK_LIMIT)
        return fail(r, "a live range is not FIRST-LAST");
    if (last_tick >= xla->tick_count)
        xla->tick_count = last_tick + 1;
    uint64_t index = find(xla, &xla->value_names, bare(name));
    if (index == UINT64_MAX)
        return EBB_OK; /* it shares the memory of another value, and has none of its own */
    struct ebb_xla_value *value = &xla->values.items[index];
    value->first_tick = first_tick;
    value->last_tick = last_tick;
    value->has_range = true;
    return EBB_OK;
}

/* Reads a line of "Used values". */
static enum ebb_status read_use(struct reader *r, struct ebb_text line, struct ebb_text trimmed)
{
    struct ebb_xla *xla = r->xla;
    if (starts(line, "<")) {
        r->current = find(xla, &xla->value_names, value_name(&line));
        r->in_uses = false;
    } else if (starts(line, " ") && !starts(line, "  ")) {
        r->in_uses = ebb__text_is(trimmed, "uses:");
    } else if (r->in_uses && r->current != UINT64_MAX) {
        struct ebb_xla_use use = {.value = (uint32_t)r->current};
        use.tick = find(xla, &xla->instruction_names, cut(&trimmed, ','));
        if (use.tick != UINT64_MAX && !ebb_vec_push(&xla->uses, use))
            return fail_memory(r);
    }
    return EBB_OK;
}

/* True if the line begins or ends a section. */
static bool change_section(struct reader *r, struct ebb_text line)
{
    struct ebb_xla *xla = r->xla;
    if (ebb__text_is(line, "BufferAssignment:")) {
        r->section = SECTION_ASSIGNMENT;
        xla->has_assignment = true;
    } else if (ebb__text_is(line, "Used values:")) {
        r->section = SECTION_VALUES;
        xla->has_uses = true;
    } else if (ebb__text_is(line, "InstructionSequence:")) {
        r->section = SECTION_SEQUENCE;
    } else if (ebb__text_is(line, "BufferLiveRange:")) {
        r->section = SECTION_RANGES;
        xla->has_ranges = true;
    } else if (starts(line, "HloLiveRange ") || starts(line, "Live ranges at ") ||
               starts(line, "Total bytes used:") || starts(line, "Stack trace breakdown")) {
        r->section = SECTION_NONE;
    } else {
        return false;
    }
    return true;
}

static enum ebb_status read_pass(struct reader *r, struct ebb_text text, bool second)
{
    struct ebb_text line;
    enum ebb_status status = EBB_OK;
    r->line = 0;
    r->section = SECTION_NONE;
    r->current = UINT64_MAX;
    while (!status && ebb__text_line(&text, &line)) {
        struct ebb_text trimmed = line;
        r->line++;
        while (trimmed.size && *trimmed.at == ' ')
            trimmed = (struct ebb_text){trimmed.at + 1, trimmed.size - 1};
        if (!trimmed.size || change_section(r, trimmed))
            continue;
        if (second)
            status = r->section == SECTION_VALUES   ? read_use(r, line, trimmed)
                     : r->section == SECTION_RANGES ? read_range(r, trimmed)
                                                    : EBB_OK;
        else if (r->section == SECTION_ASSIGNMENT && starts(trimmed, "allocation "))
            status = read_allocation(r, trimmed);
        else if (r->section == SECTION_ASSIGNMENT && starts(trimmed, "value: "))
            status = read_value(r, trimmed);
        else if (r->section == SECTION_SEQUENCE)
            status = read_instruction(r, trimmed);
    }
    return status;
}

enum ebb_status ebb__xla_read_text(const uint8_t *bytes, size_t size, const char *name,
                                   struct ebb_xla *xla, struct ebb_error *error)
{
    struct reader r = {.xla = xla, .name = name, .error = error};
    struct ebb_text text = {(const char *)bytes, size};
    enum ebb_status status = read_pass(&r, text, false);
    return status ? status : read_pass(&r, text, true);
}

void ebb__xla_fini(struct ebb_xla *xla)
{
    ebb_vec_free(&xla->allocations);
    ebb_vec_free(&xla->values);
    ebb_vec_free(&xla->uses);
    ebb_vec_free(&xla->instructions);
    ebb__map_fini(&xla->value_names);
    ebb__map_fini(&xla->instruction_names);
}
