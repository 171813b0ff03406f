/* The ring: order, wrap-around, a full ring, and a producer that is killed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "trace/ring.h"

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A ring that is shared with forked children. */
static struct ebb_ring *ring_open(void)
{
    struct ebb_ring *ring = mmap(NULL, ebb__ring_bytes(EBB_RING_EVENTS), PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(ring, MAP_FAILED);
    ebb__ring_init(ring, EBB_RING_EVENTS, 17);
    return ring;
}

static void ring_close(struct ebb_ring *ring)
{
    munmap(ring, ebb__ring_bytes(EBB_RING_EVENTS));
}

/* Every field is computed from the number, so that a torn event is detected. */
static struct ebb_event event_of(uint64_t number)
{
    return (struct ebb_event){.time_ns = number,
                              .block = number * 3,
                              .size_bytes = ~number,
                              .kind = EBB_EVENT_ACCESS,
                              .access = (uint8_t)(number % 3),
                              .flags = (uint8_t)number,
                              .thread = (uint32_t)(number * 7)};
}

static bool is_event(const struct ebb_event *event, uint64_t number)
{
    struct ebb_event wanted = event_of(number);
    return event->time_ns == wanted.time_ns && event->block == wanted.block &&
           event->size_bytes == wanted.size_bytes && event->kind == wanted.kind &&
           event->access == wanted.access && event->flags == wanted.flags &&
           event->thread == wanted.thread;
}

static void write_one(struct ebb_ring *ring, uint64_t number)
{
    struct ebb_event event = event_of(number);
    ebb__ring_write(ring, &event);
}

static bool is_loss(const struct ebb_event *event, uint64_t count)
{
    return event->kind == EBB_EVENT_MARK && event->mark == EBB_MARK_LOST &&
           event->size_bytes == count;
}

static void nap_ns(long ns)
{
    const struct timespec nap = {.tv_nsec = ns};
    nanosleep(&nap, NULL);
}

static void order_and_wrap_around(void **state)
{
    (void)state;
    struct ebb_ring *ring = ring_open();
    assert_int_equal(ring->magic, EBB_RING_MAGIC);
    assert_int_equal(ring->origin_ns, 17);
    static struct ebb_event events[1000];
    assert_int_equal(ebb__ring_read(ring, events, 1000), 0);
    uint64_t written = 0, read = 0, chances = 1;
    while (read < 3 * EBB_RING_EVENTS) {
        chances = chances * 6364136223846793005u + 1442695040888963407u;
        for (uint64_t i = (chances >> 33) % 1500; i > 0 && written - read < EBB_RING_EVENTS; i--)
            write_one(ring, written++);
        size_t most = (size_t)((chances >> 40) % 1000);
        size_t count = ebb__ring_read(ring, events, most);
        assert_int_equal(count, written - read < most ? written - read : most);
        for (size_t i = 0; i < count; i++)
            assert_true(is_event(&events[i], read++));
    }
    assert_int_equal(atomic_load(&ring->lost), 0);
    ring_close(ring);
}

static void full_without_a_reader(void **state)
{
    (void)state;
    struct ebb_ring *ring = ring_open();
    atomic_store(&ring->parent_gone, 1);
    for (uint64_t i = 0; i < EBB_RING_EVENTS + 100; i++)
        write_one(ring, i);
    assert_int_equal(atomic_load(&ring->lost), 100);
    static struct ebb_event events[EBB_RING_EVENTS];
    assert_int_equal(ebb__ring_read(ring, events, EBB_RING_EVENTS), EBB_RING_EVENTS);
    for (uint64_t i = 0; i < EBB_RING_EVENTS; i++)
        assert_true(is_event(&events[i], i)); /* the oldest are kept */
    write_one(ring, 7);                       /* the ring has space again */
    assert_int_equal(ebb__ring_read(ring, events, 10), 2);
    assert_true(is_loss(&events[0], 100));
    assert_true(is_event(&events[1], 7));
    ring_close(ring);
}

static void reader_that_never_reads(void **state)
{
    (void)state;
    struct ebb_ring *ring = ring_open();
    for (uint64_t i = 0; i < EBB_RING_EVENTS; i++)
        write_one(ring, i);
    assert_int_equal(atomic_load(&ring->parent_gone), 0);
    struct timespec began, ended;
    clock_gettime(CLOCK_MONOTONIC, &began);
    write_one(ring, 1); /* waits for a second */
    clock_gettime(CLOCK_MONOTONIC, &ended);
    assert_true(ended.tv_sec - began.tv_sec >= 1);
    for (uint64_t i = 0; i < 1000; i++) /* does not wait again */
        write_one(ring, 2);
    clock_gettime(CLOCK_MONOTONIC, &began);
    assert_true(began.tv_sec - ended.tv_sec < 100);
    assert_int_equal(atomic_load(&ring->lost), 1001);
    assert_int_equal(atomic_load(&ring->parent_gone), 0);
    ring_close(ring);
}

static void write_mark(struct ebb_ring *ring, enum ebb_mark mark)
{
    ebb__ring_write(ring, &(struct ebb_event){.kind = EBB_EVENT_MARK, .mark = (uint8_t)mark});
}

/* A parent that was stopped reads events again. It gets the number of lost events, and the current
 * state. */
static void reader_that_comes_back(void **state)
{
    (void)state;
    struct ebb_ring *ring = ring_open();
    static struct ebb_event events[EBB_RING_EVENTS];
    for (uint64_t round = 0; round < 2; round++) {
        for (uint64_t i = 0; i < EBB_RING_EVENTS; i++)
            write_one(ring, i);
        write_one(ring, 1);
        write_mark(ring, EBB_MARK_TRACE_OFF);
        write_mark(ring, EBB_MARK_PLAN_ON);
        write_mark(ring, EBB_MARK_PLAN_OFF);
        assert_int_equal(ebb__ring_read(ring, events, EBB_RING_EVENTS), EBB_RING_EVENTS);
        write_one(ring, 8);
        write_one(ring, 9);
        assert_int_equal(ebb__ring_read(ring, events, 10), 5);
        assert_true(is_loss(&events[0], 4));
        assert_int_equal(events[1].mark, EBB_MARK_TRACE_OFF);
        assert_int_equal(events[2].mark, EBB_MARK_PLAN_OFF);
        for (size_t i = 0; i < 3; i++)
            assert_int_equal(events[i].time_ns, 8); /* time never falls */
        assert_true(is_event(&events[3], 8) && is_event(&events[4], 9));
        assert_int_equal(atomic_load(&ring->lost), (round + 1) * 4);
    }
    ring_close(ring);
}

#define MANY (4 * EBB_RING_EVENTS)

static void *produce(void *argument)
{
    for (uint64_t i = 0; i < MANY; i++)
        write_one(argument, i);
    return NULL;
}

static void full_with_a_slow_reader(void **state)
{
    (void)state;
    struct ebb_ring *ring = ring_open();
    pthread_t producer;
    assert_int_equal(pthread_create(&producer, NULL, produce, ring), 0);
    static struct ebb_event events[3000];
    unsigned wrong = 0;
    for (uint64_t read = 0; read < MANY;) {
        size_t count = ebb__ring_read(ring, events, 3000);
        for (size_t i = 0; i < count; i++)
            wrong += !is_event(&events[i], read++);
        if (read % 5 == 0)
            nap_ns(300000);
    }
    pthread_join(producer, NULL);
    assert_int_equal(wrong, 0);
    assert_int_equal(atomic_load(&ring->lost), 0);
    assert_int_equal(atomic_load(&ring->parent_gone), 0);
    ring_close(ring);
}

static void producer_killed(void **state)
{
    (void)state;
    static struct ebb_event events[5000];
    for (long round = 0; round < 10; round++) {
        struct ebb_ring *ring = ring_open();
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            for (uint64_t i = 0;; i++)
                write_one(ring, i);
        uint64_t read = 0;
        while (read < 20000 + (uint64_t)round * 7919) {
            size_t count = ebb__ring_read(ring, events, 5000);
            for (size_t i = 0; i < count; i++)
                assert_true(is_event(&events[i], read++));
        }
        nap_ns(round * 100000);
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, NULL, 0), child);
        uint64_t written = atomic_load(&ring->written);
        for (size_t count; (count = ebb__ring_read(ring, events, 5000)) > 0;)
            for (size_t i = 0; i < count; i++)
                assert_true(is_event(&events[i], read++));
        assert_int_equal(read, written); /* all complete events, and nothing else */
        ring_close(ring);
    }
}

