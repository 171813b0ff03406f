#include "lab/import/lifeless.h"

#include "lab/import/wire.h"

/* A pprof profile begins with the type of its samples: a message of two numbers, which are indexes
 * into its strings. */
static bool is_pprof(const uint8_t *bytes, size_t size)
{
    struct ebb_wire profile = {bytes, bytes + size, false};
    struct ebb_wire_field type, part;
    size_t parts = 0;
    if (!ebb__wire_next(&profile, &type) || type.number != 1 || type.kind != EBB_WIRE_BYTES)
        return false;
    while (ebb__wire_next(&type.bytes, &part)) {
        if (part.kind != EBB_WIRE_VARINT || part.number > 2)
            return false;
        parts++;
    }
    return parts == 2 && !type.bytes.damaged;
}

const struct ebb_lifeless *ebb__lifeless_find(const uint8_t *bytes, size_t size)
{
    static const struct ebb_lifeless pprof = {
        "is a pprof profile, as jax.profiler.save_device_memory_profile() writes: what is "
        "allocated at one moment, without lifetimes",
        "import XLA's buffer assignment (--xla_dump_to) or a profile (*.xplane.pb) instead"};
    return is_pprof(bytes, size) ? &pprof : NULL;
}
