/* Threads, each an actor. Blocks are passed between them. Stacks, locks and futexes lie in blocks,
 * and threads are cancelled. */
#include "legal.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MOST_THREADS 8

/* Blocks in transit between actors. It is not used in children, since another thread may hold the
 * lock. */
static pthread_mutex_t mailbox_lock = PTHREAD_MUTEX_INITIALIZER;
static struct block *mailbox[8];

static void do_give(struct actor *actor)
{
    struct block *block = random_block(actor, 1);
    if (!block)
        return;
    pthread_mutex_lock(&mailbox_lock);
    for (size_t i = 0; i < 8; i++)
        if (!mailbox[i]) {
            mailbox[i] = block;
            block_forget(actor, block);
            break;
        }
    pthread_mutex_unlock(&mailbox_lock);
}

static struct block *take(struct actor *actor, size_t from)
{
    struct block *block = NULL;
    pthread_mutex_lock(&mailbox_lock);
    for (size_t i = from; i < 8 && !block; i++)
        if (mailbox[i]) {
            block = mailbox[i];
            mailbox[i] = NULL;
        }
    if (block)
        actor->blocks[actor->block_count++] = block;
    pthread_mutex_unlock(&mailbox_lock);
    return block;
}

/* A block's bytes depend on its identity and version, so no version may be used twice. The new
 * owner continues from the highest version that it has seen. */
static void raise_version(struct actor *actor, const struct block *block)
{
    for (size_t i = 0; i < block->pages; i++)
        if (block->page[i].version > actor->version)
            actor->version = block->page[i].version;
}

static void do_take(struct actor *actor)
{
    if (actor->block_count >= MAX_BLOCKS - 4)
        return;
    struct block *block = take(actor, (size_t)chance(actor, 8));
    if (block) {
        raise_version(actor, block);
        block_check(actor, block);
    }
}

void mailbox_empty(struct actor *actor)
{
    struct block *block;
    while (actor->block_count < MAX_BLOCKS && (block = take(actor, 0))) {
        raise_version(actor, block);
        block_check(actor, block);
        block_drop(actor, block);
    }
}

struct job {
    struct actor *actor;
    unsigned long operations;
    void *local; /* freed by the destructor of the thread's own data */
};

static pthread_key_t key;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;

static void make_key(void)
{
    pthread_key_create(&key, free);
}

static void *work(void *given)
{
    struct job *job = given;
    pthread_once(&key_once, make_key);
    pthread_setspecific(key, malloc(300 * KIB));
    actor_operate(job->actor, job->operations);
    actor_check(job->actor);
    return NULL;
}

static void run_threads(struct actor *actor, bool own_stacks)
{
    pthread_t threads[MOST_THREADS];
    struct job jobs[MOST_THREADS];
    void *stacks[MOST_THREADS] = {NULL};
    size_t most = settings.threads < MOST_THREADS ? settings.threads : MOST_THREADS;
    size_t count = most ? 1 + (size_t)chance(actor, most) : 0;
    actor->threaded = true;
    for (size_t i = 0; i < count; i++) {
        uint64_t number = actor->number + (actor->number < 1000 ? 1000 : 0) + i + 1;
        jobs[i] = (struct job){.actor = actor_create(chance(actor, UINT64_MAX), number),
                               .operations = 10 + (unsigned long)chance(actor, 40)};
        jobs[i].actor->threaded = true;
        jobs[i].actor->child = actor->child;
        jobs[i].actor->depth = actor->depth;
        jobs[i].actor->version = actor->version;
        jobs[i].actor->made = actor->made + 100000; /* ids are never used twice */
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        if (own_stacks) {
            size_t bytes = 128 * KIB + PAGE * (size_t)chance(actor, 400);
            if (posix_memalign(&stacks[i], one_in(actor, 2) ? PAGE : 64, bytes) != 0)
                fail(actor, "no memory for a thread's stack");
            int error = pthread_attr_setstack(&attributes, stacks[i], bytes);
            if (error)
                fail(actor, "pthread_attr_setstack: %s", strerror(error));
        }
        int error = pthread_create(&threads[i], &attributes, work, &jobs[i]);
        pthread_attr_destroy(&attributes);
        if (error)
            fail(actor, "pthread_create: %s", strerror(error));
    }
    actor_operate(actor, 5 + (unsigned long)chance(actor, 20));
    for (size_t i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        if (jobs[i].actor->version > actor->version)
            actor->version = jobs[i].actor->version;
        if (jobs[i].actor->made > actor->made)
            actor->made = jobs[i].actor->made;
        actor_destroy(jobs[i].actor);
        free(stacks[i]);
    }
    actor->threaded = false;
}

static void do_threads(struct actor *actor)
{
    run_threads(actor, false);
}

static void do_stacks(struct actor *actor)
{
    run_threads(actor, true);
}

/* Is cancelled at its own cancellation point, or at one inside malloc. */
static void *churn(void *given)
{
    _Atomic bool *runs = given;
    atomic_store(runs, true);
    for (unsigned i = 0;; i++) {
        size_t bytes = (size_t)(i % 13 + 1) * 200 * KIB;
        int state;
        /* Cancellation is off while a block is held. A leak would be legal, but would add up. */
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
        unsigned char *block = malloc(bytes);
        pthread_setcancelstate(state, NULL);
        if (!block)
            return NULL;
        memset(block, (int)i, bytes);
        free(block);
        if (i % 4 == 3)
            pthread_testcancel();
    }
    return NULL;
}

