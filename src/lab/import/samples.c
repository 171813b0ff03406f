#include "lab/import/samples.h"

#include "base/map.h"
#include "base/size.h"
#include "lab/import/events.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICE_LIMIT = 256 }; /* arbitrary: more than any process has */

void ebb__samples_init(struct ebb_samples *samples, struct ebb_import_request *request,
                       const char *unit, struct ebb_error *error)
{
    *samples = (struct ebb_samples){.request = request, .unit = unit, .error = error};
}

void ebb__samples_fini(struct ebb_samples *samples)
{
    ebb_vec_free(&samples->samples);
    ebb_vec_free(&samples->devices);
}

static enum ebb_status fail_memory(struct ebb_samples *samples)
{
    return ebb__fail(samples->error, EBB_ERR_MEMORY, samples->request->name,
                     "no memory for its events");
}

enum ebb_status ebb__samples_device(struct ebb_samples *samples, const char *process,
                                    const char *name, uint32_t *device)
{
    struct ebb_sample_device wanted = {.count = 0};
    snprintf(wanted.process, sizeof wanted.process, "%s", process);
    snprintf(wanted.name, sizeof wanted.name, "%s", name);
    for (size_t i = 0; i < samples->devices.count; i++) {
        const struct ebb_sample_device *known = &samples->devices.items[i];
        if (strcmp(known->process, wanted.process) == 0 && strcmp(known->name, wanted.name) == 0) {
            *device = (uint32_t)i;
            return EBB_OK;
        }
    }
    if (samples->devices.count == DEVICE_LIMIT)
        return ebb__fail(samples->error, EBB_ERR_FORMAT, samples->request->name,
                         "has memory events of more than %d devices", DEVICE_LIMIT);
    *device = (uint32_t)samples->devices.count;
    return ebb_vec_push(&samples->devices, wanted) ? EBB_OK : fail_memory(samples);
}

enum ebb_status ebb__samples_add(struct ebb_samples *samples, const struct ebb_sample *sample)
{
    if (sample->kind != EBB_SAMPLE_ITERATION)
        samples->devices.items[sample->device].count++;
    return ebb_vec_push(&samples->samples, *sample) ? EBB_OK : fail_memory(samples);
}

/* The name by which a user chooses a device. The process is in it if there are several. */
static const char *label(const struct ebb_samples *samples, size_t device, char out[100])
{
    const struct ebb_sample_device *own = &samples->devices.items[device];
    bool several = false;
    for (size_t i = 0; i < samples->devices.count && !several; i++)
        several = samples->devices.items[i].count &&
                  strcmp(samples->devices.items[i].process, own->process) != 0;
    snprintf(out, 100, "%s%s%s", several ? own->process : "", several ? "/" : "", own->name);
    return out;
}

/* Lists all devices that have memory events, as far as `out` holds them. */
static void list_devices(const struct ebb_samples *samples, char *out, size_t size)
{
    size_t used = 0, left = 0;
    char name[100], part[140];
    *out = 0;
    for (size_t i = 0; i < samples->devices.count; i++) {
        if (!samples->devices.items[i].count)
            continue;
        int length = snprintf(part, sizeof part, "%s%s (%" PRIu64 " events)", used ? ", " : "",
                              label(samples, i, name), samples->devices.items[i].count);
        if (left || used + (size_t)length + 16 > size) {
            left++;
            continue;
        }
        memcpy(out + used, part, (size_t)length + 1);
        used += (size_t)length;
    }
    if (left)
        snprintf(out + used, size - used, ", and %zu more", left);
}

