/* libc calls that take names and structures. A program with its own arena in one large block has
 * its paths, its struct stat and its sets of descriptors there. If system calls cannot wait for
 * absent pages, these are fetched and pinned, like the buffers of calls.c.
 *
 * Not covered: ioctl() and fcntl(), whose argument may be anything, and exec functions whose
 * arguments are lists (execl). Memory that a structure points to is covered only if it is named
 * here. */
#include "calls.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/times.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

/* Defines a function with one such argument or more. */
#define WITH(type, name, parameters, arguments, first, first_bytes)                                \
    EBB_HAND_ON(type, name, parameters, arguments,                                                 \
                (&(struct iovec)EBB_BUFFER_OF(first, first_bytes)), 1)
#define WITH_TWO(type, name, parameters, arguments, first, first_bytes, second, second_bytes)      \
    EBB_HAND_ON(type, name, parameters, arguments,                                                 \
                ((struct iovec[2]){EBB_BUFFER_OF(first, first_bytes),                              \
                                   EBB_BUFFER_OF(second, second_bytes)}),                          \
                2)
#define WITH_FOUR(type, name, parameters, arguments, first, second, third, fourth, bytes)          \
    EBB_HAND_ON(type, name, parameters, arguments,                                                 \
                ((struct iovec[4]){EBB_BUFFER_OF(first, bytes), EBB_BUFFER_OF(second, bytes),      \
                                   EBB_BUFFER_OF(third, bytes), EBB_BUFFER_OF(fourth, bytes)}),    \
                4)
/* Defines a function with one or two paths. */
#define PATH(type, name, parameters, arguments)                                                    \
    WITH(type, name, parameters, arguments, path, PATH_MAX)
#define PATHS(type, name, parameters, arguments)                                                   \
    WITH_TWO(type, name, parameters, arguments, path, PATH_MAX, other, PATH_MAX)
/* Defines a function with a path and a result that it fills in. */
#define STATUS(name, kind, parameters, arguments)                                                  \
    WITH_TWO(int, name, parameters, arguments, path, PATH_MAX, status, sizeof(struct kind))

/* The mode argument of open(), which exists only if the call may create a file. */
#define MODE_OF(flags, last)                                                                       \
    mode_t mode = 0;                                                                               \
    if (flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE) {                                     \
        va_list more;                                                                              \
        va_start(more, last);                                                                      \
        mode = va_arg(more, mode_t);                                                               \
        va_end(more);                                                                              \
    }

static void unpin(struct ebb_buffers *buffers)
{
    if (buffers->count)
        ebb__calls_unpin(buffers);
}

/* Pins `path` if necessary before a call. A cancelled call does not unpin it. */
static struct ebb_buffers pin_path(struct iovec *vector, const char *path)
{
    *vector = (struct iovec)EBB_BUFFER_OF(path, PATH_MAX);
    struct ebb_buffers buffers = {vector, 1};
    if (ebb__calls_have_blocks(&buffers))
        ebb__calls_pin(&buffers);
    else
        buffers.count = 0;
    return buffers;
}

#define OPEN(name)                                                                                 \
    EXPORT int name(const char *path, int flags, ...);                                             \
    int name(const char *path, int flags, ...)                                                     \
    {                                                                                              \
        int (*next)(const char *, int, ...);                                                       \
        EBB_BEHIND(next, name);                                                                    \
        MODE_OF(flags, flags)                                                                      \
        struct iovec vector;                                                                       \
        struct ebb_buffers buffers = pin_path(&vector, path);                                      \
        int file = next(path, flags, mode);                                                        \
        unpin(&buffers);                                                                           \
        return file;                                                                               \
    }
#define OPEN_AT(name)                                                                              \
    EXPORT int name(int folder, const char *path, int flags, ...);                                 \
    int name(int folder, const char *path, int flags, ...)                                         \
    {                                                                                              \
        int (*next)(int, const char *, int, ...);                                                  \
        EBB_BEHIND(next, name);                                                                    \
        MODE_OF(flags, flags)                                                                      \
        struct iovec vector;                                                                       \
        struct ebb_buffers buffers = pin_path(&vector, path);                                      \
        int file = next(folder, path, flags, mode);                                                \
        unpin(&buffers);                                                                           \
        return file;                                                                               \
    }