/* malloc and free are no cancellation points, so the thread ends at pthread_testcancel() only. */
static void *churn_open(void *given)
{
    _Atomic bool *runs = given;
    void *volatile kept[4] = {NULL};
    atomic_store(runs, true);
    for (unsigned i = 0;; i++) {
        size_t bytes = (size_t)(i % 11 + 1) * 150 * KIB;
        free(kept[i % 4]);
        kept[i % 4] = malloc(bytes);
        if (kept[i % 4])
            memset(kept[i % 4], (int)i, bytes);
        if (i % 8 == 7) {
            for (unsigned k = 0; k < 4; k++) {
                free(kept[k]);
                kept[k] = NULL;
            }
            pthread_testcancel();
        }
    }
    return NULL;
}

static void do_cancel(struct actor *actor)
{
    pthread_t thread;
    _Atomic bool runs = false;
    void *result;
    if (pthread_create(&thread, NULL, one_in(actor, 2) ? churn : churn_open, &runs) != 0)
        fail(actor, "pthread_create failed");
    while (!atomic_load(&runs))
        pressure(actor);
    if (one_in(actor, 2))
        pressure(actor);
    pthread_cancel(thread);
    if (one_in(actor, 2))
        block_make(actor, MIB);
    pthread_join(thread, &result);
    if (result != PTHREAD_CANCELED)
        fail(actor, "a cancelled thread ended otherwise");
}

/* A lock, a condition and a barrier at random places of a block that may be evicted. */
struct meeting {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_barrier_t both;
    unsigned turn, rounds;
};

static void *meet(void *given)
{
    struct meeting *meeting = given;
    pthread_barrier_wait(&meeting->both);
    pthread_mutex_lock(&meeting->lock);
    while (meeting->turn < meeting->rounds) {
        while (meeting->turn % 2 == 0)
            pthread_cond_wait(&meeting->changed, &meeting->lock);
        meeting->turn++;
        pthread_cond_signal(&meeting->changed);
    }
    pthread_mutex_unlock(&meeting->lock);
    return NULL;
}

static void do_meet(struct actor *actor)
{
    size_t bytes = MIB + (size_t)chance(actor, MIB);
    unsigned char *block = malloc(bytes);
    struct meeting *meeting;
    pthread_t thread;
    if (!block)
        fail(actor, "no memory for a lock");
    meeting = (struct meeting *)(block + (chance(actor, bytes - sizeof *meeting) & ~(uint64_t)63));
    memset(meeting, 0, sizeof *meeting);
    meeting->rounds = 20;
    pthread_mutexattr_t shared;
    pthread_mutexattr_init(&shared);
    if (one_in(actor, 2))
        pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&meeting->lock, &shared);
    pthread_cond_init(&meeting->changed, NULL);
    pthread_barrier_init(&meeting->both, NULL, 2);
    if (pthread_create(&thread, NULL, meet, meeting) != 0)
        fail(actor, "pthread_create failed");
    pthread_barrier_wait(&meeting->both);
    for (;;) {
        pthread_mutex_lock(&meeting->lock);
        while (meeting->turn % 2 == 1)
            pthread_cond_wait(&meeting->changed, &meeting->lock);
        unsigned turn = ++meeting->turn;
        pthread_cond_signal(&meeting->changed);
        pthread_mutex_unlock(&meeting->lock);
        if (turn >= meeting->rounds)
            break;
        pressure(actor);
    }
    pthread_join(thread, NULL);
    free(block);
}

/* A bare futex in a block. It is woken, is not woken, or has another value. */
struct waiter {
    _Atomic uint32_t *word;
    _Atomic bool *woken;
};

static void *wait_on(void *given)
{
    struct waiter *waiter = given;
    while (atomic_load(waiter->word) == 0) {
        long got = syscall(SYS_futex, waiter->word, FUTEX_WAIT, 0, NULL, NULL, 0);
        if (got != 0 && errno != EAGAIN && errno != EINTR)
            return (void *)(intptr_t)errno;
    }
    atomic_store(waiter->woken, true);
    return NULL;
}

static void do_futex(struct actor *actor)
{
    size_t bytes = MIB;
    unsigned char *block = calloc(1, bytes);
    if (!block)
        fail(actor, "no memory for a futex");
    _Atomic uint32_t *word =
        (_Atomic uint32_t *)(block + (chance(actor, bytes - 64) & ~(uint64_t)7));
    _Atomic bool woken = false;
    struct waiter waiter = {word, &woken};
    pthread_t thread;
    void *error;
    if (pthread_create(&thread, NULL, wait_on, &waiter) != 0)
        fail(actor, "pthread_create failed");
    pressure(actor);
    if (one_in(actor, 2))
        usleep(2000);
    pressure(actor);
    atomic_store(word, 1);
    while (!atomic_load(&woken)) {
        if (syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0) < 0)
            fail(actor, "FUTEX_WAKE in a block: %s", strerror(errno));
        usleep(100);
        if (pthread_tryjoin_np(thread, &error) == 0)
            goto ended;
    }
    pthread_join(thread, &error);
ended:
    if (error)
        fail(actor, "FUTEX_WAIT in a block: %s", strerror((int)(intptr_t)error));
    free(block);
}

const struct operation thread_operations[] = {
    {"threads", "thread", do_threads, 2, ALONE},
    {"stacks", "thread", do_stacks, 1, ALONE},
    {"cancel", "thread", do_cancel, 1, ALONE},
    {"meet", "thread", do_meet, 1, ALONE},
    {"futex", "thread", do_futex, 1, ALONE | KERNEL},
    {"give", "hand", do_give, 3, PARENT},
    {"take", "hand", do_take, 3, PARENT},
    {0},
};
