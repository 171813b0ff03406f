/* The process's side of a run.
 *
 * The process says hello when the library is loaded, and again for each device. A device has its
 * own channel, ring, ledger and scripts, as if it were a process. A thread for each takes the
 * parent's messages. The parent's death ends only plans: the ledger stays, and the engine goes on
 * without them. */
#include "attach.h"

#include "../join/join.h"
#include "base/limits.h"
#include "device/device.h"
#include "door.h"
#include "engines.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct attached {
    struct ebb_join_parent parent;
    struct ebb_ledger_slot *slot, *store_slot;
    int life_line, store_line; /* -1: none */
    bool is_served;            /* its thread runs */
    pthread_mutex_t lock;      /* of the next; held while a message is obeyed */
    struct ebb_cuda *engine;   /* NULL: it makes no calls any more */
} devices[EBB_DOOR_DEVICES];

static int channel = -1; /* of the process itself, if no other library has said hello for it */

/* Of shim/malloc/retire.c; NULL: it is not here. */
extern int ebb_malloc_channel(void) __attribute__((weak));

/* ---- the child of a fork --------------------------------------------------------------------- */

/* What a parent process shares with `ebb` is not its child's. A device is of no use there. */
static void after_fork(void)
{
    if (channel >= 0)
        close(channel);
    channel = -1;
    for (int i = 0; i < EBB_DOOR_DEVICES; i++) {
        if (devices[i].parent.ring) {
            close(devices[i].parent.channel);
            if (devices[i].life_line >= 0)
                close(devices[i].life_line);
            if (devices[i].store_line >= 0)
                close(devices[i].store_line);
        }
        devices[i] = (struct attached){0};
    }
}

static void register_fork(void)
{
    static bool is_registered;
    if (!is_registered)
        pthread_atfork(NULL, NULL, after_fork);
    is_registered = true;
}

/* ---- hello ----------------------------------------------------------------------------------- */

bool ebb__attach_hello(void)
{
    struct ebb_join_parent parent;
    int saved = errno;
    bool is_run = ebb__join_read_settings();
    if (is_run && ebb_malloc_channel) {
        register_fork();
        return true;
    }
    if (!is_run ||
        !ebb__join_hello(&(struct ebb_join_introduction){.kind = EBB_HELLO_CUDA}, &parent)) {
        errno = saved;
        return false;
    }
    register_fork();
    channel = parent.channel;
    /* These are of the host's memory, which is not managed here. */
    close(parent.ledger_descriptor);
    if (parent.store_descriptor >= 0)
        close(parent.store_descriptor);
    errno = saved;
    return true;
}

void ebb__attach_warn(void *context, const char *message)
{
    (void)context;
    ebb__join_warn(ebb_malloc_channel ? ebb_malloc_channel() : channel, message);
}

/* How the parent tells devices apart: three lines. Processes may number them differently. */
static void introduce(CUdevice device, const char *name, char *text, size_t bytes)
{
    __typeof__(cuDeviceGetUuid_v2) *get_uuid = NULL;
    __typeof__(cuDeviceGetPCIBusId) *get_bus = NULL;
    void *found = ebb__real_find("cuDeviceGetUuid_v2");
    memcpy(&get_uuid, &found, sizeof found);
    found = ebb__real_find("cuDeviceGetPCIBusId");
    memcpy(&get_bus, &found, sizeof found);
    CUuuid uuid;
    char hex[33] = "", bus[32] = "";
    if (get_uuid && get_uuid(&uuid, device) == CUDA_SUCCESS)
        for (size_t i = 0; i < 16; i++)
            snprintf(hex + 2 * i, 3, "%02x", (unsigned)(unsigned char)uuid.bytes[i]);
    else
        snprintf(hex, sizeof hex, "%d", (int)device);
    if (!get_bus || get_bus(bus, (int)sizeof bus, device) != CUDA_SUCCESS)
        bus[0] = 0;
    snprintf(text, bytes, "%s\n%s\n%s", hex, bus, name);
}

/* As the parent says, but for the process in whose environment EBB_CUDA_BACKING is set. */
static enum ebb_cuda_backing_kind chosen_backing(void)
{
    static const enum ebb_cuda_backing_kind kinds[] = {
        [EBB_GPU_MANAGED] = EBB_CUDA_MANAGED,
        [EBB_GPU_VMM_HOST] = EBB_CUDA_VMM_HOST,
        [EBB_GPU_VMM_TRUSTING] = EBB_CUDA_VMM_TRUSTING,
    };
    const char *name = getenv("EBB_CUDA_BACKING");
    unsigned told = ebb__join_settings.flags >> EBB_PROTOCOL_BACKING_SHIFT & 0xf;
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (name ? !strcmp(name, ebb__gpu_backing_name(i)) : told == i)
            return kinds[i];
    ebb__attach_warn(NULL, "EBB_CUDA_BACKING is none of managed, vmm-host, vmm-trusting: managed");
    return EBB_CUDA_MANAGED;
}

/* Without a slot of its own, what this process takes of host memory would be counted for ever. Then
 * it has the limit for itself. */
