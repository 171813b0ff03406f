/* The parts of `ebb doctor`. Each check adds lines to the report; every answer comes from the code
 * that a run uses, or from a trial. */
#ifndef EBB_CLI_DOCTOR_H
#define EBB_CLI_DOCTOR_H

#include "device/support.h"
#include "machine/machine.h"
#include "place.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

enum ebb_verdict { EBB_DOCTOR_OK, EBB_DOCTOR_WARN, EBB_DOCTOR_FAIL };

struct ebb_doctor_check {
    char name[24];
    enum ebb_verdict verdict;
    char detail[400];
    char remedy[256]; /* empty if nothing needs to be done */
};

struct ebb_doctor {
    struct ebb_doctor_check checks[32];
    size_t count;
    enum ebb_verdict worst;
    struct ebb_host_support support;
    enum ebb_place place;
    char store[PATH_MAX]; /* empty: none */
    char cache[PATH_MAX];
    struct ebb_machine machine;
    bool probed;
    double huge_move_ns, small_move_ns; /* of a page of 2 MiB, of 4 KiB; 0: not measured */
};

/* Adds a line. The remedy is dropped if the verdict is good. */
EBB_PRINTF(5, 6)
void ebb__doctor_add(struct ebb_doctor *report, const char *name, enum ebb_verdict verdict,
                     const char *remedy, const char *detail, ...);
/* Reads the first line of a small file. Returns false if it cannot be read. */
bool ebb__doctor_line(const char *path, char *line, size_t bytes);
/* Runs `trial` in a child of this process, for ten seconds at most: it may crash or hang. What it
 * writes to the descriptor is in `text`, ended by 0. Returns false if it did not exit with 0. */
bool ebb__doctor_try(void (*trial)(int descriptor), char *text, size_t bytes);

/* doctor_report.c: return 0, or not if standard output cannot be written. */
int ebb__doctor_json(const struct ebb_doctor *report);
int ebb__doctor_text(const struct ebb_doctor *report);

/* doctor_memory.c */
void ebb__doctor_moves(struct ebb_doctor *report);
void ebb__doctor_memlock(struct ebb_doctor *report);
void ebb__doctor_numa(struct ebb_doctor *report);
/* doctor_programs.c: runs /bin/true and python3 under Ebb; looks for PyTorch */
void ebb__doctor_programs(struct ebb_doctor *report);
/* doctor_cuda.c */
void ebb__doctor_cuda(struct ebb_doctor *report);

#endif
