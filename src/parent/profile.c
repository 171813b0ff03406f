/* Writes a profile: a header with the program's key, then a body compressed by zstd. Both have a
 * checksum. If a struct of the model gains a member, the body must gain it, too. The assertions
 * below enforce that. */
#include "parent/profile.h"

#include "parent/profile_format.h"
#include "trace/codec.h"

#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#define COMPRESSION_LEVEL 3 /* the same as for traces */

_Static_assert(sizeof(struct ebb_model_event) == 8, "a new member belongs into the profile");
_Static_assert(sizeof(struct ebb_model_block) == 56, "a new member belongs into the profile");
_Static_assert(sizeof(struct ebb_model_access) == 8, "a new member belongs into the profile");
_Static_assert(sizeof(struct ebb_machine) == 104, "a new member belongs into the profile");

uint64_t ebb__profile_store_id(const char *directory)
{
    return ebb__trace_checksum(directory ? directory : "", directory ? strlen(directory) : 0);
}

void ebb__profile_fini(struct ebb_profile *profile)
{
    for (uint32_t i = 0; i < profile->iteration_count; i++)
        ebb__model_fini(&profile->iterations[i].model);
    memset(profile, 0, sizeof *profile);
}

void ebb__profile_add(struct ebb_profile *profile, struct ebb_model *model, uint64_t first_serial)
{
    uint32_t at = 0, count = profile->iteration_count;
    while (at < count && (profile->iterations[at].first_serial != first_serial ||
                          profile->iterations[at].model.tick_count != model->tick_count))
        at++;
    if (at == count && count == EBB_PROFILE_ITERATIONS)
        at = 0;
    if (at < count) {
        ebb__model_fini(&profile->iterations[at].model);
        memmove(&profile->iterations[at], &profile->iterations[at + 1],
                (count - at - 1) * sizeof profile->iterations[0]);
        count--;
    }
    profile->iterations[count] =
        (struct ebb_profile_iteration){.model = *model, .first_serial = first_serial};
    profile->iteration_count = count + 1;
    memset(model, 0, sizeof *model);
}

static uint8_t *put8(uint8_t *out, uint8_t value)
{
    *out = value;
    return out + 1;
}

static uint8_t *put32(uint8_t *out, uint32_t value)
{
    ebb__put_le32(out, value);
    return out + 4;
}

static uint8_t *put64(uint8_t *out, uint64_t value)
{
    ebb__put_le64(out, value);
    return out + 8;
}

static uint8_t *put_double(uint8_t *out, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return put64(out, bits);
}

static uint8_t *put_machine(uint8_t *out, const struct ebb_machine *machine)
{
    const struct ebb_transfer_costs *costs = &machine->costs;
    memset(out, 0, sizeof machine->name);
    memcpy(out, machine->name, strnlen(machine->name, sizeof machine->name - 1));
    out += sizeof machine->name;
    out = put64(put_double(out, machine->out.ns_per_byte), machine->out.fixed_ns);
    out = put64(put_double(out, machine->in.ns_per_byte), machine->in.fixed_ns);
    out = put_double(put_double(out, costs->huge_page_ns), costs->small_page_ns);
    return put64(put_double(out, costs->ns_per_byte), costs->fixed_ns);
}

static uint64_t iteration_bytes(const struct ebb_model *model)
{
    return 8 + 4 + 4 + 1 + 8 + (uint64_t)model->tick_count * (EBB_PROFILE_EVENT_BYTES + 8) + 8 +
           (uint64_t)model->block_count * EBB_PROFILE_BLOCK_BYTES +
           (uint64_t)model->access_count * EBB_PROFILE_ACCESS_BYTES + 4 +
           (uint64_t)model->mark_count * EBB_PROFILE_MARK_BYTES;
}

