#include "serials.h"

#include <string.h>

/* Serials up to this many times the index are looked up in the array. */
enum { DENSE_SHARE = 8, DENSE_ALWAYS = 1024 };

bool ebb__serials_put(struct ebb_serials *serials, uint64_t serial, size_t index)
{
    if (serial >= serials->dense.count) {
        if (serial >= DENSE_ALWAYS + DENSE_SHARE * (uint64_t)index)
            return ebb__map_put(&serials->sparse, serial, index);
        size_t count = serials->dense.count, wanted = (size_t)serial + 1;
        if (!ebb_vec_reserve(&serials->dense, wanted))
            return false;
        memset(serials->dense.items + count, 0, (wanted - count) * sizeof *serials->dense.items);
        serials->dense.count = wanted;
    }
    serials->dense.items[serial] = (uint32_t)index + 1;
    return true;
}

bool ebb__serials_get(const struct ebb_serials *serials, uint64_t serial, size_t *index)
{
    if (serial < serials->dense.count && serials->dense.items[serial]) {
        *index = serials->dense.items[serial] - 1;
        return true;
    }
    uint64_t found;
    if (serials->sparse.count == 0 || !ebb__map_get(&serials->sparse, serial, &found))
        return false;
    *index = (size_t)found;
    return true;
}

void ebb__serials_fini(struct ebb_serials *serials)
{
    ebb_vec_free(&serials->dense);
    ebb__map_fini(&serials->sparse);
}
