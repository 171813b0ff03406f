/* named: a program with its own arena in one evicted block. The paths, structures and sets that it
 * passes to libc lie there. So do the arguments of the programs that it starts. Prints "good" if
 * each call works as it does elsewhere. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/times.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define COUNT 16
#define BYTES ((size_t)1 << 20)
#define POLLED 8000 /* the list takes many pages */

extern char **environ;

static unsigned char *blocks[COUNT];
static char *arena, *other; /* places in the first block, far from each other */
static unsigned failed;

/* Uses all other blocks, so that the arena is evicted. */
static void press(void)
{
    for (int turn = 0; turn < 2; turn++)
        for (int i = 1; i < COUNT; i++)
            for (size_t at = 0; at < BYTES; at += 4096)
                if (((volatile unsigned char *)blocks[i])[at] != (unsigned char)i) {
                    printf("bad byte\n");
                    exit(1);
                }
}

#define TRY(call)                                                                                  \
    do {                                                                                           \
        press();                                                                                   \
        errno = 0;                                                                                 \
        if (!(call)) {                                                                             \
            fprintf(stderr, "%s: %s\n", #call, strerror(errno));                                   \
            failed++;                                                                              \
        }                                                                                          \
    } while (0)

static bool closes(int file)
{
    return file >= 0 && close(file) == 0;
}

static bool closes_stream(FILE *stream)
{
    return stream && fclose(stream) == 0;
}

static bool closes_folder(DIR *folder)
{
    return folder && closedir(folder) == 0;
}

/* The calls before may have made Ebb keep the first block. */
static void renew(void)
{
    free(blocks[0]);
    blocks[0] = malloc(BYTES);
    memset(blocks[0], 0, BYTES);
    arena = (char *)blocks[0] + 4096 - (size_t)blocks[0] % 4096;
    other = arena + BYTES / 2;
}

static void files(void)
{
    struct stat *status = (struct stat *)(void *)other;
    strcpy(arena, "/etc/passwd");
    TRY(stat(arena, status) == 0);
    TRY(lstat(arena, status) == 0);
    TRY(fstatat(AT_FDCWD, arena, status, 0) == 0);
    TRY(closes(open(arena, O_RDONLY)));
    TRY(closes(openat(AT_FDCWD, arena, O_RDONLY)));
    TRY(closes_stream(fopen(arena, "r")));
    TRY(access(arena, R_OK) == 0);
    TRY(statfs(arena, (struct statfs *)(void *)other) == 0);
    strcpy(arena, "/proc/self/exe");
    TRY(readlink(arena, other, 4096) > 0);
    TRY(getcwd(other, 4096) == other);
    strcpy(arena, "/");
    TRY(closes_folder(opendir(arena)));
    snprintf(arena, 100, "/var/tmp/named-%d", (int)getpid());
    snprintf(other, 100, "/var/tmp/named-other-%d", (int)getpid());
    TRY(mkdir(arena, 0700) == 0);
    TRY(rename(arena, other) == 0);
    TRY(rmdir(other) == 0);
    TRY(closes(open(arena, O_RDWR | O_CREAT | O_EXCL, 0600)));
    TRY(unlink(arena) == 0);
}

static void waits(void)
{
    int ends[2];
    if (pipe(ends) != 0 || write(ends[1], "x", 1) != 1)
        exit(1);
    struct pollfd *polled = (struct pollfd *)(void *)arena;
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    nfds_t count = limit.rlim_cur < POLLED ? limit.rlim_cur : POLLED;
    for (nfds_t i = 0; i < count; i++)
        polled[i] = (struct pollfd){.fd = -1};
    polled[count - 1] = (struct pollfd){.fd = ends[0], .events = POLLIN};
    TRY(poll(polled, count, 1000) == 1);
    fd_set *set = (fd_set *)(void *)arena;
    FD_ZERO(set);
    FD_SET(ends[0], set);
    TRY(select(ends[0] + 1, set, NULL, NULL, NULL) == 1);
    struct epoll_event *event = (struct epoll_event *)(void *)arena;
    int file = epoll_create1(0);
    *event = (struct epoll_event){.events = EPOLLIN};
    TRY(epoll_ctl(file, EPOLL_CTL_ADD, ends[0], event) == 0);
    TRY(epoll_wait(file, event, 10, 1000) == 1);
    struct timespec *time = (struct timespec *)(void *)arena;
    *time = (struct timespec){0, 1000};
    TRY(nanosleep(time, NULL) == 0);
    TRY(clock_nanosleep(CLOCK_MONOTONIC, 0, time, NULL) == 0);
    close(file);
    close(ends[0]);
    close(ends[1]);
}

static void structures(void)
{
    TRY(uname((struct utsname *)(void *)arena) == 0);
    TRY(sysinfo((struct sysinfo *)(void *)arena) == 0);
    TRY(times((struct tms *)(void *)arena) != (clock_t)-1);
    TRY(getrusage(RUSAGE_SELF, (struct rusage *)(void *)arena) == 0);
    TRY(sched_getaffinity(0, sizeof(cpu_set_t), (cpu_set_t *)(void *)arena) == 0);
    TRY(getitimer(ITIMER_REAL, (struct itimerval *)(void *)arena) == 0);
    TRY(sigaction(SIGUSR1, NULL, (struct sigaction *)(void *)arena) == 0);
    TRY(sigprocmask(SIG_BLOCK, NULL, (sigset_t *)(void *)arena) == 0);
    TRY(pipe((int *)(void *)arena) == 0);
    TRY(closes(((int *)(void *)arena)[0]) && closes(((int *)(void *)arena)[1]));
    TRY(socketpair(AF_UNIX, SOCK_STREAM, 0, (int *)(void *)arena) == 0);
    int pair[2];
    memcpy(pair, arena, sizeof pair);
    socklen_t *bytes = (socklen_t *)(void *)arena;
    *bytes = sizeof(struct sockaddr_un);
    TRY(getsockname(pair[0], (struct sockaddr *)(void *)other, bytes) == 0);
    *bytes = sizeof(int);
    TRY(getsockopt(pair[0], SOL_SOCKET, SO_TYPE, other, bytes) == 0);
    close(pair[0]);
    close(pair[1]);
}

/* Ebb keeps the block for each of these. */
static void kept(void)
{
    int ends[2], file = epoll_create1(0);
    if (pipe(ends) != 0 || write(ends[1], "x", 1) != 1)
        exit(1);
    TRY(fstat(STDOUT_FILENO, (struct stat *)(void *)arena) == 0);
    renew();
    TRY(getrlimit(RLIMIT_CPU, (struct rlimit *)(void *)arena) == 0);
    renew();
    struct pollfd *polled = (struct pollfd *)(void *)arena;
    *polled = (struct pollfd){.fd = ends[0], .events = POLLIN};
    struct timespec *until = (struct timespec *)(void *)other;
    until->tv_sec = 1;
    TRY(ppoll(polled, 1, until, NULL) == 1);
    renew();
    fd_set *set = (fd_set *)(void *)arena;
    FD_SET(ends[0], set);
    TRY(pselect(ends[0] + 1, set, NULL, NULL, NULL, NULL) == 1);
    renew();
    struct epoll_event *event = (struct epoll_event *)(void *)arena;
    *event = (struct epoll_event){.events = EPOLLIN};
    TRY(epoll_ctl(file, EPOLL_CTL_ADD, ends[0], event) == 0);
    TRY(epoll_pwait(file, event, 10, 1000, NULL) == 1);
    renew();
    struct iovec *vector = (struct iovec *)(void *)arena;
    char byte = 'y';
    vector[0] = (struct iovec){&byte, 1};
    TRY(writev(ends[1], vector, 1) == 1);
    close(file);
    close(ends[0]);
    close(ends[1]);
}

/* Datagrams whose headers and addresses lie in the block. None is lost. */
static void datagrams(void)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) != 0)
        exit(1);
    char byte = 'z', got = 0;
    struct msghdr *header = (struct msghdr *)(void *)arena;
    struct iovec *vector = (struct iovec *)(void *)other;
    *vector = (struct iovec){&byte, 1};
    *header = (struct msghdr){.msg_iov = vector, .msg_iovlen = 1};
    TRY(sendmsg(pair[0], header, 0) == 1);
    renew();
    header = (struct msghdr *)(void *)arena;
    vector = (struct iovec *)(void *)other;
    *vector = (struct iovec){&got, 1};
    *header = (struct msghdr){.msg_iov = vector,
                              .msg_iovlen = 1,
                              .msg_name = other + 8192,
                              .msg_namelen = sizeof(struct sockaddr_un)};
    TRY(recvmsg(pair[1], header, 0) == 1 && got == 'z');
    renew();
    if (send(pair[0], &byte, 1, 0) != 1)
        exit(1);
    socklen_t *bytes = (socklen_t *)(void *)arena;
    *bytes = sizeof(struct sockaddr_un);
    TRY(recvfrom(pair[1], &got, 1, 0, (struct sockaddr *)(void *)other, bytes) == 1);
    close(pair[0]);
    close(pair[1]);
}

