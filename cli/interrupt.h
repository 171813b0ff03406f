/* Ctrl-C during long work: the first one asks for an end, so that what is done already can be
 * shown. The second one ends the process. */
#ifndef EBB_CLI_INTERRUPT_H
#define EBB_CLI_INTERRUPT_H

#include <stdatomic.h>
#include <stdbool.h>

/* From now on Ctrl-C is only noted. If SIGINT is ignored, it stays so. */
void ebb__interrupt_expect(void);
bool ebb__interrupt_seen(void);
/* True once it was seen: the `stop` of a search. */
const atomic_bool *ebb__interrupt_flag(void);
/* Ends the process as SIGINT does, if it was seen. */
void ebb__interrupt_die(void);

#endif
