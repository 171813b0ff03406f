/* Legal changes of the mappings of a program's own blocks, while some of them are absent. Each test
 * allocates more than the budget, changes mappings, and checks every byte.
 *
 *     mappings TEST...     or all of them */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define PAGE ((size_t)4096)
#define BLOCKS 12
#define BLOCK_BYTES (2 * MIB)

static const char *test = "";
static unsigned char *blocks[BLOCKS];

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("%s: line %d: %s\n", test, __LINE__, #condition);                               \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static unsigned char byte_of(size_t block, size_t at)
{
    return (unsigned char)(block * 31 + at / PAGE * 7 + at % 251 + 1);
}

static void fill(size_t block, size_t from, size_t to)
{
    for (size_t at = from; at < to; at++)
        blocks[block][at] = byte_of(block, at);
}

static void expect(size_t block, size_t from, size_t to)
{
    for (size_t at = from; at < to; at++)
        if (blocks[block][at] != byte_of(block, at)) {
            printf("%s: block %zu at %zu: %d instead of %d\n", test, block, at, blocks[block][at],
                   byte_of(block, at));
            exit(1);
        }
}

static void begin(void)
{
    for (size_t i = 0; i < BLOCKS; i++) {
        CHECK(posix_memalign((void **)&blocks[i], PAGE, BLOCK_BYTES) == 0);
        fill(i, 0, BLOCK_BYTES);
    }
    usleep(20000); /* the blocks that were used first have been evicted by then */
}

static void end(void)
{
    for (size_t i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    /* Other blocks get the same addresses. They must not be affected by the earlier changes. */
    begin();
    for (size_t i = 0; i < BLOCKS; i++)
        expect(i, 0, BLOCK_BYTES);
    for (size_t i = 0; i < BLOCKS; i++)
        free(blocks[i]);
}

static sigjmp_buf back;
static volatile sig_atomic_t faults;

static void on_fault(int number)
{
    (void)number;
    faults++;
    siglongjmp(back, 1);
}

/* Returns 1 if the access faults. */
static int faults_at(volatile unsigned char *at, int write)
{
    struct sigaction action = {.sa_handler = on_fault}, before;
    int faulted = sigsetjmp(back, 1);
    if (!faulted) {
        sigaction(SIGSEGV, &action, &before);
        if (write)
            *at = *at;
        else
            (void)*at;
    }
    sigaction(SIGSEGV, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
    return faulted;
}

/* A system call by an instruction of the program's own, which no library can intercept. */
static long bare(long number, void *address, size_t bytes, long third)
{
#ifdef __x86_64__
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(address), "S"(bytes), "d"(third)
                     : "rcx", "r11", "memory");
    return result;
#else
    return syscall(number, address, bytes, third);
#endif
}

/* Maps memory in pieces of `bytes`. No page of it may lie in a block. */
static void map_elsewhere(size_t bytes)
{
    for (int round = 0; round < 64; round++) {
        unsigned char *other =
            mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(other != MAP_FAILED);
        memset(other, 0xee, bytes);
        for (size_t i = 0; i < BLOCKS; i++)
            CHECK(other + bytes <= blocks[i] || other >= blocks[i] + BLOCK_BYTES);
    }
}

static void all_expected(void)
{
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < BLOCKS; i++)
            expect(i, 0, BLOCK_BYTES);
}

static void test_advice(void)
{
    static const int advice[] = {MADV_NOHUGEPAGE, MADV_HUGEPAGE, MADV_DONTDUMP, MADV_WILLNEED,
                                 MADV_SEQUENTIAL, MADV_COLD,     MADV_PAGEOUT,  MADV_DODUMP};
    begin();
    for (size_t i = 0; i < BLOCKS; i++)
        for (size_t k = 0; k < sizeof advice / sizeof advice[0]; k++)
            CHECK(madvise(blocks[i] + (i + k) * 8 * PAGE, 40 * PAGE, advice[k]) == 0);
    all_expected();
    errno = 0;
    CHECK(madvise(blocks[0] + 1, PAGE, MADV_HUGEPAGE) == -1 && errno == EINVAL);
    end();
}

static void test_inline_advice(void)
{
    begin();
    for (size_t i = 0; i < BLOCKS; i++) {
        bare(SYS_madvise, blocks[i] + 5 * PAGE, 40 * PAGE, MADV_NOHUGEPAGE);
        bare(SYS_madvise, blocks[i] + 100 * PAGE, PAGE, MADV_DONTDUMP);
        bare(SYS_madvise, blocks[i] + 102 * PAGE, PAGE, MADV_DODUMP);
    }
    all_expected();
    all_expected();
    end();
}

static void test_dontneed(void)
{
    begin();
    for (size_t i = 0; i < BLOCKS; i++)
        CHECK(madvise(blocks[i] + 64 * PAGE, 64 * PAGE, MADV_DONTNEED) == 0);
    for (size_t i = 0; i < BLOCKS; i++) {
        expect(i, 0, 64 * PAGE);
        for (size_t at = 64 * PAGE; at < 128 * PAGE; at++)
            CHECK(blocks[i][at] == 0);
        expect(i, 128 * PAGE, BLOCK_BYTES);
    }
    end();
}

static void test_protect(void)
{
    begin();
    for (size_t i = 0; i < BLOCKS; i += 3) {
        CHECK(mprotect(blocks[i] + 8 * PAGE, 4 * PAGE, PROT_READ) == 0);
        CHECK(mprotect(blocks[i] + 16 * PAGE, PAGE, PROT_NONE) == 0);
    }
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < BLOCKS; i++) {
            int is_changed = i % 3 == 0;
            CHECK(faults_at(blocks[i] + 9 * PAGE, 1) == is_changed);
            CHECK(faults_at(blocks[i] + 16 * PAGE, 0) == is_changed);
            CHECK(!faults_at(blocks[i] + 9 * PAGE, 0));
            expect(i, 0, 16 * PAGE);
            expect(i, 17 * PAGE, BLOCK_BYTES);
        }
    }
    for (size_t i = 0; i < BLOCKS; i += 3)
        CHECK(mprotect(blocks[i], BLOCK_BYTES, PROT_READ | PROT_WRITE) == 0);
    all_expected();
    /* Frees protected memory, as some programs do. Allocators that reuse the pages would fault. */
    end();
}

