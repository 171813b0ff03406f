#include "runtime/internal.h"

static struct link *link_of(struct ebb_runtime *runtime, uint32_t index, size_t member)
{
    return (struct link *)((char *)&runtime->table.blocks[index] + member);
}

void ebb__list_push_front(struct ebb_runtime *runtime, struct list *list, uint32_t index,
                          size_t member)
{
    *link_of(runtime, index, member) = (struct link){.next = list->first};
    if (list->first != NO_BLOCK)
        link_of(runtime, list->first, member)->previous = index;
    else
        list->last = index;
    list->first = index;
}

void ebb__list_push_back(struct ebb_runtime *runtime, struct list *list, uint32_t index,
                         size_t member)
{
    *link_of(runtime, index, member) = (struct link){.previous = list->last};
    if (list->last != NO_BLOCK)
        link_of(runtime, list->last, member)->next = index;
    else
        list->first = index;
    list->last = index;
}

void ebb__list_remove(struct ebb_runtime *runtime, struct list *list, uint32_t index, size_t member)
{
    struct link link = *link_of(runtime, index, member);
    if (link.previous != NO_BLOCK)
        link_of(runtime, link.previous, member)->next = link.next;
    else
        list->first = link.next;
    if (link.next != NO_BLOCK)
        link_of(runtime, link.next, member)->previous = link.previous;
    else
        list->last = link.previous;
}
