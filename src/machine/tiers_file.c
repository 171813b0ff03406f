/* Machines with tiers in JSON; docs/formats/machine.md is the reference. A quantity is a number in
 * the unit of its name, or a text with a unit: "39.4GB/s", "192GiB", "305ns". */
#include "machine/tiers.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 1e18 /* a limit for any quantity, so that sums stay finite */

struct unit {
    const char *name;
    double factor;
};

static const struct unit rate_units[] = {{"B/s", 1},        {"KB/s", 1e3},     {"MB/s", 1e6},
                                         {"GB/s", 1e9},     {"KiB/s", 1024.0}, {"MiB/s", 0x1p20},
                                         {"GiB/s", 0x1p30}, {NULL, 0}};
static const struct unit size_units[] = {
    {"B", 1},        {"KB", 1e3},     {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12},
    {"KiB", 1024.0}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}, {NULL, 0}};
static const struct unit time_units[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {NULL, 0}};

/* Where an object stands, for messages. */
struct place {
    const char *path, *owner;
    struct ebb_error *error;
};

static enum ebb_status unit_apply(const struct place *place, const char *name, const char *text,
                                  const struct unit *units, double *value)
{
    char *end;
    *value = strtod(text, &end);
    if (end == text)
        return ebb__fail(place->error, EBB_ERR_FORMAT, place->path, "%s: %s '%s' is no quantity",
                         place->owner, name, text);
    while (*end == ' ')
        end++;
    for (const struct unit *unit = units; unit->name; unit++) {
        if (strcmp(unit->name, end) == 0) {
            *value *= unit->factor;
            return EBB_OK;
        }
    }
    return ebb__fail(place->error, EBB_ERR_FORMAT, place->path, "%s: %s has the unknown unit '%s'",
                     place->owner, name, end);
}

/* Reads a quantity. A missing one leaves *value as it is if `may_lack`. */
static enum ebb_status quantity(const struct place *place, const json_t *object, const char *name,
                                const struct unit *units, bool may_lack, double *value)
{
    const json_t *given = json_object_get(object, name);
    double read = 0;
    if (!given)
        return may_lack ? EBB_OK
                        : ebb__fail(place->error, EBB_ERR_FORMAT, place->path,
                                    "%s has no member '%s'", place->owner, name);
    if (json_is_number(given)) {
        read = json_number_value(given);
    } else if (json_is_string(given) && units) {
        enum ebb_status status = unit_apply(place, name, json_string_value(given), units, &read);
        if (status)
            return status;
    } else {
        return ebb__fail(place->error, EBB_ERR_FORMAT, place->path, "%s: %s must be a number%s",
                         place->owner, name, units ? ", or a text with a unit" : "");
    }
    if (!(read >= 0) || read > MOST)
        return ebb__fail(place->error, EBB_ERR_FORMAT, place->path,
                         "%s: %s must be from 0 to 10^18", place->owner, name);
    *value = read;
    return EBB_OK;
}

/* Reads a rate, as ns a byte. */
static enum ebb_status rate(const struct place *place, const json_t *object, const char *name,
                            double *ns_per_byte)
{
    double value = 0;
    enum ebb_status status = quantity(place, object, name, rate_units, false, &value);
    if (!status && !(value > 0))
        status = ebb__fail(place->error, EBB_ERR_FORMAT, place->path, "%s: %s must be above 0",
                           place->owner, name);
    if (!status)
        *ns_per_byte = 1e9 / value;
    return status;
}

static enum ebb_status tier_read(const struct place *place, const json_t *object,
                                 struct ebb_tier *tier)
{
    double capacity = 0, line = 64;
    const char *name = json_string_value(json_object_get(object, "name"));
    if (!json_is_object(object))
        return ebb__fail(place->error, EBB_ERR_FORMAT, place->path, "%s is missing or no object",
                         place->owner);
    snprintf(tier->name, sizeof tier->name, "%s", name ? name : place->owner);
    enum ebb_status status = rate(place, object, "read", &tier->read_ns_per_byte);
    if (!status)
        status = rate(place, object, "write", &tier->write_ns_per_byte);
    if (!status)
        status = quantity(place, object, "latency", time_units, true, &tier->latency_ns);
    if (!status)
        status = quantity(place, object, "capacity", size_units, true, &capacity);
    if (!status)
        status = quantity(place, object, "line", size_units, true, &line);
    if (!status)
        status = quantity(place, object, "price_per_gib", NULL, true, &tier->price_per_gib);
    if (!status && (line < 1 || line > 65536))
        status = ebb__fail(place->error, EBB_ERR_FORMAT, place->path,
                           "%s: line must be from 1 to 65536 bytes", place->owner);
    tier->capacity_bytes = (uint64_t)capacity;
    tier->line_bytes = status ? 1 : (uint32_t)line;
    return status;
}

