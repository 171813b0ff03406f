/* The place that this runs in: a container, and whose, since what helps there is said to whoever starts
 * it. For `ebb doctor`. */
#ifndef EBB_CLI_PLACE_H
#define EBB_CLI_PLACE_H

#include <stdbool.h>

enum ebb_place {
    EBB_PLACE_HOST,
    EBB_PLACE_DOCKER,
    EBB_PLACE_PODMAN,
    EBB_PLACE_KUBERNETES,
    EBB_PLACE_APPTAINER, /* or Singularity */
    EBB_PLACE_OTHER,     /* a container of another kind */
};

/* What the container engines leave behind for those who ask; a guess, as theirs is no promise. */
enum ebb_place ebb__place_look(void);
const char *ebb__place_name(enum ebb_place place);
/* The line that gives a program there userfaultfd with faults of system calls; `has_node`: the kernel has
 * /dev/userfaultfd (Linux 6.1), whether or not it can be opened here. */
const char *ebb__place_remedy(enum ebb_place place, bool has_node);

#endif
