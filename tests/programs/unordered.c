/* unordered: a program whose threads interleave, like a graph executor's. It verifies its memory.
 *
 * Each iteration allocates a batch and runs C chains over it. A chain goes forward over L layers
 * (allocate an activation, fill it). Then it goes backward (verify every byte of the activation,
 * allocate a gradient, fold it into the persistent weights, free both). A free thread takes the
 * next step of any chain that is not too far ahead of the others. So the order of allocations,
 * accesses and frees varies, while the work stays the same. It prints one line, a checksum that
 * depends on the bytes read and not on their order.
 *
 * Exit codes: 0 success; 1 a wrong byte; 2 bad usage; 3 no memory. Errors are printed to stderr.
 * Needs only libc: cc -O2 -pthread unordered.c. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char usage[] =
    "usage: unordered [options]\n"
    "  --iterations N      iterations (12)\n"
    "  --threads T         threads that take up steps (3)\n"
    "  --chains C          chains of layers (4)\n"
    "  --layers L          layers of a chain (12)\n"
    "  --block BYTES       size of the largest activation (2M)\n"
    "  --skew S            steps that one chain may be ahead of another (3)\n"
    "  --work MS           milliseconds of computing a step (0)\n"
    "  --extra N           each N-th iteration has an allocation more (0: none)\n"
    "  --evaluate N M      after each N iterations M that only go forward (0 0)\n"
    "  --seed S            of the order (1)\n"
    "  --corrupt N         change one byte behind the program's back in iteration N: exit code 1\n";

#define MOST_CHAINS 16
#define MOST_LAYERS 64

static struct {
    unsigned iterations, threads, chains, layers, skew, work_ms, extra, train, evaluate, corrupt;
    size_t block_bytes;
    uint64_t seed;
} options = {.iterations = 12,
             .threads = 3,
             .chains = 4,
             .layers = 12,
             .skew = 3,
             .corrupt = UINT32_MAX,
             .block_bytes = (size_t)2 << 20,
             .seed = 1};

struct chain {
    unsigned step; /* of 2 * layers; forward first */
    bool busy;
    void *activations[MOST_LAYERS];
    uint64_t *weights[MOST_LAYERS];
    uint64_t sum;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct chain chains[MOST_CHAINS];
static unsigned iteration, steps_to_do;
static bool over;
static void *batch;
static size_t batch_bytes;
static uint64_t order_state;
static _Atomic unsigned wrong_count;

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t seed_of(unsigned chain, unsigned layer, unsigned role)
{
    return mix((uint64_t)iteration << 32 ^ (uint64_t)chain << 20 ^ (uint64_t)layer << 4 ^ role);
}

/* A multiple of 64 below the largest size. Several layers share some sizes. */
static size_t layer_bytes(unsigned chain, unsigned layer)
{
    return options.block_bytes -
           (chain * 7 + layer * 3) % 11 * (options.block_bytes / 32 & ~(size_t)63);
}

static void *allocate(size_t bytes)
{
    void *block = NULL;
    if (posix_memalign(&block, 64, bytes)) {
        fputs("unordered: no memory\n", stderr);
        exit(3);
    }
    return block;
}

static void fill(void *block, size_t bytes, uint64_t seed)
{
    uint64_t *words = block;
    for (size_t i = 0; i < bytes / 8; i++)
        words[i] = seed + i * 0x9e3779b97f4a7c15u;
}

static uint64_t verify(const char *what, const void *block, size_t bytes, uint64_t seed)
{
    const uint64_t *words = block;
    uint64_t sum = 0;
    for (size_t i = 0; i < bytes / 8; i++) {
        uint64_t expected = seed + i * 0x9e3779b97f4a7c15u;
        sum += words[i] ^ words[i] >> 17;
        if (words[i] != expected) {
            if (atomic_fetch_add(&wrong_count, 1) < 10)
                fprintf(stderr, "unordered: wrong %s: word %zu of %p is %016llx, not %016llx\n",
                        what, i, block, (unsigned long long)words[i], (unsigned long long)expected);
            break;
        }
    }
    return sum;
}

