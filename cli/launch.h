/* Starts a program under the parent, and exits as the program did: what `ebb run` and `ebb record`
 * share. */
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

/* The libraries that can be preloaded: for the host's memory, and for that of GPUs. */
enum ebb_shim_kind { EBB_SHIM_MALLOC, EBB_SHIM_CUDA, EBB_SHIM_COUNT };

/* Those that are, by their numbers. */
struct ebb_shims {
    bool has[EBB_SHIM_COUNT];
};

struct ebb_launch {
    const char *command_name; /* "run" or "record", for messages */
    char *const *argv;        /* the program's, NULL-terminated */
    struct ebb_shims shims;
    bool strict; /* stop the program if it does not run under Ebb */
    bool quiet;
    const struct ebb_setting *settings; /* to set in its environment */
    size_t setting_count;
};

struct ebb_launch_result {
    int wait_status; /* of wait(); meaningless if exit_code is set */
    int exit_code;   /* -1: use wait_status; otherwise Ebb's own: 125, 126, 127 */
    uint64_t elapsed_ns;
    uint64_t peak_rss_bytes; /* of the largest single process, from wait4() */
};

/* Starts the program with the shim preloaded, serves it until it ends, and forwards signals. */
struct ebb_launch_result ebb__launch(const struct ebb_launch *launch, struct ebb_parent *parent);

/* Exits as the program did: with its exit code, or by its signal. Does not return. */
void ebb__launch_exit(const struct ebb_launch_result *result) __attribute__((noreturn));

/* Writes the words of `argv`, NULL-terminated, with blanks between them; cut if it is too long. */
void ebb__launch_command_text(char *const *argv, char *out, size_t bytes);

/* The path of the library to preload, in the folder of this program. Returns false if it does not
 * exist. */
bool ebb__launch_find_shim(enum ebb_shim_kind kind, char *path, size_t bytes);

/* False if LD_PRELOAD cannot hold the path: it separates paths by blanks and colons. */
bool ebb__launch_shim_fits(const char *path);

/* Prints one line on stderr, with the prefix `ebb: `. `context` is unused. */
void ebb__launch_warn(void *context, const char *message);

#endif
