/* turning: a program of the host that begins to use a GPU.
 *
 * It does what its words say, one after the other, and checks every byte of its blocks:
 *   fill MIB      allocates blocks, and some small objects, and writes them
 *   bare MIB      allocates blocks that are first written by the next `verify`
 *   verify        each byte of each block is as it was written
 *   change        writes each block anew
 *   half          frees every second block
 *   churn COUNT   starts threads that allocate, write, compare, grow and free until `stop`
 *   count         asks the driver for the number of devices; no context is made
 *   primary, own  makes the primary context of the first device, or one of its own
 *   green         makes a part of it, which makes the primary context, too
 *   use           copies each block to the device and back, and compares
 *   register      page-locks each block
 *   away, there   some page of a block is absent; all pages are present, and nobody watches them
 *   refused, allowed  io_setup() fails, or not
 *   fork          what follows, up to `parent`, is for the child
 *   nap MS        sleeps
 *
 * Exit codes: 0 success; 1 a wrong byte or an unmet expectation, told on stderr; 2 bad usage; 3 the
 * driver or the system failed. Needs only libc: cc -O2 -pthread turning.c. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define MOST_BLOCKS 100000
#define SMALL_BYTES 2000
#define PAGE 4096

static struct block {
    unsigned char *bytes;
    size_t size;
    uint64_t seed;
    bool is_bare;
} blocks[MOST_BLOCKS];
static size_t block_count;
static uint64_t seeds;

static _Noreturn void fail(int code, const char *what, const char *why)
{
    fprintf(stderr, "turning: %s: %s\n", what, why);
    exit(code);
}

static uint64_t word_of(uint64_t seed, size_t i)
{
    uint64_t word = (seed + i) * 0x9e3779b97f4a7c15u;
    return word ^ word >> 29;
}

static void write_bytes(unsigned char *bytes, size_t size, uint64_t seed)
{
    for (size_t i = 0; i + 8 <= size; i += 8) {
        uint64_t word = word_of(seed, i);
        memcpy(bytes + i, &word, 8);
    }
}

static void compare(const unsigned char *bytes, size_t size, uint64_t seed, const char *what)
{
    for (size_t i = 0; i + 8 <= size; i += 8) {
        uint64_t word;
        memcpy(&word, bytes + i, 8);
        if (word != word_of(seed, i))
            fail(1, what, "a wrong byte");
    }
}

static void *allocate(size_t size)
{
    void *bytes = malloc(size);
    if (!bytes)
        fail(3, "malloc", strerror(errno));
    return bytes;
}

static void fill(size_t bytes, bool is_bare)
{
    for (size_t done = 0; done < bytes;) {
        if (block_count == MOST_BLOCKS)
            fail(2, "fill", "too many blocks");
        size_t size =
            block_count % 4 == 3 && !is_bare ? SMALL_BYTES : MIB / 4 + block_count % 7 * (MIB / 2);
        struct block *block = &blocks[block_count++];
        *block = (struct block){allocate(size), size, ++seeds << 32, is_bare};
        if (!is_bare)
            write_bytes(block->bytes, size, block->seed);
        done += size;
    }
}

static void verify(void)
{
    for (size_t i = 0; i < block_count; i++) {
        if (blocks[i].is_bare)
            write_bytes(blocks[i].bytes, blocks[i].size, blocks[i].seed);
        blocks[i].is_bare = false;
        compare(blocks[i].bytes, blocks[i].size, blocks[i].seed, "verify");
    }
}

static void change(void)
{
    for (size_t i = 0; i < block_count; i++) {
        blocks[i].seed = ++seeds << 32;
        write_bytes(blocks[i].bytes, blocks[i].size, blocks[i].seed);
    }
}

static void half(void)
{
    size_t left = 0;
    for (size_t i = 0; i < block_count; i++) {
        if (i % 2)
            free(blocks[i].bytes);
        else
            blocks[left++] = blocks[i];
    }
    block_count = left;
}

/* ---- threads --------------------------------------------------------------------------------- */