static enum ebb_status lane_read(const struct place *place, const json_t *object,
                                 struct ebb_lane *lane)
{
    double fixed = 0;
    if (!json_is_object(object))
        return ebb__fail(place->error, EBB_ERR_FORMAT, place->path, "%s is missing or no object",
                         place->owner);
    enum ebb_status status = rate(place, object, "bytes_per_second", &lane->ns_per_byte);
    if (!status)
        status = quantity(place, object, "fixed_ns", time_units, true, &fixed);
    if (!status && fixed > 1e12)
        status = ebb__fail(place->error, EBB_ERR_FORMAT, place->path,
                           "%s: fixed_ns must be from 0 to 10^12", place->owner);
    if (!status)
        lane->fixed_ns = (uint64_t)llround(fixed);
    return status;
}

static enum ebb_status page_read(const struct place *place, const json_t *root,
                                 struct ebb_tier_machine *machine)
{
    double page = 4096;
    enum ebb_status status = quantity(place, root, "page", size_units, true, &page);
    uint64_t bytes = status ? 0 : (uint64_t)page;
    if (!status && (page > 0x1p30 || bytes == 0 || (bytes & (bytes - 1))))
        status = ebb__fail(place->error, EBB_ERR_FORMAT, place->path,
                           "page must be a power of two up to 1 GiB");
    machine->page_bytes = status ? 1 : (uint32_t)bytes;
    return status;
}

static enum ebb_status parts_read(const json_t *root, const char *path,
                                  struct ebb_tier_machine *machine, struct ebb_error *error)
{
    const json_t *tiers = json_object_get(root, "tiers");
    const json_t *duplex = json_object_get(root, "duplex");
    static const char *const names[] = {"tier 0", "tier 1"};
    struct place place = {path, "the machine", error};
    if (!json_is_array(tiers) || json_array_size(tiers) != EBB_TIER_COUNT)
        return ebb__fail(error, EBB_ERR_FORMAT, path,
                         "member tiers must be an array of %d tiers, the fast one first",
                         EBB_TIER_COUNT);
    if (duplex && !json_is_boolean(duplex))
        return ebb__fail(error, EBB_ERR_FORMAT, path, "member duplex must be true or false");
    machine->duplex = json_is_true(duplex);
    enum ebb_status status = page_read(&place, root, machine);
    for (size_t i = 0; !status && i < EBB_TIER_COUNT; i++) {
        place.owner = names[i];
        status = tier_read(&place, json_array_get(tiers, i), &machine->tiers[i]);
    }
    place.owner = "lane 'out'";
    if (!status)
        status = lane_read(&place, json_object_get(root, "out"), &machine->out);
    place.owner = "lane 'in'";
    if (!status)
        status = lane_read(&place, json_object_get(root, "in"), &machine->in);
    return status;
}

enum ebb_status ebb__tiers_read_memory(const void *bytes, size_t size, const char *name,
                                       struct ebb_tier_machine *machine, struct ebb_error *error)
{
    json_error_t where;
    struct ebb_tier_machine read = {.name = "file"};
    json_t *root = json_loadb(bytes, size, JSON_REJECT_DUPLICATES, &where);
    if (!root)
        return ebb__fail(error, EBB_ERR_FORMAT, name, "line %d: %s", where.line, where.text);
    const char *schema = json_string_value(json_object_get(root, "schema"));
    const char *called = json_string_value(json_object_get(root, "name"));
    enum ebb_status status = EBB_OK;
    if (!schema || strcmp(schema, "ebb.machine/1") != 0)
        status = ebb__fail(error, EBB_ERR_FORMAT, name, "member schema is not ebb.machine/1");
    if (!status)
        status = parts_read(root, name, &read, error);
    if (called)
        snprintf(read.name, sizeof read.name, "%s", called);
    json_decref(root);
    if (!status)
        *machine = read;
    return status;
}
