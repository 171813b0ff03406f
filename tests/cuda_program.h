/* A random program for the engine, and what a serial run of it computes.
 *
 * Each thread has blocks and streams of its own, and orders them by events as a correct program
 * must. It knows what each block holds, and compares. Of each block, kernels use the bytes at the
 * beginning, in the middle and at the end. */
#ifndef CUDA_PROGRAM_H
#define CUDA_PROGRAM_H

#include "cuda_rig.h"

#include <pthread.h>

#define WORDS 32u /* used at each of the places */
#define PLACES 3u
#define MOST_BLOCKS 64u
#define MOST_STREAMS 4u
#define MOST_USES 8u

/* ---- kernels --------------------------------------------------------------------------------- */

static inline CUdeviceptr place_of(CUdeviceptr address, uint64_t bytes, unsigned place)
{
    uint64_t used = WORDS * sizeof(uint32_t);
    uint64_t last = bytes - used;
    return address + ((place == 0 ? 0 : place == 1 ? last / 2 : last) & ~(uint64_t)63);
}

static inline uint32_t mixed(uint32_t a, uint32_t b, uint32_t salt)
{
    return a * 31 + (b ^ b >> 7) + salt;
}

static inline uint32_t filled(uint32_t salt, unsigned place, unsigned word)
{
    return (salt + place * 977 + word) * 2654435761u;
}

/* fill(address, bytes, salt) */
static void kernel_fill(struct fakecuda_kernel *k)
{
    for (unsigned place = 0; place < PLACES; place++) {
        uint32_t *words = fakecuda_write(
            k, place_of(fakecuda_pointer(k, 0), fakecuda_pointer(k, 8), place), WORDS * 4);
        for (unsigned i = 0; i < WORDS; i++)
            words[i] = filled(fakecuda_word(k, 16), place, i);
        fakecuda_yield(k);
    }
}

static void mix(struct fakecuda_kernel *k, const CUdeviceptr *at, unsigned count, uint32_t salt)
{
    uint32_t own[WORDS];
    for (unsigned place = 0; place < PLACES; place++) {
        CUdeviceptr to = place_of(at[0], at[1], place);
        memcpy(own, fakecuda_read(k, to, sizeof own), sizeof own);
        for (unsigned j = 1; j < count; j++) {
            const uint32_t *from =
                fakecuda_read(k, place_of(at[2 * j], at[2 * j + 1], place), sizeof own);
            for (unsigned i = 0; i < WORDS; i++)
                own[i] = mixed(own[i], from[i], salt + j);
        }
        if (count == 1)
            for (unsigned i = 0; i < WORDS; i++)
                own[i] = mixed(own[i], own[i], salt);
        memcpy(fakecuda_update(k, to, sizeof own), own, sizeof own);
        fakecuda_yield(k);
    }
}

/* mix(address and bytes of MOST_USES blocks, the first one is changed; their count, salt) */
static void kernel_mix(struct fakecuda_kernel *k)
{
    CUdeviceptr at[2 * MOST_USES];
    for (unsigned i = 0; i < 2 * MOST_USES; i++)
        at[i] = fakecuda_pointer(k, 8 * i);
    mix(k, at, fakecuda_word(k, 16 * MOST_USES), fakecuda_word(k, 16 * MOST_USES + 4));
}

/* The same, but the addresses are in a table in device memory: hidden(table, count, salt) */
static void kernel_hidden(struct fakecuda_kernel *k)
{
    CUdeviceptr at[2 * MOST_USES];
    memcpy(at, fakecuda_read(k, fakecuda_pointer(k, 0), sizeof at), sizeof at);
    mix(k, at, fakecuda_word(k, 8), fakecuda_word(k, 12));
}

static const unsigned short fill_sizes[] = {8, 8, 4};
static const unsigned short mix_sizes[] = {8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 4, 4};
static const unsigned short hidden_sizes[] = {8, 4, 4};
static const struct fakecuda_entry program_kernels[] = {{"fill", kernel_fill, 3, fill_sizes},
                                                        {"mix", kernel_mix, 18, mix_sizes},
                                                        {"hidden", kernel_hidden, 3, hidden_sizes}};
