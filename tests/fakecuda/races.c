/* Accesses without an order between them (FAKECUDA_RACES=1).
 *
 * Each range remembers recent accesses: which operation, which bytes, whether it wrote. Another
 * access that conflicts must come after by the order of streams, events and host waits, whatever
 * really happened first. That order is a vector clock: for each stream, the number of its last
 * operation before this one. A wait of the host orders what any thread enqueues afterwards.
 * Atomic accesses exclude plain ones only. They order what their streams do before and after.
 * Streams with one slot are not told apart.
 */
#include "fake.h"
#include <stdlib.h>

enum { MOST_RECORDS = 48 };

struct access_record {
    const struct CUstream_st *stream;
    uint64_t seq;
    size_t first, last;
    int mode;
    bool used;
};

void fake_race_forget(struct range *range)
{
    free(range->records);
    range->records = NULL;
}

static bool writes(int mode)
{
    return mode & (FAKECUDA_WRITE | MODE_DISCARD);
}

static bool conflict(int a, int b)
{
    if ((a | b) & MODE_PREFETCH)
        return (a | b) & MODE_DISCARD;
    if (a & b & MODE_ATOMIC)
        return false;
    return writes(a) || writes(b) || ((a | b) & MODE_ATOMIC && writes(a | b));
}

/* Words by which streams wait for each other, with the clocks of those who wrote there. */
static struct word {
    CUdeviceptr address;
    uint64_t value; /* that a stream wrote last */
    uint64_t clock[MOST_SLOTS];
} words[256]; /* under memory_lock */

/* The last one if all are taken. */
static struct word *word_at(CUdeviceptr address)
{
    struct word *word = words;
    while (word < words + 255 && word->address && word->address != address)
        word++;
    return word;
}

void fake_race_word(struct op *op, struct CUstream_st *stream, CUdeviceptr address, int mode)
{
    struct word *word = word_at(address);
    if (!fake_set.races || !op || !op->clock)
        return;
    if (word->address != address)
        memset(word, 0, sizeof(*word));
    word->address = address;
    if (mode & MODE_ACQUIRE)
        fake_clock_join(stream->acquired, word->clock);
    if (mode & MODE_RELEASE) {
        fake_clock_join(word->clock, op->clock);
        fake_clock_join(word->clock, stream->acquired);
    }
}

void fake_race_write(CUdeviceptr address, uint64_t value)
{
    pthread_mutex_lock(&memory_lock);
    struct word *word = word_at(address);
    if (word->address == address)
        word->value = value;
    pthread_mutex_unlock(&memory_lock);
}

/* The host wrote the word if no stream wrote this value. */
void fake_race_wait(struct CUstream_st *stream, CUdeviceptr address, uint64_t value)
{
    pthread_mutex_lock(&memory_lock);
    const struct word *word = word_at(address);
    bool by_stream = word->address == address && word->value == value;
    pthread_mutex_unlock(&memory_lock);
    if (!by_stream)
        fake_race_host(stream);
}

void fake_race_check(struct range *range, struct op *op, struct CUstream_st *stream, size_t offset,
                     size_t bytes, int mode, const char *who)
{
    if (!fake_set.races || !op || !op->clock)
        return;
    if (!range->records)
        range->records = calloc(MOST_RECORDS, sizeof(*range->records));
    if (!range->records)
        return;
    struct access_record *place = NULL;
    for (int i = 0; i < MOST_RECORDS; i++) {
        struct access_record *r = &range->records[i];
        if (!r->used) {
            place = place ? place : r;
            continue;
        }
        if (r->first >= offset + bytes || offset >= r->last)
            continue;
        bool ordered = r->stream == stream || r->stream->slot == stream->slot ||
                       r->seq <= op->clock[r->stream->slot] ||
                       r->seq <= stream->acquired[r->stream->slot];
        if (!ordered && conflict(r->mode, mode)) {
            fake_violation("race",
                           "%s in stream %llu and an access in stream %llu to byte %zu "
                           "of %#llx have no order",
                           who, (unsigned long long)stream->id, (unsigned long long)r->stream->id,
                           offset, range->address);
            r->used = false;
        } else if (ordered && (writes(mode) || (r->stream == stream && r->mode == mode)) &&
                   offset <= r->first && r->last <= offset + bytes) {
            r->used = false; /* what comes after this access comes after that one */
        }
        if (!r->used)
            place = place ? place : r;
    }
    if (!place)
        place = &range->records[fake_random(MOST_RECORDS)];
    *place = (struct access_record){stream, op->seq, offset, offset + bytes, mode, true};
}
