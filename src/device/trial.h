/* A trial of the devices' system calls under a seccomp filter.
 *
 * A filter may answer a system call with an error or kill the process. So a child process tries
 * every call once, and notes each before it makes it. If a call kills the child, that call is
 * refused, and another child tries the rest. Only processes under a filter pay for it: about a
 * millisecond. */
#ifndef EBB_DEVICE_TRIAL_H
#define EBB_DEVICE_TRIAL_H

#include <stdbool.h>

/* How many seccomp filters this thread is under. Returns 1 if their number is unknown. */
unsigned ebb__trial_filters(void);

struct ebb_trial {
    unsigned deaths;  /* children that a filter has killed */
    bool is_complete; /* false: no child could be made, and everything is refused */
};

/* Refuses (ebb__host_refuse) what a filter forbids or kills for. Leaves no file, no signal and no
 * child that the program could wait for. */
struct ebb_trial ebb__trial_run(void);

#endif
