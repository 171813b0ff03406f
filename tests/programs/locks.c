/* Locks of every kind in blocks that are evicted. Two threads wait for each other on them again and
 * again. A third thread uses more memory than the budget, so that the locks' blocks are evicted at
 * any time.
 *
 *     locks */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define ROUNDS 3
#define BLOCKS 8
#define BLOCK_BYTES (MIB / 4)

static const char *kind = "";

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("%s: line %d: %s\n", kind, __LINE__, #condition);                               \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* All locks are in use at once. The holder of one may wait for another lock's memory. */
struct locks {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    pthread_rwlock_t rwlock;
    pthread_barrier_t both;
    sem_t semaphore;
    mtx_t c_mutex;
    cnd_t c_changed;
    _Atomic uint32_t word, other_word;
    pthread_mutex_t inherits, robust;
    unsigned turn;
};

static struct locks *locks;

/* Uses more than the budget, so that unused blocks are evicted. */
static void press(void)
{
    unsigned char *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++)
        memset(blocks[i] = malloc(BLOCK_BYTES), i + 1, BLOCK_BYTES);
    for (int i = 0; i < BLOCKS; i++) {
        CHECK(blocks[i][BLOCK_BYTES / 2] == i + 1);
        free(blocks[i]);
    }
}

static struct timespec soon(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 30;
    return until;
}

static void by_mutex(unsigned me)
{
    CHECK(pthread_mutex_lock(&locks->mutex) == 0);
    press();
    locks->turn += me;
    CHECK(pthread_mutex_unlock(&locks->mutex) == 0);
    struct timespec until = soon();
    CHECK(pthread_mutex_timedlock(&locks->mutex, &until) == 0);
    press();
    CHECK(pthread_mutex_unlock(&locks->mutex) == 0);
}

static void by_condition(unsigned me)
{
    CHECK(pthread_mutex_lock(&locks->mutex) == 0);
    while (locks->turn % 2 != me)
        if (locks->turn % 3) {
            CHECK(pthread_cond_wait(&locks->changed, &locks->mutex) == 0);
        } else {
            struct timespec until = soon();
            CHECK(pthread_cond_timedwait(&locks->changed, &locks->mutex, &until) == 0);
        }
    locks->turn++;
    press();
    CHECK(pthread_cond_signal(&locks->changed) == 0);
    CHECK(pthread_mutex_unlock(&locks->mutex) == 0);
}

static void by_rwlock(unsigned me)
{
    CHECK((me ? pthread_rwlock_wrlock : pthread_rwlock_rdlock)(&locks->rwlock) == 0);
    press();
    CHECK(pthread_rwlock_unlock(&locks->rwlock) == 0);
    CHECK((me ? pthread_rwlock_rdlock : pthread_rwlock_wrlock)(&locks->rwlock) == 0);
    press();
    CHECK(pthread_rwlock_unlock(&locks->rwlock) == 0);
}

static void by_barrier(unsigned me)
{
    if (me)
        press();
    int got = pthread_barrier_wait(&locks->both);
    CHECK(got == 0 || got == PTHREAD_BARRIER_SERIAL_THREAD);
}

static void by_semaphore(unsigned me)
{
    struct timespec until = soon();
    if (me) {
        press();
        CHECK(sem_post(&locks->semaphore) == 0);
        CHECK(sem_post(&locks->semaphore) == 0);
    } else {
        CHECK(sem_wait(&locks->semaphore) == 0);
        CHECK(sem_timedwait(&locks->semaphore, &until) == 0);
    }
}

static void by_c(unsigned me)
{
    CHECK(mtx_lock(&locks->c_mutex) == thrd_success);
    while (locks->turn % 2 != me)
        CHECK(cnd_wait(&locks->c_changed, &locks->c_mutex) == thrd_success);
    locks->turn++;
    press();
    CHECK(cnd_broadcast(&locks->c_changed) == thrd_success);
    CHECK(mtx_unlock(&locks->c_mutex) == thrd_success);
}

static void by_futex(unsigned me)
{
    uint32_t seen;
    while ((seen = atomic_load(&locks->word)) % 2 != me)
        CHECK(syscall(SYS_futex, &locks->word, FUTEX_WAIT, seen, NULL, NULL, 0) == 0 ||
              errno == EAGAIN || errno == EINTR);
    press();
    atomic_fetch_add(&locks->word, 1);
    CHECK(syscall(SYS_futex, &locks->word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0) >= 0);
}

