/* limits: a program with few descriptors or short files (ulimit), in blocks half of which are
 * absent. Its limits must behave as they do without Ebb. argv[1]:
 *   descriptors  prints the numbers of its descriptors, and how many it can have
 *   none         has no free descriptors from some time on
 *   changed      the same, while it changes the limit itself, also in the child of a fork
 *   files        writes a file */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define COUNT 16
#define BYTES ((size_t)512 << 10)

static unsigned char *blocks[COUNT];
static int most = 2048; /* argv[2]: the number of descriptors that it tries to open */

static void churn(void)
{
    for (int turn = 0; turn < 3; turn++)
        for (int i = 0; i < COUNT; i++) {
            if (!blocks[i]) {
                blocks[i] = malloc(BYTES);
                memset(blocks[i], i + 1, BYTES);
            }
            for (size_t at = 0; at < BYTES; at += 1021)
                if (blocks[i][at] != i + 1)
                    printf("bad byte\n");
        }
}

/* Prints the numbers of the descriptors that it gets, and their count. */
static void count_descriptors(const char *when)
{
    int numbers[2048], count = 0;
    int first = open("/dev/null", O_RDONLY);
    close(first);
    while (count < most && (numbers[count] = open("/dev/null", O_RDONLY)) >= 0)
        count++;
    int why = errno;
    printf("%s: first %d, %d in all", when, first, count);
    for (int i = 1; i < count; i++)
        if (numbers[i] != numbers[i - 1] + 1)
            printf(", %d after %d", numbers[i], numbers[i - 1]);
    printf(count < most ? ", then %s\n" : "\n", strerror(why));
    for (int i = 0; i < count; i++)
        close(numbers[i]);
    int seen = 0;
    struct stat status;
    for (int i = 0; i < 1 << 16; i++)
        seen += fstat(i, &status) == 0;
    printf("%d are open\n", seen);
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    printf("limit %lu of %lu\n", (unsigned long)limit.rlim_cur, (unsigned long)limit.rlim_max);
}

static void descriptors(void)
{
    count_descriptors("at first");
    churn();
    count_descriptors("with blocks");
    churn();
}

static void change(rlim_t least)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = least;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static void changed(void)
{
    churn();
    change(32);
    count_descriptors("lowered");
    churn();
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        churn();
        count_descriptors("in a child");
        fflush(stdout);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    printf("child %x\n", (unsigned)status);
    change(400);
    churn();
    count_descriptors("raised");
}

static void files(void)
{
    char name[] = "/var/tmp/limits-XXXXXX";
    int file = mkstemp(name);
    unlink(name);
    churn();
    int status;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        churn();
        _exit(0);
    }
    waitpid(child, &status, 0);
    printf("child %x\n", (unsigned)status);
    signal(SIGXFSZ, SIG_IGN);
    for (int i = 0; i < 3; i++) {
        ssize_t wrote = pwrite(file, blocks[i], 6000, i * 6000);
        printf("wrote %zd %s\n", wrote, wrote < 0 ? strerror(errno) : "");
    }
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    printf("limit %lu of %lu\n", (unsigned long)limit.rlim_cur, (unsigned long)limit.rlim_max);
}

/* Lowers limits like a server: first so that it could be undone, then for good. */
static void none(void)
{
    struct rlimit limit;
    churn();
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 0;
    setrlimit(RLIMIT_NOFILE, &limit);
    fflush(stdout);
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        churn();
        _exit(dup(STDOUT_FILENO) >= 0);
    }
    waitpid(child, &status, 0);
    churn();
    printf("child %x\n", (unsigned)status);
    limit.rlim_max = 0;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        printf("setrlimit: %s\n", strerror(errno));
    for (int turn = 0; turn < 4; turn++)
        churn();
    printf("%d\n", dup(STDOUT_FILENO));
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (argc > 2)
        most = atoi(argv[2]);
    if (strcmp(what, "descriptors") == 0)
        descriptors();
    else if (strcmp(what, "changed") == 0)
        changed();
    else if (strcmp(what, "none") == 0)
        none();
    else
        files();
    return 0;
}
