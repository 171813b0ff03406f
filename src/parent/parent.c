#include "parent/internal.h"

#include "base/clock.h"
#include "base/geometry.h"
#include "base/limits.h"
#include "base/size.h"
#include "base/tuning.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BATCH_EVENTS 4096
#define STEP_EVENTS (4 * BATCH_EVENTS)  /* of a process, before others are served: some ms */
#define PROBE_FROM_BYTES (16 * EBB_MIB) /* a program that holds less is not worth a probe */

static enum ebb_status open_recording(struct ebb_parent *parent, struct ebb_error *error)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct ebb_trace_info info = {
        .threshold_bytes = parent->options.threshold_bytes,
        .page_bytes = EBB_PAGE_BYTES,
        .start_unix_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec,
    };
    snprintf(info.command, sizeof info.command, "%s", parent->options.command);
    return ebb__trace_writer_open(parent->options.record_path, &info, &parent->recording.writer,
                                  error);
}

enum ebb_status ebb__parent_create(const struct ebb_parent_options *options,
                                   struct ebb_parent **created, struct ebb_error *error)
{
    struct ebb_parent *parent = calloc(1, sizeof *parent);
    if (!parent)
        return ebb__fail(error, EBB_ERR_MEMORY, "", "out of memory");
    parent->options = *options;
    if (!options->device_store_limit_bytes)
        parent->options.device_store_limit_bytes = options->store_limit_bytes;
    parent->host.ledger_descriptor = -1;
    parent->host_store.ledger_descriptor = parent->device_store.ledger_descriptor = -1;
    parent->showing = -1;
    parent->doors.listening = parent->doors.hello_pair[0] = parent->doors.hello_pair[1] = -1;
    enum ebb_status status = ebb__doors_open(parent, error);
    if (status == EBB_OK)
        status = ebb__memory_open(parent, &parent->host, error);
    if (status == EBB_OK && options->record_path)
        status = open_recording(parent, error);
    if (status != EBB_OK) {
        ebb__parent_destroy(parent);
        return status;
    }
    ebb__show_open(parent);
    *created = parent;
    return EBB_OK;
}

const char *ebb__parent_environment(const struct ebb_parent *parent)
{
    return parent->doors.environment;
}

int ebb__parent_inherited(const struct ebb_parent *parent)
{
    return parent->doors.hello_pair[1];
}

void ebb__parent_set_main(struct ebb_parent *parent, int process_id)
{
    parent->main_process_id = process_id;
}

bool ebb__parent_main_said_hello(const struct ebb_parent *parent)
{
    return parent->main_said_hello;
}

/* A device is worth more than the host's memory: the trace begins anew. */
static void record_device(struct ebb_parent *parent, const struct process *process)
{
    struct recording *recording = &parent->recording;
    struct stat status;
    if (stat(parent->options.record_path, &status) != 0 || !S_ISREG(status.st_mode)) {
        ebb__parent_warn(parent, "%s is no file: its trace stays that of the host's memory",
                         parent->options.record_path);
    } else {
        recording->status = ebb__trace_writer_close(recording->writer, &recording->error);
        recording->writer = NULL;
        if (!recording->status)
            recording->status = open_recording(parent, &recording->error);
        recording->process = process->number;
    }
    recording->is_of_device = true;
}

/* Traces the events of the first device that a process uses. If none is used, those of the first
 * process with managed blocks. */
static void record_events(struct ebb_parent *parent, struct process *process,
                          const struct ebb_event *events, size_t count)
{
    struct recording *recording = &parent->recording;
    if (!recording->writer || recording->status != EBB_OK)
        return;
    if (!recording->process) {
        recording->process = process->number;
        recording->is_of_device = process->memory->is_device;
    }
    if (process->memory->is_device && !recording->is_of_device)
        record_device(parent, process);
    if (recording->process != process->number || recording->status != EBB_OK)
        return;
    parent->recording.status =
        ebb__trace_writer_append(parent->recording.writer, events, count, &parent->recording.error);
    if (parent->recording.status != EBB_OK)
        ebb__parent_warn(parent, "%s: %s: the trace ends here", parent->recording.error.what,
                         parent->recording.error.why);
}

