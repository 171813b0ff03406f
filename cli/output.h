/* Files that a command writes: whole, or not at all.
 *
 *     status = ebb__output_check(path, force, &error);          (before the work begins)
 *     ... work, then write into `stream` of struct ebb_output ...
 *     status = ebb__output_open(path, &output, &error);
 *     fprintf(output.stream, ...);
 *     status = ebb__output_close(&output, force, &error);
 *
 * The text lies in memory until the file is closed. It is written beside the file and renamed, so
 * that no failure leaves half a file. A file that another part writes by its name:
 *
 *     status = ebb__output_part_begin(path, &part, &error);
 *     ... write part.name ...
 *     status = ebb__output_part_end(&part, status, force, &error);
 */
#ifndef EBB_CLI_OUTPUT_H
#define EBB_CLI_OUTPUT_H

#include "base/status.h"

#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct ebb_output {
    const char *path; /* NULL: standard output, written to at once */
    FILE *stream;
    char *text;
    size_t size;
    /* To be set after opening. A file that exists is written in place, for readers that have it
     * open. It is empty if that fails. */
    bool in_place;
};

/* A file under way. In between, INT, TERM and HUP wait, so that they leave no half a file. */
struct ebb_output_part {
    char path[PATH_MAX]; /* what `path` names: a symbolic link is followed */
    char name[PATH_MAX]; /* to write; equal to `path` if that is no plain file */
    sigset_t signals;    /* blocked before */
};

/* EBB_ERR_IO if the file exists and is not to be replaced, or its folder cannot be written. */
EBB_NODISCARD enum ebb_status ebb__output_check(const char *path, bool force,
                                                struct ebb_error *error);
/* As above, for a file that is written in place if it exists. Then its folder does not matter. */
EBB_NODISCARD enum ebb_status ebb__output_check_in_place(const char *path, struct ebb_error *error);
/* EBB_ERR_MEMORY. From now on a file that becomes too large is an error, not the end of the process
 * (SIGXFSZ). */
EBB_NODISCARD enum ebb_status ebb__output_open(const char *path, struct ebb_output *output,
                                               struct ebb_error *error);
/* Writes the file. A device or a pipe is written in place. Releases *output in any case. */
EBB_NODISCARD enum ebb_status ebb__output_close(struct ebb_output *output, bool force,
                                                struct ebb_error *error);
/* EBB_ERR_IO. Names the part; creates nothing. Signals wait until the end of it. */
EBB_NODISCARD enum ebb_status ebb__output_part_begin(const char *path, struct ebb_output_part *part,
                                                     struct ebb_error *error);
/* Gives the part its name if `status` is EBB_OK, else removes it and returns `status`. */
EBB_NODISCARD enum ebb_status ebb__output_part_end(struct ebb_output_part *part,
                                                   enum ebb_status status, bool force,
                                                   struct ebb_error *error);
/* Ends what was printed to standard output. EBB_ERR_IO with a remedy if it could not be written, or
 * if `written` is false. */
EBB_NODISCARD enum ebb_status ebb__output_flush(bool written, struct ebb_error *error);
/* Releases *output; no file is written. */
void ebb__output_discard(struct ebb_output *output);

#endif