static const struct fakecuda_image program_image = {FAKECUDA_MAGIC, 3, program_kernels, 0, NULL};

/* ---- the program ----------------------------------------------------------------------------- */

struct shape { /* what programs are like */
    unsigned threads, streams, steps;
    uint64_t live_bytes; /* of a thread */
    uint64_t most_bytes; /* of a block */
    bool hidden;         /* addresses in tables */
    bool is_seen;        /* each table, when it is copied; otherwise one of four */
    bool async;          /* allocations and frees in streams */
    bool graphs, dies;   /* captures; streams that are destroyed */
    bool legacy;         /* the first stream is the legacy one, and others block with it */
};

struct item {
    CUdeviceptr address;
    uint64_t bytes;
    unsigned stream; /* that used it last */
    bool is_filled, is_table;
    uint32_t words[PLACES][WORDS];
};

struct actor {
    struct rig *rig;
    const struct shape *shape;
    uint64_t random;
    CUfunction fill, mix, hidden;
    CUstream streams[MOST_STREAMS];
    CUevent event;
    struct item items[MOST_BLOCKS];
    uint64_t live_bytes;
    uint32_t salt;
    unsigned ooms;
    CUgraphExec graph;
    unsigned graph_items[2];
    uint32_t graph_salt;
    uint64_t steps_done;
    pthread_t thread;
};

static inline uint32_t draw(struct actor *actor, uint32_t most)
{
    uint64_t x = actor->random += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return (uint32_t)((x ^ x >> 31) % most);
}

static inline CUstream stream_of(const struct actor *actor, unsigned stream)
{
    return actor->streams[stream];
}

/* Work in `stream` comes after all earlier work on the item. */
static void follow_item(struct actor *actor, struct item *item, unsigned stream)
{
    if (item->stream == stream)
        return;
    RIG_OK(actor->rig->driver.cuEventRecord(actor->event, stream_of(actor, item->stream)));
    RIG_OK(actor->rig->driver.cuStreamWaitEvent(stream_of(actor, stream), actor->event, 0));
    item->stream = stream;
}

static int pick(struct actor *actor, bool is_filled)
{
    for (unsigned tries = 0; tries < 3 * MOST_BLOCKS; tries++) {
        unsigned i = draw(actor, MOST_BLOCKS);
        struct item *item = &actor->items[i];
        if (item->address && item->is_filled == is_filled && !item->is_table)
            return (int)i;
    }
    return -1;
}

static void fill_item(struct actor *actor, struct item *item, unsigned stream)
{
    uint32_t salt = ++actor->salt;
    void *parameters[] = {&item->address, &item->bytes, &salt};
    struct ebb_cuda_use use = {item->address + draw(actor, (uint32_t)item->bytes), 0,
                               EBB_ACCESS_WRITE};
    follow_item(actor, item, stream);
    RIG_OK(
        rig_launch(actor->rig, actor->fill, stream_of(actor, stream), parameters, &use, 1, false));
    for (unsigned place = 0; place < PLACES; place++)
        for (unsigned i = 0; i < WORDS; i++)
            item->words[place][i] = filled(salt, place, i);
    item->is_filled = true;
}

static void do_alloc(struct actor *actor)
{
    static const uint64_t smallest = 3 * WORDS * 4 + 512;
    struct item *item = NULL;
    for (unsigned i = 0; i < MOST_BLOCKS && !item; i++)
        if (!actor->items[i].address)
            item = &actor->items[i];
    bool is_small = draw(actor, 3) == 0;
    uint64_t bytes = smallest + (is_small ? draw(actor, 300000)
                                          : draw(actor, (uint32_t)(actor->shape->most_bytes)));
    if (!item || actor->live_bytes + bytes > actor->shape->live_bytes)
        return;
    unsigned stream = draw(actor, actor->shape->streams);
    bool async = actor->shape->async && draw(actor, 2);
    CUdeviceptr address = 0;
    CUresult result = ebb__cuda_alloc(
        actor->rig->engine, bytes, async ? stream_of(actor, stream) : EBB_CUDA_NO_STREAM, &address);
    if (result != CUDA_SUCCESS) {
        RIG_MUST(result == CUDA_ERROR_OUT_OF_MEMORY);
        actor->ooms++;
        return;
    }
    RIG_MUST(address % 512 == 0);
    *item = (struct item){.address = address, .bytes = bytes, .stream = stream};
    actor->live_bytes += bytes;
    if (draw(actor, 4))
        fill_item(actor, item, stream);
}

