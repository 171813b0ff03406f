/* Detects the container that Ebb runs in, for `ebb doctor`. Its advice is for the person who starts
 * the container. */
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

/* Guesses from files and variables that container engines set. They promise none of these. */
enum ebb_place ebb__place_look(void);
const char *ebb__place_name(enum ebb_place place);
/* The line that gives programs in that place userfaultfd with faults of system calls. `has_node`:
 * the kernel has /dev/userfaultfd (Linux 6.1), even if it cannot be opened here. */
const char *ebb__place_remedy(enum ebb_place place, bool has_node);

#endif