/* clang-format off */
OPEN(open)
OPEN(open64)
OPEN_AT(openat)
OPEN_AT(openat64)
PATH(int, __open_2, (const char *path, int flags), (path, flags))
PATH(int, __open64_2, (const char *path, int flags), (path, flags))
PATH(int, __openat_2, (int folder, const char *path, int flags), (folder, path, flags))
PATH(int, __openat64_2, (int folder, const char *path, int flags), (folder, path, flags))
PATH(int, creat, (const char *path, mode_t mode), (path, mode))
PATH(int, creat64, (const char *path, mode_t mode), (path, mode))
PATH(FILE *, fopen, (const char *restrict path, const char *restrict mode), (path, mode))
PATH(FILE *, fopen64, (const char *restrict path, const char *restrict mode), (path, mode))
PATH(FILE *, freopen, (const char *restrict path, const char *restrict mode, FILE *restrict file),
     (path, mode, file))
PATH(FILE *, freopen64, (const char *restrict path, const char *restrict mode, FILE *restrict file),
     (path, mode, file))
PATH(DIR *, opendir, (const char *path), (path))
PATH(int, access, (const char *path, int mode), (path, mode))
PATH(int, faccessat, (int folder, const char *path, int mode, int flags), (folder, path, mode, flags))
PATH(int, unlink, (const char *path), (path))
PATH(int, unlinkat, (int folder, const char *path, int flags), (folder, path, flags))
PATH(int, mkdir, (const char *path, mode_t mode), (path, mode))
PATH(int, mkdirat, (int folder, const char *path, mode_t mode), (folder, path, mode))
PATH(int, rmdir, (const char *path), (path))
PATH(int, remove, (const char *path), (path))
PATH(int, chdir, (const char *path), (path))
PATH(int, chmod, (const char *path, mode_t mode), (path, mode))
PATH(int, truncate, (const char *path, off_t bytes), (path, bytes))
PATH(int, truncate64, (const char *path, off64_t bytes), (path, bytes))
PATH(char *, realpath, (const char *restrict path, char *restrict to), (path, to))
PATHS(int, rename, (const char *path, const char *other), (path, other))
PATHS(int, renameat, (int folder, const char *path, int into, const char *other),
      (folder, path, into, other))
PATHS(int, link, (const char *path, const char *other), (path, other))
PATHS(int, symlink, (const char *path, const char *other), (path, other))
STATUS(stat, stat, (const char *restrict path, struct stat *restrict status), (path, status))
STATUS(lstat, stat, (const char *restrict path, struct stat *restrict status), (path, status))
STATUS(stat64, stat64, (const char *restrict path, struct stat64 *restrict status), (path, status))
STATUS(lstat64, stat64, (const char *restrict path, struct stat64 *restrict status), (path, status))
STATUS(fstatat, stat,
       (int folder, const char *restrict path, struct stat *restrict status, int flags),
       (folder, path, status, flags))
STATUS(fstatat64, stat64,
       (int folder, const char *restrict path, struct stat64 *restrict status, int flags),
       (folder, path, status, flags))
STATUS(statx, statx,
       (int folder, const char *restrict path, int flags, unsigned mask,
        struct statx *restrict status),
       (folder, path, flags, mask, status))
STATUS(statfs, statfs, (const char *path, struct statfs *status), (path, status))
STATUS(statfs64, statfs64, (const char *path, struct statfs64 *status), (path, status))
WITH_TWO(ssize_t, readlink, (const char *restrict path, char *restrict to, size_t bytes),
         (path, to, bytes), path, PATH_MAX, to, bytes)
WITH_TWO(ssize_t, readlinkat,
         (int folder, const char *restrict path, char *restrict to, size_t bytes),
         (folder, path, to, bytes), path, PATH_MAX, to, bytes)
