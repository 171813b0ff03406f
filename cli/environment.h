/* Settings that make a framework ask for its tensors one by one, so that there is something to
 * plan. `ebb run` makes them in the program's environment, unless the user has set them or says
 * --no-env; they mean nothing to programs that do not know them. */
#ifndef EBB_CLI_ENVIRONMENT_H
#define EBB_CLI_ENVIRONMENT_H

#include <stdbool.h>
#include <stddef.h>

struct ebb_setting {
    const char *name;
    const char *value;
};

#define EBB_MOST_SETTINGS 8

/* Those that this process's environment does not have yet, into chosen[EBB_MOST_SETTINGS]; returns
 * how many. */
size_t ebb__settings_choose(struct ebb_setting *chosen);
/* Set them in this process; false where memory is lacking. */
bool ebb__settings_apply(const struct ebb_setting *settings, size_t count);

#endif