static void drop_graph(struct actor *actor)
{
    if (actor->graph)
        RIG_OK(actor->rig->call.cuGraphExecDestroy(actor->graph));
    actor->graph = NULL;
}

static void free_item(struct actor *actor, struct item *item)
{
    unsigned stream = draw(actor, actor->shape->streams);
    bool async = actor->shape->async && draw(actor, 2);
    unsigned index = (unsigned)(item - actor->items);
    if (actor->graph && (actor->graph_items[0] == index || actor->graph_items[1] == index))
        drop_graph(actor);
    if (async)
        follow_item(actor, item, stream);
    RIG_MUST(ebb__cuda_free(actor->rig->engine, item->address,
                            async ? stream_of(actor, stream) : EBB_CUDA_NO_STREAM));
    actor->live_bytes -= item->bytes;
    *item = (struct item){0};
}

static void mix_words(struct item *to, const struct item *const *from, unsigned count,
                      uint32_t salt)
{
    for (unsigned place = 0; place < PLACES; place++) {
        for (unsigned j = 1; j < count; j++)
            for (unsigned i = 0; i < WORDS; i++)
                to->words[place][i] =
                    mixed(to->words[place][i], from[j]->words[place][i], salt + j);
        if (count == 1)
            for (unsigned i = 0; i < WORDS; i++)
                to->words[place][i] = mixed(to->words[place][i], to->words[place][i], salt);
    }
}

/* Items for one kernel: different ones, the first of which is changed. */
static unsigned choose(struct actor *actor, struct item **items, unsigned most)
{
    unsigned count = 0, wanted = 1 + draw(actor, most);
    for (unsigned tries = 0; count < wanted && tries < 2 * most; tries++) {
        int i = pick(actor, true);
        bool is_new = i >= 0;
        for (unsigned j = 0; j < count && is_new; j++)
            is_new = items[j] != &actor->items[i];
        if (is_new)
            items[count++] = &actor->items[i];
    }
    return count;
}

static void do_mix(struct actor *actor)
{
    struct item *items[MOST_USES];
    struct ebb_cuda_use uses[MOST_USES + 2];
    CUdeviceptr at[2 * MOST_USES] = {0};
    void *parameters[2 * MOST_USES + 2];
    unsigned stream = draw(actor, actor->shape->streams), count = choose(actor, items, MOST_USES);
    uint32_t salt = ++actor->salt;
    if (!count)
        return;
    for (unsigned i = 0; i < count; i++) {
        follow_item(actor, items[i], stream);
        at[2 * i] = items[i]->address;
        at[2 * i + 1] = items[i]->bytes;
        uses[i] = (struct ebb_cuda_use){items[i]->address, items[i]->bytes,
                                        i ? EBB_ACCESS_READ : EBB_ACCESS_UNKNOWN};
    }
    uses[count] = uses[0];                                    /* a duplicate */
    uses[count + 1] = (struct ebb_cuda_use){0x1234567, 0, 0}; /* an address of others */
    for (unsigned i = 0; i < 2 * MOST_USES; i++)
        parameters[i] = &at[i];
    parameters[2 * MOST_USES] = &count;
    parameters[2 * MOST_USES + 1] = &salt;
    RIG_OK(rig_launch(actor->rig, actor->mix, stream_of(actor, stream), parameters, uses, count + 2,
                      false));
    mix_words(items[0], (const struct item *const *)items, count, salt);
}

