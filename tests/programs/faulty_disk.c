/* faulty_disk: a library to preload below Ebb's. It makes the files of the store fail. FAULTY_DISK
 * is a list of NAME=NUMBER, separated by commas:
 *   write_error=E   writes fail with errno E after `good_writes` successful ones
 *   bad_writes=N    after N failed writes they succeed again
 *   read_error=E    the same for reads, with good_reads and bad_reads
 *   short=1         transfers are cut to an eighth at most, every third is interrupted
 *   delay_us=N      each transfer takes N us longer
 *   flip=N          each read from the N-th on has one wrong byte. A single one might hit a block
 *                   that is freed or written before it is read
 *   hang_read=N     the N-th read creates the file FAULTY_DISK_HANGS, then takes hang_ms longer
 *   hang_write=N    the same for writes
 *   no_tmpfile=1    O_TMPFILE fails, so that files must be created and unlinked. Their names and
 *                   the flags of open() are written to the file FAULTY_DISK_NAMES
 *   probe=1         the files with which Ebb measures the disk fail, too
 *   clock=1         each read of the time of day jumps a day forward or back
 * Every file without a name counts as a file of the store. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long setting(const char *name)
{
    const char *list = getenv("FAULTY_DISK");
    size_t length = strlen(name);
    while (list && *list) {
        if (strncmp(list, name, length) == 0 && list[length] == '=')
            return atol(list + length + 1);
        list = strchr(list, ',');
        list += list != NULL;
    }
    return 0;
}

static int of_the_store(int file)
{
    struct stat status;
    return (file >= 600 || setting("probe")) && fstatat(file, "", &status, AT_EMPTY_PATH) == 0 &&
           S_ISREG(status.st_mode) && status.st_nlink == 0;
}

/* Decides the result of a transfer: its length, or 0 with errno set. */
static size_t judge(size_t bytes, unsigned long number, const char *error, const char *good,
                    const char *bad, const char *hang)
{
    if (setting(hang) && number == (unsigned long)setting(hang)) {
        const char *said = getenv("FAULTY_DISK_HANGS");
        if (said)
            syscall(SYS_openat, AT_FDCWD, said, O_WRONLY | O_CREAT, 0600);
        usleep((useconds_t)setting("hang_ms") * 1000);
    }
    if (setting("delay_us"))
        usleep((useconds_t)setting("delay_us"));
    unsigned long first = (unsigned long)setting(good), most = (unsigned long)setting(bad);
    if (setting(error) && number > first && (most == 0 || number <= first + most)) {
        errno = (int)setting(error);
        return 0;
    }
    if (setting("short") && number % 3 == 0) {
        errno = EINTR;
        return 0;
    }
    size_t cut = bytes / 8 & ~(size_t)4095; /* a multiple of the page, as direct I/O requires */
    return setting("short") && cut ? cut : bytes;
}

ssize_t pwrite64(int file, const void *from, size_t bytes, off64_t at)
{
    static _Atomic unsigned long writes;
    if (of_the_store(file) &&
        !(bytes = judge(bytes, atomic_fetch_add(&writes, 1) + 1, "write_error", "good_writes",
                        "bad_writes", "hang_write")))
        return -1;
    return syscall(SYS_pwrite64, file, from, bytes, at);
}

ssize_t pread64(int file, void *to, size_t bytes, off64_t at)
{
    static _Atomic unsigned long reads;
    if (!of_the_store(file))
        return syscall(SYS_pread64, file, to, bytes, at);
    unsigned long number = atomic_fetch_add(&reads, 1) + 1;
    if (!(bytes = judge(bytes, number, "read_error", "good_reads", "bad_reads", "hang_read")))
        return -1;
    ssize_t got = syscall(SYS_pread64, file, to, bytes, at);
    long first = setting("flip");
    if (got > 0 && first && (long)number >= first)
        ((unsigned char *)to)[got / 2] ^= 4;
    return got;
}

ssize_t pwrite(int file, const void *from, size_t bytes, off_t at)
{
    return pwrite64(file, from, bytes, at);
}

ssize_t pread(int file, void *to, size_t bytes, off_t at)
{
    return pread64(file, to, bytes, at);
}

static void note_name(const char *path, int flags)
{
    const char *names = getenv("FAULTY_DISK_NAMES");
    char line[5000];
    long file =
        names ? syscall(SYS_openat, AT_FDCWD, names, O_WRONLY | O_APPEND | O_CREAT, 0600) : -1;
    int length = snprintf(line, sizeof line, "%d %s\n", flags, path);
    if (file >= 0 && syscall(SYS_write, file, line, length) == length)
        syscall(SYS_close, file);
}

int open64(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    unsigned mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, unsigned) : 0;
    va_end(rest);
    if (setting("no_tmpfile") && (flags & O_TMPFILE) == O_TMPFILE) {
        errno = EOPNOTSUPP;
        return -1;
    }
    if (setting("no_tmpfile") && (flags & O_CREAT))
        note_name(path, flags);
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int open(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    unsigned mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, unsigned) : 0;
    va_end(rest);
    return open64(path, flags, mode);
}

static time_t jump(time_t seconds)
{
    static _Atomic unsigned looks;
    static const int days[] = {0, 1, -1, 3, -400};
    return setting("clock") ? seconds + 86400 * days[atomic_fetch_add(&looks, 1) % 5] : seconds;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    if (clock == CLOCK_REALTIME)
        now->tv_sec = jump(now->tv_sec);
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    int result = (int)syscall(SYS_gettimeofday, now, zone);
    now->tv_sec = jump(now->tv_sec);
    return result;
}

time_t time(time_t *place)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (place)
        *place = now.tv_sec;
    return now.tv_sec;
}
