/* The service thread: serves faults of the program and messages of the parent, as long as the
 * process lives. */
#include "process.h"
#include "stacks.h"

#include "device/support.h"
#include "runtime/protocol.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <unistd.h>

static enum ebb_status set_script(void *context, const struct ebb_script *script, uint64_t bytes)
{
    return ebb__runtime_set_script(context, script, bytes);
}

static void forget_scripts(void *context)
{
    ebb__runtime_forget_scripts(context);
}

static void rename_blocks(void *context, const struct ebb_renaming *renamings, size_t count)
{
    ebb__runtime_rename(context, renamings, count);
}

static void set_trace(void *context, enum ebb_observe observe, uint64_t allocations)
{
    ebb__runtime_set_trace(context, observe, allocations);
}

static void shrink(void *context, uint64_t bytes)
{
    ebb__runtime_shrink(context, bytes);
}

static void trim(void *context)
{
    ebb__runtime_trim(context);
}

static void compress(void *context)
{
    (void)context;
    atomic_store(&ebb__shim.compress, true);
}

static const struct ebb_join_orders orders = {
    .set_script = set_script,
    .forget_scripts = forget_scripts,
    .rename = rename_blocks,
    .set_trace = set_trace,
    .shrink = shrink,
    .trim = trim,
    .compress = compress,
};

/* Works like poll() for reading. But poll() fails if the program has lowered its limit below the
 * number of descriptors polled. Then select() is used, which ignores the limit, but its sets are
 * limited to this number. */
#define MOST_SELECTED 16384u
#define WORD_BITS (8 * sizeof(unsigned long))

static bool await_input(struct pollfd watched[2])
{
    if (poll(watched, 2, -1) > 0)
        return true;
    if (errno != EINVAL)
        return false;
    static unsigned long words[MOST_SELECTED / WORD_BITS]; /* used only by the service thread */
    int last = -1;
    for (int i = 0; i < 2; i++) {
        unsigned number = (unsigned)watched[i].fd;
        if (number >= MOST_SELECTED)
            continue; /* none, or its number is too high */
        words[number / WORD_BITS] |= 1ul << number % WORD_BITS;
        last = watched[i].fd > last ? watched[i].fd : last;
    }
    bool came = select(last + 1, (fd_set *)(void *)words, NULL, NULL, NULL) > 0;
    for (int i = 0; i < 2; i++) {
        unsigned number = (unsigned)watched[i].fd;
        watched[i].revents = 0;
        if (number >= MOST_SELECTED)
            continue;
        unsigned long bit = 1ul << number % WORD_BITS;
        watched[i].revents = came && words[number / WORD_BITS] & bit ? POLLIN : 0;
        words[number / WORD_BITS] &= ~bit;
    }
    return came;
}

static void *service(void *argument)
{
    struct ebb_runtime *runtime = argument;
    struct pollfd watched[2] = {
        {.fd = ebb__host_descriptor(&ebb__shim.device), .events = POLLIN},
        {.fd = ebb__shim.channel, .events = POLLIN},
    };
    for (;;) {
        if (!await_input(watched))
            continue;
        if (watched[0].revents) {
            struct ebb_fault faults[64];
            size_t count = ebb__host_faults(&ebb__shim.device, faults, 64);
            for (size_t i = 0; i < count; i++)
                ebb__runtime_fault(runtime, faults[i].address, faults[i].write);
        }
        /* The death of the parent also makes the channel readable. */
        struct ebb_wait *wait = watched[1].revents
                                    ? ebb__wait_begin(ebb__shim.ring->waits.answers,
                                                      EBB_WAIT_ANSWERS, EBB_WAIT_MESSAGE, 0, 0, 0)
                                    : NULL;
        bool heard = !watched[1].revents || ((watched[1].revents & POLLIN) &&
                                             ebb__join_serve(ebb__shim.channel, &orders, runtime));
        ebb__wait_end(wait);
        if (!heard) {
            atomic_store(&ebb__shim.ring->parent_gone, 1);
            watched[1].fd = -1;
            ebb__runtime_set_trace(runtime, EBB_OBSERVE_NEVER, 0); /* no parent will end it */
        }
    }
    return NULL;
}

bool ebb__shim_start_threads(struct ebb_runtime *runtime)
{
    /* The last thread works at once. The others do nothing until the runtime is used. */
    bool good = ebb__shim_start_sampler(ebb__shim.ring) &&
                ebb__stacks_start(runtime, ebb__shim.device.layout.arena) &&
                ebb__join_start_thread(service, runtime);
    if (good)
        ebb__shim_hide_threads(ebb__runtime_thread_count(runtime) + 3);
    return good;
}