static void copy_in(struct actor *actor, struct item *item, const void *from, size_t bytes,
                    unsigned stream)
{
    struct ebb_cuda_use use = {item->address, bytes, EBB_ACCESS_WRITE};
    struct ebb_cuda_work work = {
        .kind = EBB_CUDA_COPY, .stream = stream_of(actor, stream), .uses = &use, .use_count = 1};
    follow_item(actor, item, stream);
    rig_begin(actor->rig, &work);
    CUresult result =
        actor->rig->call.cuMemcpyHtoDAsync_v2(item->address, from, bytes, stream_of(actor, stream));
    ebb__cuda_end(actor->rig->engine, &work, result == CUDA_SUCCESS);
    RIG_OK(result);
}

/* A kernel whose operands are in a table. Half of the tables are seen (payload of a copy). */
static void do_hidden(struct actor *actor)
{
    struct item *items[4], *table = NULL;
    CUdeviceptr at[2 * MOST_USES] = {0};
    unsigned stream = draw(actor, actor->shape->streams);
    uint32_t salt = ++actor->salt, count = choose(actor, items, 4);
    for (unsigned i = 0; i < MOST_BLOCKS && !table; i++)
        if (!actor->items[i].address)
            table = &actor->items[i];
    if (!count || !table)
        return;
    CUdeviceptr address;
    if (ebb__cuda_alloc(actor->rig->engine, sizeof at, EBB_CUDA_NO_STREAM, &address) !=
        CUDA_SUCCESS)
        return;
    *table =
        (struct item){.address = address, .bytes = sizeof at, .stream = stream, .is_table = true};
    for (unsigned i = 0; i < count; i++) {
        follow_item(actor, items[i], stream);
        at[2 * i] = items[i]->address;
        at[2 * i + 1] = items[i]->bytes;
    }
    copy_in(actor, table, at, sizeof at, stream);
    bool is_seen = draw(actor, 4) == 0 || actor->shape->is_seen;
    for (unsigned i = 0; is_seen && i < count; i++)
        ebb__cuda_reach(actor->rig->engine, items[i]->address);
    struct ebb_cuda_use use = {address, 0, EBB_ACCESS_UNKNOWN};
    void *parameters[] = {&address, &count, &salt};
    RIG_OK(rig_launch(actor->rig, actor->hidden, stream_of(actor, stream), parameters, &use, 1,
                      false));
    mix_words(items[0], (const struct item *const *)items, count, salt);
    RIG_MUST(ebb__cuda_free(actor->rig->engine, address, EBB_CUDA_NO_STREAM));
    *table = (struct item){0};
}

static void compare(struct actor *actor, const struct item *item, unsigned place,
                    const uint32_t *words)
{
    if (memcmp(words, item->words[place], sizeof item->words[place]) == 0)
        return;
    fprintf(stderr,
            "cuda_program: block %#llx of %llu bytes, place %u: %#x, not %#x, after %llu steps\n",
            item->address, (unsigned long long)item->bytes, place, words[0], item->words[place][0],
            (unsigned long long)actor->steps_done);
    abort();
}

static void check_item(struct actor *actor, struct item *item, unsigned stream)
{
    uint32_t words[WORDS];
    follow_item(actor, item, stream);
    for (unsigned place = 0; place < PLACES; place++) {
        CUdeviceptr from = place_of(item->address, item->bytes, place);
        struct ebb_cuda_use use = {from, sizeof words, EBB_ACCESS_READ};
        struct ebb_cuda_work work = {.kind = EBB_CUDA_COPY,
                                     .stream = stream_of(actor, stream),
                                     .uses = &use,
                                     .use_count = 1};
        rig_begin(actor->rig, &work);
        CUresult result = actor->rig->call.cuMemcpyDtoHAsync_v2(words, from, sizeof words,
                                                                stream_of(actor, stream));
        ebb__cuda_end(actor->rig->engine, &work, result == CUDA_SUCCESS);
        RIG_OK(result);
        RIG_OK(actor->rig->driver.cuStreamSynchronize(stream_of(actor, stream)));
        ebb__cuda_synchronized(actor->rig->engine, stream_of(actor, stream), false);
        compare(actor, item, place, words);
    }
}