static atomic_bool stopping;
static pthread_t churners[16];
static size_t churner_count;

static void *churn(void *argument)
{
    uint64_t seed = (uint64_t)(uintptr_t)argument << 48, state = seed | 1;
    for (size_t i = 0; !atomic_load(&stopping); i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        size_t size = state >> 60 ? MIB / 8 + (state >> 40) % (2 * MIB) : SMALL_BYTES;
        unsigned char *bytes = allocate(size);
        write_bytes(bytes, size, seed + i);
        unsigned char *more = realloc(bytes, size + MIB / 2);
        if (!more)
            fail(3, "realloc", strerror(errno));
        compare(more, size & ~(size_t)7, seed + i, "churn");
        free(more);
    }
    return NULL;
}

static void start_churners(size_t count)
{
    for (size_t i = 0; i < count && churner_count < 16; i++)
        if (pthread_create(&churners[churner_count++], NULL, churn, (void *)(i + 1)))
            fail(3, "pthread_create", strerror(errno));
}

static void stop_churners(void)
{
    atomic_store(&stopping, true);
    while (churner_count)
        pthread_join(churners[--churner_count], NULL);
    atomic_store(&stopping, false);
}

/* ---- the device ------------------------------------------------------------------------------ */

static void *driver;

/* Calls a function of the driver that returns 0. The arguments are words. */
#define DRIVER(name, parameters, ...)                                                              \
    do {                                                                                           \
        int(*function) parameters;                                                                 \
        void *found = driver ? dlsym(driver, #name) : NULL;                                        \
        memcpy(&function, &found, sizeof found);                                                   \
        if (!found || function(__VA_ARGS__) != 0)                                                  \
            fail(3, #name, found ? "failed" : "not there");                                        \
    } while (0)

static void count_devices(void)
{
    int count = 0;
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    DRIVER(cuInit, (unsigned), 0);
    DRIVER(cuDeviceGetCount, (int *), &count);
    if (count < 1)
        fail(3, "cuDeviceGetCount", "none");
}

static void make_context(bool primary)
{
    void *context;
    count_devices();
    if (primary) {
        DRIVER(cuDevicePrimaryCtxRetain, (void **, int), &context, 0);
        DRIVER(cuCtxSetCurrent, (void *), context);
    } else {
        DRIVER(cuCtxCreate_v2, (void **, unsigned, int), &context, 0, 0);
    }
}

static void make_green_context(void)
{
    void *context;
    count_devices();
    DRIVER(cuGreenCtxCreate, (void **, void *, int, unsigned), &context, &context, 0, 1);
}

static void use(void)
{
    unsigned long long device;
    unsigned char *back = allocate(4 * MIB);
    DRIVER(cuMemAlloc_v2, (unsigned long long *, size_t), &device, 4 * MIB);
    for (size_t i = 0; i < block_count; i++) {
        const struct block *block = &blocks[i];
        if (block->is_bare)
            continue;
        DRIVER(cuMemcpyHtoD_v2, (unsigned long long, const void *, size_t), device, block->bytes,
               block->size);
        memset(back, 0, block->size);
        DRIVER(cuMemcpyDtoH_v2, (void *, unsigned long long, size_t), back, device, block->size);
        compare(back, block->size, block->seed, "use");
    }
    DRIVER(cuMemFree_v2, (unsigned long long), device);
    free(back);
}

static void page_lock(void)
{
    for (size_t i = 0; i < block_count; i++)
        DRIVER(cuMemHostRegister_v2, (void *, size_t, unsigned), blocks[i].bytes, blocks[i].size,
               0);
}

/* ---- expectations ---------------------------------------------------------------------------- */

static size_t absent_pages(const struct block *block)
{
    static unsigned char present[4 * MIB / PAGE];
    uintptr_t first = (uintptr_t)block->bytes & ~(uintptr_t)(PAGE - 1), absent = 0;
    size_t bytes = (uintptr_t)block->bytes + block->size - first;
    if (mincore((void *)first, bytes, present))
        fail(3, "mincore", strerror(errno));
    for (size_t i = 0; i < (bytes + PAGE - 1) / PAGE; i++)
        absent += !(present[i] & 1);
    return absent;
}

/* How many blocks begin in a mapping that a userfaultfd watches. */
static size_t watched_blocks(void)
{
    unsigned long first = 0, last = 0, from, to;
    size_t watched = 0;
    char line[4096];
    FILE *file = fopen("/proc/self/smaps", "re");
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2) {
            first = from;
            last = to;
        }
        if (strncmp(line, "VmFlags:", 8) || !strstr(line, " um"))
            continue;
        for (size_t i = 0; i < block_count; i++)
            watched += (uintptr_t)blocks[i].bytes - first < last - first;
    }
    if (file)
        fclose(file);
    return watched;
}

