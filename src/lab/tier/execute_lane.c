#include "lab/tier/execute_lane.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

void ebb__tier_until(uint64_t ns)
{
    uint64_t now = ebb__now_ns();
    if (now + 100000 < ns) {
        uint64_t left = ns - now - 80000;
        struct timespec nap = {(time_t)(left / 1000000000), (long)(left % 1000000000)};
        nanosleep(&nap, NULL);
    }
    while (ebb__now_ns() < ns)
        ;
}

/* Returns what it took, ns. */
static uint64_t copy_make(const struct ebb_tier_copy *copy)
{
    uint64_t began_ns = ebb__now_ns();
    memcpy(copy->to, copy->from, copy->bytes);
    ebb__tier_until(began_ns + copy->lane_ns);
    return ebb__now_ns() - began_ns;
}

static void *lane_run(void *argument)
{
    struct ebb_tier_lane *lane = argument;
    pthread_mutex_lock(&lane->lock);
    for (;;) {
        while (lane->count == 0 && !lane->ends)
            pthread_cond_wait(&lane->changed, &lane->lock);
        if (lane->count == 0)
            break;
        struct ebb_tier_copy copy = lane->queue[lane->first];
        pthread_mutex_unlock(&lane->lock);
        uint64_t took_ns = copy_make(&copy);
        pthread_mutex_lock(&lane->lock);
        lane->first = (lane->first + 1) % lane->capacity;
        lane->count--;
        lane->busy_ns += (double)took_ns;
        *copy.done = true;
        pthread_cond_broadcast(&lane->changed);
    }
    pthread_mutex_unlock(&lane->lock);
    return NULL;
}

enum ebb_status ebb__tier_lane_init(struct ebb_tier_lane *lane, size_t capacity)
{
    *lane = (struct ebb_tier_lane){.capacity = capacity + 1};
    pthread_mutex_init(&lane->lock, NULL);
    pthread_cond_init(&lane->changed, NULL);
    lane->queue = calloc(lane->capacity, sizeof *lane->queue);
    lane->started = lane->queue && pthread_create(&lane->thread, NULL, lane_run, lane) == 0;
    return lane->started ? EBB_OK : EBB_ERR_MEMORY;
}

void ebb__tier_lane_push(struct ebb_tier_lane *lane, struct ebb_tier_copy copy)
{
    pthread_mutex_lock(&lane->lock);
    while (lane->count == lane->capacity)
        pthread_cond_wait(&lane->changed, &lane->lock);
    lane->queue[(lane->first + lane->count++) % lane->capacity] = copy;
    pthread_cond_broadcast(&lane->changed);
    pthread_mutex_unlock(&lane->lock);
}

void ebb__tier_lane_copy(struct ebb_tier_lane *lane, struct ebb_tier_copy copy)
{
    pthread_mutex_lock(&lane->lock);
    while (lane->count)
        pthread_cond_wait(&lane->changed, &lane->lock);
    lane->busy_ns += (double)copy_make(&copy);
    *copy.done = true;
    pthread_mutex_unlock(&lane->lock);
}

void ebb__tier_lane_wait(struct ebb_tier_lane *lane, const bool *done)
{
    pthread_mutex_lock(&lane->lock);
    while (!*done)
        pthread_cond_wait(&lane->changed, &lane->lock);
    pthread_mutex_unlock(&lane->lock);
}

void ebb__tier_lane_fini(struct ebb_tier_lane *lane)
{
    if (lane->started) {
        pthread_mutex_lock(&lane->lock);
        lane->ends = true;
        pthread_cond_broadcast(&lane->changed);
        pthread_mutex_unlock(&lane->lock);
        pthread_join(lane->thread, NULL);
    }
    pthread_mutex_destroy(&lane->lock);
    pthread_cond_destroy(&lane->changed);
    free(lane->queue);
}