static void do_check(struct actor *actor)
{
    int i = pick(actor, true);
    if (i >= 0)
        check_item(actor, &actor->items[i], draw(actor, actor->shape->streams));
}

/* A graph of one kernel, launched at times until one of its blocks is freed. */
static void do_graph(struct actor *actor)
{
    struct rig *rig = actor->rig;
    struct item *items[2];
    unsigned stream = actor->shape->streams - 1;
    CUgraph graph;
    drop_graph(actor);
    unsigned count = choose(actor, items, 2);
    if (!count || actor->shape->legacy)
        return;
    CUdeviceptr at[2 * MOST_USES] = {0};
    void *parameters[2 * MOST_USES + 2];
    struct ebb_cuda_use uses[2];
    actor->graph_salt = ++actor->salt;
    for (unsigned i = 0; i < count; i++) {
        at[2 * i] = items[i]->address;
        at[2 * i + 1] = items[i]->bytes;
        uses[i] = (struct ebb_cuda_use){items[i]->address, 0, EBB_ACCESS_UNKNOWN};
        actor->graph_items[i] = (unsigned)(items[i] - actor->items);
    }
    if (count == 1)
        actor->graph_items[1] = actor->graph_items[0];
    for (unsigned i = 0; i < 2 * MOST_USES; i++)
        parameters[i] = &at[i];
    parameters[2 * MOST_USES] = &count;
    parameters[2 * MOST_USES + 1] = &actor->graph_salt;
    RIG_OK(rig->call.cuStreamBeginCapture_v2(stream_of(actor, stream),
                                             draw(actor, 2) ? CU_STREAM_CAPTURE_MODE_GLOBAL
                                                            : CU_STREAM_CAPTURE_MODE_RELAXED));
    RIG_OK(rig_launch(rig, actor->mix, stream_of(actor, stream), parameters, uses, count, true));
    if (actor->shape->threads == 1 && draw(actor, 2)) { /* other calls during the capture */
        CUdeviceptr address;
        if (ebb__cuda_alloc(rig->engine, 3 << 20, EBB_CUDA_NO_STREAM, &address) == CUDA_SUCCESS)
            RIG_MUST(ebb__cuda_free(rig->engine, address, EBB_CUDA_NO_STREAM));
    }
    RIG_OK(rig->call.cuStreamEndCapture(stream_of(actor, stream), &graph));
    RIG_OK(rig->call.cuGraphInstantiateWithFlags(&actor->graph, graph, 0));
    RIG_OK(rig->call.cuGraphDestroy(graph));
}

static void launch_graph(struct actor *actor)
{
    struct item *items[2] = {&actor->items[actor->graph_items[0]],
                             &actor->items[actor->graph_items[1]]};
    unsigned count = items[0] == items[1] ? 1 : 2, stream = draw(actor, actor->shape->streams);
    struct ebb_cuda_use uses[2];
    if (!actor->graph)
        return;
    for (unsigned i = 0; i < count; i++) {
        follow_item(actor, items[i], stream);
        uses[i] = (struct ebb_cuda_use){items[i]->address, 0, EBB_ACCESS_UNKNOWN};
    }
    struct ebb_cuda_work work = {.kind = EBB_CUDA_GRAPH,
                                 .stream = stream_of(actor, stream),
                                 .uses = uses,
                                 .use_count = count};
    rig_begin(actor->rig, &work);
    CUresult result = actor->rig->call.cuGraphLaunch(actor->graph, stream_of(actor, stream));
    ebb__cuda_end(actor->rig->engine, &work, result == CUDA_SUCCESS);
    RIG_OK(result);
    mix_words(items[0], (const struct item *const *)items, count, actor->graph_salt);
}

static void make_stream(struct actor *actor, unsigned stream)
{
    bool blocks = actor->shape->legacy && stream != 2; /* both kinds beside the legacy stream */
    if (actor->shape->legacy && stream == 0)
        actor->streams[0] = actor == actor->rig->module_owner ? NULL : CU_STREAM_LEGACY;
    else
        RIG_OK(actor->rig->driver.cuStreamCreate(&actor->streams[stream],
                                                 blocks ? 0 : CU_STREAM_NON_BLOCKING));
}