/* The counters are in another process's memory. Invalid values must not cause access outside the
 * ring. */
static void hostile_counters(void **state)
{
    (void)state;
    struct ebb_ring *ring = ring_open();
    static struct ebb_event events[100];
    static const uint64_t nonsense[] = {UINT64_MAX, UINT64_MAX - 5, 1, (uint64_t)1 << 63,
                                        EBB_RING_EVENTS + 1};
    ring->event_capacity = UINT64_MAX;
    for (size_t w = 0; w < 5; w++)
        for (size_t r = 0; r < 5; r++) {
            atomic_store(&ring->written, nonsense[w]);
            atomic_store(&ring->read, nonsense[r]);
            bool sound = nonsense[w] - nonsense[r] <= EBB_RING_EVENTS;
            assert_int_equal(ebb__ring_is_sound(ring), sound);
            size_t count = ebb__ring_read(ring, events, 100);
            assert_true(sound ? count <= 100 : count == 0);
        }
    ring_close(ring);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_and_wrap_around),   cmocka_unit_test(full_without_a_reader),
        cmocka_unit_test(reader_that_never_reads), cmocka_unit_test(reader_that_comes_back),
        cmocka_unit_test(full_with_a_slow_reader), cmocka_unit_test(producer_killed),
        cmocka_unit_test(hostile_counters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
