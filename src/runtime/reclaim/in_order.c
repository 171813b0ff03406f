#include "runtime/reclaim/in_order.h"

#define LEAST_LENGTH 2u /* of a walk that is believed */
#define MOST_REST 16u   /* demands elsewhere, after which a walk is over */
/* Parts of the budget: what may wait for its use, and what may be fetched in vain to begin with. */
#define WAITING_DIVISOR 8u
#define VAIN_DIVISOR 16u
/* So much may be fetched in vain, of what was useful and of what was demanded. Each is read and
 * written once more than with LRU: under a twentieth in all. */
#define USEFUL_DIVISOR 64u
#define DEMANDED_DIVISOR 128u

static uint64_t serial_of(const struct table *table, const struct block *block)
{
    return table->blocks[block->run.head].serial;
}

static bool is_absent(const struct block *block)
{
    return block->kind == BLOCK_HEAP && block->state == BLOCK_EVICTED;
}

static bool is_fresh(const struct in_order *order, const struct walk *walk)
{
    return order->demands - walk->newest < MOST_REST;
}

/* Does the walk come to this serial next? All parts of one allocation are the same step. */
static bool comes_to(const struct walk *walk, const struct table *table, uint64_t serial)
{
    if (serial > walk->at)
        return false;
    for (uint32_t i = 1; i <= table->count; i++) {
        uint64_t other = serial_of(table, &table->blocks[i]);
        if (other > serial && other < walk->at && is_absent(&table->blocks[i]))
            return false;
    }
    return true;
}

/* The longest walk that comes to the serial, else the one that rests for longest, anew. */
static struct walk *walk_to(struct in_order *order, const struct table *table, uint64_t serial)
{
    struct walk *best = NULL, *oldest = &order->walks[0];
    for (unsigned i = 0; i < MOST_WALKS; i++) {
        struct walk *walk = &order->walks[i];
        if (walk->newest < oldest->newest)
            oldest = walk;
        if (comes_to(walk, table, serial) && (!best || walk->length > best->length))
            best = walk;
    }
    if (best)
        return best;
    *oldest = (struct walk){.at = serial};
    return oldest;
}

void ebb__in_order_demanded(struct in_order *order, const struct table *table,
                            const struct block *block)
{
    uint64_t serial = serial_of(table, block);
    struct walk *walk = walk_to(order, table, serial);
    walk->length += serial != walk->at || walk->length == 0;
    walk->at = serial;
    walk->block = ebb__block_index(table, block);
    walk->newest = ++order->demands;
    order->demanded_bytes += block->page_bytes;
}

static struct block *next_of(const struct walk *walk, struct table *table, uint64_t most_bytes)
{
    struct block *best = NULL;
    for (uint32_t i = 1; i <= table->count; i++) {
        struct block *block = &table->blocks[i];
        uint64_t serial = serial_of(table, block);
        bool is_ahead = serial < walk->at || (serial == walk->at && i > walk->block);
        if (is_absent(block) && is_ahead && (!best || serial > serial_of(table, best)))
            best = block;
    }
    bool can = best && best->page_bytes <= most_bytes && best->transfer.queue == QUEUE_NONE &&
               !best->transfer.error;
    return can ? best : NULL;
}

static uint64_t waiting_bytes(const struct table *table)
{
    uint64_t bytes = 0;
    for (uint32_t i = 1; i <= table->count; i++)
        bytes += table->blocks[i].transfer.walk ? table->blocks[i].page_bytes : 0;
    return bytes;
}

static bool may_err(const struct in_order *order, uint64_t budget_bytes)
{
    return order->wasted_bytes <= order->useful_bytes / USEFUL_DIVISOR +
                                      order->demanded_bytes / DEMANDED_DIVISOR +
                                      budget_bytes / VAIN_DIVISOR;
}

struct block *ebb__in_order_next(struct in_order *order, struct table *table, uint64_t most_bytes,
                                 uint64_t budget_bytes, unsigned *number)
{
    struct block *best = NULL;
    uint64_t newest = 0;
    if (!may_err(order, budget_bytes))
        return NULL;
    for (unsigned i = 0; i < MOST_WALKS; i++) {
        const struct walk *walk = &order->walks[i];
        bool goes_on =
            walk->length >= LEAST_LENGTH && walk->newest > newest && is_fresh(order, walk);
        struct block *block = goes_on ? next_of(walk, table, most_bytes) : NULL;
        if (!block)
            continue;
        best = block;
        newest = walk->newest;
        *number = i;
    }
    return best && waiting_bytes(table) <= budget_bytes / WAITING_DIVISOR ? best : NULL;
}

void ebb__in_order_fetched(struct in_order *order, const struct table *table, struct block *block,
                           unsigned number)
{
    order->walks[number].at = serial_of(table, block);
    order->walks[number].block = ebb__block_index(table, block);
    block->transfer.walk = (uint8_t)(number + 1);
}

bool ebb__in_order_awaits(const struct in_order *order, const struct block *block)
{
    return block->transfer.walk && is_fresh(order, &order->walks[block->transfer.walk - 1]);
}

void ebb__in_order_used(struct in_order *order, struct block *block)
{
    if (!block->transfer.walk)
        return;
    order->walks[block->transfer.walk - 1].newest = ++order->demands;
    order->useful_bytes += block->page_bytes;
    block->transfer.walk = 0;
}

void ebb__in_order_gone(struct in_order *order, struct block *block)
{
    order->wasted_bytes += block->transfer.walk ? block->page_bytes : 0;
    block->transfer.walk = 0;
}
