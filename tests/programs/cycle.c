/* cycle: a program that uses memory like training, and verifies every byte of it.
 *
 * Each iteration has a forward pass over L layers (allocate an activation, fill it). The backward
 * pass has the reverse order (verify every byte of the activation, allocate a gradient, fold it
 * into the persistent weights, free both). The content depends on iteration, thread and layer, so
 * that a stale, torn, swapped or zeroed page is found. It prints one line, a checksum over every
 * word it read. The checksum does not depend on time, thread order or addresses: compare runs with
 * and without Ebb.
 *
 * Exit codes: 0 success; 1 a wrong byte; 2 bad usage; 3 no memory; 4 a system call failed. Errors
 * are printed to stderr. Needs only libc: cc -O2 -pthread cycle.c. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LOOP_BYTES ((size_t)256 << 10)

static const char usage[] =
    "usage: cycle [options]\n"
    "  --iterations N      iterations (8)\n"
    "  --layers L          activations alive at the peak, per thread (24)\n"
    "  --block BYTES       size of the largest activation (8M); layers vary below it\n"
    "  --persistent BYTES  weights, per thread (32M)\n"
    "  --threads T         threads that each train a model of their own (1)\n"
    "  --work MS           milliseconds of computing on each layer, forward and backward (0)\n"
    "  --wait MS           milliseconds of waiting there, as for a device that computes (0)\n"
    "  --fork              fork at the peak of each second iteration; the child verifies and writes\n"
    "  --realloc           grow and shrink some activations\n"
    "  --io                pass activations through read() and write()\n"
    "  --foreign           free blocks that the interposed malloc never saw (glibc only)\n"
    "  --odd N             each N-th iteration is different: forward only, other sizes (0: none)\n"
    "  --loops N           N equal temporary blocks one after the other in each layer, and twice as many\n"
    "                      in the first iteration (0)\n"
    "  --static            allocate all activations once, before the first iteration\n"
    "  --corrupt N         change one byte behind the program's back in iteration N: exit code 1\n"
    "  --small BYTES       small objects that are kept from the start, and looked at in children of\n"
    "                      --fork and at the end (0)\n"
    "  --zeros             half of the words are zero, as what a rectifier gives\n"
    "  --time              seconds of each iteration on stderr\n";

struct options {
    unsigned iterations, layers, threads, work_ms, wait_ms, odd, loops, corrupt;
    size_t block_bytes, persistent_bytes, small_bytes;
    bool fork, grow, io, foreign, once, zeros, time;
};

static struct options options = {
    .iterations = 8,
    .layers = 24,
    .threads = 1,
    .corrupt = UINT32_MAX,
    .block_bytes = (size_t)8 << 20,
    .persistent_bytes = (size_t)32 << 20,
};

/* --- patterns ---------------------------------------------------------------------------- */

#define STEP 0x9E3779B97F4A7C15u

static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xBF58476D1CE4E5B9u;
    x ^= x >> 27;
    x *= 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static uint64_t seed_of(unsigned iteration, unsigned thread, unsigned layer, unsigned role)
{
    return mix(((uint64_t)iteration << 40) ^ ((uint64_t)thread << 28) ^ ((uint64_t)layer << 4) ^
               role);
}

static uint64_t word_at(uint64_t seed, size_t index)
{
    uint64_t word = seed + index * STEP;
    return options.zeros && word >> 63 ? 0 : word;
}

/* The last size % 8 bytes are the first bytes of the word at that place. */
static void fill_from(void *block, size_t bytes, uint64_t seed, size_t first_byte)
{
    uint64_t *words = block;
    size_t count = bytes / 8;
    for (size_t i = first_byte / 8; i < count; i++)
        words[i] = word_at(seed, i);
    uint64_t last = word_at(seed, count);
    memcpy((char *)block + count * 8, &last, bytes % 8);
}

static void fill(void *block, size_t bytes, uint64_t seed)
{
    fill_from(block, bytes, seed, 0);
}

static _Atomic unsigned wrong_count;

static void wrong(const char *what, const void *block, size_t bytes, size_t at, uint64_t expected,
                  uint64_t found)
{
    /* Ten lines are enough. A thousand would fill a log. */
    if (atomic_fetch_add(&wrong_count, 1) < 10)
        fprintf(stderr,
                "cycle: wrong %s: block %p of %zu bytes, offset %zu: %016llx is not %016llx\n",
                what, block, bytes, at, (unsigned long long)found, (unsigned long long)expected);
}

