/* Messages of the parent: to the user who started the run, and to processes. */
#include "parent/internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>

void ebb__parent_warn(struct ebb_parent *parent, const char *format, ...)
{
    char message[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    if (parent->options.warn)
        parent->options.warn(parent->options.context, message);
}

bool ebb__parent_send(struct process *process, const struct ebb_message *message, int descriptor)
{
    return ebb__message_send(process->channel, message, &descriptor, descriptor >= 0, MSG_DONTWAIT);
}

void ebb__parent_tell(struct process *process, enum ebb_message_kind kind, uint64_t value)
{
    ebb__parent_send(process, &(struct ebb_message){.kind = kind, .value = value}, -1);
}

void ebb__parent_tell_all(struct ebb_parent *parent, enum ebb_message_kind kind, uint64_t value)
{
    for (size_t i = 0; i < parent->processes.count; i++)
        if (parent->processes.items[i]->channel >= 0)
            ebb__parent_tell(parent->processes.items[i], kind, value);
}
