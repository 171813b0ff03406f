#include "runtime/block/block.h"

static struct link *link_of(struct table *table, uint32_t index, size_t member)
{
    return (struct link *)((char *)&table->blocks[index] + member);
}

void ebb__list_push_front(struct table *table, struct list *list, uint32_t index, size_t member)
{
    *link_of(table, index, member) = (struct link){.next = list->first};
    if (list->first != NO_BLOCK)
        link_of(table, list->first, member)->previous = index;
    else
        list->last = index;
    list->first = index;
}

void ebb__list_push_back(struct table *table, struct list *list, uint32_t index, size_t member)
{
    *link_of(table, index, member) = (struct link){.previous = list->last};
    if (list->last != NO_BLOCK)
        link_of(table, list->last, member)->next = index;
    else
        list->first = index;
    list->last = index;
}

void ebb__list_remove(struct table *table, struct list *list, uint32_t index, size_t member)
{
    struct link link = *link_of(table, index, member);
    if (link.previous != NO_BLOCK)
        link_of(table, link.previous, member)->next = link.next;
    else
        list->first = link.next;
    if (link.next != NO_BLOCK)
        link_of(table, link.next, member)->previous = link.previous;
    else
        list->last = link.previous;
}