/* The kernel itself changes the lock when it is released. */
static void by_inheritance(unsigned me)
{
    CHECK(pthread_mutex_lock(&locks->inherits) == 0);
    press();
    locks->turn += me;
    CHECK(pthread_mutex_unlock(&locks->inherits) == 0);
}

static void *end_with_it(void *none)
{
    int got = pthread_mutex_lock(&locks->robust);
    CHECK(got == 0 || (got == EOWNERDEAD && pthread_mutex_consistent(&locks->robust) == 0));
    press();
    return none;
}

/* The kernel releases the lock when its thread ends. */
static void by_robust(unsigned me)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, end_with_it, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    int got = pthread_mutex_lock(&locks->robust);
    CHECK(got == 0 || (got == EOWNERDEAD && pthread_mutex_consistent(&locks->robust) == 0));
    locks->turn += me;
    CHECK(pthread_mutex_unlock(&locks->robust) == 0);
}

/* The kernel changes a word when it wakes. */
static void by_operation(unsigned me)
{
    const int add_one = FUTEX_OP(FUTEX_OP_ADD, 1, FUTEX_OP_CMP_EQ, 0);
    press();
    CHECK(syscall(SYS_futex, &locks->word, FUTEX_WAKE_OP, 1, 1, &locks->other_word, add_one) >= 0);
    (void)me;
}

static const struct {
    const char *name;
    void (*meet)(unsigned me);
} kinds[] = {
    {"mutex", by_mutex},           {"condition", by_condition},
    {"rwlock", by_rwlock},         {"barrier", by_barrier},
    {"semaphore", by_semaphore},   {"C11", by_c},
    {"futex by number", by_futex}, {"inheritance", by_inheritance},
    {"robust", by_robust},         {"futex operation", by_operation},
};

static void (*meeting)(unsigned me);
static atomic_bool pressing = true;

static void *press_on(void *none)
{
    while (atomic_load(&pressing))
        press();
    return none;
}

static void *other(void *none)
{
    for (unsigned round = 0; round < ROUNDS; round++)
        meeting(1);
    return none;
}

int main(void)
{
    pthread_t presser;
    CHECK(pthread_create(&presser, NULL, press_on, NULL) == 0);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        for (int shared = 0; shared < 2; shared++) {
            kind = kinds[i].name;
            meeting = kinds[i].meet;
            unsigned char *block = calloc(1, MIB);
            CHECK(block);
            locks = (struct locks *)(block + MIB / 2 - 64); /* across the end of a page */
            pthread_mutexattr_t mutex;
            pthread_condattr_t condition;
            pthread_mutexattr_init(&mutex);
            pthread_mutexattr_setpshared(&mutex, shared);
            pthread_condattr_init(&condition);
            pthread_condattr_setpshared(&condition, shared);
            pthread_mutex_init(&locks->mutex, &mutex);
            pthread_cond_init(&locks->changed, &condition);
            pthread_rwlock_init(&locks->rwlock, NULL);
            pthread_barrier_init(&locks->both, NULL, 2);
            sem_init(&locks->semaphore, shared, 0);
            pthread_mutexattr_setprotocol(&mutex, PTHREAD_PRIO_INHERIT);
            if (meeting == by_inheritance) /* its block is kept from now on */
                pthread_mutex_init(&locks->inherits, &mutex);
            pthread_mutexattr_setprotocol(&mutex, PTHREAD_PRIO_NONE);
            pthread_mutexattr_setrobust(&mutex, PTHREAD_MUTEX_ROBUST);
            if (meeting == by_robust)
                pthread_mutex_init(&locks->robust, &mutex);
            mtx_init(&locks->c_mutex, mtx_plain);
            cnd_init(&locks->c_changed);
            pthread_t thread;
            CHECK(pthread_create(&thread, NULL, other, NULL) == 0);
            for (unsigned round = 0; round < ROUNDS; round++)
                meeting(0);
            CHECK(pthread_join(thread, NULL) == 0);
            pthread_cond_destroy(&locks->changed);
            pthread_barrier_destroy(&locks->both);
            free(block);
            printf("%s: good\n", kind);
            fflush(stdout);
        }
    atomic_store(&pressing, false);
    CHECK(pthread_join(presser, NULL) == 0);
    return 0;
}
