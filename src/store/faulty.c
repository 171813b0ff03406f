#include "store/store.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static int faulty_transfer(struct ebb_faulty_store *faulty, uint64_t seen, uint64_t good, int why,
                           uint64_t bytes, uint64_t offset)
{
    if (faulty->delay_us)
        usleep(faulty->delay_us);
    if (why && seen > good)
        return why;
    return offset + bytes > faulty->bytes ? ENOSPC : 0;
}

static int faulty_write(void *state, const void *from, uint64_t bytes, uint64_t offset)
{
    struct ebb_faulty_store *faulty = state;
    uint64_t seen = __atomic_add_fetch(&faulty->writes, 1, __ATOMIC_RELAXED);
    int why =
        faulty_transfer(faulty, seen, faulty->good_writes, faulty->write_errno, bytes, offset);
    if (why == 0)
        memcpy(faulty->memory + offset, from, bytes);
    return why;
}

static int faulty_read(void *state, void *to, uint64_t bytes, uint64_t offset)
{
    struct ebb_faulty_store *faulty = state;
    uint64_t seen = __atomic_add_fetch(&faulty->reads, 1, __ATOMIC_RELAXED);
    int why = faulty_transfer(faulty, seen, faulty->good_reads, faulty->read_errno, bytes, offset);
    if (why == 0)
        memcpy(to, faulty->memory + offset, bytes);
    return why;
}

static void faulty_close(void *state)
{
    (void)state;
}

static size_t faulty_descriptors(void *state, int *descriptors, size_t most)
{
    (void)state, (void)descriptors, (void)most;
    return 0;
}

static const struct ebb_store_ops faulty_ops = {faulty_write, faulty_read, faulty_close,
                                                faulty_descriptors};

void ebb__store_faulty_open(struct ebb_faulty_store *faulty, uint64_t limit_bytes,
                            struct ebb_store *store)
{
    *store = (struct ebb_store){&faulty_ops, faulty, limit_bytes};
}
