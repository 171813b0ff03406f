/* A hash map from uint64_t keys to uint64_t values: open addressing, linear probing, tombstone-free
 * deletion by backward shift. Expected O(1) per operation. Key UINT64_MAX is reserved. Not
 * thread-safe. Uses malloc, so the shim cannot use it. */
#ifndef EBB_BASE_MAP_H
#define EBB_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EBB_MAP_NO_KEY UINT64_MAX

struct ebb_map {
    uint64_t *keys;
    uint64_t *values;
    size_t capacity; /* a power of two, or 0 */
    size_t count;
};

/* A zeroed struct is a valid empty map. */
void ebb__map_fini(struct ebb_map *map);
/* Inserts or replaces. Returns false if out of memory; the map is then unchanged. */
bool ebb__map_put(struct ebb_map *map, uint64_t key, uint64_t value);
/* Returns true and sets *value if the key is present. `value` may be NULL. */
bool ebb__map_get(const struct ebb_map *map, uint64_t key, uint64_t *value);
/* Removes a key. Returns true if it was present and copies its value to *value (may be NULL). */
bool ebb__map_remove(struct ebb_map *map, uint64_t key, uint64_t *value);

#endif
