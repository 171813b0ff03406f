#include "cuda/feeder.h"

#include "base/clock.h"
#include "base/threads.h"

#include <sys/prctl.h>
#include <time.h>

#define PAUSE_NS 20000u
#define MOST_PAUSE_NS 1000000u
#define MOST_SPIN_NS 200000u /* that the thread looks without a pause */
#define SLACK_NS 1000u
#define MOST_TRIES 3u

static void pause_for(uint64_t ns)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)ns}, NULL);
}

static bool is_over(const struct cuda_feeder *feeder)
{
    return feeder->driver->cuEventQuery(feeder->event) != CUDA_ERROR_NOT_READY ||
           atomic_load(&feeder->must_stop);
}

/* Until the chunk is over that was queued then. Pauses may last longer than they should: what is
 * over after one has taken less. */
static void await(struct cuda_feeder *feeder, uint64_t since_ns)
{
    uint64_t asleep_ns = feeder->usual_ns - feeder->usual_ns / 4, ns;
    if (is_over(feeder))
        return;
    if (asleep_ns > PAUSE_NS) {
        pause_for(asleep_ns < MOST_PAUSE_NS ? asleep_ns : MOST_PAUSE_NS);
        if (is_over(feeder)) {
            feeder->usual_ns -= feeder->usual_ns / 8;
            return;
        }
    }
    do {
        ns = ebb__now_ns() - since_ns;
        if (ns > 2 * feeder->usual_ns && ns > MOST_SPIN_NS)
            pause_for(PAUSE_NS);
    } while (!is_over(feeder));
    feeder->usual_ns = (3 * feeder->usual_ns + ns) / 4;
}

static bool copy_chunk(struct cuda_feeder *feeder, const struct cuda_feed *feed, uint64_t done,
                       uint64_t bytes)
{
    const struct ebb_cuda_driver *driver = feeder->driver;
    CUresult result = CUDA_ERROR_UNKNOWN;
    uint64_t since_ns = ebb__now_ns();
    for (unsigned i = 0; i < MOST_TRIES && result != CUDA_SUCCESS; i++)
        result = driver->cuMemcpyAsync(feed->to + done, feed->from + done, bytes, feeder->lane);
    if (result != CUDA_SUCCESS)
        return false;
    if (driver->cuEventRecord(feeder->event, feeder->lane) == CUDA_SUCCESS)
        await(feeder, since_ns);
    else
        driver->cuStreamSynchronize(feeder->lane);
    return true;
}

static void carry_out(struct cuda_feeder *feeder, struct cuda_feed *feed)
{
    uint8_t state = CUDA_FEED_OVER;
    uint64_t bytes;
    for (uint64_t done = 0; done < feed->bytes && state == CUDA_FEED_OVER; done += bytes) {
        bytes = feed->bytes - done;
        bytes = bytes < feeder->chunk_bytes ? bytes : feeder->chunk_bytes;
        if (!copy_chunk(feeder, feed, done, bytes))
            state = CUDA_FEED_FAILED;
        if (atomic_load(&feeder->must_stop))
            return; /* the chunk may not be over */
    }
    atomic_store_explicit(&feed->state, state, memory_order_release);
    feeder->tell(feeder->of);
}

/* The oldest piece, when there is one. NULL: the feeder stops. */
static struct cuda_feed *next(struct cuda_feeder *feeder)
{
    struct cuda_feed *feed = NULL;
    pthread_mutex_lock(&feeder->lock);
    while (!feeder->count && !atomic_load(&feeder->must_stop))
        pthread_cond_wait(&feeder->wake, &feeder->lock);
    if (!atomic_load(&feeder->must_stop)) {
        feed = feeder->feeds[feeder->first];
        feeder->first = (feeder->first + 1) % CUDA_MOST_FEEDS;
        feeder->count--;
    }
    pthread_mutex_unlock(&feeder->lock);
    return feed;
}

static void *run(void *context)
{
    struct cuda_feeder *feeder = context;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    struct cuda_feed *feed;
    CUcontext popped;
    prctl(PR_SET_TIMERSLACK, (unsigned long)SLACK_NS);
    feeder->driver->cuCtxPushCurrent_v2(feeder->context);
    if (feeder->driver->cuThreadExchangeStreamCaptureMode)
        feeder->driver->cuThreadExchangeStreamCaptureMode(&mode);
    while ((feed = next(feeder)))
        carry_out(feeder, feed);
    feeder->driver->cuCtxPopCurrent_v2(&popped);
    return NULL;
}

bool ebb__feeder_start(struct cuda_feeder *feeder)
{
    if (feeder->driver->cuEventCreate(&feeder->event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
        return false;
    pthread_mutex_init(&feeder->lock, NULL);
    pthread_cond_init(&feeder->wake, NULL);
    feeder->is_started = ebb__thread_start(&feeder->thread, CUDA_STACK_BYTES, run, feeder) == 0;
    return feeder->is_started;
}

void ebb__feeder_stop(struct cuda_feeder *feeder)
{
    if (!feeder->is_started)
        return;
    pthread_mutex_lock(&feeder->lock);
    atomic_store(&feeder->must_stop, true);
    pthread_cond_signal(&feeder->wake);
    pthread_mutex_unlock(&feeder->lock);
    pthread_join(feeder->thread, NULL);
    feeder->is_started = false;
}

void ebb__feeder_free(struct cuda_feeder *feeder)
{
    if (feeder->event)
        feeder->driver->cuEventDestroy_v2(feeder->event);
}

void ebb__feeder_add(struct cuda_feeder *feeder, struct cuda_feed *feed)
{
    atomic_store_explicit(&feed->state, CUDA_FEED_WAITS, memory_order_relaxed);
    pthread_mutex_lock(&feeder->lock);
    feeder->feeds[(feeder->first + feeder->count++) % CUDA_MOST_FEEDS] = feed;
    pthread_cond_signal(&feeder->wake);
    pthread_mutex_unlock(&feeder->lock);
}
