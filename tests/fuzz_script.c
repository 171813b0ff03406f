/* Fuzzes the runtime's reader of scripts. An input changes words of a script that was compiled for
 * a small training, so that most of the script stays valid. A script that is accepted is then
 * prepared and read at every index, like in the runtime. */
#include "cuda/follow.h"
#include "fuzz.h"
#include "plan/request/compile.h"
#include "runtime/replay/replay.h"
#include "synthetic.h"

#include <string.h>
#include <sys/mman.h>

/* One change: the position of a 32-bit word, the operation, and the operand. */
#define CHANGE_BYTES 7u

/* announced: the program announces its uses, which are clock events then. */
static struct ebb_script *compile(bool announced)
{
    struct ebb_model model = make_training(4, 64 * EBB_MIB, 10000000, 1);
    for (uint32_t tick = 0; announced && tick < model.tick_count; tick++) {
        model.clock_count += !model.events[tick].clock;
        model.events[tick].clock = true;
    }
    struct ebb_plan_request request = {.model = &model,
                                       .machine = fuzz_machine(),
                                       .budget_bytes = model.peak_bytes / 2,
                                       .page_bytes = 4096,
                                       .smallest_block_bytes = 4096,
                                       .newest_only = true};
    struct ebb_plan plan;
    struct ebb_places places;
    struct ebb_script *script;
    FUZZ_REQUIRE(ebb__plan_make(ebb__plan_policy("fifo"), &request, &plan, NULL) == EBB_OK &&
                 plan.absence_count);
    FUZZ_REQUIRE(ebb__place_blocks(&request, &plan, &places, NULL) == EBB_OK && places.count);
    FUZZ_REQUIRE(ebb__compile_script(&model, &plan, &places, &script) == EBB_OK);
    FUZZ_REQUIRE(ebb__script_valid(script, script->bytes));
    ebb__places_fini(&places);
    ebb__plan_fini(&plan);
    ebb__model_fini(&model);
    return script;
}

static void change(struct ebb_script *script, uint64_t bytes, const uint8_t *code)
{
    uint32_t words = (uint32_t)(bytes / 4), operand;
    uint32_t at = code[0] | (uint32_t)code[1] << 8;
    uint32_t head = sizeof *script / 4;
    memcpy(&operand, code + 3, sizeof operand);
    at %= code[2] & 1 ? head : words; /* the header is small and matters most, so change it often */
    uint32_t *word = (uint32_t *)(void *)script + at;
    switch (code[2] / 2 % 3) {
    case 0:
        *word = operand;
        break;
    case 1:
        *word += operand % 64 - 32;
        break;
    default:
        *word ^= (uint32_t)1 << operand % 32;
    }
}

static void replay_script(const struct ebb_script *script)
{
    static struct core core;
    static struct table table = {.core = &core};
    static struct addresses addresses = {.core = &core, .table = &table};
    static struct replay replay = {.core = &core, .table = &table, .addresses = &addresses};
    static struct block block;
    struct prepared_script prepared = {0};
    addresses.placement.units_total = 1024;
    FUZZ_REQUIRE(ebb__replay_prepare(&replay, &prepared, script));
    FUZZ_REQUIRE(prepared.unit_count <= addresses.placement.units_total);
    for (uint32_t unit = 0; unit < prepared.unit_count; unit++)
        for (uint32_t i = prepared.unit_first[unit]; i < prepared.unit_first[unit + 1]; i++)
            FUZZ_REQUIRE(prepared.unit_covers[i] < script->clock_count);
    const struct ebb_script_block *blocks = ebb__script_blocks(script);
    for (uint32_t i = 0; i < script->persistent_count; i++) {
        const struct ebb_renaming other = {blocks[i].serial, blocks[i].serial + 1};
        uint32_t found = ebb__names_persistent(&prepared.names, prepared.script, blocks[i].serial,
                                               blocks[i].size_bytes);
        FUZZ_REQUIRE(found == EBB_SCRIPT_NONE || found < script->persistent_count);
        FUZZ_REQUIRE(ebb__renamed(&other, 1, blocks[i].serial) == other.to);
    }
    replay.current = &prepared;
    const struct ebb_script_event *events = ebb__script_events(script);
    for (uint32_t i = 0; i < script->clock_count; i++) {
        replay.position = i;
        uint32_t ahead = ebb__replay_next_alloc(&replay, events[i].size_bytes);
        FUZZ_REQUIRE(ahead == UINT32_MAX || ahead < 2 * script->clock_count);
        block.script_block = events[i].block;
        bool done;
        uint64_t distance = ebb__replay_distance(&replay, &block, &done);
        FUZZ_REQUIRE(distance >> 32 <= script->clock_count || distance == UINT64_MAX);
        for (uint32_t a = prepared.out_first[i], steps = 0; a != EBB_SCRIPT_NONE; steps++) {
            FUZZ_REQUIRE(a < script->absence_count && steps < script->absence_count);
            a = prepared.out_next[a];
        }
    }
    munmap(prepared.tables, prepared.table_bytes);
}

/* Follows the script's own events, so that it is found, and passes all of it. */
static void follow_script(const struct ebb_script *script, uint64_t bytes)
{
    enum { FOLLOWED = 4096 };
    const struct ebb_script_event *events = ebb__script_events(script);
    struct ebb_cuda_follow *follow = ebb__follow_create(FOLLOWED);
    FUZZ_REQUIRE(follow);
    if (ebb__follow_set_script(follow, script, bytes) == EBB_OK)
        for (uint64_t i = 0; i < 3 * (uint64_t)script->clock_count && i < 100000; i++) {
            const struct ebb_script_event *event = &events[i % script->clock_count];
            uint32_t block = event->block % FOLLOWED;
            const struct cuda_event happened = {
                .kind = (uint8_t)event->kind,
                .block = block,
                .serial = 1 + ebb__script_blocks(script)[event->block].serial,
                .bytes = event->size_bytes};
            const struct cuda_action *actions;
            uint64_t placement_bytes;
            size_t count = ebb__follow_step(follow, &happened, &actions);
            for (size_t k = 0; k < count; k++)
                FUZZ_REQUIRE(actions[k].block < FOLLOWED);
            uint64_t next = ebb__follow_next_use(follow, block);
            FUZZ_REQUIRE(next < script->clock_count || next >= CUDA_FREED_BEFORE);
            ebb__follow_place(follow, event->size_bytes, &placement_bytes);
        }
    ebb__follow_destroy(follow);
}

static void try(const struct ebb_script *whole, const uint8_t *data, size_t size)
{
    uint64_t bytes = whole->bytes;
    struct ebb_script *script = malloc(bytes);
    FUZZ_REQUIRE(script);
    memcpy(script, whole, bytes);
    for (size_t at = 0; at + CHANGE_BYTES <= size; at += CHANGE_BYTES)
        change(script, bytes, data + at);
    if (ebb__script_valid(script, bytes)) {
        replay_script(script);
        follow_script(script, bytes);
    }
    for (uint64_t cut = bytes; cut > 0 && size % CHANGE_BYTES; cut /= 2)
        if (cut < sizeof *script)
            FUZZ_REQUIRE(!ebb__script_valid(script, cut - 1));
    free(script);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct ebb_script *whole[2];
    for (int announced = 0; announced < 2; announced++) {
        if (!whole[announced])
            whole[announced] = compile(announced);
        try(whole[announced], data, size);
    }
    return 0;
}
