/* Events: one record for each thing that a program does to its memory. The ring, files and the
 * model use the same record.
 *
 * A block is named by a serial number, not by its address: addresses are reused, serials are not.
 * Records are 32 bytes, plain data, native byte order in memory (the trace file fixes its own). */
#ifndef EBB_TRACE_EVENT_H
#define EBB_TRACE_EVENT_H

#include "ebb/phase.h"

#include <stdbool.h>
#include <stdint.h>

enum ebb_event_kind {
    EBB_EVENT_NONE = 0,
    EBB_EVENT_ALLOC = 1,  /* a block is allocated; size_bytes is what the program asked for */
    EBB_EVENT_FREE = 2,   /* a block is freed; size_bytes repeats its size */
    EBB_EVENT_ACCESS = 3, /* first access to the block since the last ALLOC or FREE event; within a
                             budget, some that follow another one closely are left out */
    EBB_EVENT_LAUNCH = 4, /* a kernel starts (CUDA) */
    EBB_EVENT_MARK = 5,   /* no block; `mark` is the kind of mark, size_bytes its value */
    EBB_EVENT_KIND_COUNT
};

enum ebb_access_kind { EBB_ACCESS_UNKNOWN = 0, EBB_ACCESS_READ = 1, EBB_ACCESS_WRITE = 2 };

enum ebb_mark {
    EBB_MARK_NONE = 0,
    EBB_MARK_ITERATION = 1, /* an iteration begins, according to the program or an importer; value
                               1: it was found by accesses, and allocations are not clock events */
    EBB_MARK_LAYER = 2,     /* the work of a layer begins: its number from 1; 0: of none */
    EBB_MARK_PHASE = 3,     /* a phase begins; value: enum ebb_phase */
    EBB_MARK_TRACE_ON = 4,  /* accesses are observed from here on */
    EBB_MARK_TRACE_OFF = 5, /* accesses are not observed from here on */
    EBB_MARK_PLAN_ON = 6,   /* a plan is in force; value = template position (clock events) */
    EBB_MARK_PLAN_OFF = 7,  /* the live stream diverged from the template: reactive; value =
                               position */
    EBB_MARK_LOST = 8,      /* the ring was full; value = number of events lost here */
    EBB_MARK_LAP = 9,       /* the runtime passed the template's start; value = iteration number */
    EBB_MARK_WAIT = 10,     /* a wait of a program thread or of a stream for the runtime ends here;
                               value in ns */
    EBB_MARK_OBSERVED = 11, /* observing accesses has cost the program this since the last such
                               mark; value in ns */
    EBB_MARK_COUNT
};

/* Values of such a mark if accesses tell where iterations begin. With ANEW, they have not done so
 * for a while: what lies between the mark before it and this one is no iteration. */
#define EBB_ITERATION_BY_ACCESSES 1u
#define EBB_ITERATION_ANEW 2u

static inline bool ebb__iteration_is_by_accesses(uint64_t value)
{
    return value == EBB_ITERATION_BY_ACCESSES || value == EBB_ITERATION_ANEW;
}

/* Bits of ebb_event.flags. */
#define EBB_EVENT_DEMAND 1u /* ACCESS: the block was not resident although a plan was in force */
#define EBB_EVENT_ANNOUNCED                                                                        \
    2u /* ACCESS: the runtime announces each use itself, in every iteration, not only while accesses
          are observed */
#define EBB_EVENT_PART                                                                             \
    4u /* ACCESS to a part of a large block: the EBB_HUGE_BYTES from its start that contain the byte
          before size_bytes */

#define EBB_EVENT_HELD                                                                             \
    8u /* ACCESS: the program has held the block since its previous event, so that it could not     \
          leave: it was acquired explicitly */
#define EBB_EVENT_LATE 16u /* with DEMAND: it was on its way, or should have been by the plan */

struct ebb_event {
    uint64_t time_ns; /* since the start of the trace, CLOCK_MONOTONIC; never decreases in a file */
    uint64_t block;   /* serial from 1; 0 if the event has no block */
    uint64_t size_bytes; /* or the value of a mark, or the end of a part */
    uint8_t kind;        /* enum ebb_event_kind */
    uint8_t access;      /* enum ebb_access_kind, for ACCESS */
    uint8_t mark;        /* enum ebb_mark, for MARK */
    uint8_t flags;
    uint32_t thread; /* kernel thread id, 0 if unknown */
};

/* Largest block: 48 bits, the address space of x86-64, which no program gets whole. */
#define EBB_EVENT_SIZE_LIMIT ((uint64_t)1 << 48)
/* Longest trace, 18 years: some iterations before or after it still fit into 64 bits. */
#define EBB_EVENT_TIME_LIMIT_NS ((uint64_t)1 << 59)

_Static_assert(sizeof(struct ebb_event) == 32, "the record is part of the shared ring's layout");

#endif
