/* The memory curve: load and resident bytes over one iteration, by kind and by size class, in
 * levels of detail.
 *
 * A level divides the iteration into cells of equal length. A cell has the most load within it,
 * and the state at the instant of its most resident bytes. So a level never hides a peak, and what
 * is stacked was resident at one time. A short curve has one level, with a cell for each change. */
#ifndef EBB_REPORT_CURVE_H
#define EBB_REPORT_CURVE_H

#include "report/kinds.h"
#include "report/timeline.h"

#define EBB_CURVE_LEVELS 2
#define EBB_CURVE_EXACT 4096 /* so many changes or fewer: one level with all of them */

struct ebb_curve_cell {
    uint64_t start_ns;
    uint64_t load_bytes, resident_bytes;
    uint64_t kinds[EBB_KIND_COUNT];   /* of resident_bytes */
    uint64_t sizes[EBB_SIZE_CLASSES]; /* likewise */
};

struct ebb_curve_level {
    struct ebb_curve_cell *cells; /* by start_ns, the first at 0 */
    uint32_t count;
};

struct ebb_curve {
    struct ebb_curve_level levels[EBB_CURVE_LEVELS]; /* coarse to fine */
    uint32_t level_count;
    uint64_t peak_load_bytes, peak_resident_bytes;
    uint64_t peak_load_ns, peak_resident_ns; /* where they are reached first */
};

/* A change of the state at an instant; `order` ranks changes at equal times. */
struct ebb_curve_change {
    uint64_t ns;
    int64_t load_bytes, resident_bytes; /* added */
    uint8_t order, kind, size_class;
};

/* Reduces `changes`, which it sorts, from the state *begin at time 0. `cells` is the number of
 * cells of the coarse level. EBB_ERR_MEMORY. O(changes log changes + cells). */
EBB_NODISCARD enum ebb_status ebb__curve_reduce(struct ebb_curve_change *changes, size_t count,
                                                const struct ebb_curve_cell *begin,
                                                uint64_t iteration_ns, uint32_t cells,
                                                struct ebb_curve *curve);

/* The curve of a model; `planned` may be NULL: all live bytes are resident. EBB_ERR_MEMORY. */
EBB_NODISCARD enum ebb_status ebb__curve_init(const struct ebb_model *model,
                                              const struct ebb_planned *planned,
                                              const struct ebb_timeline *timeline,
                                              struct ebb_curve *curve, struct ebb_error *error);
void ebb__curve_fini(struct ebb_curve *curve);

#endif