static void enter_store(struct attached *attached)
{
    struct ebb_join_parent *parent = &attached->parent;
    if (!parent->store_ledger)
        return;
    attached->store_line =
        ebb__ledger_enter(parent->store_ledger, parent->store_descriptor, &attached->store_slot);
    close(parent->store_descriptor);
}

bool ebb__attach(CUdevice device, uint64_t bytes, const char *name,
                 struct ebb_cuda_attachment *attachment)
{
    struct attached *attached = &devices[device];
    char text[300];
    introduce(device, name, text, sizeof text);
    const struct ebb_join_introduction introduction = {
        .kind = EBB_HELLO_DEVICE, .device_bytes = bytes, .text = text};
    attached->life_line = attached->store_line = -1; /* another thread may fork before they come */
    if (!ebb__join_hello(&introduction, &attached->parent)) {
        ebb__attach_warn(NULL, "a GPU has no budget: the parent of the run is gone");
        return false;
    }
    struct ebb_join_parent *parent = &attached->parent;
    pthread_mutex_init(&attached->lock, NULL);
    attached->life_line =
        ebb__ledger_enter(parent->ledger, parent->ledger_descriptor, &attached->slot);
    close(parent->ledger_descriptor);
    enter_store(attached);
    atomic_store(&parent->ring->counters.has_slot, attached->life_line >= 0);
    atomic_store(&parent->ring->counters.mechanism, EBB_DEVICE_CUDA);
    const char *chaos = getenv("EBB_CHAOS"); /* for tests: see struct ebb_cuda_config */
    bool record = (ebb__join_settings.flags & EBB_PROTOCOL_FLAG_RECORD) != 0;
    *attachment = (struct ebb_cuda_attachment){
        .ledger = parent->ledger,
        .slot = attached->slot,
        .store_ledger = attached->store_line >= 0 ? parent->store_ledger : NULL,
        .store_slot = attached->store_slot,
        .ring = parent->ring,
        .backing = record ? EBB_CUDA_NATIVE : chosen_backing(),
        .host_budget_bytes = parent->store_limit_bytes,
        .pinned_budget_bytes = parent->store_limit_bytes,
        .record = record,
        .chaos_seed = chaos ? strtoull(chaos, NULL, 0) : 0,
    };
    return true;
}

/* ---- messages -------------------------------------------------------------------------------- */

static enum ebb_status set_script(void *engine, const struct ebb_script *script, uint64_t bytes)
{
    return ebb__cuda_set_script(engine, script, bytes);
}

static void forget_scripts(void *engine)
{
    ebb__cuda_forget_scripts(engine);
}

static void rename_blocks(void *engine, const struct ebb_renaming *renamings, size_t count)
{
    ebb__cuda_rename(engine, renamings, count);
}

static void set_trace(void *engine, enum ebb_observe observe, uint64_t allocations)
{
    ebb__cuda_set_trace(engine, observe, allocations);
}

static void shrink(void *engine, uint64_t bytes)
{
    ebb__cuda_shrink(engine, bytes);
}

static void trim(void *engine)
{
    ebb__cuda_trim(engine);
}

static const struct ebb_join_orders orders = {
    .set_script = set_script,
    .forget_scripts = forget_scripts,
    .rename = rename_blocks,
    .set_trace = set_trace,
    .shrink = shrink,
    .trim = trim,
};
/* Without an engine, messages are taken and dropped. */
static const struct ebb_join_orders no_orders;

static void *serve(void *argument)
{
    struct attached *attached = argument;
    struct pollfd watched = {.fd = attached->parent.channel, .events = POLLIN};
    for (bool heard = true; heard;) {
        if (poll(&watched, 1, -1) < 0)
            continue;
        pthread_mutex_lock(&attached->lock);
        heard = (watched.revents & POLLIN) &&
                ebb__join_serve(attached->parent.channel, attached->engine ? &orders : &no_orders,
                                attached->engine);
        pthread_mutex_unlock(&attached->lock);
    }
    atomic_store(&attached->parent.ring->parent_gone, 1);
    pthread_mutex_lock(&attached->lock);
    if (attached->engine)
        ebb__cuda_set_trace(attached->engine, EBB_OBSERVE_NEVER, 0); /* no parent will end it */
    pthread_mutex_unlock(&attached->lock);
    return NULL;
}

void ebb__attach_serve(CUdevice device, struct ebb_cuda *engine)
{
    struct attached *attached = &devices[device];
    pthread_mutex_lock(&attached->lock);
    attached->engine = engine;
    if (attached->parent.trace)
        ebb__cuda_set_trace(engine, EBB_OBSERVE_ALWAYS, 0);
    pthread_mutex_unlock(&attached->lock);
    if (attached->is_served)
        return;
    attached->is_served = ebb__join_start_thread(serve, attached);
    if (!attached->is_served)
        ebb__attach_warn(NULL, "no thread can be started: a GPU gets no plans");
}

void ebb__attach_leave(CUdevice device)
{
    struct attached *attached = &devices[device];
    pthread_mutex_lock(&attached->lock);
    attached->engine = NULL;
    pthread_mutex_unlock(&attached->lock);
}