static void stop_watching(struct ebb_parent *parent, struct process *process, const char *why)
{
    ebb__parent_warn(parent, "process %d is not watched any more: %s", process->process_id, why);
    ebb__watch_destroy(process->stream.watch);
    process->stream.watch = NULL;
}

static enum ebb_status watch_event(struct process *process, const struct ebb_event *event)
{
    struct ebb_recurrence *recurrence = process->stream.recurrence;
    bool begins = process->sent.has_access_clock && event->kind == EBB_EVENT_MARK &&
                  event->mark == EBB_MARK_LAP;
    uint64_t value = EBB_ITERATION_BY_ACCESSES;
    enum ebb_status status = EBB_OK;
    if (!begins && !process->stream.replaying) {
        status = ebb__recurrence_push(recurrence, event, &begins);
        value = begins && ebb__recurrence_is_anew(recurrence) ? EBB_ITERATION_ANEW : value;
    }
    if (!status && begins)
        status =
            ebb__watch_push(process->stream.watch, &(struct ebb_event){.time_ns = event->time_ns,
                                                                       .size_bytes = value,
                                                                       .kind = EBB_EVENT_MARK,
                                                                       .mark = EBB_MARK_ITERATION});
    return status ? status : ebb__watch_push(process->stream.watch, event);
}

/* Reads `most` events at most. Returns true if there may be more: a process may write as fast as
 * they are read, and others must not wait for that. */
static bool drain(struct ebb_parent *parent, struct process *process, size_t most)
{
    struct ebb_event events[BATCH_EVENTS];
    size_t count = BATCH_EVENTS;
    for (size_t taken = 0; count == BATCH_EVENTS && taken < most; taken += count) {
        count = ebb__ring_read(process->stream.ring, events, BATCH_EVENTS);
        if (count == 0)
            break;
        parent->figures.events += count;
        record_events(parent, process, events, count);
        for (size_t i = 0; i < count; i++) {
            ebb__parent_note_event(process, &events[i]);
            enum ebb_status pushed =
                process->stream.watch ? watch_event(process, &events[i]) : EBB_OK;
            if (pushed != EBB_OK)
                stop_watching(parent, process,
                              pushed == EBB_ERR_FORMAT ? "its events are none" : "out of memory");
        }
    }
    if (process->stream.watch && !ebb__ring_is_sound(process->stream.ring))
        stop_watching(parent, process, "its ring has been overwritten");
    return count == BATCH_EVENTS;
}

static void say_goodbye(struct ebb_parent *parent, struct process *process)
{
    drain(parent, process, EBB_RING_EVENTS);
    uint64_t copied_bytes = atomic_load(&process->stream.ring->counters.copied_bytes);
    if (copied_bytes)
        ebb__copies_note(parent,
                         parent->copies.bytes > copied_bytes ? parent->copies.bytes : copied_bytes);
    if (atomic_load(&process->stream.ring->counters.has_slot))
        process->memory->departed++;
    else if (!atomic_load(&process->stream.ring->counters.retired)) /* it has left the ledger */
        ebb__ledger_release(process->memory->ledger, process->memory->ledger->slots,
                            atomic_load(&process->stream.ring->counters.held_bytes));
    struct store_limit *limit =
        process->memory->is_device ? &parent->device_store : &parent->host_store;
    limit->reap_ns = 0;
    close(process->channel);
    process->channel = -1;
}

static void take_messages(struct ebb_parent *parent, struct process *process)
{
    struct ebb_message message;
    int descriptors[2], got;
    size_t count;
    while ((got = ebb__message_receive(process->channel, &message, descriptors, &count)) == 1) {
        message.text[sizeof message.text - 1] = 0;
        if (message.kind == EBB_MESSAGE_WARN)
            ebb__parent_warn(parent, "process %d: %s", process->process_id, message.text);
        for (size_t i = 0; i < count; i++)
            close(descriptors[i]);
    }
    if (got < 0)
        say_goodbye(parent, process);
}

/* A process that cannot free memory itself waits for pages. The process that holds most of the
 * others gives some. */
