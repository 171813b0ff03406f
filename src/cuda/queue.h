/* The queue of the mover: a ring of requests that grows. The caller has the mover's lock. */
#ifndef EBB_CUDA_QUEUE_H
#define EBB_CUDA_QUEUE_H

#include "cuda/mover.h"

bool ebb__queue_reserve(struct cuda_queue *queue, uint64_t count);
void ebb__queue_fini(struct cuda_queue *queue);
void ebb__queue_push(struct cuda_queue *queue, const struct cuda_move *move);
/* The request of that number, NULL: it is over. O(log n) */
struct cuda_move *ebb__queue_find(const struct cuda_queue *queue, uint64_t number);

static inline struct cuda_move *ebb__queue_at(const struct cuda_queue *queue, uint64_t position)
{
    return &queue->items[position & (queue->capacity - 1)];
}
/* The number of the oldest request that is not over. UINT64_MAX: all are. */
static inline uint64_t ebb__queue_oldest(const struct cuda_queue *queue)
{
    return queue->first < queue->last ? ebb__queue_at(queue, queue->first)->number : UINT64_MAX;
}

#endif
