/* A temporary folder for a test program. Its group's setup makes it, the teardown removes it. */
#ifndef EBB_TESTS_OWN_FOLDER_H
#define EBB_TESTS_OWN_FOLDER_H

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

static char folder[PATH_MAX - 64]; /* 64 bytes are for the names of files in it */

static int make_folder(void **state)
{
    (void)state;
    const char *where = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/ebb-test-XXXXXX", where ? where : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[PATH_MAX + 16];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

#endif
