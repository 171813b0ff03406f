#include "base/map.h"

#include <stdlib.h>
#include <string.h>

static size_t slot_of(const struct ebb_map *map, uint64_t key)
{
    /* Fibonacci hashing: the high bits of a product with 2^64 / golden ratio. */
    return (size_t)((key * 0x9E3779B97F4A7C15ull) >> 20) & (map->capacity - 1);
}

void ebb__map_fini(struct ebb_map *map)
{
    free(map->keys);
    free(map->values);
    memset(map, 0, sizeof *map);
}

static bool grow(struct ebb_map *map)
{
    struct ebb_map bigger = {.capacity = map->capacity ? map->capacity * 2 : 64};
    bigger.keys = malloc(bigger.capacity * sizeof *bigger.keys);
    bigger.values = malloc(bigger.capacity * sizeof *bigger.values);
    if (!bigger.keys || !bigger.values) {
        ebb__map_fini(&bigger);
        return false;
    }
    memset(bigger.keys, 0xff, bigger.capacity * sizeof *bigger.keys);
    for (size_t i = 0; i < map->capacity; i++)
        if (map->keys[i] != EBB_MAP_NO_KEY)
            ebb__map_put(&bigger, map->keys[i], map->values[i]);
    free(map->keys);
    free(map->values);
    *map = bigger;
    return true;
}

bool ebb__map_put(struct ebb_map *map, uint64_t key, uint64_t value)
{
    if (key == EBB_MAP_NO_KEY || ((map->count + 1) * 4 > map->capacity * 3 && !grow(map)))
        return false;
    size_t slot = slot_of(map, key);
    while (map->keys[slot] != EBB_MAP_NO_KEY && map->keys[slot] != key)
        slot = (slot + 1) & (map->capacity - 1);
    if (map->keys[slot] == EBB_MAP_NO_KEY)
        map->count++;
    map->keys[slot] = key;
    map->values[slot] = value;
    return true;
}

static bool find(const struct ebb_map *map, uint64_t key, size_t *found)
{
    if (map->capacity == 0 || key == EBB_MAP_NO_KEY)
        return false;
    size_t slot = slot_of(map, key);
    while (map->keys[slot] != EBB_MAP_NO_KEY) {
        if (map->keys[slot] == key) {
            *found = slot;
            return true;
        }
        slot = (slot + 1) & (map->capacity - 1);
    }
    return false;
}

bool ebb__map_get(const struct ebb_map *map, uint64_t key, uint64_t *value)
{
    size_t slot;
    if (!find(map, key, &slot))
        return false;
    if (value)
        *value = map->values[slot];
    return true;
}

bool ebb__map_remove(struct ebb_map *map, uint64_t key, uint64_t *value)
{
    size_t hole;
    if (!find(map, key, &hole))
        return false;
    if (value)
        *value = map->values[hole];
    map->count--;
    size_t mask = map->capacity - 1;
    for (size_t next = (hole + 1) & mask; map->keys[next] != EBB_MAP_NO_KEY;
         next = (next + 1) & mask) {
        size_t home = slot_of(map, map->keys[next]);
        if (((next - home) & mask) >= ((next - hole) & mask)) {
            map->keys[hole] = map->keys[next];
            map->values[hole] = map->values[next];
            hole = next;
        }
    }
    map->keys[hole] = EBB_MAP_NO_KEY;
    return true;
}
