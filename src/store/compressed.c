/* A compressing store before another store. It leaves out words of zeros (zvc.h), so that a slow
 * disk transfers less. A slot keeps its full size: this saves transfer time, not space.
 *
 * Written bytes are cut into frames of one unit (2 MiB), from the start of the block or part. Each
 * frame is compressed by itself, or written unchanged. A table holds how many pages it took. Parts
 * are split at units only. If parts are joined, their copies in the store are discarded. So every
 * read begins at a frame. A child of a fork has a copy of the table, as of the slots that it may
 * read. */
#include "store/store.h"

#include "base/geometry.h"

#include "store/zvc.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

/* A frame is stored compressed if that saves an eighth. A smaller gain does not pay for the
 * copy. */
#define WORTHWHILE_BYTES(bytes) ((bytes) - (bytes) / 8)
/* The part of the store that may be compressed. The table takes a 2,048th of it in addresses. */
#define MOST_TABLE_BYTES ((uint64_t)4 << 40)
#define LEAST_TABLE_BYTES ((uint64_t)1 << 30)

struct compressed {
    struct ebb_store under;
    const atomic_bool *wanted;
    _Atomic uint64_t *saved_bytes;
    /* For each page of the store: pages of the compressed frame that begins there, or 0 if it is
     * not compressed. Concurrent transfers use different entries. */
    uint16_t *pages;
    uint64_t page_count;
};

/* Static, since the shim must not allocate. One is the process's own; the others belong to its
 * ancestors. */
#define MOST_STORES EBB_STORE_MOST
static struct compressed stores[MOST_STORES]; /* without pages: free */

/* One for each concurrent transfer. It takes only addresses until it is used. */
#define MOST_BUFFERS 64
#define BUFFER_BYTES (EBB_HUGE_BYTES + EBB_PAGE_BYTES)
static unsigned char *buffers;
static atomic_bool taken[MOST_BUFFERS];

/* Returns the index of a buffer, or -1 if all are in use. */
static int take_buffer(void)
{
    for (int i = 0; i < MOST_BUFFERS; i++)
        if (!atomic_exchange(&taken[i], true))
            return i;
    return -1;
}

