/* The exact search in canonical order; canonical.c explains the method. */
#ifndef EBB_PLAN_POOL_CANONICAL_H
#define EBB_PLAN_POOL_CANONICAL_H

#include "plan/pool/exact.h"

/* As ebb__pool_exact(), for a limit in units and sizes rounded up to units. Memory O(pairs of
 * buffers that are live together). */
EBB_NODISCARD enum ebb_status ebb__pool_canonical(const struct ebb_pool_problem *problem,
                                                  const struct ebb_pool_sections *sections,
                                                  uint64_t unit, uint32_t limit,
                                                  struct ebb_effort *effort, uint64_t limit_steps,
                                                  uint64_t *turns, uint64_t *offsets,
                                                  enum ebb_pool_verdict *verdict);

#endif
