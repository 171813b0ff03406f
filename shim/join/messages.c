#include "join.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

void ebb__join_warn(int channel, const char *message)
{
    struct ebb_message text = {.kind = EBB_MESSAGE_WARN, .process_id = (uint32_t)getpid()};
    snprintf(text.text, sizeof text.text, "%s", message);
    if (channel >= 0)
        ebb__message_send(channel, &text, NULL, 0, 0);
}

static void take_script(int channel, const struct ebb_join_orders *orders, void *context,
                        int descriptor, uint64_t bytes)
{
    if (!orders->set_script)
        return; /* nothing is managed any more */
    struct ebb_script *script = ebb__script_copy(descriptor, bytes);
    if (script && orders->set_script(context, script, bytes) == EBB_OK)
        return;
    if (script)
        munmap(script, bytes);
    ebb__join_warn(channel, script ? "a plan was refused: malformed"
                                   : "a plan was refused: it cannot be read");
}

static void take_names(const struct ebb_join_orders *orders, void *context, int descriptor,
                       uint64_t bytes)
{
    struct ebb_renaming *renamings = ebb__renamings_copy(descriptor, bytes);
    if (!renamings)
        return;
    if (orders->rename)
        orders->rename(context, renamings, bytes / sizeof *renamings);
    munmap(renamings, bytes);
}

static void obey(int channel, const struct ebb_join_orders *orders, void *context,
                 const struct ebb_message *message, int descriptor)
{
    switch (message->kind) {
    case EBB_MESSAGE_SCRIPT:
        if (message->value)
            take_script(channel, orders, context, descriptor, message->value);
        else if (orders->forget_scripts)
            orders->forget_scripts(context);
        break;
    case EBB_MESSAGE_NAMES:
        take_names(orders, context, descriptor, message->value);
        break;
    case EBB_MESSAGE_TRACE:
        if ((message->value & 255) <= EBB_OBSERVE_EXACTLY && orders->set_trace)
            orders->set_trace(context, (enum ebb_observe)(message->value & 255),
                              message->value >> 8);
        break;
    case EBB_MESSAGE_SHRINK:
        if (orders->shrink)
            orders->shrink(context, message->value);
        break;
    case EBB_MESSAGE_COMPRESS:
        if (orders->compress)
            orders->compress(context);
        break;
    case EBB_MESSAGE_TRIM:
        if (orders->trim)
            orders->trim(context);
        break;
    default:
        break;
    }
}

bool ebb__join_serve(int channel, const struct ebb_join_orders *orders, void *context)
{
    struct ebb_message message;
    int came[EBB_MESSAGE_DESCRIPTORS];
    size_t count;
    int got = ebb__message_receive(channel, &message, came, &count);
    if (got != 1)
        return got == 0;
    obey(channel, orders, context, &message, count ? came[0] : -1);
    ebb__message_close(came, count);
    return true;
}
