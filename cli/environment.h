/* Settings that make a framework allocate its tensors one by one, so that Ebb can plan them. `ebb
 * run` sets them in the program's environment, unless the user has set them or passes --no-env.
 * Other programs ignore them. */
#ifndef EBB_CLI_ENVIRONMENT_H
#define EBB_CLI_ENVIRONMENT_H

#include <stdbool.h>
#include <stddef.h>

struct ebb_setting {
    const char *name;
    const char *value;
};

#define EBB_MOST_SETTINGS 16

/* Writes the settings that this process's environment lacks to chosen[EBB_MOST_SETTINGS]. Returns
 * how many. for_host, for_gpu: those for programs whose memory there is managed. */
size_t ebb__settings_choose(struct ebb_setting *chosen, bool for_host, bool for_gpu);
/* Sets them in this process. Returns false if memory is lacking. */
bool ebb__settings_apply(const struct ebb_setting *settings, size_t count);

#endif