static void feed_starving(struct ebb_parent *parent, struct fast_memory *memory)
{
    uint64_t bytes = atomic_exchange(&memory->ledger->starving_bytes, 0);
    if (bytes == 0)
        return;
    atomic_fetch_add(&memory->ledger->passed_on, 1);
    int starving = (int)atomic_load(&memory->ledger->starving_process);
    struct process *richest = NULL;
    uint64_t most = 0;
    for (size_t i = 0; i < parent->processes.count; i++) {
        struct process *process = parent->processes.items[i];
        const struct ebb_counters *counters = &process->stream.ring->counters;
        uint64_t held = atomic_load(&counters->retired) ? 0 : atomic_load(&counters->held_bytes);
        if (process->memory == memory && process->channel >= 0 && process->process_id != starving &&
            held > most) {
            richest = process;
            most = held;
        }
    }
    if (richest)
        ebb__parent_tell(richest, EBB_MESSAGE_SHRINK, bytes);
}

/* A closed socket triggers this at once. Otherwise it runs at intervals, for processes that never
 * said hello or were killed during a change. */
static unsigned reap(struct ebb_ledger *ledger, int descriptor, uint64_t *reap_ns)
{
    uint64_t now = ebb__now_ns();
    if (!ledger || now < *reap_ns)
        return 0;
    *reap_ns = now + ebb__tuning()->reap_ns;
    return ebb__ledger_reap(ledger, descriptor);
}

static void reap_memory(struct fast_memory *memory)
{
    if (memory->departed)
        memory->reap_ns = 0;
    unsigned reaped = reap(memory->ledger, memory->ledger_descriptor, &memory->reap_ns);
    memory->departed -= reaped < memory->departed ? reaped : memory->departed;
}

static void reap_store(struct store_limit *limit)
{
    reap(limit->ledger, limit->ledger_descriptor, &limit->reap_ns);
}

int ebb__parent_step(struct ebb_parent *parent)
{
    ebb__doors_answer(parent);
    ebb__show_answer(parent);
    ebb__gone_collect(parent);
    bool busy = false, more = false;
    uint64_t now_ns = ebb__now_ns();
    for (size_t i = 0; i < parent->processes.count; i++) {
        struct process *process = parent->processes.items[i];
        if (process->channel < 0)
            continue;
        more |= drain(parent, process, STEP_EVENTS);
        if (process->stream.watch && atomic_load(&process->stream.ring->counters.managing)) {
            if (atomic_load(&process->stream.ring->counters.live_bytes) >= PROBE_FROM_BYTES)
                ebb__lanes_begin(parent, process->memory);
            ebb__parent_learn(parent, process);
            ebb__leave_early(parent, process);
            busy = true;
        }
        ebb__alarm_look(parent, process, now_ns);
        take_messages(parent, process);
    }
    ebb__copies_look(parent);
    struct fast_memory *memory;
    for (size_t i = 0; (memory = ebb__memory_at(parent, i)); i++) {
        reap_memory(memory);
        ebb__memory_look(memory);
        ebb__budget_look(parent, memory);
        feed_starving(parent, memory);
    }
    reap_store(&parent->host_store);
    reap_store(&parent->device_store);
    if (more)
        return 0;
    return busy ? (int)(ebb__tuning()->drain_ns / 1000000) : 100;
}

void ebb__parent_destroy(struct ebb_parent *parent)
{
    if (!parent)
        return;
    for (size_t i = 0; i < parent->processes.count; i++) {
        if (parent->processes.items[i]->channel >= 0)
            close(parent->processes.items[i]->channel);
        ebb__gone_release(parent->processes.items[i]);
    }
    ebb_vec_free(&parent->processes);
    ebb__doors_close(parent);
    ebb__show_close(parent);
    ebb__memory_close(&parent->host);
    for (size_t i = 0; i < parent->devices.count; i++) {
        ebb__memory_close(parent->devices.items[i]);
        free(parent->devices.items[i]);
    }
    ebb_vec_free(&parent->devices);
    ebb__store_limit_close(&parent->host_store);
    ebb__store_limit_close(&parent->device_store);
    if (parent->recording.writer &&
        ebb__trace_writer_close(parent->recording.writer, NULL) != EBB_OK)
        parent->recording.writer = NULL;
    free(parent);
}
