/* workers: a training loop that forks loader workers, and verifies every word that anyone reads.
 *
 *   workers STEPS EVERY COUNT MODE SMALL_MIB
 *
 * Each step has a forward pass over layers: allocate an activation, fill it. Then a backward pass:
 * verify it, allocate a gradient, change the layer's weights. Each EVERY-th step (0: none) ends the
 * workers and forks COUNT new ones, which live meanwhile. There are SMALL_MIB of objects of 1 KiB,
 * too. No step uses them, and the environment is one of them. MODE is what a worker does with the
 * memory of its parent:
 *
 *   idle   reads the environment and two blocks, and waits
 *   read   verifies everything, then waits
 *   write  verifies everything, writes it, verifies it again, then waits
 *   exec   runs /bin/true at once
 *
 * At the end the program verifies all that it has, and prints a line. With WORKERS_TIME in the
 * environment it prints seconds and page faults of each step on stderr. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    LAYERS = 24,
    BLOCK_BYTES = 1 << 20,
    SMALL_BYTES = 1 << 10,
    MOST_WORKERS = 16,
    PASSES = 4 /* over each block and use, for the time that a kernel of a model takes */
};

static uint64_t *weights[LAYERS], *activations[LAYERS], **small;
static uint64_t weight_seeds[LAYERS], activation_seeds[LAYERS];
static size_t small_count;
static pid_t workers[MOST_WORKERS];
static int go[2] = {-1, -1};
static char *environment[SMALL_BYTES / sizeof(char *)];

extern char **environ;

static void die(const char *what)
{
    fprintf(stderr, "workers: %s: %s\n", what, strerror(errno));
    _exit(2);
}

static void fill(uint64_t *block, size_t bytes, uint64_t seed)
{
    for (size_t i = 0; i < bytes / 8; i++)
        block[i] = seed * 0x9e3779b97f4a7c15u + i;
}

static void check(const uint64_t *block, size_t bytes, uint64_t seed, const char *what)
{
    for (size_t i = 0; i < bytes / 8; i++)
        if (block[i] != seed * 0x9e3779b97f4a7c15u + i) {
            fprintf(stderr, "workers: %s: word %zu of %p is wrong\n", what, i, (const void *)block);
            _exit(1);
        }
}

static uint64_t *get(size_t bytes)
{
    uint64_t *block = malloc(bytes);
    if (!block)
        die("malloc");
    return block;
}

/* Moves the environment to small objects. */
static void move_environment(void)
{
    char **moved = malloc(sizeof environment), *word = malloc(SMALL_BYTES);
    size_t count = 0;
    if (!moved || !word)
        die("malloc");
    for (; environ[count] && count + 2 < sizeof environment / sizeof environment[0]; count++)
        environment[count] = environ[count];
    snprintf(word, SMALL_BYTES, "WORKERS_WORD=%0*d", SMALL_BYTES / 2, 7);
    environment[count] = word;
    memcpy(moved, environment, sizeof environment);
    environ = moved;
}

static void check_environment(void)
{
    const char *word = getenv("WORKERS_WORD");
    if (memcmp(environ, environment, sizeof environment) != 0 || !word ||
        strlen(word) != SMALL_BYTES / 2 || atoi(word) != 7) {
        fprintf(stderr, "workers: the environment is wrong\n");
        _exit(1);
    }
}

static void check_all(const char *who)
{
    check_environment();
    for (size_t i = 0; i < LAYERS; i++) {
        check(weights[i], BLOCK_BYTES, weight_seeds[i], who);
        if (activations[i])
            check(activations[i], BLOCK_BYTES, activation_seeds[i], who);
    }
    for (size_t i = 0; i < small_count; i++)
        check(small[i], SMALL_BYTES, i, who);
}

static void write_all(uint64_t seed)
{
    for (size_t i = 0; i < LAYERS; i++) {
        fill(weights[i], BLOCK_BYTES, weight_seeds[i] = seed + i);
        if (activations[i])
            fill(activations[i], BLOCK_BYTES, activation_seeds[i] = seed + i);
    }
    for (size_t i = 0; i < small_count; i++)
        fill(small[i], SMALL_BYTES, i + 1);
    for (size_t i = 0; i < small_count; i++) {
        check(small[i], SMALL_BYTES, i + 1, "a worker that has written");
        fill(small[i], SMALL_BYTES, i);
    }
}

