/* Threads that sleep in a page fault, as the kernel says: /proc/PID/task/TID/wchan.
 *
 * The runtime reports faults that it knows of. If a thread sleeps on after the runtime has answered
 * its fault, Ebb or the kernel may have a defect. Only the kernel shows such a sleep. One thread at
 * a time is watched, as long as it sleeps in the same fault. That costs a look at each thread of a
 * process, once a second. Without this data from the kernel nothing is found. */
#include "parent/internal.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_THREADS 512 /* examined per process: a limit */

static bool read_line(int process_id, int thread, const char *name, const char *key, char *line,
                      int bytes)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task/%d/%s", process_id, thread, name);
    FILE *file = fopen(path, "re");
    bool found = false;
    while (file && !found && fgets(line, bytes, file))
        found = strncmp(line, key, strlen(key)) == 0;
    if (file)
        fclose(file);
    return found;
}

static bool is_in_fault(int process_id, int thread)
{
    char line[64];
    return read_line(process_id, thread, "wchan", "handle_userfault", line, sizeof line);
}

/* How often the thread has gone to sleep; 0: unknown. */
static uint64_t sleeps_of(int process_id, int thread)
{
    static const char key[] = "voluntary_ctxt_switches:";
    char line[256];
    if (!read_line(process_id, thread, "status", key, line, sizeof line))
        return 0;
    return strtoull(line + strlen(key), NULL, 10);
}

/* The next thread in turn, after the one watched last, that sleeps in a fault; 0: none. */
static int find_next(int process_id, int last)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", process_id);
    DIR *folder = opendir(path);
    int first = 0, next = 0;
    unsigned looked = 0;
    for (struct dirent *entry; folder && looked < MOST_THREADS && (entry = readdir(folder));) {
        int thread = atoi(entry->d_name);
        bool better = thread > last ? !next || thread < next : !first || thread < first;
        looked++;
        if (thread <= 0 || !better || !is_in_fault(process_id, thread))
            continue;
        if (thread > last)
            next = thread;
        else
            first = thread;
    }
    if (folder)
        closedir(folder);
    return next ? next : first;
}

uint64_t ebb__stuck_look(struct process *process, uint64_t now_ns, bool anew)
{
    struct stuck *stuck = &process->stuck;
    int process_id = process->process_id;
    if (stuck->sleeps && is_in_fault(process_id, stuck->thread) &&
        sleeps_of(process_id, stuck->thread) == stuck->sleeps) {
        if (anew)
            stuck->first_ns = now_ns;
        return now_ns - stuck->first_ns;
    }
    stuck->sleeps = 0;
    int thread = find_next(process_id, stuck->thread);
    if (thread) {
        stuck->thread = thread;
        stuck->sleeps = sleeps_of(process_id, thread);
        stuck->first_ns = now_ns;
    }
    return 0;
}
