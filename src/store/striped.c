/* A store over several others, each on its own disk. Stripes rotate over the disks, so that the
 * pieces of a block in flight are on different disks.
 *
 * A stripe is as large as a piece of a transfer (4 MiB). A piece that begins at a stripe is one
 * request. The first failure of any disk fails the store. */
#include "store/store.h"

#include "base/lines.h"

#include <limits.h>
#include <string.h>

#define STRIPE_BYTES ((uint64_t)4 << 20)

struct striped {
    struct ebb_store parts[EBB_STORE_MOST_PLACES];
    uint64_t count;
};

/* Static, since the shim must not allocate. One is the process's own; the others belong to its
 * ancestors. */
#define MOST_STORES EBB_STORE_MOST
static struct striped striped_stores[MOST_STORES]; /* count 0: free */

/* Returns the part that holds `offset`, the offset in it, and how many bytes follow there. */
static const struct ebb_store *part_at(const struct striped *striped, uint64_t offset,
                                       uint64_t *inner, uint64_t *bytes)
{
    uint64_t stripe = offset / STRIPE_BYTES, within = offset % STRIPE_BYTES;
    *inner = stripe / striped->count * STRIPE_BYTES + within;
    *bytes = STRIPE_BYTES - within;
    return &striped->parts[stripe % striped->count];
}

static int striped_write(void *state, const void *from, uint64_t bytes, uint64_t offset)
{
    for (uint64_t done = 0; done < bytes;) {
        uint64_t inner, piece;
        const struct ebb_store *part = part_at(state, offset + done, &inner, &piece);
        if (piece > bytes - done)
            piece = bytes - done;
        int why = part->ops->write(part->state, (const char *)from + done, piece, inner);
        if (why)
            return why;
        done += piece;
    }
    return 0;
}

static int striped_read(void *state, void *to, uint64_t bytes, uint64_t offset)
{
    for (uint64_t done = 0; done < bytes;) {
        uint64_t inner, piece;
        const struct ebb_store *part = part_at(state, offset + done, &inner, &piece);
        if (piece > bytes - done)
            piece = bytes - done;
        int why = part->ops->read(part->state, (char *)to + done, piece, inner);
        if (why)
            return why;
        done += piece;
    }
    return 0;
}

static void striped_close(void *state)
{
    struct striped *striped = state;
    for (uint64_t i = 0; i < striped->count; i++)
        striped->parts[i].ops->close(striped->parts[i].state);
    striped->count = 0;
}

static size_t striped_descriptors(void *state, int *descriptors, size_t most)
{
    const struct striped *striped = state;
    size_t count = 0;
    for (uint64_t i = 0; i < striped->count; i++) {
        const struct ebb_store *part = &striped->parts[i];
        count += part->ops->descriptors(part->state, descriptors + count, most - count);
    }
    return count;
}

static const struct ebb_store_ops striped_ops = {striped_write, striped_read, striped_close,
                                                 striped_descriptors};

static enum ebb_status open_place(const char *place, uint64_t limit_bytes, struct ebb_store *store,
                                  struct ebb_error *error)
{
    return place[0] == '/' ? ebb__store_file_open(place, limit_bytes, store, error)
                           : ebb__store_memory_open(place, limit_bytes, store, error);
}

enum ebb_status ebb__store_open(const char *places, uint64_t limit_bytes, struct ebb_store *store,
                                struct ebb_error *error)
{
    char place[PATH_MAX];
    size_t count = ebb__line_count(places);
    unsigned free_one = 0;
    while (free_one < MOST_STORES && striped_stores[free_one].count)
        free_one++;
    if (count == 0 || count > EBB_STORE_MOST_PLACES || free_one == MOST_STORES)
        return ebb__fail(error, EBB_ERR_LIMIT, "--store", "%zu places", count);
    if (count == 1)
        return ebb__line_next(&places, place, sizeof place)
                   ? open_place(place, limit_bytes, store, error)
                   : ebb__fail(error, EBB_ERR_LIMIT, "--store", "path too long");
    struct striped *striped = &striped_stores[free_one];
    while (ebb__line_next(&places, place, sizeof place)) {
        enum ebb_status status =
            open_place(place, UINT64_MAX, &striped->parts[striped->count], error);
        if (status != EBB_OK) {
            striped_close(striped);
            return status;
        }
        striped->count++;
    }
    *store = (struct ebb_store){&striped_ops, striped, limit_bytes};
    return EBB_OK;
}
