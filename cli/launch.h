/* Starting a program under the parent's eyes, and ending as it ended: what `ebb run` and
 * `ebb record` share. */
#ifndef EBB_CLI_LAUNCH_H
#define EBB_CLI_LAUNCH_H

#include "environment.h"

#include "parent/parent.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define EBB_EXIT_OWN_FAILURE 125
#define EBB_EXIT_NOT_EXECUTABLE 126
#define EBB_EXIT_NOT_FOUND 127

struct ebb_launch {
    const char *command_name; /* "run" or "record", for messages */
    char *const *argv;        /* the program's, NULL-terminated */
    bool strict;              /* stop the program where it is not under Ebb */
    bool quiet;
    const struct ebb_setting *settings; /* to be made in its environment */
    size_t setting_count;
};

struct ebb_launch_result {
    int wait_status; /* of wait(); meaningless where exit_code is set */
    int exit_code;   /* -1: as wait_status says; else Ebb's own: 125, 126, 127 */
    uint64_t elapsed_ns;
    uint64_t peak_rss_bytes; /* largest single process, from wait4() */
};

/* Start the program with the shim preloaded, serve it to its end, forward signals meanwhile. */
struct ebb_launch_result ebb__launch(const struct ebb_launch *launch, struct ebb_parent *parent);

/* Exit as the program did: with its code, or by its signal. Does not return. */
void ebb__launch_exit(const struct ebb_launch_result *result) __attribute__((noreturn));

/* The path of the library to be preloaded, which lies beside this program; false: it is not there. */
bool ebb__launch_find_shim(char *path, size_t bytes);

/* One line on stderr, prefixed `ebb: `. `context` is unused. */
void ebb__launch_warn(void *context, const char *message);

#endif
