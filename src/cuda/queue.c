#include "cuda/queue.h"

#include "cuda/memory.h"

#define FIRST_CAPACITY 1024u

bool ebb__queue_reserve(struct cuda_queue *queue, uint64_t count)
{
    uint64_t capacity = queue->capacity ? queue->capacity : FIRST_CAPACITY;
    while (capacity - (queue->last - queue->first) < count)
        capacity *= 2;
    if (capacity == queue->capacity)
        return true;
    struct cuda_move *items = ebb__cuda_reserve(capacity * sizeof *items);
    if (!items)
        return false;
    for (uint64_t i = queue->first; i < queue->last; i++)
        items[i & (capacity - 1)] = *ebb__queue_at(queue, i);
    ebb__cuda_unreserve(queue->items, queue->capacity * sizeof *items);
    queue->items = items;
    queue->capacity = capacity;
    return true;
}

void ebb__queue_fini(struct cuda_queue *queue)
{
    ebb__cuda_unreserve(queue->items, queue->capacity * sizeof *queue->items);
}

void ebb__queue_push(struct cuda_queue *queue, const struct cuda_move *move)
{
    *ebb__queue_at(queue, queue->last++) = *move;
}

struct cuda_move *ebb__queue_find(const struct cuda_queue *queue, uint64_t number)
{
    uint64_t first = queue->first, last = queue->last;
    while (first < last) {
        uint64_t middle = first + (last - first) / 2;
        struct cuda_move *move = ebb__queue_at(queue, middle);
        if (move->number == number)
            return move;
        if (move->number < number)
            first = middle + 1;
        else
            last = middle;
    }
    return NULL;
}