/* A stream goes while it has work, and another takes its place. */
static void replace_stream(struct actor *actor)
{
    unsigned stream = draw(actor, actor->shape->streams);
    unsigned other = (stream + 1) % actor->shape->streams;
    if (actor->shape->streams == 1 || (actor->shape->legacy && stream == 0))
        return;
    RIG_OK(actor->rig->driver.cuEventRecord(actor->event, stream_of(actor, stream)));
    RIG_OK(actor->rig->driver.cuStreamWaitEvent(stream_of(actor, other), actor->event, 0));
    for (unsigned i = 0; i < MOST_BLOCKS; i++)
        if (actor->items[i].address && actor->items[i].stream == stream)
            actor->items[i].stream = other;
    ebb__cuda_stream_ends(actor->rig->engine, stream_of(actor, stream));
    RIG_OK(actor->rig->driver.cuStreamDestroy_v2(stream_of(actor, stream)));
    make_stream(actor, stream);
}

static void do_step(struct actor *actor)
{
    const struct shape *shape = actor->shape;
    unsigned what = draw(actor, 100);
    int i;
    if (what < 22) {
        do_alloc(actor);
    } else if (what < 36) {
        if ((i = pick(actor, draw(actor, 8) > 0)) >= 0)
            free_item(actor, &actor->items[i]);
    } else if (what < 42) {
        if ((i = pick(actor, false)) >= 0)
            fill_item(actor, &actor->items[i], draw(actor, shape->streams));
    } else if (what < 84) {
        do_mix(actor);
    } else if (what < 90) {
        do_check(actor);
    } else if (what < 94 && shape->hidden) {
        do_hidden(actor);
    } else if (what < 96 && shape->graphs) {
        do_graph(actor);
    } else if (what < 98 && shape->graphs) {
        launch_graph(actor);
    } else if (what < 99 && shape->dies) {
        replace_stream(actor);
    }
}

static void *act(void *context)
{
    struct actor *actor = context;
    RIG_OK(actor->rig->call.cuCtxSetCurrent(actor->rig->config.context));
    while (actor->rig->driver.cuEventCreate(&actor->event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
        ; /* a planted fault is for the engine */
    for (unsigned i = 0; i < actor->shape->streams; i++)
        make_stream(actor, i);
    for (; actor->steps_done < actor->shape->steps; actor->steps_done++)
        do_step(actor);
    drop_graph(actor);
    for (unsigned i = 0; i < MOST_BLOCKS; i++) {
        struct item *item = &actor->items[i];
        if (item->address && item->is_filled)
            check_item(actor, item, 0);
        if (item->address)
            free_item(actor, item);
    }
    return NULL;
}

/* Runs the program to its end: aborts if a byte is wrong. Returns how often memory was out. */
static inline unsigned program_run(struct rig *rig, const struct shape *shape, uint64_t seed)
{
    struct actor *actors = calloc(shape->threads, sizeof *actors);
    unsigned ooms = 0;
    RIG_MUST(actors);
    rig->module_owner = actors;
    RIG_OK(rig->call.cuModuleLoadData(&rig->module, &program_image));
    for (unsigned i = 0; i < shape->threads; i++) {
        actors[i].rig = rig;
        actors[i].shape = shape;
        actors[i].random = seed * 1000 + i;
        actors[i].fill = rig_function(rig, "fill");
        actors[i].mix = rig_function(rig, "mix");
        actors[i].hidden = rig_function(rig, "hidden");
        if (i > 0)
            RIG_MUST(pthread_create(&actors[i].thread, NULL, act, &actors[i]) == 0);
    }
    act(&actors[0]);
    for (unsigned i = 1; i < shape->threads; i++)
        pthread_join(actors[i].thread, NULL);
    RIG_OK(rig->call.cuCtxSynchronize()); /* with the engine, what is queued would lose its waits */
    for (unsigned i = 0; i < shape->threads; i++)
        ooms += actors[i].ooms;
    free(actors);
    return ooms;
}

#endif
