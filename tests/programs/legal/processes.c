/* All kinds of fork. The child checks that every byte is as the parent left it, writes, and ends.
 * Meanwhile the parent continues. */
#include "legal.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
extern pid_t _Fork(void);

static void await(struct actor *actor, pid_t pid, const char *what)
{
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            fail(actor, "waitpid: %s", strerror(errno));
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail(actor, "%s: the child ended with status %#x", what, (unsigned)status);
}

/* Works without the heap, as a child must after _Fork, or if the program has threads. */
static void child_writes(struct actor *actor)
{
    actor_check(actor);
    for (size_t i = 0; i < actor->block_count; i++) {
        struct block *block = actor->blocks[i];
        for (size_t page = 0; page < block->pages; page++)
            if (!(block->page[page].flags & UNWRITABLE) && one_in(actor, 2))
                run_fill(actor, &(struct run){block, page, 1});
    }
    for (size_t i = 0; i < actor->block_count; i++) {
        struct block *block = actor->blocks[i];
        for (size_t page = 0; page < block->pages; page++)
            if (block->page[page].flags & GONE) {
                /* Either nothing is mapped there, or something of the library. In both cases it
                 * ends. */
                struct run run = {block, page, 1};
                if (one_in(actor, 8))
                    (void)access_faults(run_start(&run), false);
                break;
            }
    }
    actor_check(actor);
}

static void family(struct actor *actor, pid_t (*split)(void), bool heap_too, const char *what)
{
    pid_t pid = split();
    if (pid < 0) {
        if (errno == EAGAIN || errno == ENOMEM)
            return;
        fail(actor, "%s: %s", what, strerror(errno));
    }
    if (pid == 0) {
        actor_enter_child(actor);
        child_writes(actor);
        if (heap_too) {
            actor_operate(actor, 1 + chance(actor, 12));
            actor_check(actor);
        }
        _exit(0);
    }
    if (one_in(actor, 2))
        actor_operate(actor, 1 + chance(actor, 8));
    if (one_in(actor, 2))
        pressure(actor);
    await(actor, pid, what);
    if (one_in(actor, 4))
        actor_check(actor);
}

static void do_fork(struct actor *actor)
{
    family(actor, fork, true, "fork");
}

static void do_fork_bare(struct actor *actor)
{
    family(actor, _Fork, false, "_Fork");
}

static pid_t clone_bare(void)
{
    return (pid_t)syscall(SYS_clone, (long)SIGCHLD, 0l, 0l, 0l, 0l);
}

static void do_clone(struct actor *actor)
{
    family(actor, clone_bare, false, "bare clone");
}

/* Ends at once by exit handlers, like a Python worker. */
static void do_fork_exit(struct actor *actor)
{
    pid_t pid = fork();
    if (pid == 0) {
        actor_enter_child(actor);
        if (one_in(actor, 2))
            pressure(actor);
        exit(0);
    }
    if (pid > 0)
        await(actor, pid, "fork and exit");
}

/* Several children at once. */
static void do_brood(struct actor *actor)
{
    pid_t pids[4];
    size_t count = 2 + (size_t)chance(actor, 3);
    for (size_t i = 0; i < count; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            actor_enter_child(actor);
            actor->random += i;
            child_writes(actor);
            _exit(0);
        }
        if (one_in(actor, 2)) {
            struct run run;
            if (run_pick(actor, &run, UNWRITABLE, MIB))
                run_fill(actor, &run);
        }
    }
    pressure(actor);
    for (size_t i = 0; i < count; i++)
        if (pids[i] > 0)
            await(actor, pids[i], "one of several children");
}

static void do_vfork(struct actor *actor)
{
    pid_t pid = vfork();
    if (pid == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(127);
    }
    if (pid < 0)
        return;
    await(actor, pid, "vfork and exec");
}

/* cat gets a block as input and returns it. Its arguments lie in blocks, too. */
static void do_spawn(struct actor *actor)
{
    struct run run;
    int to[2], from[2];
    if (!run_pick(actor, &run, UNREADABLE | LAZY, MOST_AT_ONCE) || pipe2(to, 02000000) != 0)
        return;
    if (pipe2(from, 02000000) != 0)
        fail(actor, "pipe: %s", strerror(errno));
    char *name = strdup("cat"), *arguments[] = {name, NULL};
    pid_t pid;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], 0);
    posix_spawn_file_actions_adddup2(&actions, from[1], 1);
    int error = posix_spawn(&pid, "/bin/cat", &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    free(name);
    if (error)
        fail(actor, "posix_spawn: %s", strerror(error));
    close(to[0]);
    close(from[1]);
    size_t bytes = run_bytes(&run), sent = 0, got = 0;
    while (sent < bytes) {
        ssize_t now = write(to[1], run_start(&run) + sent, bytes - sent);
        if (now < 0 && errno != EINTR)
            fail(actor, "write to cat: %s", strerror(errno));
        sent += now > 0 ? (size_t)now : 0;
    }
    close(to[1]);
    while (got < bytes) {
        ssize_t now = read(from[0], actor->scratch + got, bytes - got);
        if (now == 0 || (now < 0 && errno != EINTR))
            fail(actor, "read from cat: %zd", now);
        got += now > 0 ? (size_t)now : 0;
    }
    close(from[0]);
    await(actor, pid, "posix_spawn");
    pattern_check(actor, run.block, run_offset(&run), bytes, actor->scratch, "from cat");
}

const struct operation process_operations[] = {
    {"fork", "process", do_fork, 3, 0},     {"forkbare", "process", do_fork_bare, 2, 0},
    {"clone", "process", do_clone, 1, RAW}, {"forkexit", "process", do_fork_exit, 1, ALONE},
    {"brood", "process", do_brood, 1, 0},   {"vfork", "process", do_vfork, 1, 0},
    {"spawn", "process", do_spawn, 1, 0},   {0},
};
