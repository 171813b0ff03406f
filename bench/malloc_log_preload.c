/* Counts a program's allocations independently of Ebb. Preload it; it writes JSON at the end.
 *
 * It shares no code with Ebb and does not use an allocator's statistics. It adds up the requested
 * bytes of all blocks in its own table (open addressing, one lock, memory only from mmap). It
 * records the peak of the total. For each threshold, it records how much of that peak was in blocks
 * of at least that size, and the separate peak of these blocks.
 *
 *   LD_PRELOAD=libmalloc_log_preload.so[:allocator.so] EBB_MALLOC_LOG=out.json CMD
 *   EBB_LOG_THRESHOLD=524288        one more threshold (bytes) beside 64 KiB, 512 KiB and 1 MiB;
 *                                   its figures are also at the top level of the JSON
 *
 * `%p` in the name becomes the process id. Without `%p`, if several programs run by exec, the last
 * one to end writes. A forked child that does not exec writes nothing. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* --- the table ------------------------------------------------------------------------------ */

struct slot {
    uintptr_t address; /* 0: empty */
    size_t bytes;
};

enum { THRESHOLD_COUNT = 4 };

struct counts {
    uint64_t total;
    uint64_t above[THRESHOLD_COUNT]; /* bytes in blocks of at least thresholds[i] */
};

static struct {
    pthread_mutex_t lock;
    struct slot *slots;
    size_t capacity, used; /* capacity is a power of two */
    size_t thresholds[THRESHOLD_COUNT];
    struct counts live, at_peak;
    uint64_t peak_above[THRESHOLD_COUNT];
    uint64_t allocations, frees, unknown_frees, lost;
    pid_t owner;
    bool written;
} log_ = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .thresholds = {(size_t)64 << 10, (size_t)512 << 10, (size_t)1 << 20, (size_t)512 << 10},
};