static unsigned char *buffer_at(int index)
{
    return buffers + (size_t)index * BUFFER_BYTES;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Returns the pages of the compressed frame at `offset`, or 0 if it is not compressed. */
static uint16_t pages_at(const struct compressed *compressed, uint64_t offset)
{
    uint64_t page = offset / EBB_PAGE_BYTES;
    return page < compressed->page_count ? compressed->pages[page] : 0;
}

static void note_pages(struct compressed *compressed, uint64_t offset, uint64_t pages)
{
    uint64_t page = offset / EBB_PAGE_BYTES;
    if (page < compressed->page_count && compressed->pages[page] != pages)
        compressed->pages[page] = (uint16_t)pages;
}

/* Returns the end of the run of uncompressed frames that begins at `done`. */
static uint64_t plain_run(const struct compressed *compressed, uint64_t offset, uint64_t bytes,
                          uint64_t done)
{
    while (done < bytes && pages_at(compressed, offset + done) == 0)
        done += least(EBB_HUGE_BYTES, bytes - done);
    return done;
}

/* Writes one frame. Returns 0 or an errno. */
static int write_frame(struct compressed *compressed, const char *from, uint64_t bytes,
                       uint64_t offset, unsigned char *buffer)
{
    const struct ebb_store *under = &compressed->under;
    uint64_t pages = 0;
    if (offset / EBB_PAGE_BYTES < compressed->page_count) {
        size_t size = ebb__zvc_compress(from, bytes, buffer, WORTHWHILE_BYTES(bytes));
        pages = (size + EBB_PAGE_BYTES - 1) / EBB_PAGE_BYTES;
        memset(buffer + size, 0, pages * EBB_PAGE_BYTES - size);
    }
    note_pages(compressed, offset, pages);
    if (pages == 0)
        return under->ops->write(under->state, from, bytes, offset);
    atomic_fetch_add(compressed->saved_bytes, bytes - pages * EBB_PAGE_BYTES);
    return under->ops->write(under->state, buffer, pages * EBB_PAGE_BYTES, offset);
}

static int compressed_write(void *state, const void *from, uint64_t bytes, uint64_t offset)
{
    struct compressed *compressed = state;
    int buffer = atomic_load(compressed->wanted) ? take_buffer() : -1;
    int why = 0;
    if (buffer < 0) {
        for (uint64_t done = 0; done < bytes; done += EBB_HUGE_BYTES)
            note_pages(compressed, offset + done, 0);
        return compressed->under.ops->write(compressed->under.state, from, bytes, offset);
    }
    for (uint64_t done = 0; done < bytes && !why; done += EBB_HUGE_BYTES)
        why = write_frame(compressed, (const char *)from + done,
                          least(EBB_HUGE_BYTES, bytes - done), offset + done, buffer_at(buffer));
    atomic_store(&taken[buffer], false);
    return why;
}

static int read_frame(struct compressed *compressed, char *to, uint64_t bytes, uint64_t offset)
{
    const struct ebb_store *under = &compressed->under;
    uint64_t stored = pages_at(compressed, offset) * EBB_PAGE_BYTES;
    int buffer = take_buffer();
    if (buffer < 0)
        return ENOMEM;
    int why = under->ops->read(under->state, buffer_at(buffer), stored, offset);
    if (!why && !ebb__zvc_restore(buffer_at(buffer), stored, to, bytes))
        why = EILSEQ;
    atomic_store(&taken[buffer], false);
    return why;
}

static int compressed_read(void *state, void *to, uint64_t bytes, uint64_t offset)
{
    struct compressed *compressed = state;
    const struct ebb_store *under = &compressed->under;
    int why = 0;
    for (uint64_t done = 0; done < bytes && !why;) {
        uint64_t end = plain_run(compressed, offset, bytes, done);
        if (end > done) {
            why = under->ops->read(under->state, (char *)to + done, end - done, offset + done);
            done = end;
        } else {
            uint64_t frame = least(EBB_HUGE_BYTES, bytes - done);
            why = read_frame(compressed, (char *)to + done, frame, offset + done);
            done += frame;
        }
    }
    return why;
}

static void compressed_close(void *state)
{
    struct compressed *compressed = state;
    compressed->under.ops->close(compressed->under.state);
    munmap(compressed->pages, (compressed->page_count + 1) * sizeof compressed->pages[0]);
    compressed->pages = NULL;
}

static size_t compressed_descriptors(void *state, int *descriptors, size_t most)
{
    const struct ebb_store *under = &((const struct compressed *)state)->under;
    return under->ops->descriptors(under->state, descriptors, most);
}

static const struct ebb_store_ops compressed_ops = {compressed_write, compressed_read,
                                                    compressed_close, compressed_descriptors};

static void *address_space(uint64_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

enum ebb_status ebb__store_compress(struct ebb_store *store, const atomic_bool *wanted,
                                    _Atomic uint64_t *saved_bytes)
{
    unsigned place = 0;
    while (place < MOST_STORES && stores[place].pages)
        place++;
    if (place == MOST_STORES)
        return EBB_ERR_LIMIT;
    if (!buffers)
        buffers = address_space(MOST_BUFFERS * BUFFER_BYTES);
    if (!buffers)
        return EBB_ERR_MEMORY;
    uint16_t *table = NULL;
    uint64_t reach = least(store->limit_bytes, MOST_TABLE_BYTES), pages;
    do { /* try less if address space is limited */
        pages = reach / EBB_PAGE_BYTES;
        table = address_space((pages + 1) * sizeof *table);
        reach /= 2;
    } while (!table && reach >= LEAST_TABLE_BYTES);
    if (!table)
        return EBB_ERR_MEMORY;
    struct compressed *compressed = &stores[place];
    *compressed = (struct compressed){*store, wanted, saved_bytes, table, pages};
    *store = (struct ebb_store){&compressed_ops, compressed, store->limit_bytes};
    return EBB_OK;
}
