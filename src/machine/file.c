/* Machines in JSON; docs/formats/machine.md is the reference. */
#include "machine/machine.h"

#include "base/file.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_FIXED_NS 1000000000000 /* a limit: 1000 s for one transfer */

static enum ebb_status lane_read(const json_t *lane, const char *path, const char *name,
                                 struct ebb_lane *out, struct ebb_error *error)
{
    if (!json_is_object(lane))
        return ebb__fail(error, EBB_ERR_FORMAT, path, "member '%s' must be an object", name);
    const json_t *rate = json_object_get(lane, "bytes_per_second");
    const json_t *per_byte = json_object_get(lane, "ns_per_byte");
    const json_t *fixed = json_object_get(lane, "fixed_ns");
    if (json_is_number(rate) == json_is_number(per_byte))
        return ebb__fail(error, EBB_ERR_FORMAT, path,
                         "lane '%s' needs bytes_per_second or ns_per_byte, and not both", name);
    double value = json_number_value(rate ? rate : per_byte);
    if (!(value > 0))
        return ebb__fail(error, EBB_ERR_FORMAT, path, "lane '%s' has a rate that is not positive",
                         name);
    if (fixed && (!json_is_integer(fixed) || json_integer_value(fixed) < 0 ||
                  json_integer_value(fixed) > MOST_FIXED_NS))
        return ebb__fail(error, EBB_ERR_FORMAT, path, "lane '%s': fixed_ns must be from 0 to 10^12",
                         name);
    out->ns_per_byte = rate ? 1e9 / value : value;
    out->fixed_ns = fixed ? (uint64_t)json_integer_value(fixed) : 0;
    return EBB_OK;
}

/* A cost that may be missing. Returns false if it is there and no cost. */
static bool cost_read(const json_t *costs, const char *name, double *ns)
{
    const json_t *value = json_object_get(costs, name);
    double read = value ? json_number_value(value) : 0;
    if (value && (!json_is_number(value) || !(read >= 0) || read > MOST_FIXED_NS))
        return false;
    *ns = read;
    return true;
}

static enum ebb_status costs_read(const json_t *costs, const char *path,
                                  struct ebb_transfer_costs *out, struct ebb_error *error)
{
    double fixed_ns = 0;
    if (!costs)
        return EBB_OK;
    if (!json_is_object(costs) || !cost_read(costs, "huge_page_ns", &out->huge_page_ns) ||
        !cost_read(costs, "small_page_ns", &out->small_page_ns) ||
        !cost_read(costs, "ns_per_byte", &out->ns_per_byte) ||
        !cost_read(costs, "fixed_ns", &fixed_ns))
        return ebb__fail(error, EBB_ERR_FORMAT, path,
                         "member 'costs' must be an object of numbers from 0 to 10^12");
    out->fixed_ns = (uint64_t)fixed_ns;
    return EBB_OK;
}

enum ebb_status ebb__machine_from_json(const json_t *root, const char *path,
                                       struct ebb_machine *machine, struct ebb_error *error)
{
    struct ebb_machine read = {0};
    const json_t *name = json_object_get(root, "name");
    const json_t *duplex = json_object_get(root, "duplex");
    const char *schema = json_string_value(json_object_get(root, "schema"));
    enum ebb_status status = EBB_OK;
    snprintf(read.name, sizeof read.name, "%s",
             json_is_string(name) ? json_string_value(name) : "file");
    read.duplex = json_is_true(duplex);
    if (!schema || strcmp(schema, "ebb.machine/1") != 0)
        status = ebb__fail(error, EBB_ERR_FORMAT, path, "member schema is not ebb.machine/1");
    else if (name && !json_is_string(name))
        status = ebb__fail(error, EBB_ERR_FORMAT, path, "member name must be a string");
    else if (duplex && !json_is_boolean(duplex))
        status = ebb__fail(error, EBB_ERR_FORMAT, path, "member duplex must be true or false");
    if (!status)
        status = lane_read(json_object_get(root, "out"), path, "out", &read.out, error);
    if (!status)
        status = lane_read(json_object_get(root, "in"), path, "in", &read.in, error);
    if (!status)
        status = costs_read(json_object_get(root, "costs"), path, &read.costs, error);
    if (!status)
        *machine = read;
    return status;
}

enum ebb_status ebb__machine_read_memory(const void *bytes, size_t size, const char *name,
                                         struct ebb_machine *machine, struct ebb_error *error)
{
    json_error_t where;
    json_t *root = json_loadb(bytes, size, JSON_REJECT_DUPLICATES, &where);
    if (!root)
        return ebb__fail(error, EBB_ERR_FORMAT, name, "line %d: %s", where.line, where.text);
    enum ebb_status status = ebb__machine_from_json(root, name, machine, error);
    json_decref(root);
    return status;
}

enum ebb_status ebb__machine_read(const char *path, struct ebb_machine *machine,
                                  struct ebb_error *error)
{
    struct ebb_file_content content;
    enum ebb_status status = ebb__file_read(path, "a machine", 0, NULL, &content, error);
    if (!status)
        status = ebb__machine_read_memory(content.bytes, content.size, path, machine, error);
    free(content.bytes);
    return status;
}

json_t *ebb__machine_to_json(const struct ebb_machine *machine)
{
    const struct ebb_lane *lanes[] = {&machine->out, &machine->in};
    const struct ebb_transfer_costs *costs = &machine->costs;
    static const char *const names[] = {"out", "in"};
    json_t *object = json_object();
    json_object_set_new(object, "schema", json_string("ebb.machine/1"));
    json_object_set_new(object, "name", json_string(machine->name));
    for (int i = 0; i < 2; i++)
        json_object_set_new(object, names[i],
                            json_pack("{s:f, s:I}", "ns_per_byte", lanes[i]->ns_per_byte,
                                      "fixed_ns", (json_int_t)lanes[i]->fixed_ns));
    json_object_set_new(object, "duplex", json_boolean(machine->duplex));
    json_object_set_new(object, "costs",
                        json_pack("{s:f, s:f, s:f, s:I}", "huge_page_ns", costs->huge_page_ns,
                                  "small_page_ns", costs->small_page_ns, "ns_per_byte",
                                  costs->ns_per_byte, "fixed_ns", (json_int_t)costs->fixed_ns));
    return object;
}
