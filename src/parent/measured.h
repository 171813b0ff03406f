/* What a run measures itself: the lanes, what page moves cost, and how long iterations last. */
#ifndef EBB_PARENT_MEASURED_H
#define EBB_PARENT_MEASURED_H

#include "machine/machine.h"
#include "model/model.h"

struct process;

struct lane_counts {
    uint64_t out_bytes, in_bytes, out_busy_ns, in_busy_ns, both_busy_ns;
};

/* The current lane counters of the process. */
struct lane_counts ebb__measured_counts(const struct process *process);
/* The lanes of *assumed with the rates counted between *from and *to. A rate changes only if enough
 * bytes were moved. */
void ebb__measured_lanes(const struct ebb_machine *assumed, const struct lane_counts *from,
                         const struct lane_counts *to, struct ebb_machine *measured);
/* What transfers cost the program: the machine's costs with the page moves that the process has
 * counted, if these are enough. */
struct ebb_transfer_costs ebb__measured_costs(const struct process *process,
                                              const struct ebb_machine *machine);
/* True if the rates of a lane differ by more than the tolerance, a fraction, between the
 * machines. */
bool ebb__measured_differ(const struct ebb_machine *one, const struct ebb_machine *other,
                          double tolerance);
/* Shortens each interval between clock events of `model` to that of `other`, if that is shorter.
 * Observing accesses prolongs some intervals, waiting for transfers others. Then all are scaled to
 * the shorter iteration, or to `work_ns` if that is not 0: what an iteration takes without waits.
 * The sum of the shorter intervals and the longer iteration limit it. Returns false if they are not
 * the same iteration. */
bool ebb__measured_shorten(struct ebb_model *model, const struct ebb_model *other,
                           uint64_t work_ns);
/* For a device: shortens the iteration to `work_ns`, what one takes without waits, if it is longer.
 * While the budget is kept without a plan, the host waits for memory, and is late with the next
 * works. So the device has nothing to do for longer than under a plan. Works themselves take as
 * long as ever, and are shortened only where nothing else is left. Errors: EBB_ERR_MEMORY. */
enum ebb_status ebb__measured_fit(struct ebb_model *model, uint64_t work_ns);

#endif