WITH(char *, getcwd, (char *to, size_t bytes), (to, bytes), to, bytes)
WITH(ssize_t, getdents64, (int file, void *to, size_t bytes), (file, to, bytes), to, bytes)
WITH(int, poll, (struct pollfd *polled, nfds_t count, int until_ms), (polled, count, until_ms),
     polled, count * sizeof(struct pollfd))
WITH(int, __poll_chk, (struct pollfd *polled, nfds_t count, int until_ms, size_t room),
     (polled, count, until_ms, room), polled, count * sizeof(struct pollfd))
WITH_FOUR(int, select,
          (int count, fd_set *restrict in, fd_set *restrict out, fd_set *restrict other,
           struct timeval *restrict until),
          (count, in, out, other, until), in, out, other, until, sizeof(fd_set))
WITH(int, epoll_wait, (int file, struct epoll_event *events, int count, int until_ms),
     (file, events, count, until_ms), events,
     count > 0 ? (size_t)count * sizeof(struct epoll_event) : 0)
WITH(int, epoll_ctl, (int file, int how, int watched, struct epoll_event *event),
     (file, how, watched, event), event, sizeof(struct epoll_event))
WITH_TWO(int, nanosleep, (const struct timespec *time, struct timespec *rest), (time, rest),
         time, sizeof(struct timespec), rest, sizeof(struct timespec))
WITH_TWO(int, clock_nanosleep,
         (clockid_t clock, int flags, const struct timespec *time, struct timespec *rest),
         (clock, flags, time, rest), time, sizeof(struct timespec), rest, sizeof(struct timespec))
WITH(int, uname, (struct utsname *name), (name), name, sizeof(struct utsname))
WITH(int, sysinfo, (struct sysinfo *info), (info), info, sizeof(struct sysinfo))
WITH(clock_t, times, (struct tms *spent), (spent), spent, sizeof(struct tms))
WITH(int, getrusage, (__rusage_who_t who, struct rusage *usage), (who, usage), usage,
     sizeof(struct rusage))
WITH(pid_t, wait, (int *status), (status), status, sizeof(int))
WITH(pid_t, waitpid, (pid_t process, int *status, int flags), (process, status, flags), status,
     sizeof(int))
WITH_TWO(pid_t, wait4, (pid_t process, int *status, int flags, struct rusage *usage),
         (process, status, flags, usage), status, sizeof(int), usage, sizeof(struct rusage))
WITH(int, waitid, (idtype_t kind, id_t process, siginfo_t *info, int flags),
     (kind, process, info, flags), info, sizeof(siginfo_t))
WITH(int, pipe, (int ends[2]), (ends), ends, 2 * sizeof(int))
WITH(int, pipe2, (int ends[2], int flags), (ends, flags), ends, 2 * sizeof(int))
WITH(int, socketpair, (int domain, int type, int protocol, int ends[2]),
     (domain, type, protocol, ends), ends, 2 * sizeof(int))
WITH(int, bind, (int file, const struct sockaddr *name, socklen_t bytes), (file, name, bytes), name,
     bytes)
WITH(int, connect, (int file, const struct sockaddr *name, socklen_t bytes), (file, name, bytes),
     name, bytes)
WITH_TWO(int, accept, (int file, struct sockaddr *restrict name, socklen_t *restrict bytes),
         (file, name, bytes), name, sizeof(struct sockaddr_storage), bytes, sizeof(socklen_t))
WITH_TWO(int, accept4,
         (int file, struct sockaddr *restrict name, socklen_t *restrict bytes, int flags),
         (file, name, bytes, flags), name, sizeof(struct sockaddr_storage), bytes,
         sizeof(socklen_t))
WITH_TWO(int, getsockname, (int file, struct sockaddr *restrict name, socklen_t *restrict bytes),
         (file, name, bytes), name, sizeof(struct sockaddr_storage), bytes, sizeof(socklen_t))
WITH_TWO(int, getpeername, (int file, struct sockaddr *restrict name, socklen_t *restrict bytes),
         (file, name, bytes), name, sizeof(struct sockaddr_storage), bytes, sizeof(socklen_t))