static void compute(void)
{
    struct timespec now, until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)options.work_ms * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while (now.tv_sec < until.tv_sec ||
           (now.tv_sec == until.tv_sec && now.tv_nsec < until.tv_nsec));
}

static void forward(struct chain *chain, unsigned which, unsigned layer)
{
    size_t bytes = layer_bytes(which, layer);
    if (layer == 0)
        chain->sum += verify("batch", batch, batch_bytes, seed_of(0, 0, 9));
    else
        chain->sum += verify("activation", chain->activations[layer - 1],
                             layer_bytes(which, layer - 1), seed_of(which, layer - 1, 1));
    void *made = allocate(bytes);
    fill(made, bytes, seed_of(which, layer, 1));
    if (iteration == options.corrupt && which == 0 && layer == 0)
        ((volatile unsigned char *)made)[bytes / 2] ^= 1;
    chain->activations[layer] = made;
}

static void backward(struct chain *chain, unsigned which, unsigned layer)
{
    size_t bytes = layer_bytes(which, layer);
    chain->sum += verify("activation", chain->activations[layer], bytes, seed_of(which, layer, 1));
    uint64_t *gradient = allocate(bytes / 2 & ~(size_t)63);
    fill(gradient, bytes / 2 & ~(size_t)63, seed_of(which, layer, 2));
    for (size_t i = 0; i < (bytes / 2 & ~(size_t)63) / 8; i++)
        chain->weights[layer][i] += gradient[i];
    free(chain->activations[layer]);
    chain->activations[layer] = NULL;
    free(gradient);
}

/* Any chain whose next step may be taken, or NULL. The lock is held. */
static struct chain *choose(void)
{
    unsigned least = UINT32_MAX;
    for (unsigned i = 0; i < options.chains; i++)
        if (chains[i].step < least)
            least = chains[i].step;
    order_state = mix(order_state);
    for (unsigned i = 0; i < options.chains; i++) {
        struct chain *chain = &chains[(order_state + i) % options.chains];
        if (!chain->busy && chain->step < steps_to_do && chain->step <= least + options.skew)
            return chain;
    }
    return NULL;
}

static void *work(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&lock);
    while (!over) {
        struct chain *chain = choose();
        if (!chain) {
            pthread_cond_wait(&changed, &lock);
            continue;
        }
        unsigned step = chain->step, which = (unsigned)(chain - chains);
        chain->busy = true;
        pthread_mutex_unlock(&lock);
        if (step < options.layers)
            forward(chain, which, step);
        else
            backward(chain, which, 2 * options.layers - 1 - step);
        if (options.work_ms)
            compute();
        pthread_mutex_lock(&lock);
        chain->busy = false;
        chain->step++;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void run_iteration(bool train)
{
    batch = allocate(batch_bytes);
    fill(batch, batch_bytes, seed_of(0, 0, 9));
    void *extra = NULL;
    if (options.extra && iteration % options.extra == options.extra - 1) {
        extra = allocate(options.block_bytes / 2 + 4096 * iteration);
        memset(extra, 1, 4096);
    }
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < options.chains; i++)
        chains[i].step = 0;
    steps_to_do = train ? 2 * options.layers : options.layers;
    pthread_cond_broadcast(&changed);
    for (unsigned i = 0; i < options.chains; i++)
        while (chains[i].step < steps_to_do)
            pthread_cond_wait(&changed, &lock);
    steps_to_do = 0;
    pthread_mutex_unlock(&lock);
    if (!train)
        for (unsigned i = 0; i < options.chains; i++)
            for (unsigned k = 0; k < options.layers; k++)
                free(chains[i].activations[k]);
    free(extra);
    free(batch);
}

