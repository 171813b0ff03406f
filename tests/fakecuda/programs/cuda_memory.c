/* What cuMemGetInfo tells is one story, while blocks come and go by chance, more than fit into a
 * budget. Each word of each block is checked before it goes. In the end an allocation that cannot
 * be is refused, and all is there again.
 *
 * Options: --seed=N --steps=N --blocks=N (live at most) --bytes=N of a block. --limit=N: the device
 * must tell that it has N bytes at most. To plant an error: --leak.
 */
#include "words.h"

enum { MOST = 256 };

/* What other programs and the driver itself may take or give meanwhile. Within a limit: nothing. */
static size_t slack_bytes = (size_t)32 << 20;

static CUdeviceptr blocks[MOST];
static unsigned values[MOST], words;
static size_t bytes, first_free, total, live;
static uint64_t state;

static size_t free_bytes(void)
{
    size_t available, now;
    CHECK(cuMemGetInfo_v2(&available, &now));
    EXPECT(now == total && available <= total);
    return available;
}

static void expect_story(void)
{
    size_t available = free_bytes();
    EXPECT(available == 0 || available + live <= first_free + slack_bytes);
    EXPECT(available + live + slack_bytes >= first_free);
}

static void take(unsigned i)
{
    CUdeviceptr base;
    size_t whole;
    values[i] = draw(&state, 1u << 30);
    CHECK(cuMemAlloc_v2(&blocks[i], bytes));
    live += bytes;
    CHECK(cuMemGetAddressRange_v2(&base, &whole, blocks[i] + bytes / 2));
    EXPECT(base == blocks[i] && whole == bytes);
    CHECK(fill_words(blocks[i], words, values[i], NULL));
}

static void give(unsigned i, unsigned *host)
{
    CHECK(cuMemcpyDtoH_v2(host, blocks[i], bytes));
    for (unsigned word = 0; word < words; word++)
        EXPECT(host[word] == values[i] + word);
    CHECK(cuMemFree_v2(blocks[i]));
    live -= bytes;
    blocks[i] = 0;
}

int main(int count, char **arguments)
{
    unsigned most = (unsigned)option(count, arguments, "blocks", 24);
    long steps = option(count, arguments, "steps", 80);
    size_t limit = (size_t)option(count, arguments, "limit", 0);
    state = (uint64_t)option(count, arguments, "seed", 1) * 77 + 5;
    bytes = (size_t)option(count, arguments, "bytes", 4 << 20);
    words = (unsigned)(bytes / 4);
    if (limit)
        slack_bytes = 0;
    unsigned *host = malloc(bytes);
    if (!host || !most || most > MOST || bytes % (2 << 20))
        return 2;
    words_open(0);
    CHECK(fill_words(0, 0, 0, NULL)); /* what a first launch takes is taken */
    CHECK(cuCtxSynchronize());
    CHECK(cuMemGetInfo_v2(&first_free, &total));
    EXPECT(first_free <= total && (!limit || total <= limit));
    for (long step = 0; step < steps; step++) {
        unsigned i = draw(&state, most);
        if (blocks[i])
            give(i, host);
        else
            take(i);
        expect_story();
    }
    CUdeviceptr refused;
    EXPECT(cuMemAlloc_v2(&refused, (size_t)1 << 46) == CUDA_ERROR_OUT_OF_MEMORY);
    expect_story();
    for (unsigned i = 0; i < most; i++)
        if (blocks[i] && !option(count, arguments, "leak", 0))
            give(i, host);
    live = 0;
    expect_story();
    puts("one story");
    free(host);
    return 0;
}