static void work(const char *mode)
{
    char byte;
    if (strcmp(mode, "exec") == 0) {
        execl("/bin/true", "true", (char *)NULL);
        die("exec");
    }
    check_environment();
    if (strcmp(mode, "idle") != 0)
        check_all("a worker");
    check(weights[0], BLOCK_BYTES, weight_seeds[0], "a worker");
    if (strcmp(mode, "write") == 0) {
        write_all(1000000);
        check_all("a worker that has written");
    }
    close(go[1]);
    if (read(go[0], &byte, 1) != 0)
        die("read");
    check(weights[LAYERS - 1], BLOCK_BYTES, weight_seeds[LAYERS - 1], "a worker at its end");
    _exit(0);
}

static void end_workers(unsigned count)
{
    if (go[1] >= 0) {
        close(go[0]);
        close(go[1]);
    }
    for (unsigned i = 0; i < count; i++) {
        int status = 0;
        if (workers[i] && (waitpid(workers[i], &status, 0) != workers[i] || status != 0)) {
            fprintf(stderr, "workers: a worker ended with %#x\n", (unsigned)status);
            _exit(1);
        }
        workers[i] = 0;
    }
}

static void start_workers(unsigned count, const char *mode)
{
    if (pipe(go) != 0)
        die("pipe");
    for (unsigned i = 0; i < count; i++) {
        workers[i] = fork();
        if (workers[i] < 0)
            die("fork");
        if (workers[i] == 0)
            work(mode);
    }
}

static void forward(uint64_t step)
{
    for (size_t i = 0; i < LAYERS; i++) {
        activations[i] = get(BLOCK_BYTES);
        uint64_t *scratch = get(BLOCK_BYTES / 2);
        activation_seeds[i] = step * LAYERS + i;
        for (unsigned pass = 0; pass < PASSES; pass++) {
            check(weights[i], BLOCK_BYTES, weight_seeds[i], "weights");
            fill(scratch, BLOCK_BYTES / 2, pass);
            fill(activations[i], BLOCK_BYTES, activation_seeds[i]);
        }
        free(scratch);
    }
}

static void backward(uint64_t step)
{
    for (size_t i = LAYERS; i-- > 0;) {
        uint64_t *gradient = get(BLOCK_BYTES * 3 / 2);
        for (unsigned pass = 0; pass < PASSES; pass++) {
            check(activations[i], BLOCK_BYTES, activation_seeds[i], "an activation");
            fill(gradient, BLOCK_BYTES, step);
        }
        fill(weights[i], BLOCK_BYTES, weight_seeds[i] = step + i);
        free(gradient);
        free(activations[i]);
        activations[i] = NULL;
    }
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int main(int count, char **words)
{
    if (count != 6)
        return 2;
    unsigned steps = (unsigned)atoi(words[1]), every = (unsigned)atoi(words[2]);
    unsigned worker_count = (unsigned)atoi(words[3]);
    if (worker_count > MOST_WORKERS)
        return 2;
    bool tells = getenv("WORKERS_TIME") != NULL;
    for (size_t i = 0; i < LAYERS; i++) {
        weights[i] = get(BLOCK_BYTES);
        fill(weights[i], BLOCK_BYTES, weight_seeds[i] = i);
    }
    small_count = (size_t)atoi(words[5]) << 10;
    small = (uint64_t **)get((small_count + 1) * sizeof *small);
    for (size_t i = 0; i < small_count; i++)
        fill(small[i] = get(SMALL_BYTES), SMALL_BYTES, i);
    move_environment();
    for (unsigned step = 1; step <= steps; step++) {
        struct rusage before, after;
        double began = seconds();
        getrusage(RUSAGE_SELF, &before);
        forward(step);
        if (every && step % every == 0) {
            end_workers(worker_count);
            start_workers(worker_count, words[4]);
        }
        backward(step);
        getrusage(RUSAGE_SELF, &after);
        if (tells)
            fprintf(stderr, "step %u %.3f s %ld faults\n", step, seconds() - began,
                    after.ru_minflt - before.ru_minflt);
    }
    end_workers(worker_count);
    check_all("the end");
    printf("right\n");
    return 0;
}
