/* What the fake saw: violations, errors by name, counters. At exit it writes a JSON report
 * (FAKECUDA_REPORT), and a program with violations ends with exit code 86.
 */
#include "fake.h"
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
FAKECUDA_SANITIZER_OPTIONS
#endif

enum { VERDICT = 86, MOST_KINDS = 32, ERROR_CODES = 1000, MOST_LINES = 40 };

static const char *const counter_names[COUNT_END] = {
    [COUNT_LAUNCHES] = "launches",
    [COUNT_COPIES] = "copies",
    [COUNT_COPY_BYTES] = "copied_bytes",
    [COUNT_MEMSETS] = "memsets",
    [COUNT_FAULTS] = "faults",
    [COUNT_REMOTE] = "remote_accesses",
    [COUNT_MIGRATED] = "migrated_bytes",
    [COUNT_PREFETCHES] = "prefetches",
    [COUNT_PREFETCHED] = "prefetched_bytes",
    [COUNT_PREFETCHED_OUT] = "prefetched_to_host_bytes",
    [COUNT_DISCARDED] = "discarded_bytes",
    [COUNT_EVICTED] = "evicted_bytes",
    [COUNT_HOST_FAULTS] = "host_faults",
    [COUNT_MAPS] = "maps",
    [COUNT_CREATES] = "creates",
    [COUNT_GRAPHS] = "graph_launches",
    [COUNT_SYNCS] = "synchronizations",
    [COUNT_FREES_SYNCING] = "frees_that_waited",
    [COUNT_MISSING] = "missing_functions",
    [COUNT_CHECKS] = "checked_accesses",
};

/* Threads count apart, so that they do not wait for each other's cache lines. */
enum { SHARDS = 16 };
static struct shard {
    _Alignas(128) _Atomic uint64_t counts[COUNT_END];
} shards[SHARDS];
static _Atomic unsigned next_shard;
static _Thread_local struct shard *my_shard;
static _Atomic uint64_t errors[ERROR_CODES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct kind {
    const char *name;
    unsigned count;
} kinds[MOST_KINDS];
static unsigned kind_count, violation_count;
static pid_t owner;

void fake_count(enum counter counter, uint64_t by)
{
    if (!my_shard)
        my_shard = &shards[atomic_fetch_add(&next_shard, 1) % SHARDS];
    atomic_fetch_add_explicit(&my_shard->counts[counter], by, memory_order_relaxed);
}

CUresult fake_result(CUresult code)
{
    if (code != CUDA_SUCCESS && (unsigned)code < ERROR_CODES)
        atomic_fetch_add_explicit(&errors[code], 1, memory_order_relaxed);
    return code;
}

void fake_violation(const char *kind, const char *format, ...)
{
    pthread_mutex_lock(&lock);
    unsigned i = 0;
    while (i < kind_count && strcmp(kinds[i].name, kind))
        i++;
    if (i == kind_count && kind_count < MOST_KINDS)
        kinds[kind_count++].name = kind;
    if (i < MOST_KINDS)
        kinds[i].count++;
    if (violation_count++ < MOST_LINES) {
        va_list arguments;
        va_start(arguments, format);
        char text[512];
        vsnprintf(text, sizeof(text), format, arguments);
        va_end(arguments);
        fprintf(stderr, "fakecuda: %s: %s\n", kind, text);
    }
    pthread_mutex_unlock(&lock);
}

void fake_report_start(void)
{
    owner = getpid();
}

static uint64_t counted(int counter)
{
    uint64_t sum = 0;
    for (int i = 0; i < SHARDS; i++)
        sum += atomic_load(&shards[i].counts[counter]);
    return sum;
}

static void write_report(FILE *file)
{
    fprintf(file, "{\n  \"violations\": %u,\n  \"kinds\": {", violation_count);
    for (unsigned i = 0; i < kind_count; i++)
        fprintf(file, "%s\"%s\": %u", i ? ", " : "", kinds[i].name, kinds[i].count);
    fprintf(file, "},\n  \"devices\": [");
    for (int i = 0; i < fake_set.device_count; i++) {
        const struct device *device = &fake_devices[i];
        fprintf(file,
                "%s\n    {\"most_bytes\": %zu, \"plain_bytes\": %zu, \"vmm_bytes\": %zu, "
                "\"managed_bytes\": %zu}",
                i ? "," : "", device->most_bytes, device->plain_bytes, device->vmm_bytes,
                device->managed_bytes);
    }
    fprintf(file, "],\n  \"pinned_bytes\": %zu,\n  \"most_pinned_bytes\": %zu,\n",
            fake_pinned_bytes, fake_most_pinned_bytes);
    fprintf(file, "  \"errors\": {");
    const char *separator = "";
    for (int code = 0; code < ERROR_CODES; code++) {
        if (errors[code]) {
            const char *name = fake_error_name((CUresult)code);
            fprintf(file, "%s\"%s\": %llu", separator, name ? name : "?",
                    (unsigned long long)errors[code]);
            separator = ", ";
        }
    }
    fprintf(file, "}");
    for (int i = 0; i < COUNT_END; i++)
        fprintf(file, ",\n  \"%s\": %llu", counter_names[i], (unsigned long long)counted(i));
    fprintf(file, "\n}\n");
}

/* Whole or not at all: several processes may have the same file. What is no file (/dev/stdout) is
 * not replaced. */
static void save_report(const char *path)
{
    char part[4096];
    struct stat status;
    bool is_other = stat(path, &status) == 0 && !S_ISREG(status.st_mode);
    snprintf(part, sizeof part, is_other ? "%s" : "%s.%d", path, (int)getpid());
    FILE *file = fopen(part, is_other ? "a" : "w");
    if (!file)
        return;
    write_report(file);
    fclose(file);
    if (!is_other)
        rename(part, path);
}

/* Runs when the library is unloaded, which is after the program's own exit handlers. */
__attribute__((destructor)) static void finish(void)
{
    if (!owner || owner != getpid())
        return;
    if (fake_set.report_path)
        save_report(fake_set.report_path);
    if (violation_count && fake_set.strict) {
        fprintf(stderr, "fakecuda: %u violations\n", violation_count);
        fflush(NULL);
        _exit(VERDICT);
    }
}