/* Verifies every byte. Returns the sum of the words as read. */
static uint64_t verify(const char *what, const void *block, size_t bytes, uint64_t seed)
{
    const uint64_t *words = block;
    size_t count = bytes / 8;
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t found = words[i];
        sum += found ^ (found >> 17);
        if (found != word_at(seed, i)) {
            wrong(what, block, bytes, i * 8, word_at(seed, i), found);
            break;
        }
    }
    uint64_t last = word_at(seed, count);
    if (memcmp((const char *)block + count * 8, &last, bytes % 8) != 0)
        wrong(what, block, bytes, count * 8, last, 0);
    return sum;
}

static void verify_zero(const void *block, size_t bytes)
{
    const unsigned char *at = block;
    if (bytes > 0 && (at[0] != 0 || memcmp(at, at + 1, bytes - 1) != 0))
        wrong("calloc", block, bytes, 0, 0, 1);
}

/* --- allocation: all functions in turn ----------------------------------------------------- */

static void die_of(const char *call)
{
    fprintf(stderr, "cycle: %s: %s\n", call, strerror(errno));
    exit(errno == ENOMEM ? 3 : 4);
}

static void *allocate(unsigned door, size_t bytes)
{
    void *block = NULL;
    size_t alignment = 1;
    switch (door % 7) {
    case 0:
    case 1: /* like the frameworks */
        alignment = 64;
        errno = posix_memalign(&block, alignment, bytes);
        break;
    case 2:
        block = malloc(bytes);
        break;
    case 3:
        block = calloc(bytes / 8 + 1, 8);
        if (block)
            verify_zero(block, bytes);
        break;
    case 4:
        alignment = 4096;
        block = aligned_alloc(alignment, (bytes + 4095) / 4096 * 4096);
        break;
    case 5:
        alignment = 256;
        block = memalign(alignment, bytes);
        break;
    default:
        block = reallocarray(NULL, bytes / 16 + 1, 16);
        break;
    }
    if (!block)
        die_of("allocation");
    if ((uintptr_t)block % alignment != 0)
        wrong("alignment", block, bytes, 0, alignment, (uintptr_t)block % alignment);
    if (malloc_usable_size(block) < bytes)
        wrong("usable size", block, bytes, 0, bytes, malloc_usable_size(block));
    return block;
}

/* --- one model ------------------------------------------------------------------------------ */

struct activation {
    void *block;
    void *small; /* a block far below every threshold, for each layer */
    size_t bytes;
    uint64_t seed;
};

struct model {
    unsigned thread;
    struct activation *activations;
    uint64_t *weights;
    size_t weight_count;
    uint64_t weight_sum; /* the expected sum of the weights */
    uint64_t checksum;
};

/* Blocks are passed from thread to thread, and are freed by another thread than their owner. */
struct parcel {
    size_t bytes;
    uint64_t seed;
};
static _Atomic(struct parcel *) mailbox[8];

static uint64_t parcel_open(struct parcel *parcel)
{
    if (!parcel)
        return 0;
    uint64_t sum = verify("parcel", parcel + 1, parcel->bytes, parcel->seed);
    free(parcel);
    return sum;
}