WITH(int, setsockopt, (int file, int level, int option, const void *value, socklen_t bytes),
     (file, level, option, value, bytes), value, bytes)
WITH_TWO(int, getsockopt,
         (int file, int level, int option, void *restrict value, socklen_t *restrict bytes),
         (file, level, option, value, bytes), value, PATH_MAX, bytes, sizeof(socklen_t))
WITH(int, getgroups, (int count, gid_t *groups), (count, groups), groups,
     count > 0 ? (size_t)count * sizeof(gid_t) : 0)
WITH(int, sched_getaffinity, (pid_t process, size_t bytes, cpu_set_t *set), (process, bytes, set),
     set, bytes)
WITH(int, sched_setaffinity, (pid_t process, size_t bytes, const cpu_set_t *set),
     (process, bytes, set), set, bytes)
WITH_TWO(int, setitimer,
         (__itimer_which_t which, const struct itimerval *restrict time,
          struct itimerval *restrict before),
         (which, time, before), time, sizeof(struct itimerval), before, sizeof(struct itimerval))
WITH(int, getitimer, (__itimer_which_t which, struct itimerval *time), (which, time), time,
     sizeof(struct itimerval))
WITH_TWO(int, timerfd_settime,
         (int file, int flags, const struct itimerspec *time, struct itimerspec *before),
         (file, flags, time, before), time, sizeof(struct itimerspec), before,
         sizeof(struct itimerspec))
/* clang-format on */

/* The arguments of a program, which the kernel copies, or a child that shares the memory. They stay
 * resident until freed: a successful call does not return. */
static void wait_in_arguments(const char *path, char *const arguments[], char *const environment[])
{
    char *const *const lists[2] = {arguments, environment};
    ebb__shim_wait_in(path, PATH_MAX);
    for (int i = 0; i < 2; i++)
        for (size_t k = 0;
             lists[i] && (ebb__shim_wait_in(&lists[i][k], sizeof(char *)), lists[i][k]); k++)
            ebb__shim_wait_in(lists[i][k], 1);
}

EXPORT int execve(const char *path, char *const arguments[], char *const environment[]);
EXPORT int execvpe(const char *path, char *const arguments[], char *const environment[]);
EXPORT int execv(const char *path, char *const arguments[]);
EXPORT int execvp(const char *path, char *const arguments[]);
EXPORT int posix_spawn(pid_t *restrict process, const char *restrict path,
                       const posix_spawn_file_actions_t *actions,
                       const posix_spawnattr_t *restrict attributes,
                       char *const arguments[restrict], char *const environment[restrict]);
EXPORT int posix_spawnp(pid_t *restrict process, const char *restrict path,
                        const posix_spawn_file_actions_t *actions,
                        const posix_spawnattr_t *restrict attributes,
                        char *const arguments[restrict], char *const environment[restrict]);

#define EXECUTE(name, parameters, arguments, its_environment)                                      \
    int name parameters                                                                            \
    {                                                                                              \
        int(*next) parameters;                                                                     \
        EBB_BEHIND(next, name);                                                                    \
        wait_in_arguments(path, list, its_environment);                                            \
        return next arguments;                                                                     \
    }

EXECUTE(execve, (const char *path, char *const list[], char *const environment[]),
        (path, list, environment), environment)
EXECUTE(execvpe, (const char *path, char *const list[], char *const environment[]),
        (path, list, environment), environment)
EXECUTE(execv, (const char *path, char *const list[]), (path, list), environ)
EXECUTE(execvp, (const char *path, char *const list[]), (path, list), environ)
EXECUTE(posix_spawn,
        (pid_t *restrict process, const char *restrict path,
         const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *restrict attributes,
         char *const list[restrict], char *const environment[restrict]),
        (process, path, actions, attributes, list, environment), environment)
EXECUTE(posix_spawnp,
        (pid_t *restrict process, const char *restrict path,
         const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *restrict attributes,
         char *const list[restrict], char *const environment[restrict]),
        (process, path, actions, attributes, list, environment), environment)
