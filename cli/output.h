/* A file that a command writes: all of it or nothing. It is written beside its name, and renamed
 * when it is complete. */
#ifndef EBB_CLI_OUTPUT_H
#define EBB_CLI_OUTPUT_H

#include "base/status.h"

#include <stdbool.h>
#include <stdio.h>

struct ebb_output {
    FILE *file;
    const char *path; /* NULL: standard output */
    char beside[4096];
};

/* Opens `path`, or standard output if it is NULL. EBB_ERR_IO if it cannot be created, or if it
 * exists and `replaces` is false. */
EBB_NODISCARD enum ebb_status ebb__output_open(const char *path, bool replaces,
                                               struct ebb_output *output, struct ebb_error *error);
/* Ends the output. If `status` is EBB_OK and all bytes could be written, the file gets its name;
 * else nothing is left. Returns `status`, or EBB_ERR_IO. */
EBB_NODISCARD enum ebb_status ebb__output_close(struct ebb_output *output, enum ebb_status status,
                                                struct ebb_error *error);

#endif
