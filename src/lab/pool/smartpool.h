/* SmartPool, for the table in src/lab/lab.c; see smartpool.c. */
#ifndef EBB_LAB_POOL_SMARTPOOL_H
#define EBB_LAB_POOL_SMARTPOOL_H

#include "plan/pool/internal.h"

EBB_NODISCARD enum ebb_status ebb__pool_smartpool(struct ebb_pool_job *job);

#endif