/* Sets *chosen to the requested device, or the only one. */
static enum ebb_status choose_device(const struct ebb_samples *samples, const char *no_samples,
                                     uint32_t *chosen)
{
    const struct ebb_import_request *request = samples->request;
    size_t count = 0;
    char name[100], all[180];
    for (size_t i = 0; i < samples->devices.count; i++) {
        if (!samples->devices.items[i].count)
            continue;
        if (request->device && strcmp(label(samples, i, name), request->device) == 0) {
            *chosen = (uint32_t)i;
            return EBB_OK;
        }
        if (!count++)
            *chosen = (uint32_t)i;
    }
    if (!count)
        return ebb__fail(samples->error, EBB_ERR_FORMAT, request->name, "%s", no_samples);
    list_devices(samples, all, sizeof all);
    if (request->device)
        return ebb__fail(samples->error, EBB_ERR_ARGUMENT, request->name,
                         "has no device '%.40s'; it has %s", request->device, all);
    if (count == 1)
        return EBB_OK;
    ebb__fail(samples->error, EBB_ERR_UNSUPPORTED, request->name, "has several devices: %s", all);
    if (samples->error)
        ebb__error_set_remedy(samples->error,
                              "choose one: 'ebb import KIND IN -o FILE --device %s'",
                              label(samples, *chosen, name));
    return EBB_ERR_UNSUPPORTED;
}

/* Keeps the samples of the device and its process, in the order of the file. */
static void keep_device(struct ebb_samples *samples, uint32_t device)
{
    const char *process = samples->devices.items[device].process;
    size_t kept = 0;
    for (size_t i = 0; i < samples->samples.count; i++) {
        const struct ebb_sample *sample = &samples->samples.items[i];
        bool own = sample->kind == EBB_SAMPLE_ITERATION
                       ? !strcmp(samples->devices.items[sample->device].process, process)
                       : sample->device == device;
        if (own)
            samples->samples.items[kept++] = *sample;
    }
    samples->samples.count = kept;
}

static int compare_times(const void *a, const void *b)
{
    const struct ebb_sample *left = a, *right = b;
    if (left->time_ns != right->time_ns)
        return left->time_ns < right->time_ns ? -1 : 1;
    return left->place < right->place ? -1 : left->place > right->place;
}

/* Number of samples whose total does not follow from the one before. */
static size_t count_jumps(const struct ebb_samples *samples)
{
    uint64_t total = EBB_SAMPLE_TOTAL_UNKNOWN;
    size_t jumps = 0;
    for (size_t i = 0; i < samples->samples.count; i++) {
        const struct ebb_sample *s = &samples->samples.items[i];
        if (s->kind == EBB_SAMPLE_ITERATION)
            continue;
        uint64_t next =
            s->kind == EBB_SAMPLE_ALLOC ? total + s->counted_bytes : total - s->counted_bytes;
        jumps += total != EBB_SAMPLE_TOTAL_UNKNOWN && s->total_bytes != next;
        total = s->total_bytes;
    }
    return jumps;
}

/* Number of samples before which the clock of their own thread went back; *first is the first one's
 * place. Samples of different threads may be in any order. SIZE_MAX: out of memory. */
static size_t count_steps_back(const struct ebb_samples *samples, uint64_t *first)
{
    struct ebb_map times = {0};
    size_t steps = 0;
    for (size_t i = 0; i < samples->samples.count; i++) {
        const struct ebb_sample *s = &samples->samples.items[i];
        uint64_t last;
        if (s->kind == EBB_SAMPLE_ITERATION) /* has its place by another list */
            continue;
        if (ebb__map_get(&times, s->thread, &last) && s->time_ns < last && !steps++)
            *first = s->place;
        if (!ebb__map_put(&times, s->thread, s->time_ns)) {
            steps = SIZE_MAX;
            break;
        }
    }
    ebb__map_fini(&times);
    return steps;
}

/* Brings the samples into order of time. If a clock went back and the profiler's totals follow the
 * order of the file better, that order stays. */
