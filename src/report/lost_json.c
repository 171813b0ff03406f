#include "report/lost_json.h"

#include <string.h>

json_t *ebb__lost_to_json(const struct ebb_lost *lost)
{
    json_t *array = json_array();
    for (uint32_t i = 0; lost->has_waits && i < lost->count; i++) {
        const struct ebb_lost_iteration *iteration = &lost->iterations[i];
        json_t *object = json_object();
        json_object_set_new(object, "ns", json_integer((json_int_t)iteration->ns));
        for (int c = 0; c < EBB_LOST_CAUSES; c++)
            json_object_set_new(object, ebb__lost_cause_name((enum ebb_lost_cause)c),
                                json_integer((json_int_t)iteration->cause_ns[c]));
        json_array_append_new(array, object);
    }
    return array;
}

static bool read_ns(const json_t *object, const char *name, uint64_t *ns)
{
    const json_t *value = json_object_get(object, name);
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return false;
    *ns = (uint64_t)json_integer_value(value);
    return true;
}

bool ebb__lost_from_json(const json_t *array, struct ebb_lost *lost)
{
    memset(lost, 0, sizeof *lost);
    bool good = json_is_array(array) && json_array_size(array) <= EBB_LOST_ITERATIONS;
    for (size_t i = 0; good && i < json_array_size(array); i++) {
        struct ebb_lost_iteration *iteration = &lost->iterations[lost->count++];
        const json_t *object = json_array_get(array, i);
        good = read_ns(object, "ns", &iteration->ns);
        for (int c = 0; good && c < EBB_LOST_CAUSES; c++)
            good = read_ns(object, ebb__lost_cause_name((enum ebb_lost_cause)c),
                           &iteration->cause_ns[c]);
    }
    lost->has_waits = good && lost->count;
    if (!good)
        memset(lost, 0, sizeof *lost);
    return good;
}