static uint8_t *put_iteration(uint8_t *out, const struct ebb_profile_iteration *iteration)
{
    const struct ebb_model *model = &iteration->model;
    out = put64(out, iteration->first_serial);
    out = put32(put32(out, model->tick_count), model->block_count);
    out = put8(out, (uint8_t)((model->has_accesses ? EBB_PROFILE_HAS_ACCESSES : 0) |
                              (model->unordered ? EBB_PROFILE_UNORDERED : 0)));
    out = put64(out, model->slack_bytes);
    for (uint32_t i = 0; i < model->tick_count; i++) {
        const struct ebb_model_event *event = &model->events[i];
        out = put32(out, event->block);
        out = put8(put8(out, event->kind), event->access);
        out = put8(put8(out, event->mark), event->clock);
    }
    for (uint32_t i = 0; i <= model->tick_count; i++)
        out = put64(out, model->time_ns[i]);
    for (uint32_t i = 0; i < model->block_count; i++) {
        const struct ebb_model_block *block = &model->blocks[i];
        out = put64(put64(out, block->serial), block->size_bytes);
        out = put64(out, block->allocated_bytes);
        out = put32(put32(out, block->part_first), block->part_count);
        out = put32(put32(out, block->alloc_tick), block->free_tick);
        out = put32(put32(out, block->span_ticks), block->access_count);
        out = put8(out, block->varies);
    }
    for (uint32_t i = 0; i < model->block_count; i++) {
        const struct ebb_model_block *block = &model->blocks[i];
        for (uint32_t k = 0; k < block->access_count; k++) {
            const struct ebb_model_access *access = &model->accesses[block->first_access + k];
            out = put32(out, access->tick);
            out = put8(out, (uint8_t)(access->access | (access->held ? EBB_PROFILE_HELD : 0)));
        }
    }
    out = put32(out, model->mark_count);
    for (uint32_t i = 0; i < model->mark_count; i++)
        out = put32(put32(out, model->marks[i].tick), model->marks[i].value);
    return out;
}

enum ebb_status ebb__profile_encode(const struct ebb_profile *profile, struct ebb_profile_key key,
                                    uint8_t **bytes, size_t *size)
{
    uint64_t body_bytes = 3 * 8 + sizeof profile->machine.name + 8 * 8 + 1 + 4;
    for (uint32_t i = 0; i < profile->iteration_count; i++)
        body_bytes += iteration_bytes(&profile->iterations[i].model);
    size_t packed_capacity = ZSTD_compressBound((size_t)body_bytes);
    uint8_t *body = malloc((size_t)body_bytes),
            *made = malloc(EBB_PROFILE_HEADER_BYTES + packed_capacity);
    if (!body || !made || body_bytes > EBB_PROFILE_MOST_BODY_BYTES) {
        free(body);
        free(made);
        return EBB_ERR_MEMORY;
    }
    uint8_t *out = put64(body, profile->unmanaged_peak_bytes);
    out = put64(put64(out, profile->small_bytes), profile->store_id);
    out = put8(put_machine(out, &profile->machine),
               (uint8_t)(profile->machine.duplex | profile->compressed << 1));
    out = put32(out, profile->iteration_count);
    for (uint32_t i = 0; i < profile->iteration_count; i++)
        out = put_iteration(out, &profile->iterations[i]);
    size_t packed = ZSTD_compress(made + EBB_PROFILE_HEADER_BYTES, packed_capacity, body,
                                  (size_t)(out - body), COMPRESSION_LEVEL);
    body_bytes = (uint64_t)(out - body);
    free(body);
    if (ZSTD_isError(packed)) {
        free(made);
        return EBB_ERR_MEMORY;
    }
    memcpy(made, EBB_PROFILE_MAGIC, EBB_PROFILE_MAGIC_BYTES);
    out = put32(put32(made + EBB_PROFILE_MAGIC_BYTES, EBB_PROFILE_MAJOR), 0);
    out = put64(put64(out, key.words[0]), key.words[1]);
    out = put64(put64(out, key.program[0]), key.program[1]);
    out = put64(put64(out, body_bytes), packed);
    out = put64(out, ebb__trace_checksum(made + EBB_PROFILE_HEADER_BYTES, packed));
    put64(out, ebb__trace_checksum(made, EBB_PROFILE_HEADER_BYTES - 8));
    *bytes = made;
    *size = EBB_PROFILE_HEADER_BYTES + packed;
    return EBB_OK;
}