static size_t layer_bytes(unsigned layer, bool odd)
{
    /* In sixteenths of the largest size. The first layers are large and the last ones small, as in
     * networks, with a few scratch-sized ones in between. No size is a multiple of the page. */
    static const unsigned char sixteenths[] = {16, 16, 8, 13, 2, 16, 8, 8, 5, 1, 8, 4, 11, 4, 2, 3};
    size_t bytes = options.block_bytes / 16 * sixteenths[layer % sizeof sixteenths];
    if (odd)
        bytes = bytes / 3 * 2;
    return bytes + 24 * (layer % 5) + layer % 3 + 64;
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Waits, and computes on the block until the time is over. */
static void work(const void *block, size_t bytes)
{
    if (options.wait_ms)
        usleep(options.wait_ms * 1000u);
    if (options.work_ms == 0)
        return;
    uint64_t end = now_ns() + (uint64_t)options.work_ms * 1000000u;
    const volatile uint64_t *words = block;
    size_t count = bytes / 8;
    do {
        for (size_t i = 0; i < count && i < 65536; i++)
            (void)words[i];
    } while (now_ns() < end);
}

/* Sends the block through the kernel and back. So a system call is the first to touch it. */
static void through_kernel(int fd, struct activation *a)
{
    if (lseek(fd, 0, SEEK_SET) != 0)
        die_of("lseek");
    for (size_t done = 0; done < a->bytes;) {
        ssize_t n = write(fd, (char *)a->block + done, a->bytes - done);
        if (n <= 0)
            die_of("write of an activation");
        done += (size_t)n;
    }
    memset(a->block, 0x5a, a->bytes);
    if (lseek(fd, 0, SEEK_SET) != 0)
        die_of("lseek");
    for (size_t done = 0; done < a->bytes;) {
        ssize_t n = read(fd, (char *)a->block + done, a->bytes - done);
        if (n <= 0)
            die_of("read into an activation");
        done += (size_t)n;
    }
}

/* Objects of 256 B to 4 KiB, each with the next one's address in its first word. */
static void **small_first;

static size_t small_size(size_t number)
{
    return 256 + mix(number) % 3840;
}

static void keep_small(void)
{
    void ***last = &small_first;
    /* A program that loads a framework has had some large ones, too. */
    if (options.small_bytes)
        free(allocate(2, options.block_bytes));
    for (size_t number = 0, bytes = 0; bytes < options.small_bytes; number++) {
        size_t size = small_size(number);
        *last = malloc(size);
        if (!*last)
            die_of("malloc");
        fill(*last + 1, size - sizeof(void *), mix(~number));
        last = (void ***)*last;
        *last = NULL;
        bytes += size;
    }
}

static uint64_t verify_small(void)
{
    uint64_t sum = 0;
    size_t number = 0;
    for (void **object = small_first; object; object = *object, number++)
        sum +=
            verify("small object", object + 1, small_size(number) - sizeof(void *), mix(~number));
    return sum;
}

/* The child has its own copy of everything: it verifies, writes, allocates and frees. */
static void fork_and_check(struct model *model, unsigned live)
{
    fflush(stdout);
    pid_t child = fork();
    if (child < 0)
        die_of("fork");
    if (child == 0) {
        for (unsigned i = 0; i < live; i++) {
            struct activation *a = &model->activations[i];
            verify("activation in the child", a->block, a->bytes, a->seed);
            if (i % 3 == 0) {
                fill(a->block, a->bytes, ~a->seed);
                verify("activation written by the child", a->block, a->bytes, ~a->seed);
            }
        }
        uint64_t sum = 0;
        for (size_t i = 0; i < model->weight_count; i++)
            sum += model->weights[i];
        if (sum != model->weight_sum)
            wrong("weights in the child", model->weights, model->weight_count * 8, 0,
                  model->weight_sum, sum);
        verify_small();
        size_t bytes = options.block_bytes;
        void *own = allocate(2, bytes);
        fill(own, bytes, STEP);
        verify("block of the child", own, bytes, STEP);
        free(own);
        if (!options.once)
            free(model->activations[0].block);
        _exit(wrong_count == 0 ? 0 : 1);
    }
    /* The parent writes while the child reads. */
    for (unsigned i = 0; i < live; i += 2) {
        struct activation *a = &model->activations[i];
        verify("activation beside a child", a->block, a->bytes, a->seed);
        a->seed = mix(a->seed);
        fill(a->block, a->bytes, a->seed);
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            die_of("waitpid");
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fprintf(stderr, "cycle: the child ended with status %#x\n", (unsigned)status);
        atomic_fetch_add(&wrong_count, 1);
    }
}

static void forward(struct model *model, unsigned iteration, bool odd)
{
    for (unsigned layer = 0; layer < options.layers; layer++) {
        struct activation *a = &model->activations[layer];
        a->bytes = layer_bytes(layer, odd && !options.once);
        a->seed = seed_of(iteration, model->thread, layer, 1);
        if (options.once) {
            fill(a->block, a->bytes, a->seed);
        } else if (options.grow && layer % 4 == 1) {
            size_t half = a->bytes / 2 / 8 * 8;
            a->block = allocate(layer, half);
            fill(a->block, half, a->seed);
            a->block = realloc(a->block, a->bytes);
            if (!a->block)
                die_of("realloc");
            fill_from(a->block, a->bytes, a->seed, half);
        } else {
            a->block = allocate(layer, a->bytes);
            fill(a->block, a->bytes, a->seed);
        }
        a->small = malloc(16 + layer * 40);
        if (!a->small)
            die_of("malloc");
        memset(a->small, (int)(layer + 1), 16 + layer * 40);
        if (layer > 0) { /* a layer reads the output of the previous one */
            struct activation *before = a - 1;
            model->checksum += verify("input", before->block, before->bytes, before->seed);
        }
        /* Scratch memory that is freed at once, like most blocks of real programs. */
        size_t scratch_bytes = layer_bytes(layer + 3, odd) / 2;
        void *scratch = allocate(0, scratch_bytes);
        fill(scratch, scratch_bytes, a->seed + 1);
        work(a->block, a->bytes);
        model->checksum += verify("scratch", scratch, scratch_bytes, a->seed + 1);
        free(scratch);
        for (unsigned i = 0; i < options.loops * (iteration ? 1 : 2); i++) {
            void *temporary = allocate(0, LOOP_BYTES);
            fill(temporary, LOOP_BYTES, a->seed + i);
            model->checksum += verify("temporary", temporary, LOOP_BYTES, a->seed + i);
            free(temporary);
        }
    }
}

static void update(struct model *model, unsigned layer, const uint64_t *gradient, size_t count)
{
    size_t share = model->weight_count / options.layers;
    uint64_t *weights = model->weights + share * layer;
    for (size_t i = 0; i < share && count > 0; i++) {
        uint64_t before = weights[i];
        weights[i] = before * 3 + gradient[i % count];
        model->weight_sum += weights[i] - before;
    }
}

static void backward(struct model *model, unsigned iteration, bool odd, int fd)
{
    for (unsigned layer = options.layers; layer-- > 0;) {
        struct activation *a = &model->activations[layer];
        if (options.io && layer % 5 == 2)
            through_kernel(fd, a);
        model->checksum += verify("activation", a->block, a->bytes, a->seed);
        if (!odd) {
            size_t bytes = layer_bytes(layer, false) / 8 * 8;
            uint64_t seed = seed_of(iteration, model->thread, layer, 2);
            uint64_t *gradient = allocate(layer + 1, bytes);
            fill(gradient, bytes, seed);
            work(a->block, a->bytes);
            update(model, layer, gradient, bytes / 8);
            model->checksum += verify("gradient", gradient, bytes, seed);
            free(gradient);
        }
        const unsigned char *small = a->small;
        for (size_t i = 0; i < 16 + layer * 40; i++)
            if (small[i] != (unsigned char)(layer + 1)) {
                wrong("small block", small, 16 + layer * 40, i, layer + 1, small[i]);
                break;
            }
        free(a->small);
        if (options.once)
            continue;
        if (options.grow && layer % 4 == 3) {
            size_t half = a->bytes / 2 / 8 * 8;
            a->block = realloc(a->block, half);
            if (!a->block)
                die_of("realloc");
            for (size_t i = 0; i < half / 8; i += 509)
                if (((uint64_t *)a->block)[i] != word_at(a->seed, i))
                    wrong("shrunk block", a->block, half, i * 8, word_at(a->seed, i), 0);
        }
        free(a->block);
    }
}

static void pass_parcel(struct model *model, unsigned iteration)
{
    size_t bytes = options.block_bytes / 4;
    struct parcel *parcel = allocate(2, sizeof *parcel + bytes);
    parcel->bytes = bytes;
    parcel->seed = seed_of(iteration, model->thread, 0, 3);
    fill(parcel + 1, bytes, parcel->seed);
    size_t slot = (iteration + model->thread) % (sizeof mailbox / sizeof mailbox[0]);
    model->checksum += parcel_open(atomic_exchange(&mailbox[slot], parcel));
}

#pragma weak __libc_malloc
extern void *__libc_malloc(size_t bytes);

static void free_foreign(void)
{
    free(NULL);
    free(strdup("a small block from inside libc"));
    if (__libc_malloc) {
        free(__libc_malloc(100));
        void *large = __libc_malloc(options.block_bytes);
        if (large) {
            fill(large, options.block_bytes, 7);
            large = realloc(large, options.block_bytes * 2);
            verify("foreign block after realloc", large, options.block_bytes, 7);
            free(large);
        }
    }
}

static void *train(void *argument)
{
    struct model *model = argument;
    model->activations = calloc(options.layers, sizeof *model->activations);
    model->weight_count = options.persistent_bytes / 8;
    model->weights = allocate(0, options.persistent_bytes + 8);
    if (!model->activations)
        die_of("calloc");
    for (size_t i = 0; i < model->weight_count; i++) {
        model->weights[i] = word_at(model->thread, i);
        model->weight_sum += model->weights[i];
    }
    if (options.once)
        for (unsigned i = 0; i < options.layers; i++)
            model->activations[i].block = allocate(i, layer_bytes(i, false));
    int fd = options.io ? memfd_create("cycle", MFD_CLOEXEC) : -1;
    if (options.io && fd < 0)
        die_of("memfd_create");

    for (unsigned iteration = 0; iteration < options.iterations; iteration++) {
        uint64_t start = now_ns();
        bool odd = options.odd > 0 && (iteration + 1) % options.odd == 0;
        forward(model, iteration, odd);
        if (options.fork && model->thread == 0 && iteration % 2 == 1)
            fork_and_check(model, options.layers);
        if (options.foreign)
            free_foreign();
        if (iteration == options.corrupt) {
            struct activation *victim = &model->activations[options.layers / 2];
            ((unsigned char *)victim->block)[victim->bytes - 1] ^= 1;
        }
        backward(model, iteration, odd, fd);
        pass_parcel(model, iteration);
        if (options.time)
            fprintf(stderr, "cycle: thread %u iteration %u seconds %.4f\n", model->thread,
                    iteration, (double)(now_ns() - start) / 1e9);
    }

    uint64_t sum = 0;
    for (size_t i = 0; i < model->weight_count; i++)
        sum += model->weights[i];
    if (sum != model->weight_sum)
        wrong("weights", model->weights, options.persistent_bytes, 0, model->weight_sum, sum);
    model->checksum += mix(sum);
    if (options.once)
        for (unsigned i = 0; i < options.layers; i++)
            free(model->activations[i].block);
    if (fd >= 0)
        close(fd);
    free(model->weights);
    free(model->activations);
    return NULL;
}

/* --- start ---------------------------------------------------------------------------------- */

static size_t parse_size(const char *text)
{
    char *end = NULL;
    unsigned long long value = text ? strtoull(text, &end, 10) : 0;
    if (!text || end == text) {
        fputs(usage, stderr);
        exit(2);
    }
    switch (*end) {
    case 'G':
        value <<= 10; /* fall through */
    case 'M':
        value <<= 10; /* fall through */
    case 'K':
        value <<= 10;
        break;
    default:
        break;
    }
    return (size_t)value;
}

static void parse(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i];
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        int used = 1;
        if (strcmp(name, "--iterations") == 0)
            options.iterations = (unsigned)parse_size(value);
        else if (strcmp(name, "--layers") == 0)
            options.layers = (unsigned)parse_size(value);
        else if (strcmp(name, "--threads") == 0)
            options.threads = (unsigned)parse_size(value);
        else if (strcmp(name, "--work") == 0)
            options.work_ms = (unsigned)parse_size(value);
        else if (strcmp(name, "--wait") == 0)
            options.wait_ms = (unsigned)parse_size(value);
        else if (strcmp(name, "--odd") == 0)
            options.odd = (unsigned)parse_size(value);
        else if (strcmp(name, "--loops") == 0)
            options.loops = (unsigned)parse_size(value);
        else if (strcmp(name, "--corrupt") == 0)
            options.corrupt = (unsigned)parse_size(value);
        else if (strcmp(name, "--block") == 0)
            options.block_bytes = parse_size(value);
        else if (strcmp(name, "--persistent") == 0)
            options.persistent_bytes = parse_size(value);
        else if (strcmp(name, "--small") == 0)
            options.small_bytes = parse_size(value);
        else {
            used = 0;
            if (strcmp(name, "--fork") == 0)
                options.fork = true;
            else if (strcmp(name, "--realloc") == 0)
                options.grow = true;
            else if (strcmp(name, "--io") == 0)
                options.io = true;
            else if (strcmp(name, "--foreign") == 0)
                options.foreign = true;
            else if (strcmp(name, "--static") == 0)
                options.once = true;
            else if (strcmp(name, "--zeros") == 0)
                options.zeros = true;
            else if (strcmp(name, "--time") == 0)
                options.time = true;
            else {
                bool help = strcmp(name, "--help") == 0;
                fputs(usage, help ? stdout : stderr);
                exit(help ? 0 : 2);
            }
        }
        i += used;
    }
    if (options.layers == 0 || options.threads == 0 || options.threads > 64 ||
        options.block_bytes < 4096) {
        fputs(usage, stderr);
        exit(2);
    }
}

int main(int argc, char **argv)
{
    parse(argc, argv);
    static struct model models[64];
    pthread_t threads[64];
    for (unsigned t = 0; t < options.threads; t++) {
        models[t].thread = t;
        if (t > 0 && (errno = pthread_create(&threads[t], NULL, train, &models[t])) != 0)
            die_of("pthread_create");
    }
    keep_small();
    train(&models[0]);
    uint64_t checksum = models[0].checksum + verify_small();
    for (unsigned t = 1; t < options.threads; t++) {
        pthread_join(threads[t], NULL);
        checksum += models[t].checksum;
    }
    for (size_t i = 0; i < sizeof mailbox / sizeof mailbox[0]; i++)
        checksum += parcel_open(atomic_exchange(&mailbox[i], NULL));
    printf("checksum %016llx\n", (unsigned long long)checksum);
    if (wrong_count > 0) {
        fprintf(stderr, "cycle: %u wrong\n", (unsigned)wrong_count);
        return 1;
    }
    return 0;
}
