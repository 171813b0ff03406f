/* Random operations in random streams. What a buffer needs is ordered by events, as a careful
 * program does. A shadow in host memory does the same, one after another. In the end all bytes are
 * equal.
 *
 * Options: --seed=N --operations=N --buffers=N --streams=N --words=N --managed. --room=N: each
 * buffer is the end of an allocation of N bytes. To plant an error: --drop=N leaves out every N-th
 * wait.
 */
#include "words.h"

enum { MOST_BUFFERS = 32, MOST_STREAMS = 8 };

struct use {
    CUevent event;
    CUstream stream;
};

static struct buffer {
    CUdeviceptr at;
    unsigned *shadow;
    struct use written, read[MOST_STREAMS];
} buffers[MOST_BUFFERS];

static struct {
    long operations, buffers, streams, words, room, drop, managed;
} set;
static uint64_t state;
static CUstream streams[MOST_STREAMS];
static unsigned *pinned[MOST_STREAMS];
static CUevent pinned_free[MOST_STREAMS];
static long waits;

static void wait_for(CUstream stream, const struct use *use)
{
    if (!use->event || use->stream == stream)
        return;
    if (set.drop && ++waits % set.drop == 0)
        return;
    CHECK(cuStreamWaitEvent(stream, use->event, 0));
}

static void note(struct use *use, CUstream stream)
{
    if (!use->event)
        CHECK(cuEventCreate(&use->event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventRecord(use->event, stream));
    use->stream = stream;
}

static void before_read(struct buffer *b, CUstream stream)
{
    wait_for(stream, &b->written);
}

static void before_write(struct buffer *b, CUstream stream)
{
    wait_for(stream, &b->written);
    for (int i = 0; i < set.streams; i++)
        wait_for(stream, &b->read[i]);
}

static void mix(struct buffer *x, struct buffer *y, int s)
{
    unsigned value = draw(&state, 1000), words = (unsigned)set.words;
    before_write(x, streams[s]);
    before_read(y, streams[s]);
    CHECK(mix_words(x->at, y->at, words, value, streams[s]));
    for (unsigned i = 0; i < words; i++)
        x->shadow[i] = words_mixed(x->shadow[i], y->shadow[i], value);
    note(&y->read[s], streams[s]);
    note(&x->written, streams[s]);
}

static void copy(struct buffer *x, struct buffer *y, int s)
{
    if (x == y)
        return;
    before_write(x, streams[s]);
    before_read(y, streams[s]);
    CHECK(cuMemcpyDtoDAsync_v2(x->at, y->at, 4 * (size_t)set.words, streams[s]));
    memcpy(x->shadow, y->shadow, 4 * (size_t)set.words);
    note(&y->read[s], streams[s]);
    note(&x->written, streams[s]);
}

static void fill(struct buffer *x, int s)
{
    unsigned value = draw(&state, 1u << 30);
    before_write(x, streams[s]);
    CHECK(cuMemsetD32Async(x->at, value, (size_t)set.words, streams[s]));
    for (long i = 0; i < set.words; i++)
        x->shadow[i] = value;
    note(&x->written, streams[s]);
}

static void upload(struct buffer *x, int s)
{
    CHECK(cuEventSynchronize(pinned_free[s]));
    unsigned value = draw(&state, 1u << 30);
    for (long i = 0; i < set.words; i++)
        x->shadow[i] = pinned[s][i] = value ^ (unsigned)i;
    before_write(x, streams[s]);
    CHECK(cuMemcpyHtoDAsync_v2(x->at, pinned[s], 4 * (size_t)set.words, streams[s]));
    CHECK(cuEventRecord(pinned_free[s], streams[s]));
    note(&x->written, streams[s]);
}

static void compare(struct buffer *x, int s)
{
    unsigned *host = malloc(4 * (size_t)set.words);
    before_read(x, streams[s]);
    CHECK(cuMemcpyDtoHAsync_v2(host, x->at, 4 * (size_t)set.words, streams[s]));
    CHECK(cuStreamSynchronize(streams[s]));
    if (memcmp(host, x->shadow, 4 * (size_t)set.words)) {
        fprintf(stderr, "a buffer differs from the serial run\n");
        exit(1);
    }
    free(host);
}

static size_t before_words(void)
{
    size_t bytes = 4 * (size_t)set.words;
    return (size_t)set.room > bytes ? ((size_t)set.room - bytes) / 4 * 4 : 0;
}

static void take(struct buffer *x)
{
    size_t before = before_words(), bytes = before + 4 * (size_t)set.words;
    if (set.managed)
        CHECK(cuMemAllocManaged(&x->at, bytes, CU_MEM_ATTACH_GLOBAL));
    else
        CHECK(cuMemAlloc_v2(&x->at, bytes));
    x->at += before;
}

static void renew(struct buffer *x)
{
    CHECK(cuCtxSynchronize());
    CHECK(cuMemFree_v2(x->at - before_words()));
    take(x);
    CHECK(cuMemcpyHtoD_v2(x->at, x->shadow, 4 * (size_t)set.words));
}

static void operate(void)
{
    struct buffer *x = &buffers[draw(&state, (unsigned)set.buffers)];
    struct buffer *y = &buffers[draw(&state, (unsigned)set.buffers)];
    int s = (int)draw(&state, (unsigned)set.streams);
    unsigned kind = draw(&state, 100);
    if (kind < 60)
        mix(x, y, s);
    else if (kind < 75)
        copy(x, y, s);
    else if (kind < 83)
        fill(x, s);
    else if (kind < 92)
        upload(x, s);
    else if (kind < 98)
        compare(x, s);
    else
        renew(x);
}

static void open_all(void)
{
    size_t bytes = 4 * (size_t)set.words;
    for (int i = 0; i < set.streams; i++) {
        CHECK(cuStreamCreateWithPriority(&streams[i], i % 2 ? CU_STREAM_NON_BLOCKING : 0, -i));
        CHECK(cuMemHostAlloc((void **)&pinned[i], bytes, 0));
        CHECK(cuEventCreate(&pinned_free[i], CU_EVENT_DISABLE_TIMING));
    }
    for (int i = 0; i < set.buffers; i++) {
        struct buffer *b = &buffers[i];
        b->shadow = calloc(1, bytes);
        take(b);
        CHECK(cuMemsetD8_v2(b->at, 0, bytes));
    }
    CHECK(cuCtxSynchronize());
}

int main(int count, char **arguments)
{
    state = (uint64_t)option(count, arguments, "seed", 1) * 77 + 5;
    set.operations = option(count, arguments, "operations", 300);
    set.buffers = option(count, arguments, "buffers", 6);
    set.streams = option(count, arguments, "streams", 4);
    set.words = option(count, arguments, "words", 3000);
    set.room = option(count, arguments, "room", 0);
    set.drop = option(count, arguments, "drop", 0);
    set.managed = option(count, arguments, "managed", 0);
    if (set.buffers > MOST_BUFFERS || set.streams > MOST_STREAMS)
        return 2;
    words_open(0);
    open_all();
    for (long i = 0; i < set.operations; i++)
        operate();
    for (int i = 0; i < set.buffers; i++)
        compare(&buffers[i], 0);
    CHECK(cuCtxSynchronize());
    for (int i = 0; i < set.buffers; i++)
        CHECK(cuMemFree_v2(buffers[i].at - before_words()));
    return 0;
}