static void test_inline_protect(void)
{
    begin();
    for (size_t i = 0; i < BLOCKS; i++)
        CHECK(bare(SYS_mprotect, blocks[i] + 8 * PAGE, 4 * PAGE, PROT_READ) == 0);
    all_expected();
    pid_t child = fork(); /* it shares its pages with the parent */
    if (child == 0) {
        pause();
        _exit(0);
    }
    all_expected();
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
    for (size_t i = 0; i < BLOCKS; i++)
        CHECK(bare(SYS_mprotect, blocks[i] + 8 * PAGE, 4 * PAGE, PROT_READ | PROT_WRITE) == 0);
    all_expected();
    end();
}

/* Calls system calls by number, with the same effect as libc's functions. */
static void test_numbered(void)
{
    begin();
    for (size_t i = 0; i < BLOCKS; i += 2)
        CHECK(syscall(SYS_mprotect, blocks[i] + 8 * PAGE, 4 * PAGE, PROT_READ) == 0);
    all_expected();
    for (size_t i = 0; i < BLOCKS; i++)
        CHECK(faults_at(blocks[i] + 9 * PAGE, 1) == (i % 2 == 0));
    for (size_t i = 0; i < BLOCKS; i += 2)
        CHECK(syscall(SYS_mprotect, blocks[i] + 8 * PAGE, 4 * PAGE, PROT_READ | PROT_WRITE) == 0);
    for (size_t i = 0; i < BLOCKS; i += 3) {
        CHECK(syscall(SYS_madvise, blocks[i] + 16 * PAGE, PAGE, MADV_DONTNEED) == 0);
        CHECK(blocks[i][16 * PAGE] == 0 && blocks[i][17 * PAGE - 1] == 0);
        fill(i, 16 * PAGE, 17 * PAGE);
        CHECK(syscall(SYS_mlock, blocks[i], 4 * PAGE) == 0);
        CHECK(syscall(SYS_munlock, blocks[i], 4 * PAGE) == 0);
    }
    all_expected();
    for (size_t i = 0; i < BLOCKS; i += 4) {
        CHECK(syscall(SYS_munmap, blocks[i] + 20 * PAGE, PAGE) == 0);
        CHECK(syscall(SYS_mmap, blocks[i] + 20 * PAGE, PAGE, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                      0L) == (long)(blocks[i] + 20 * PAGE));
        fill(i, 20 * PAGE, 21 * PAGE);
        CHECK(syscall(SYS_madvise, blocks[i] + 3, PAGE, MADV_DONTNEED) == -1 && errno == EINVAL);
    }
    all_expected();
    end();
}

