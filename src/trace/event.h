/* Events: what a program did to its memory, one record each, the same in the ring, in files and in
 * the model.
 *
 * A block is named by a serial number, not by its address: addresses are reused, serials never.
 * Records are 32 bytes, plain data, native byte order in memory (the trace file fixes its own). */
#ifndef EBB_TRACE_EVENT_H
#define EBB_TRACE_EVENT_H

#include <stdint.h>

enum ebb_event_kind {
    EBB_EVENT_NONE = 0,
    EBB_EVENT_ALLOC = 1,  /* block begins; size_bytes is what the program asked for */
    EBB_EVENT_FREE = 2,   /* block ends; size_bytes repeats its size */
    EBB_EVENT_ACCESS = 3, /* first touch of the block since the last ALLOC or FREE event */
    EBB_EVENT_LAUNCH = 4, /* a kernel starts (CUDA) */
    EBB_EVENT_MARK = 5,   /* no block; `mark` says what, size_bytes carries its value */
    EBB_EVENT_KIND_COUNT
};

enum ebb_access_kind { EBB_ACCESS_UNKNOWN = 0, EBB_ACCESS_READ = 1, EBB_ACCESS_WRITE = 2 };

enum ebb_mark {
    EBB_MARK_NONE = 0,
    EBB_MARK_ITERATION = 1, /* the program (or an importer) says that an iteration begins; value 1:
                               it was found by accesses, and allocations are no clock */
    EBB_MARK_LAYER = 2,     /* layer number in size_bytes */
    EBB_MARK_PHASE = 3,     /* phase number in size_bytes (forward, backward, update, evaluate) */
    EBB_MARK_TRACE_ON = 4,  /* from here accesses are observed */
    EBB_MARK_TRACE_OFF = 5, /* from here accesses are not observed */
    EBB_MARK_PLAN_ON = 6,   /* a plan is in force; value = template position (clock events) */
    EBB_MARK_PLAN_OFF = 7,  /* the live stream left the template: reactive; value = position */
    EBB_MARK_LOST = 8,      /* value events were lost here: the ring was full */
    EBB_MARK_LAP = 9,       /* the runtime passed the template's start; value = lap number */
    EBB_MARK_WAIT = 10, /* a thread of the program has waited for the runtime until now; value ns */
    EBB_MARK_COUNT
};

#define EBB_ITERATION_BY_ACCESSES 1u /* the value of such a mark */

/* Bits of ebb_event.flags. */
#define EBB_EVENT_DEMAND 1u /* ACCESS: the block was absent although a plan was in force */
#define EBB_EVENT_ANNOUNCED                                                                        \
    2u /* ACCESS: the runtime itself announces each use, in every iteration,
                                  not only where accesses are observed */
#define EBB_EVENT_PART                                                                             \
    4u /* ACCESS: to a part of a large block: the EBB_HUGE_BYTES, counted from
                             its start, in which the byte before size_bytes lies */

struct ebb_event {
    uint64_t time_ns; /* since the start of the trace, CLOCK_MONOTONIC; never falls in one file */
    uint64_t block;   /* serial from 1; 0 where the event has no block */
    uint64_t size_bytes; /* or the value of a mark, or where a part ends */
    uint8_t kind;        /* enum ebb_event_kind */
    uint8_t access;      /* enum ebb_access_kind, for ACCESS */
    uint8_t mark;        /* enum ebb_mark, for MARK */
    uint8_t flags;
    uint32_t thread; /* kernel thread id, 0 where unknown */
};

/* Largest block: what 48 bits address, more than any machine gives to one program (x86-64). */
#define EBB_EVENT_SIZE_LIMIT ((uint64_t)1 << 48)
/* Longest trace, 18 years: some turns of an iteration before or after it still fit into 64 bits. */
#define EBB_EVENT_TIME_LIMIT_NS ((uint64_t)1 << 59)

_Static_assert(sizeof(struct ebb_event) == 32, "the record is part of the shared ring's layout");

#endif
