/* A trial of what the devices do, where a seccomp filter is in force.
 *
 * A filter may answer a system call with an error, which is nothing new, or with the death of the
 * process. So a child tries everything once and notes what it is about to do; what it dies of is left
 * out, and another child tries the rest. Only processes under a filter pay for it: about a millisecond. */
#ifndef EBB_DEVICE_TRIAL_H
#define EBB_DEVICE_TRIAL_H

#include <stdbool.h>

/* How many seccomp filters this thread is under; 1 also where their number cannot be had. */
unsigned ebb__trial_filters(void);

struct ebb_trial {
    unsigned deaths;  /* children that a filter has killed */
    bool is_complete; /* false: no child could be made, everything is refused */
};

/* Refuse (ebb__host_refuse) what a filter forbids or kills for. Leaves nothing behind: no file, no
 * signal, no child that the program could wait for. */
struct ebb_trial ebb__trial_run(void);

#endif