/* If the program unmaps a part of a block, nothing else may be mapped there. */
static void test_unmapped(void)
{
    begin();
    for (size_t i = 0; i < BLOCKS; i += 2)
        CHECK(munmap(blocks[i] + 64 * PAGE, 256 * PAGE) == 0);
    map_elsewhere(256 * PAGE);
    for (size_t i = 0; i < BLOCKS; i++)
        CHECK(faults_at(blocks[i] + 100 * PAGE, 0) == (i % 2 == 0));
    for (size_t i = 1; i < BLOCKS; i += 2)
        CHECK(madvise(blocks[i] + 64 * PAGE, 256 * PAGE, MADV_DONTFORK) == 0);
    pid_t child = fork();
    if (child == 0) {
        map_elsewhere(256 * PAGE);
        for (size_t i = 0; i < BLOCKS; i++)
            CHECK(faults_at(blocks[i] + 100 * PAGE, 1));
        void *aligned;
        for (int i = 0; i < 64; i++)
            CHECK(posix_memalign(&aligned, MIB / 2, 9) == 0 && malloc_usable_size(aligned) >= 9);
        _exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    for (size_t i = 0; i < BLOCKS; i++) {
        expect(i, 0, 64 * PAGE);
        expect(i, 320 * PAGE, BLOCK_BYTES);
    }
    end();
}

/* Repeated iterations are planned. Then part of a block becomes read-only before it is used. */
static void test_repeated(void)
{
    enum { LAYERS = 40, ROUNDS = 40, LATE = 24 };
    unsigned char *layers[LAYERS];
    for (size_t round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < LAYERS; i++) {
            size_t bytes = MIB + i * 2 * PAGE;
            CHECK((layers[i] = malloc(bytes)) != NULL);
            unsigned char *page =
                (unsigned char *)(((uintptr_t)layers[i] + 99 * PAGE) & ~(uintptr_t)(PAGE - 1));
            if (round >= LATE && i % 8 == round % 8) {
                CHECK(mprotect(page, 3 * PAGE, PROT_READ) == 0);
                CHECK(faults_at(page + PAGE + 5, 0) == 0);
                CHECK(faults_at(page + PAGE + 5, 1) == 1);
                memset(layers[i], (int)(i + round), (size_t)(page - layers[i]));
                CHECK(faults_at(page + PAGE + 5, 1) == 1);
                CHECK(mprotect(page, 3 * PAGE, PROT_READ | PROT_WRITE) == 0);
            }
            memset(layers[i], (int)(i + round), bytes);
        }
        for (size_t i = LAYERS; i-- > 0;) {
            size_t bytes = MIB + i * 2 * PAGE;
            CHECK(layers[i][0] == (unsigned char)(i + round));
            CHECK(memcmp(layers[i], layers[i] + 1, bytes - 1) == 0); /* all are the first */
            free(layers[i]);
        }
    }
}

