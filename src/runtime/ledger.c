#include "runtime/ledger.h"

#include "base/limits.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

/* Tries per call. A living process is seldom in the middle of a change. If it is stopped there,
 * later calls try again. */
#define TRIES 100

static struct flock byte_lock(uint32_t number)
{
    return (struct flock){
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)number, .l_len = 1};
}

static int open_line(int descriptor)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    int line = open(path, O_RDWR | O_CLOEXEC);
    return line < 0 ? -1 : ebb__descriptor_high(line);
}

/* Gives slot `number` to the caller, if it is free. */
static bool claim(struct ebb_ledger *ledger, int line, uint32_t number)
{
    struct ebb_ledger_slot *slot = &ledger->slots[number];
    struct flock lock = byte_lock(number);
    if (atomic_load(&slot->state) != EBB_LEDGER_FREE || fcntl(line, F_OFD_SETLK, &lock) != 0)
        return false;
    if (atomic_load(&slot->state) == EBB_LEDGER_FREE) { /* checked again under the lock */
        atomic_store(&slot->process_id, (uint32_t)getpid());
        atomic_store(&slot->state, EBB_LEDGER_USED);
        return true;
    }
    lock.l_type = F_UNLCK;
    fcntl(line, F_OFD_SETLK, &lock);
    return false;
}

int ebb__ledger_enter(struct ebb_ledger *ledger, int descriptor, struct ebb_ledger_slot **slot)
{
    *slot = &ledger->slots[0];
    int line = open_line(descriptor);
    for (uint32_t i = 1; line >= 0 && i < ledger->slot_count; i++) {
        uint32_t used = atomic_load(&ledger->slots_used);
        while (used <= i && !atomic_compare_exchange_weak(&ledger->slots_used, &used, i + 1))
            ;
        if (claim(ledger, line, i)) {
            *slot = &ledger->slots[i];
            return line;
        }
    }
    if (line >= 0)
        close(line);
    return -1;
}

static bool is_gone(const struct ebb_ledger *ledger, int descriptor, uint32_t number)
{
    struct flock lock = byte_lock(number);
    return atomic_load(&ledger->slots[number].state) == EBB_LEDGER_USED &&
           fcntl(descriptor, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
}

/* Bytes of the sum that no living process's slot records. False: a living process was changing the
 * sum. */
static bool left_by_dead(const struct ebb_ledger *ledger, uint64_t *left_bytes)
{
    uint32_t used = atomic_load(&ledger->slots_used);
    uint64_t ended = 0, begun = 0, noted_bytes = 0;
    for (uint32_t i = 0; i < used; i++) {
        const struct ebb_ledger_slot *slot = &ledger->slots[i];
        if (i > 0 && atomic_load(&slot->state) != EBB_LEDGER_USED)
            continue;
        ended += atomic_load(&slot->ended);
        noted_bytes += atomic_load(&slot->held_bytes);
    }
    uint64_t held_bytes = atomic_load(&ledger->held_bytes);
    for (uint32_t i = 0; i < used; i++)
        if (i == 0 || atomic_load(&ledger->slots[i].state) == EBB_LEDGER_USED)
            begun += atomic_load(&ledger->slots[i].begun);
    *left_bytes = held_bytes - noted_bytes;
    return begun == ended && used == atomic_load(&ledger->slots_used) && held_bytes >= noted_bytes;
}

unsigned ebb__ledger_reap(struct ebb_ledger *ledger, int descriptor)
{
    uint32_t used = atomic_load(&ledger->slots_used);
    unsigned found = 0, dead = 0;
    for (uint32_t i = 1; i < used; i++) {
        if (is_gone(ledger, descriptor, i)) {
            atomic_store(&ledger->slots[i].state, EBB_LEDGER_DEAD);
            found++;
        }
        dead += atomic_load(&ledger->slots[i].state) == EBB_LEDGER_DEAD;
    }
    uint64_t left_bytes = 0;
    bool known = false;
    for (unsigned i = 0; dead && !known && i < TRIES; i++)
        known = left_by_dead(ledger, &left_bytes);
    if (!known)
        return found;
    atomic_fetch_sub(&ledger->held_bytes, left_bytes);
    for (uint32_t i = 1; i < used; i++) {
        struct ebb_ledger_slot *slot = &ledger->slots[i];
        if (atomic_load(&slot->state) != EBB_LEDGER_DEAD)
            continue;
        atomic_store(&slot->held_bytes, 0);
        atomic_store(&slot->ended, atomic_load(&slot->begun));
        atomic_store(&slot->state, EBB_LEDGER_FREE);
    }
    return found;
}
