/* The address map: residencies as rectangles, time by address.
 *
 * The largest rectangles are packed as the runtime's static placement would be. The addresses are
 * an example: a run has others, since evicted blocks have pages of their own. */
#ifndef EBB_REPORT_MAP_H
#define EBB_REPORT_MAP_H

#include "report/kinds.h"
#include "report/timeline.h"

#define EBB_MAP_RECTANGLES 4000

struct ebb_map_rectangle {
    uint64_t start_ns, end_ns; /* real time; end_ns may exceed the iteration: it wraps */
    uint64_t offset_bytes, size_bytes;
    uint64_t serial;
    enum ebb_report_kind kind;
};

struct ebb_address_map {
    struct ebb_map_rectangle *rectangles; /* by area, the largest first */
    uint32_t count;
    uint32_t total; /* residencies; those beyond `count` are left out */
    uint64_t height_bytes;
};

/* `planned` may be NULL: no absences. EBB_ERR_MEMORY, and errors of the pool. */
EBB_NODISCARD enum ebb_status ebb__address_map_init(const struct ebb_model *model,
                                                    const struct ebb_planned *planned,
                                                    const struct ebb_timeline *timeline,
                                                    struct ebb_address_map *map,
                                                    struct ebb_error *error);
void ebb__address_map_fini(struct ebb_address_map *map);

#endif
