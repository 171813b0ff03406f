/* Forks while other threads use streams and wait for memory. One reads files into blocks that are
 * evicted, one writes out all streams, one allocates more than the budget. Every other child
 * retires its host memory, as before it uses a GPU. Before that, a child writes a file through a
 * buffer that is a block.
 *
 *     fork_streams FILE FORKS */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define BUFFER_BYTES (MIB / 4)
#define LINES 1000
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                                \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static atomic_bool over;

static void *write_out(void *none)
{
    FILE *file = fopen("/dev/null", "w");
    CHECK(file);
    while (!atomic_load(&over)) {
        CHECK(fputs("x", file) >= 0 && fflush(NULL) == 0);
        usleep(1000);
    }
    fclose(file);
    return none;
}

static void *read_in(void *none)
{
    enum { COUNT = 8 };
    char *blocks[COUNT];
    FILE *file = fopen("/dev/zero", "r");
    CHECK(file && setvbuf(file, NULL, _IONBF, 0) == 0);
    for (int i = 0; i < COUNT; i++)
        CHECK((blocks[i] = malloc(MIB)));
    for (int i = 0; !atomic_load(&over); i = (i + 1) % COUNT)
        CHECK(fread(blocks[i], 1, MIB, file) == MIB);
    for (int i = 0; i < COUNT; i++)
        free(blocks[i]);
    fclose(file);
    return none;
}

static void *allocate(void *none)
{
    while (!atomic_load(&over)) {
        unsigned char *block = malloc(12 * MIB);
        CHECK(block);
        memset(block, 1, 12 * MIB);
        free(block);
    }
    return none;
}

/* In a child: fills what is there, so that the buffer of the stream is evicted. */
static void press(void)
{
    for (int i = 0; i < 8; i++) {
        unsigned char *block = malloc(MIB);
        CHECK(block);
        memset(block, 1, MIB);
    }
}

static void write_lines(FILE *file)
{
    for (int i = 0; i < LINES; i++)
        CHECK(fprintf(file, "line %4d\n", i) == 10);
    press();
    CHECK(fclose(file) == 0);
    _exit(0);
}

static void expect_good(pid_t child)
{
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int count, char **words)
{
    CHECK(count == 3);
    FILE *file = fopen(words[1], "w");
    char *buffer = malloc(BUFFER_BYTES);
    CHECK(file && buffer && setvbuf(file, buffer, _IOFBF, BUFFER_BYTES) == 0);
    pid_t child = fork();
    if (child == 0)
        write_lines(file);
    expect_good(child);
    struct stat status;
    CHECK(stat(words[1], &status) == 0 && status.st_size == 10 * LINES);

    void (*retire)(void) = (void (*)(void))(uintptr_t)dlsym(RTLD_DEFAULT, "ebb_malloc_retire");
    void *(*const users[])(void *) = {write_out, read_in, allocate};
    enum { USERS = sizeof users / sizeof *users };
    pthread_t threads[USERS];
    for (int i = 0; i < USERS; i++)
        CHECK(pthread_create(&threads[i], NULL, users[i], NULL) == 0);
    for (int i = 0; i < atoi(words[2]); i++) {
        child = fork();
        if (child == 0) {
            if (retire && i % 2)
                retire();
            _exit(0);
        }
        expect_good(child);
        usleep(2000);
    }
    atomic_store(&over, true);
    for (int i = 0; i < USERS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    puts("good");
    return 0;
}