static bool ends_with_7(pid_t child)
{
    int *status = (int *)(void *)other;
    press();
    return child > 0 && waitpid(child, status, 0) == child && WIFEXITED(*status) &&
           WEXITSTATUS(*status) == 7;
}

static void programs(void)
{
    char **arguments = (char **)(void *)(arena + 8192), **environment = arguments + 100;
    strcpy(arena, "/bin/sh");
    strcpy(arena + 4096, "-c");
    strcpy(other + 4096, "exit $NAMED");
    strcpy(other + 8192, "NAMED=7");
    arguments[0] = arena;
    arguments[1] = arena + 4096;
    arguments[2] = other + 4096;
    arguments[3] = NULL;
    environment[0] = other + 8192;
    environment[1] = NULL;
    pid_t child = -1;
    TRY(posix_spawn(&child, arena, NULL, NULL, arguments, environment) == 0);
    TRY(ends_with_7(child));
    child = fork();
    if (child == 0) {
        press();
        execve(arena, arguments, environment);
        _exit(errno);
    }
    TRY(ends_with_7(child));
}

int main(void)
{
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = malloc(BYTES);
        memset(blocks[i], i, BYTES);
    }
    void (*const parts[])(void) = {files, waits, structures, kept, datagrams, programs};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        renew();
        parts[i]();
    }
    if (failed == 0)
        printf("good\n");
    return failed != 0;
}