static struct slot *map_slots(size_t capacity)
{
    void *at = mmap(NULL, capacity * sizeof(struct slot), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

static size_t home_of(uintptr_t address)
{
    return (size_t)((address >> 4) * (uintptr_t)0x9E3779B97F4A7C15u >> 20) & (log_.capacity - 1);
}

static void put(uintptr_t address, size_t bytes)
{
    size_t i = home_of(address);
    while (log_.slots[i].address != 0)
        i = (i + 1) & (log_.capacity - 1);
    log_.slots[i] = (struct slot){address, bytes};
    log_.used++;
}

static bool grow(void)
{
    size_t old_capacity = log_.capacity;
    struct slot *old = log_.slots;
    size_t capacity = old_capacity ? old_capacity * 2 : (size_t)1 << 16;
    struct slot *slots = map_slots(capacity);
    if (!slots)
        return false;
    log_.slots = slots;
    log_.capacity = capacity;
    log_.used = 0;
    for (size_t i = 0; i < old_capacity; i++)
        if (old[i].address != 0)
            put(old[i].address, old[i].bytes);
    if (old)
        munmap(old, old_capacity * sizeof *old);
    return true;
}

static void count_allocation(void *block, size_t bytes)
{
    if (!block)
        return;
    int saved = errno;
    pthread_mutex_lock(&log_.lock);
    if (log_.used * 2 >= log_.capacity && !grow()) {
        log_.lost++;
    } else {
        put((uintptr_t)block, bytes);
        log_.allocations++;
        log_.live.total += bytes;
        for (int i = 0; i < THRESHOLD_COUNT; i++) {
            if (bytes < log_.thresholds[i])
                continue;
            log_.live.above[i] += bytes;
            if (log_.live.above[i] > log_.peak_above[i])
                log_.peak_above[i] = log_.live.above[i];
        }
        if (log_.live.total > log_.at_peak.total)
            log_.at_peak = log_.live;
    }
    pthread_mutex_unlock(&log_.lock);
    errno = saved;
}

/* Removes a block. Returns its size, or SIZE_MAX if the block is unknown. */
static size_t count_free(const void *block)
{
    size_t bytes = SIZE_MAX;
    if (!block)
        return bytes;
    int saved = errno;
    pthread_mutex_lock(&log_.lock);
    size_t mask = log_.capacity - 1;
    size_t i = log_.capacity ? home_of((uintptr_t)block) : 0;
    while (log_.capacity && log_.slots[i].address != 0 && log_.slots[i].address != (uintptr_t)block)
        i = (i + 1) & mask;
    if (!log_.capacity || log_.slots[i].address == 0) {
        log_.unknown_frees++;
    } else {
        bytes = log_.slots[i].bytes;
        log_.frees++;
        log_.used--;
        log_.live.total -= bytes;
        for (int t = 0; t < THRESHOLD_COUNT; t++)
            if (bytes >= log_.thresholds[t])
                log_.live.above[t] -= bytes;
        /* Close the hole: move entries back that probing could no longer reach. */
        size_t hole = i;
        for (size_t next = (i + 1) & mask; log_.slots[next].address != 0;
             next = (next + 1) & mask) {
            size_t home = home_of(log_.slots[next].address);
            if (((next - home) & mask) >= ((next - hole) & mask)) {
                log_.slots[hole] = log_.slots[next];
                hole = next;
            }
        }
        log_.slots[hole] = (struct slot){0, 0};
    }
    pthread_mutex_unlock(&log_.lock);
    errno = saved;
    return bytes;
}

/* --- the report ----------------------------------------------------------------------------- */

static void write_report(void)
{
    const char *name = getenv("EBB_MALLOC_LOG");
    if (!name || !name[0] || getpid() != log_.owner || log_.written)
        return;
    log_.written = true;
    char path[4096];
    size_t used = 0;
    for (const char *at = name; *at && used < sizeof path - 16; at++) {
        if (at[0] == '%' && at[1] == 'p') {
            used += (size_t)snprintf(path + used, 16, "%ld", (long)getpid());
            at++;
        } else {
            path[used++] = *at;
        }
    }
    path[used] = 0;

    char text[2048];
    pthread_mutex_lock(&log_.lock);
    int n = snprintf(text, sizeof text,
                     "{\"schema\": \"ebb.malloc-log/1\", \"peak_bytes\": %llu, "
                     "\"threshold_bytes\": %zu, \"threshold_peak_bytes\": %llu, "
                     "\"at_peak_threshold_bytes\": %llu, \"live_bytes\": %llu, "
                     "\"allocations\": %llu, \"frees\": %llu, \"unknown_frees\": %llu, "
                     "\"lost\": %llu, \"thresholds\": [",
                     (unsigned long long)log_.at_peak.total, log_.thresholds[THRESHOLD_COUNT - 1],
                     (unsigned long long)log_.peak_above[THRESHOLD_COUNT - 1],
                     (unsigned long long)log_.at_peak.above[THRESHOLD_COUNT - 1],
                     (unsigned long long)log_.live.total, (unsigned long long)log_.allocations,
                     (unsigned long long)log_.frees, (unsigned long long)log_.unknown_frees,
                     (unsigned long long)log_.lost);
    for (int i = 0; i < THRESHOLD_COUNT; i++)
        n += snprintf(text + n, sizeof text - (size_t)n,
                      "%s{\"threshold_bytes\": %zu, \"peak_bytes\": %llu, "
                      "\"at_peak_bytes\": %llu}",
                      i ? ", " : "", log_.thresholds[i], (unsigned long long)log_.peak_above[i],
                      (unsigned long long)log_.at_peak.above[i]);
    n += snprintf(text + n, sizeof text - (size_t)n, "]}\n");
    pthread_mutex_unlock(&log_.lock);

    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return;
    if (write(fd, text, (size_t)n) != n)
        fprintf(stderr, "malloc_log: %s: short write\n", path);
    close(fd);
}

/* --- the calls ------------------------------------------------------------------------------ */

static void *(*next_malloc)(size_t);
static void *(*next_calloc)(size_t, size_t);
static void *(*next_realloc)(void *, size_t);
static void (*next_free)(void *);
static int (*next_posix_memalign)(void **, size_t, size_t);
static void *(*next_aligned_alloc)(size_t, size_t);
static void *(*next_memalign)(size_t, size_t);

/* dlsym() may call calloc(). Such requests are served from here and never freed. */
static _Alignas(16) char early[65536];
static size_t early_used;
static __thread bool resolving __attribute__((tls_model("initial-exec")));

static bool is_early(const void *block)
{
    return (const char *)block >= early && (const char *)block < early + sizeof early;
}

static void *early_allocate(size_t bytes)
{
    size_t at = __atomic_fetch_add(&early_used, (bytes + 15) / 16 * 16, __ATOMIC_RELAXED);
    return at + bytes <= sizeof early ? early + at : NULL;
}

/* Converts dlsym's object pointer to a function pointer, which POSIX allows. */
static void look_up(void *function, const char *name)
{
    void *symbol = dlsym(RTLD_NEXT, name);
    memcpy(function, &symbol, sizeof symbol);
}

static void resolve(void)
{
    resolving = true;
    look_up(&next_calloc, "calloc");
    look_up(&next_realloc, "realloc");
    look_up(&next_free, "free");
    look_up(&next_posix_memalign, "posix_memalign");
    look_up(&next_aligned_alloc, "aligned_alloc");
    look_up(&next_memalign, "memalign");
    look_up(&next_malloc, "malloc");
    resolving = false;
}

void *malloc(size_t bytes)
{
    if (!next_malloc) {
        if (resolving)
            return early_allocate(bytes);
        resolve();
    }
    void *block = next_malloc(bytes);
    count_allocation(block, bytes);
    return block;
}

void *calloc(size_t count, size_t each)
{
    if (!next_malloc) {
        if (resolving)
            return early_allocate(count * each);
        resolve();
    }
    void *block = next_calloc(count, each);
    count_allocation(block, count * each);
    return block;
}

void free(void *block)
{
    if (!block || is_early(block))
        return;
    if (!next_malloc)
        resolve();
    count_free(block);
    next_free(block);
}

void *realloc(void *block, size_t bytes)
{
    if (!block)
        return malloc(bytes);
    if (is_early(block)) {
        void *copy = malloc(bytes);
        size_t room = (size_t)(early + sizeof early - (char *)block);
        if (copy)
            memcpy(copy, block, bytes < room ? bytes : room);
        return copy;
    }
    if (!next_malloc)
        resolve();
    /* Remove the block before the call. After it another thread may own the old address. */
    size_t old_bytes = count_free(block);
    void *moved = next_realloc(block, bytes);
    if (moved)
        count_allocation(moved, bytes);
    else if (bytes > 0 && old_bytes != SIZE_MAX)
        count_allocation(block, old_bytes);
    return moved;
}

void *reallocarray(void *block, size_t count, size_t each)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, each, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return realloc(block, bytes);
}

int posix_memalign(void **block, size_t alignment, size_t bytes)
{
    if (!next_malloc)
        resolve();
    int error = next_posix_memalign(block, alignment, bytes);
    if (error == 0)
        count_allocation(*block, bytes);
    return error;
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    if (!next_malloc)
        resolve();
    void *block = next_aligned_alloc(alignment, bytes);
    count_allocation(block, bytes);
    return block;
}

void *memalign(size_t alignment, size_t bytes)
{
    if (!next_malloc)
        resolve();
    void *block = next_memalign(alignment, bytes);
    count_allocation(block, bytes);
    return block;
}

void *valloc(size_t bytes)
{
    return memalign((size_t)sysconf(_SC_PAGESIZE), bytes);
}

void *pvalloc(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return memalign(page, (bytes + page - 1) / page * page);
}

/* C++'s operators new and delete by their mangled names. An allocator with its own operators, like
 * jemalloc, would otherwise bypass this count. They do not throw: the program ends if out of
 * memory. */
void *_Znwm(size_t bytes);
void *_Znwm(size_t bytes)
{
    void *block = malloc(bytes ? bytes : 1);
    if (!block)
        abort();
    return block;
}

void *_ZnwmSt11align_val_t(size_t bytes, size_t alignment);
void *_ZnwmSt11align_val_t(size_t bytes, size_t alignment)
{
    void *block = memalign(alignment, bytes ? bytes : 1);
    if (!block)
        abort();
    return block;
}

__attribute__((used)) static void *new_or_null(size_t bytes)
{
    return malloc(bytes ? bytes : 1);
}

__attribute__((used)) static void delete_block(void *block)
{
    free(block);
}

#define SAME_AS(target, name, ...) void *name(__VA_ARGS__) __attribute__((alias(target)))
SAME_AS("_Znwm", _Znam, size_t);
SAME_AS("new_or_null", _ZnwmRKSt9nothrow_t, size_t);
SAME_AS("new_or_null", _ZnamRKSt9nothrow_t, size_t);
SAME_AS("_ZnwmSt11align_val_t", _ZnamSt11align_val_t, size_t, size_t);
#undef SAME_AS

#define DELETES(name) void name(void *) __attribute__((alias("delete_block")))
DELETES(_ZdlPv);
DELETES(_ZdaPv);
DELETES(_ZdlPvm);
DELETES(_ZdaPvm);
DELETES(_ZdlPvRKSt9nothrow_t);
DELETES(_ZdaPvRKSt9nothrow_t);
DELETES(_ZdlPvSt11align_val_t);
DELETES(_ZdaPvSt11align_val_t);
DELETES(_ZdlPvmSt11align_val_t);
DELETES(_ZdaPvmSt11align_val_t);
#undef DELETES

/* --- begin and end -------------------------------------------------------------------------- */

static void before_fork(void)
{
    pthread_mutex_lock(&log_.lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&log_.lock);
}

__attribute__((constructor)) static void begin(void)
{
    if (!next_malloc)
        resolve();
    log_.owner = getpid();
    const char *threshold = getenv("EBB_LOG_THRESHOLD");
    /* Set before main. The few blocks counted before are far below any sensible threshold. */
    if (threshold && threshold[0])
        log_.thresholds[THRESHOLD_COUNT - 1] = strtoull(threshold, NULL, 10);
    pthread_atfork(before_fork, after_fork, after_fork);
    atexit(write_report);
}

__attribute__((destructor)) static void end(void)
{
    write_report();
}

/* Python's os._exit() and some runtimes end without running destructors. */
__attribute__((noreturn)) void _exit(int status)
{
    write_report();
    for (;;)
        syscall(SYS_exit_group, status);
}

__attribute__((noreturn)) void _Exit(int status)
{
    _exit(status);
}