static void test_lock(void)
{
    begin();
    for (size_t i = 0; i < BLOCKS; i += 4) {
        CHECK(mlock(blocks[i] + 3 * PAGE, 2 * PAGE) == 0);
        CHECK(mlock2(blocks[i] + 300 * PAGE, 2 * PAGE, 1) == 0);
        unsigned char here[2] = {0};
        CHECK(mincore(blocks[i] + 3 * PAGE, 2 * PAGE, here) == 0 && here[0] & 1 && here[1] & 1);
    }
    all_expected();
    for (size_t i = 0; i < BLOCKS; i++)
        CHECK(munlock(blocks[i], BLOCK_BYTES) == 0);
    all_expected();
    end();
}

static void test_lock_all(void)
{
    begin();
    CHECK(mlockall(MCL_CURRENT) == 0);
    all_expected();
    CHECK(mlockall(MCL_CURRENT | MCL_FUTURE) == 0);
    all_expected();
    CHECK(munlockall() == 0);
    all_expected();
    end();
}

/* Before the first block, so that all mappings of the runtime are locked, too. */
static void test_lock_all_first(void)
{
    CHECK(mlockall(MCL_CURRENT) == 0);
    CHECK(syscall(SYS_mlockall, MCL_CURRENT | MCL_FUTURE) == 0);
    begin();
    all_expected();
    CHECK(munlockall() == 0);
    all_expected();
    end();
}

static void test_policy(void)
{
    begin();
    unsigned long nodes = 1;
    for (size_t i = 0; i < BLOCKS; i += 5)
        CHECK(syscall(SYS_mbind, blocks[i] + 4 * PAGE, 4 * PAGE, 2, &nodes, 8ul, 0) == 0);
    all_expected();
    end();
}