static enum ebb_status sort(struct ebb_samples *samples)
{
    uint64_t first = 0;
    size_t steps = count_steps_back(samples, &first), count = samples->samples.count;
    if (steps == SIZE_MAX)
        return fail_memory(samples);
    size_t jumps = steps ? count_jumps(samples) : 0;
    struct ebb_sample *as_in_file = steps ? malloc(count * sizeof *as_in_file) : NULL;
    if (steps && !as_in_file)
        return fail_memory(samples);
    if (steps)
        memcpy(as_in_file, samples->samples.items, count * sizeof *as_in_file);
    qsort(samples->samples.items, count, sizeof *samples->samples.items, compare_times);
    bool stays = steps && count_jumps(samples) > jumps;
    if (stays)
        memcpy(samples->samples.items, as_in_file, count * sizeof *as_in_file);
    free(as_in_file);
    if (steps)
        ebb__import_note(samples->request,
                         "times at which the clock goes back: %zu, the first at %s %" PRIu64
                         "; the order is that of %s",
                         steps, samples->unit, first,
                         stays ? "the file, by the profiler's totals" : "the times");
    return EBB_OK;
}

/* One kind of contradiction: how often, and where first. */
struct misfit {
    size_t count;
    uint64_t place, address;
};

struct replay {
    struct ebb_samples *samples;
    struct ebb_import_events events;
    struct ebb_map live; /* address -> bytes that the total counts, and 1; 0: freed */
    size_t older_count;  /* blocks that are older than the window */
    uint64_t older_bytes, older_counted_bytes;
    uint64_t base_bytes; /* the profiler's total at the start */
    uint64_t most_bytes; /* its highest total */
    bool has_totals;
    int64_t load_bytes, peak_bytes; /* relative to the start */
    struct misfit lost_frees, stray_frees, other_sizes;
};

static void note_misfit(struct misfit *misfit, const struct ebb_sample *sample)
{
    if (misfit->count++)
        return;
    misfit->place = sample->place;
    misfit->address = sample->address;
}

static enum ebb_status replay_alloc(struct replay *r, const struct ebb_sample *s)
{
    uint64_t live;
    enum ebb_status status = EBB_OK;
    if (s->counted_bytes > EBB_EVENT_SIZE_LIMIT)
        return ebb__import_fail(&r->events, "a block of %" PRIu64 " bytes is impossibly large",
                                s->counted_bytes);
    if (ebb__map_get(&r->live, s->address, &live) && live) {
        note_misfit(&r->lost_frees, s);
        r->load_bytes -= (int64_t)(live - 1);
        status = ebb__import_free(&r->events, s->address, EBB_IMPORT_SIZE_UNKNOWN);
    }
    if (!status)
        status = ebb__import_alloc(&r->events, s->address, s->size_bytes);
    if (status)
        return status;
    r->load_bytes += (int64_t)s->counted_bytes;
    if (r->load_bytes > r->peak_bytes)
        r->peak_bytes = r->load_bytes;
    return ebb__map_put(&r->live, s->address, s->counted_bytes + 1) ? EBB_OK
                                                                    : fail_memory(r->samples);
}

/* The free of a block that was allocated before the window. */
static enum ebb_status replay_older(struct replay *r, const struct ebb_sample *s)
{
    enum ebb_status status = ebb__import_free(&r->events, s->address, s->size_bytes);
    if (status)
        return status;
    if (r->older_counted_bytes > INT64_MAX / 4 || s->counted_bytes > EBB_EVENT_SIZE_LIMIT)
        return ebb__import_fail(&r->events, "all blocks together are impossibly large");
    r->older_count++;
    r->older_bytes += s->size_bytes;
    r->older_counted_bytes += s->counted_bytes;
    r->load_bytes -= (int64_t)s->counted_bytes;
    return EBB_OK;
}

static enum ebb_status replay_free(struct replay *r, const struct ebb_sample *s)
{
    uint64_t live;
    bool known = ebb__map_get(&r->live, s->address, &live);
    enum ebb_status status = EBB_OK;
    if (known && !live) {
        note_misfit(&r->stray_frees, s);
        return EBB_OK;
    }
    if (!known) {
        status = replay_older(r, s);
    } else {
        status = ebb__import_free(&r->events, s->address, EBB_IMPORT_SIZE_UNKNOWN);
        r->load_bytes -= (int64_t)(live - 1);
        if (live - 1 != s->counted_bytes)
            note_misfit(&r->other_sizes, s);
    }
    if (status)
        return status;
    return ebb__map_put(&r->live, s->address, 0) ? EBB_OK : fail_memory(r->samples);
}