static void expect_pages(bool all)
{
    size_t absent = 0;
    for (size_t i = 0; i < block_count; i++)
        if (!blocks[i].is_bare)
            absent += absent_pages(&blocks[i]);
    if (all && absent)
        fail(1, "there", "a page is absent");
    if (all && watched_blocks())
        fail(1, "there", "a block is watched");
    if (!all && !absent)
        fail(1, "away", "all pages are present");
}

static void expect_async(bool allowed)
{
    unsigned long context = 0;
    bool works = syscall(SYS_io_setup, 1, &context) == 0;
    if (works)
        syscall(SYS_io_destroy, context);
    if (works != allowed)
        fail(1, allowed ? "allowed" : "refused", "it is not");
}

/* ---- words ----------------------------------------------------------------------------------- */

/* In the parent: returns the number of the word `parent`, once the child has ended well. */
static int in_two(int count, char **words, int at)
{
    int status;
    pid_t child = fork();
    if (child < 0)
        fail(3, "fork", strerror(errno));
    if (child == 0)
        return at;
    if (waitpid(child, &status, 0) != child || status != 0)
        fail(1, "fork", "the child has failed");
    while (++at < count && strcmp(words[at], "parent"))
        continue;
    return at;
}

static bool obey_number(const char *word, size_t number)
{
    if (!strcmp(word, "fill"))
        fill(number * MIB, false);
    else if (!strcmp(word, "bare"))
        fill(number * MIB, true);
    else if (!strcmp(word, "churn"))
        start_churners(number);
    else if (!strcmp(word, "nap"))
        usleep((useconds_t)number * 1000);
    else
        return false;
    return true;
}

static bool obey(const char *word)
{
    static const struct {
        const char *word;
        void (*function)(void);
    } all[] = {{"verify", verify},
               {"change", change},
               {"half", half},
               {"stop", stop_churners},
               {"use", use},
               {"register", page_lock},
               {"count", count_devices},
               {"green", make_green_context}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(word, all[i].word)) {
            all[i].function();
            return true;
        }
    if (!strcmp(word, "primary") || !strcmp(word, "own"))
        make_context(*word == 'p');
    else if (!strcmp(word, "away") || !strcmp(word, "there"))
        expect_pages(*word == 't');
    else if (!strcmp(word, "refused") || !strcmp(word, "allowed"))
        expect_async(*word == 'a');
    else
        return false;
    return true;
}

int main(int count, char **words)
{
    for (int i = 1; i < count; i++) {
        if (!strcmp(words[i], "parent"))
            break; /* of the child: it is done */
        if (!strcmp(words[i], "fork"))
            i = in_two(count, words, i);
        else if (i + 1 < count && obey_number(words[i], strtoul(words[i + 1], NULL, 10)))
            i++;
        else if (!obey(words[i]))
            fail(2, words[i], "no such word");
    }
    printf("good\n");
    return 0;
}