/* The weights are the sums of all gradients. They are recomputed and compared. */
static void verify_weights(unsigned chain, unsigned layer, unsigned trained[], unsigned count)
{
    size_t words = (layer_bytes(chain, layer) / 2 & ~(size_t)63) / 8;
    uint64_t seeds = 0;
    for (unsigned i = 0; i < count; i++) {
        iteration = trained[i];
        seeds += seed_of(chain, layer, 2);
    }
    for (size_t i = 0; i < words; i++)
        if (chains[chain].weights[layer][i] != seeds + count * (i * 0x9e3779b97f4a7c15u)) {
            atomic_fetch_add(&wrong_count, 1);
            fprintf(stderr, "unordered: wrong weights of chain %u, layer %u\n", chain, layer);
            return;
        }
}

static uint64_t number(const char *text)
{
    char *end;
    uint64_t value = strtoull(text, &end, 10);
    if (*end == 'M')
        value <<= 20, end++;
    else if (*end == 'K')
        value <<= 10, end++;
    if (end == text || *end) {
        fputs(usage, stderr);
        exit(2);
    }
    return value;
}

static void parse(int argc, char **argv)
{
    const struct {
        const char *name;
        unsigned *value;
    } numbers[] = {{"--iterations", &options.iterations},
                   {"--threads", &options.threads},
                   {"--chains", &options.chains},
                   {"--layers", &options.layers},
                   {"--skew", &options.skew},
                   {"--work", &options.work_ms},
                   {"--extra", &options.extra},
                   {"--corrupt", &options.corrupt}};
    for (int i = 1; i < argc; i++) {
        bool known = false;
        for (size_t k = 0; k < sizeof numbers / sizeof numbers[0] && i + 1 < argc; k++)
            if (strcmp(argv[i], numbers[k].name) == 0) {
                *numbers[k].value = (unsigned)number(argv[++i]);
                known = true;
                break;
            }
        if (known)
            continue;
        if (i + 1 < argc && strcmp(argv[i], "--block") == 0) {
            options.block_bytes = (size_t)number(argv[++i]);
        } else if (i + 1 < argc && strcmp(argv[i], "--seed") == 0) {
            options.seed = number(argv[++i]);
        } else if (i + 2 < argc && strcmp(argv[i], "--evaluate") == 0) {
            options.train = (unsigned)number(argv[i + 1]);
            options.evaluate = (unsigned)number(argv[i + 2]);
            i += 2;
        } else {
            fputs(usage, stderr);
            exit(2);
        }
    }
    if (options.chains == 0 || options.chains > MOST_CHAINS || options.layers == 0 ||
        options.layers > MOST_LAYERS || options.threads == 0 || options.threads > 64 ||
        options.block_bytes < 65536) {
        fputs(usage, stderr);
        exit(2);
    }
}

int main(int argc, char **argv)
{
    parse(argc, argv);
    batch_bytes = options.block_bytes + 8192;
    order_state = options.seed;
    for (unsigned i = 0; i < options.chains; i++)
        for (unsigned k = 0; k < options.layers; k++) {
            size_t bytes = layer_bytes(i, k) / 2 & ~(size_t)63;
            chains[i].weights[k] = allocate(bytes);
            memset(chains[i].weights[k], 0, bytes);
        }
    pthread_t threads[64];
    unsigned *trained = calloc(options.iterations + 1, sizeof *trained), count = 0;
    for (unsigned i = 0; i < options.threads; i++)
        pthread_create(&threads[i], NULL, work, NULL);
    for (iteration = 0; iteration < options.iterations; iteration++) {
        unsigned turn = options.train + options.evaluate;
        bool train = options.evaluate == 0 || iteration % turn < options.train;
        run_iteration(train);
        if (train)
            trained[count++] = iteration;
    }
    pthread_mutex_lock(&lock);
    over = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    for (unsigned i = 0; i < options.threads; i++)
        pthread_join(threads[i], NULL);
    uint64_t sum = 0;
    for (unsigned i = 0; i < options.chains; i++) {
        sum = mix(sum ^ chains[i].sum);
        for (unsigned k = 0; k < options.layers; k++) {
            verify_weights(i, k, trained, count);
            free(chains[i].weights[k]);
        }
    }
    free(trained);
    printf("checksum %016llx\n", (unsigned long long)sum);
    return wrong_count ? 1 : 0;
}