static void follow_total(struct replay *r, const struct ebb_sample *s)
{
    if (s->total_bytes == EBB_SAMPLE_TOTAL_UNKNOWN)
        return;
    if (!r->has_totals) {
        r->base_bytes = s->total_bytes;
        if (s->kind == EBB_SAMPLE_FREE)
            r->base_bytes += s->counted_bytes;
        else
            r->base_bytes -= s->counted_bytes < s->total_bytes ? s->counted_bytes : s->total_bytes;
        r->most_bytes = r->base_bytes;
        r->has_totals = true;
    }
    if (s->total_bytes > r->most_bytes)
        r->most_bytes = s->total_bytes;
}

static enum ebb_status replay(struct replay *r)
{
    enum ebb_status status = EBB_OK;
    for (size_t i = 0; i < r->samples->samples.count && !status; i++) {
        const struct ebb_sample *s = &r->samples->samples.items[i];
        r->events.place = s->place;
        r->events.time = s->time_ns;
        r->events.thread = s->thread;
        if (s->kind == EBB_SAMPLE_ITERATION) {
            status = ebb__import_mark(&r->events, EBB_MARK_ITERATION, 0);
            continue;
        }
        follow_total(r, s);
        status = s->kind == EBB_SAMPLE_ALLOC ? replay_alloc(r, s) : replay_free(r, s);
    }
    return status;
}

static void say_misfit(struct replay *r, const struct misfit *misfit, const char *what)
{
    if (misfit->count)
        ebb__import_note(r->samples->request,
                         "%s: %zu, the first at %s %" PRIu64 ", address %#" PRIx64, what,
                         misfit->count, r->samples->unit, misfit->place, misfit->address);
}

/* Says what is not in the window, and whether the profiler's own totals agree with the events. */
static void say(struct replay *r)
{
    char one[32], two[32];
    struct ebb_import_request *request = r->samples->request;
    if (r->older_count)
        ebb__import_note(request, "older than the window, counted from its start: %zu blocks, %s",
                         r->older_count, ebb_size_format(r->older_bytes, one, sizeof one));
    if (r->has_totals && r->base_bytes > r->older_counted_bytes)
        ebb__import_note(request, "left out, allocated throughout the window and in no event: %s",
                         ebb_size_format(r->base_bytes - r->older_counted_bytes, one, sizeof one));
    say_misfit(r, &r->stray_frees, "left out, frees of blocks that are already freed");
    say_misfit(r, &r->lost_frees, "blocks that end where their address is allocated again");
    say_misfit(r, &r->other_sizes, "frees of another size than their block, which counts");
    if (!r->has_totals)
        return;
    uint64_t reported = r->most_bytes - r->base_bytes, ours = (uint64_t)r->peak_bytes;
    uint64_t apart = reported > ours ? reported - ours : ours - reported;
    uint64_t older = r->older_counted_bytes;
    if (apart > (older + (reported > ours ? reported : ours)) / 100)
        ebb__import_note(request,
                         "the events add up to a peak of %s, but the profiler's totals to %s",
                         ebb_size_format(older + ours, one, sizeof one),
                         ebb_size_format(older + reported, two, sizeof two));
}

enum ebb_status ebb__samples_finish(struct ebb_samples *samples, const char *no_samples,
                                    struct ebb_trace *trace)
{
    struct replay r = {.samples = samples};
    uint32_t device = 0;
    enum ebb_status status = choose_device(samples, no_samples, &device);
    if (status)
        return status;
    keep_device(samples, device);
    status = sort(samples);
    if (status)
        return status;
    ebb__import_events_init(&r.events, samples->request->name, samples->unit, samples->error);
    status = replay(&r);
    if (!status)
        status = ebb__import_finish(&r.events, 1, trace);
    samples->begin_ns = r.events.begin;
    if (!status)
        say(&r);
    ebb__import_events_fini(&r.events);
    ebb__map_fini(&r.live);
    return status;
}
