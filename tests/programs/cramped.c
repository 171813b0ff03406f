/* cramped: uses more memory than its budget, under limits that programs set themselves. Prints
 * "good" if every byte is right, in the program and in a child.
 *
 * usage: cramped maps           with as many mappings as the system lets it have
 *        cramped mapslater      the same, made while blocks are in use
 *        cramped root FOLDER    changes its root to an empty folder, without /proc and /dev
 *        cramped user ID        gives its rights away
 *        cramped limit BYTES    limits its address space
 *        cramped plain */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCKS = 24, BYTES = 1 << 20 };

static unsigned char *blocks[BLOCKS];

static void die(const char *what)
{
    fprintf(stderr, "cramped: %s: %s\n", what, strerror(errno));
    _exit(1);
}

static unsigned char byte_at(int block, int at)
{
    return (unsigned char)(block * 37 + at / 4096 + at);
}

static void allocate(void)
{
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(BYTES);
        if (!blocks[i])
            die("malloc");
        for (int at = 0; at < BYTES; at++)
            blocks[i][at] = byte_at(i, at);
    }
}

static void check(void)
{
    for (int i = 0; i < BLOCKS; i++)
        for (int at = 0; at < BYTES; at++)
            if (blocks[i][at] != byte_at(i, at))
                die("a wrong byte");
}

/* Verifies each block through a system call, which may meet absent pages. */
static void check_by_calls(void)
{
    static unsigned char copy[4096];
    int pipes[2];
    if (pipe(pipes) != 0)
        die("pipe");
    for (int i = 0; i < BLOCKS; i++) {
        if (write(pipes[1], blocks[i], sizeof copy) != sizeof copy ||
            read(pipes[0], copy, sizeof copy) != sizeof copy ||
            memcmp(copy, blocks[i], sizeof copy))
            die("a call");
    }
    close(pipes[0]);
    close(pipes[1]);
}

static void make_mappings(void)
{
    long made = 0;
    while (mmap(NULL, 4096, made & 1 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) !=
           MAP_FAILED)
        made++;
    if (made < 10000)
        die("mmap");
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "plain";
    if (strcmp(what, "maps") == 0)
        make_mappings();
    allocate();
    if (strcmp(what, "mapslater") == 0)
        make_mappings();
    if (strcmp(what, "root") == 0 && (chroot(argv[2]) != 0 || chdir("/") != 0))
        die("chroot");
    uid_t id = argc > 2 ? (uid_t)atoi(argv[2]) : 0;
    if (strcmp(what, "user") == 0 && setresuid(id, id, id) != 0)
        die("setresuid");
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    if (strcmp(what, "limit") == 0) {
        limit.rlim_cur = limit.rlim_max = strtoull(argv[2], NULL, 10);
        if (setrlimit(RLIMIT_AS, &limit) != 0)
            die("setrlimit");
    }
    for (int pass = 0; pass < 3; pass++) {
        check();
        check_by_calls();
    }
    pid_t child = fork();
    if (child == 0) {
        check_by_calls();
        check();
        for (int i = 0; i < BLOCKS; i++)
            blocks[i][i] ^= 1;
        for (int i = 0; i < BLOCKS; i++)
            blocks[i][i] ^= 1;
        check();
        _exit(0);
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        die("the child");
    check();
    puts("good");
    return 0;
}