static void test_fork(void)
{
    begin();
    for (size_t i = 0; i < BLOCKS; i += 3) {
        CHECK(madvise(blocks[i] + 16 * PAGE, PAGE, MADV_DONTFORK) == 0);
        CHECK(madvise(blocks[i] + 32 * PAGE, PAGE, MADV_WIPEONFORK) == 0);
    }
    pid_t child = fork();
    if (child == 0) {
        for (size_t i = 0; i < BLOCKS; i++) {
            expect(i, 0, 16 * PAGE);
            CHECK(faults_at(blocks[i] + 16 * PAGE, 0) == (i % 3 == 0));
            expect(i, 17 * PAGE, 32 * PAGE);
            CHECK(blocks[i][32 * PAGE] == (i % 3 ? byte_of(i, 32 * PAGE) : 0));
            expect(i, 33 * PAGE, BLOCK_BYTES);
        }
        _exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    all_expected();
    for (size_t i = 0; i < BLOCKS; i += 3)
        CHECK(madvise(blocks[i], BLOCK_BYTES, MADV_DOFORK) == 0);
    end();
}

static void test_map_over(void)
{
    begin();
    char path[] = "mapped-XXXXXX";
    int file = mkstemp(path);
    CHECK(file >= 0 && unlink(path) == 0 && ftruncate(file, 4 * (off_t)PAGE) == 0);
    for (size_t i = 0; i < BLOCKS; i += 4) { /* a ring buffer that is mapped twice */
        CHECK(mmap(blocks[i] + 8 * PAGE, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                   file, 0) == blocks[i] + 8 * PAGE);
        CHECK(mmap(blocks[i] + 12 * PAGE, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                   file, 0) == blocks[i] + 12 * PAGE);
        memset(blocks[i] + 8 * PAGE, (int)i + 1, 4 * PAGE);
        for (size_t at = 12 * PAGE; at < 16 * PAGE; at++)
            CHECK(blocks[i][at] == i + 1);
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        expect(i, 0, 8 * PAGE);
        expect(i, 16 * PAGE, BLOCK_BYTES);
        if (i % 4)
            expect(i, 8 * PAGE, 16 * PAGE);
    }
    close(file);
    end();
}

static void test_move_out(void)
{
    begin();
    void *moved[BLOCKS] = {0};
    for (size_t i = 0; i < BLOCKS; i += 2) {
        void *target = mmap(NULL, 4 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        moved[i] = mremap(blocks[i] + 20 * PAGE, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
                          target);
        CHECK(moved[i] == target);
        for (size_t at = 0; at < 4 * PAGE; at++)
            CHECK(((unsigned char *)moved[i])[at] == byte_of(i, 20 * PAGE + at));
        CHECK(mmap(blocks[i] + 20 * PAGE, 4 * PAGE, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == blocks[i] + 20 * PAGE);
        fill(i, 20 * PAGE, 24 * PAGE);
    }
    all_expected();
    for (size_t i = 0; i < BLOCKS; i += 2)
        munmap(moved[i], 4 * PAGE);
    for (size_t i = 1; i < BLOCKS; i += 4)
        CHECK(munmap(blocks[i] + 30 * PAGE, PAGE) == 0);
    for (size_t i = 0; i < BLOCKS; i++) {
        expect(i, 0, 30 * PAGE);
        expect(i, 31 * PAGE, BLOCK_BYTES);
    }
    end();
}

/* Guard pages in small blocks. */
static void test_small(void)
{
    unsigned char *small[200];
    begin();
    for (size_t i = 0; i < 200; i++) {
        CHECK(posix_memalign((void **)&small[i], PAGE, PAGE) == 0);
        memset(small[i], (int)i, PAGE);
        if (i % 3 == 0)
            CHECK(mprotect(small[i], PAGE, PROT_READ) == 0);
    }
    all_expected();
    for (size_t i = 0; i < 200; i++) {
        CHECK(small[i][i] == (unsigned char)i);
        if (i % 3 == 0)
            CHECK(faults_at(small[i], 1) && mprotect(small[i], PAGE, PROT_READ | PROT_WRITE) == 0);
        free(small[i]);
    }
    end();
}

/* One page of a block of many parts. */
static void test_large(void)
{
    size_t bytes = 96 * MIB;
    unsigned char *large;
    CHECK(posix_memalign((void **)&large, PAGE, bytes) == 0);
    for (size_t at = 0; at < bytes; at += 512)
        large[at] = (unsigned char)(at / 512);
    CHECK(mprotect(large + 40 * MIB, PAGE, PROT_READ) == 0);
    CHECK(madvise(large + 60 * MIB, 4 * MIB, MADV_DONTNEED) == 0);
    for (size_t at = 0; at < bytes; at += 512)
        CHECK(large[at] == (at / MIB >= 60 && at / MIB < 64 ? 0 : (unsigned char)(at / 512)));
    CHECK(faults_at(large + 40 * MIB, 1));
    CHECK(mprotect(large + 40 * MIB, PAGE, PROT_READ | PROT_WRITE) == 0);
    free(large);
    begin();
    all_expected();
    end();
}

static const struct {
    const char *name;
    void (*run)(void);
} tests[] = {
    {"advice", test_advice},
    {"inline-advice", test_inline_advice},
    {"dontneed", test_dontneed},
    {"protect", test_protect},
    {"inline-protect", test_inline_protect},
    {"numbered", test_numbered},
    {"unmapped", test_unmapped},
    {"repeated", test_repeated},
    {"lock", test_lock},
    {"lock-all", test_lock_all},
    {"lock-all-first", test_lock_all_first},
    {"policy", test_policy},
    {"fork", test_fork},
    {"map-over", test_map_over},
    {"move-out", test_move_out},
    {"small", test_small},
    {"large", test_large},
};

int main(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        int wanted = argc < 2;
        for (int k = 1; k < argc; k++)
            wanted |= strcmp(argv[k], tests[i].name) == 0;
        if (!wanted)
            continue;
        test = tests[i].name;
        tests[i].run();
        printf("%s: good\n", test);
        fflush(stdout);
    }
    return 0;
}
