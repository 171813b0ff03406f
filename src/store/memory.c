/* A store in memory: an unnamed file without a disk, mapped, on one NUMA node if requested.
 *
 * It serves nodes that are slower or larger than the program's own (CXL memory is a node without
 * processors). It also serves tests that a disk would delay. It uses the machine's memory, but does
 * not count towards the budget. */
#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MOST_NODES 1024
#define POLICY_BIND 2                   /* MPOL_BIND of <numaif.h> */
#define REACH_BYTES ((uint64_t)1 << 40) /* offsets of the file that the node is set for; a limit */

/* Parses "memory" or "memory:NODE". */
static bool parse(const char *place, long *node)
{
    *node = -1;
    if (strncmp(place, "memory", 6) != 0)
        return false;
    if (place[6] == 0)
        return true;
    char *end;
    *node = strtol(place + 7, &end, 10);
    return place[6] == ':' && place[7] >= '0' && place[7] <= '9' && *end == 0 && *node < MOST_NODES;
}

/* Sets the node for all pages of the file, whichever process makes them. The file keeps it. */
static bool bind_to_node(int descriptor, long node)
{
    unsigned long nodes[MOST_NODES / (8 * sizeof(unsigned long))] = {0};
    nodes[(size_t)node / (8 * sizeof nodes[0])] = 1ul << ((size_t)node % (8 * sizeof nodes[0]));
    void *reach = mmap(NULL, REACH_BYTES, PROT_NONE, MAP_SHARED | MAP_NORESERVE, descriptor, 0);
    if (reach == MAP_FAILED)
        return false;
    bool good = syscall(SYS_mbind, reach, REACH_BYTES, POLICY_BIND, nodes,
                        (unsigned long)MOST_NODES, 0) == 0;
    int why = errno;
    munmap(reach, REACH_BYTES);
    errno = why;
    return good;
}

enum ebb_status ebb__store_memory_open(const char *place, uint64_t limit_bytes,
                                       struct ebb_store *store, struct ebb_error *error)
{
    long node;
    if (!parse(place, &node))
        return ebb__fail(error, EBB_ERR_ARGUMENT, place,
                         "neither a directory nor 'memory' nor 'memory:NODE'");
    int descriptor = memfd_create("ebb-store", MFD_CLOEXEC);
    if (descriptor < 0)
        return ebb__fail(error, EBB_ERR_IO, place, "%s", strerror(errno));
    if (node >= 0 && !bind_to_node(descriptor, node)) {
        enum ebb_status status =
            ebb__fail(error, EBB_ERR_IO, place, "node %ld: %s", node, strerror(errno));
        close(descriptor);
        return status;
    }
    return ebb__store_mapped_open(descriptor, place, limit_bytes, store, error);
}
