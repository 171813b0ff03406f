/* The program, and its actors. They take turns at random to execute operations. */
#include "legal.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOST_OPERATIONS 128
#define DEEPEST 3u /* nesting of children */

extern size_t held_peak_bytes; /* heap.c */

struct settings settings = {
    .seed = 1, .operations = 400, .iterations = 1, .memory_bytes = 48 * MIB, .threads = 3};

static const char usage[] =
    "usage: legal [options]\n"
    "  --seed N          (1)\n"
    "  --operations N    of the main thread (400)\n"
    "  --iterations N    the same operations N times: a program that repeats itself (1)\n"
    "  --memory MIB      most bytes that its blocks hold at a time (48)\n"
    "  --threads N       most threads beside the main one (3)\n"
    "  --only LIST       these operations or groups, and malloc, free, write, check\n"
    "  --without LIST    not these; `kernel` and `raw` are groups across the others\n"
    "  --corrupt N       change one byte behind the program's back at operation N: exit code 1\n"
    "  --verbose         each operation on stderr before it is done\n"
    "  --list            the names\n";

_Thread_local struct actor *current_actor;

static const struct operation *const tables[] = {
    heap_operations,     advice_operations, remap_operations,
    process_operations,  thread_operations, signal_operations,
    transfer_operations, kernel_operations, ring_operations,
};
static const struct operation *enabled[MOST_OPERATIONS];
static size_t enabled_count;

uint64_t chance(struct actor *actor, uint64_t below)
{
    uint64_t x = actor->random += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    x ^= x >> 31;
    return below ? x % below : 0;
}

/* It allocates nothing, so it may be called in a child or a handler. */
void fail(struct actor *actor, const char *format, ...)
{
    char text[2048];
    size_t at = (size_t)snprintf(
        text, sizeof text,
        "legal: seed %llu, process %d%s, actor %llu: ", (unsigned long long)settings.seed,
        (int)getpid(), actor->child ? " (a child)" : "", (unsigned long long)actor->number);
    va_list arguments;
    va_start(arguments, format);
    at += (size_t)vsnprintf(text + at, sizeof text - at - 512, format, arguments);
    va_end(arguments);
    if (at > sizeof text - 512)
        at = sizeof text - 512;
    at += (size_t)snprintf(text + at, sizeof text - at,
                           "\nlegal: the last of %lu operations:", actor->done);
    for (unsigned long i = actor->done < 16 ? 0 : actor->done - 16; i < actor->done; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, " %s", actor->last[i % 16]);
    text[at++] = '\n';
    ssize_t written = write(2, text, at);
    (void)written;
    _exit(1);
}

static unsigned char *scratch_map(void)
{
    unsigned char *start =
        mmap(NULL, SCRATCH_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) {
        perror("legal: mmap");
        _exit(1);
    }
    return start;
}

