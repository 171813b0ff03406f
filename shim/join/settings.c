/* Reads EBB_RUN (runtime/protocol.h): the parent's address, and its options for this process. */
#include "join.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

struct ebb_join_settings ebb__join_settings;

bool ebb__join_read_settings(void)
{
    const char *text = getenv(EBB_PROTOCOL_ENV);
    struct ebb_join_settings *settings = &ebb__join_settings;
    int consumed = 0;
    unsigned long long threshold;
    if (!text ||
        sscanf(text, "2:%d:%llu:%ld:%lu:%16llx%16llx:%63[^:]:%llu:%u:%n", &settings->inherited,
               &settings->inode, &settings->parent_id, &settings->user_id, &settings->secret[0],
               &settings->secret[1], settings->parent_name, &threshold, &settings->flags,
               &consumed) != 9 ||
        consumed == 0)
        return false;
    settings->threshold = (size_t)threshold;
    snprintf(settings->places, sizeof settings->places, "%s", text + consumed);
    return true;
}

bool ebb__join_is_hello(int descriptor, unsigned long long inode, unsigned mode)
{
    return descriptor == ebb__join_settings.inherited && inode == ebb__join_settings.inode &&
           S_ISSOCK(mode);
}