struct actor *actor_create(uint64_t seed, uint64_t number)
{
    struct actor *actor =
        mmap(NULL, sizeof *actor, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (actor == MAP_FAILED) {
        perror("legal: mmap");
        _exit(1);
    }
    actor->random = seed;
    actor->number = number;
    actor->scratch = scratch_map();
    actor->second = scratch_map();
    actor->file = actor->direct = -1;
    return actor;
}

static void close_files(struct actor *actor)
{
    if (actor->file >= 0)
        close(actor->file);
    if (actor->direct >= 0)
        close(actor->direct);
    actor->file = actor->direct = -1;
}

void actor_destroy(struct actor *actor)
{
    while (actor->block_count)
        block_drop(actor, actor->blocks[0]);
    while (actor->spare_count)
        munmap(actor->spare[--actor->spare_count], sizeof(struct block));
    close_files(actor);
    munmap(actor->scratch, SCRATCH_BYTES);
    munmap(actor->second, SCRATCH_BYTES);
    munmap(actor, sizeof *actor);
}

void actor_enter_child(struct actor *actor)
{
    actor->child = true;
    actor->depth++;
    actor->random ^= 0xC0FFEE;
    actor->number += 100;                       /* blocks made here differ from the parent's */
    actor->version += (uint32_t)getpid() << 12; /* and so do their bytes */
    close_files(actor);
    for (size_t i = 0; i < actor->block_count; i++) {
        struct block *block = actor->blocks[i];
        for (size_t k = 0; k < block->pages; k++) {
            struct page *page = &block->page[k];
            if (page->flags & ZERO_IN_CHILD) {
                page->version = 0;
                page->flags &= ~(unsigned)LAZY;
            }
            if (page->flags & NOT_IN_CHILD)
                page->flags |= GONE;
            if (page->flags & SHARED)
                page->flags |= PARENTS;
            page->flags &= ~(unsigned)LOCKED;
        }
    }
}

int actor_file(struct actor *actor, bool direct)
{
    if (actor->file < 0) {
        char path[512];
        const char *folder = getenv("TMPDIR");
        snprintf(path, sizeof path, "%s/legal-XXXXXX", folder ? folder : "/tmp");
        actor->file = mkostemp(path, O_CLOEXEC);
        if (actor->file < 0)
            fail(actor, "%s: %s", path, strerror(errno));
        actor->direct = open(path, O_RDWR | O_DIRECT | O_CLOEXEC); /* -1: this folder cannot */
        unlink(path);
    }
    return direct ? actor->direct : actor->file;
}

static const struct operation *choose(struct actor *actor)
{
    for (;;) {
        unsigned sum = 0;
        for (size_t i = 0; i < enabled_count; i++)
            sum += enabled[i]->weight;
        unsigned at = (unsigned)chance(actor, sum);
        size_t i = 0;
        while (at >= enabled[i]->weight)
            at -= enabled[i++]->weight;
        const struct operation *operation = enabled[i];
        bool splits = operation->group[0] == 'p' || strcmp(operation->group, "thread") == 0;
        if ((operation->kind & ALONE && actor->threaded) ||
            (operation->kind & PARENT && actor->child) || (splits && actor->depth >= DEEPEST))
            continue;
        return operation;
    }
}

void actor_operate(struct actor *actor, unsigned long count)
{
    struct actor *before = current_actor;
    current_actor = actor;
    actor->depth++;
    for (unsigned long i = 0; i < count; i++) {
        const struct operation *operation = choose(actor);
        actor->last[actor->done++ % 16] = operation->name;
        if (settings.verbose) {
            char line[96];
            int bytes = snprintf(line, sizeof line, "legal: %d/%llu %lu %s\n", (int)getpid(),
                                 (unsigned long long)actor->number, actor->done, operation->name);
            ssize_t written = write(2, line, (size_t)bytes);
            (void)written;
        }
        operation->act(actor);
        struct run run;
        if (settings.corrupt && actor->done >= settings.corrupt &&
            run_pick(actor, &run, UNWRITABLE | LAZY, PAGE)) {
            run_start(&run)[0] ^= 1;
            settings.corrupt = 0;
        }
        if (one_in(actor, 4))
            pressure(actor);
        if (actor->done % 16 == 0)
            actor_check(actor);
    }
    actor->depth--;
    current_actor = before;
}

static bool is_named(const char *list, const struct operation *operation)
{
    char copy[1024];
    snprintf(copy, sizeof copy, "%s", list);
    char *rest;
    for (char *name = strtok_r(copy, ",", &rest); name; name = strtok_r(NULL, ",", &rest))
        if (strcmp(name, operation->name) == 0 || strcmp(name, operation->group) == 0 ||
            (strcmp(name, "kernel") == 0 && operation->kind & KERNEL) ||
            (strcmp(name, "raw") == 0 && operation->kind & RAW))
            return true;
    return false;
}

static void enable(const char *only, const char *without)
{
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const struct operation *operation = tables[t]; operation->name; operation++) {
            if (only && !(operation->kind & BASE) && !is_named(only, operation))
                continue;
            if (without && is_named(without, operation))
                continue;
            if (enabled_count < MOST_OPERATIONS)
                enabled[enabled_count++] = operation;
        }
}

static void list(void)
{
    for (size_t i = 0; i < enabled_count; i++)
        printf("%s %s%s%s\n", enabled[i]->group, enabled[i]->name,
               enabled[i]->kind & KERNEL ? " kernel" : "", enabled[i]->kind & RAW ? " raw" : "");
}

int main(int argc, char **argv)
{
    static const struct option names[] = {
        {"seed", 1, NULL, 's'},
        {"operations", 1, NULL, 'o'},
        {"iterations", 1, NULL, 'i'},
        {"memory", 1, NULL, 'm'},
        {"threads", 1, NULL, 't'},
        {"only", 1, NULL, 'O'},
        {"corrupt", 1, NULL, 'c'},
        {"without", 1, NULL, 'W'},
        {"verbose", 0, NULL, 'v'},
        {"list", 0, NULL, 'l'},
        {0},
    };
    const char *only = NULL, *without = NULL;
    bool only_list = false;
    for (int option; (option = getopt_long(argc, argv, "", names, NULL)) >= 0;) {
        switch (option) {
        case 's':
            settings.seed = strtoull(optarg, NULL, 10);
            break;
        case 'o':
            settings.operations = strtoul(optarg, NULL, 10);
            break;
        case 'i':
            settings.iterations = strtoul(optarg, NULL, 10);
            break;
        case 'm':
            settings.memory_bytes = strtoul(optarg, NULL, 10) * MIB;
            break;
        case 't':
            settings.threads = (unsigned)strtoul(optarg, NULL, 10);
            break;
        case 'O':
            only = optarg;
            break;
        case 'W':
            without = optarg;
            break;
        case 'c':
            settings.corrupt = strtoul(optarg, NULL, 10);
            break;
        case 'v':
            settings.verbose = true;
            break;
        case 'l':
            only_list = true;
            break;
        default:
            fputs(usage, stderr);
            return 2;
        }
    }
    enable(only, without);
    if (only_list) {
        list();
        return 0;
    }
    if (enabled_count == 0 || settings.memory_bytes == 0) {
        fputs(usage, stderr);
        return 2;
    }
    faults_init();
    struct actor *actor = actor_create(settings.seed, 1);
    for (unsigned long i = 0; i < settings.iterations; i++) {
        actor->random = settings.seed;
        actor_operate(actor, settings.operations);
        timer_stop();
        mailbox_empty(actor);
        actor_check(actor);
        while (actor->block_count)
            block_drop(actor, actor->blocks[0]);
    }
    signals_end(actor);
    actor_destroy(actor);
    printf("good: seed %llu, most held %zu bytes\n", (unsigned long long)settings.seed,
           held_peak_bytes);
    return 0;
}
