#include "runtime/slabs.h"

#include "runtime/internal.h"

#include <sys/mman.h>

#define NO_SLAB 0u /* slabs are numbered from 1 */

/* 256 to 1024 bytes in steps of 64, then eight classes per doubling. */
#define EVEN_STEP ((size_t)64)
#define EVEN_CLASSES 13u
#define EVEN_MOST ((size_t)1024)
#define PER_DOUBLING 8u
#define DOUBLINGS 4u
#define CLASSES (EVEN_CLASSES + PER_DOUBLING * DOUBLINGS)
#define MASK_WORDS (EBB_SLAB_BYTES / EBB_SMALL_LEAST_BYTES / 64)

enum { SLABS_KEPT = 4 }; /* empty slabs, for the next request */

enum { CLASS_FREE = 0 }; /* value of slab->class if the slab has no class; else it is class + 1 */

struct slab {
    uint64_t free_mask[MASK_WORDS];
    uint32_t next, previous; /* in the list of its class's slabs with free objects, or of kept
                                slabs */
    uint16_t class;
    uint16_t capacity, free_count;
};

struct ebb_slabs {
    struct ebb_runtime *runtime;
    uintptr_t base;
    size_t most;
    struct slab *slabs;
    struct {
        pthread_mutex_t lock;
        uint32_t with_room; /* first slab with free objects; this lock protects all slabs of the
                               class */
    } classes[CLASSES];
    pthread_mutex_t lock; /* protects the fields below; taken after a class's lock */
    uint32_t kept;
    uint32_t kept_count;
    uint32_t last; /* highest slab ever used */
};

static unsigned class_of(size_t bytes)
{
    if (bytes <= EVEN_MOST)
        return bytes <= EBB_SMALL_LEAST_BYTES
                   ? 0
                   : (unsigned)((bytes - EBB_SMALL_LEAST_BYTES + EVEN_STEP - 1) / EVEN_STEP);
    unsigned power = 63u - (unsigned)__builtin_clzll((unsigned long long)(bytes - 1));
    size_t low = (size_t)1 << power;
    unsigned step = (unsigned)((bytes - 1 - low) / (low / PER_DOUBLING));
    return EVEN_CLASSES + (power - 10) * PER_DOUBLING + step;
}

static size_t class_bytes(unsigned class)
{
    if (class < EVEN_CLASSES)
        return EBB_SMALL_LEAST_BYTES + class * EVEN_STEP;
    unsigned step = class - EVEN_CLASSES;
    return (EVEN_MOST << step / PER_DOUBLING) / PER_DOUBLING *
           (PER_DOUBLING + step % PER_DOUBLING + 1);
}

static uint32_t slab_at(const struct ebb_slabs *slabs, uintptr_t address)
{
    return (uint32_t)((address - slabs->base) / EBB_SLAB_BYTES) + 1;
}

static uintptr_t slab_address(const struct ebb_slabs *slabs, uint32_t slab)
{
    return slabs->base + (slab - 1) * EBB_SLAB_BYTES;
}

static void link_slab(struct ebb_slabs *slabs, uint32_t *head, uint32_t slab)
{
    slabs->slabs[slab].previous = NO_SLAB;
    slabs->slabs[slab].next = *head;
    if (*head != NO_SLAB)
        slabs->slabs[*head].previous = slab;
    *head = slab;
}

static void unlink_slab(struct ebb_slabs *slabs, uint32_t *head, uint32_t slab)
{
    const struct slab *gone = &slabs->slabs[slab];
    if (gone->previous != NO_SLAB)
        slabs->slabs[gone->previous].next = gone->next;
    else
        *head = gone->next;
    if (gone->next != NO_SLAB)
        slabs->slabs[gone->next].previous = gone->previous;
}

static void init_locks(struct ebb_slabs *slabs)
{
    pthread_mutex_init(&slabs->lock, NULL);
    for (unsigned i = 0; i < CLASSES; i++)
        pthread_mutex_init(&slabs->classes[i].lock, NULL);
}

enum ebb_status ebb__slabs_create(struct ebb_runtime *runtime, struct ebb_slabs **created)
{
    struct ebb_slabs *slabs = ebb__core_memory(sizeof *slabs);
    if (!slabs)
        return EBB_ERR_MEMORY;
    slabs->base = ebb__runtime_slabs(runtime, &slabs->most);
    slabs->slabs = ebb__core_memory((slabs->most + 1) * sizeof *slabs->slabs);
    if (!slabs->slabs) {
        munmap(slabs, sizeof *slabs);
        return EBB_ERR_MEMORY;
    }
    slabs->runtime = runtime;
    init_locks(slabs);
    *created = slabs;
    return EBB_OK;
}

void ebb__slabs_destroy(struct ebb_slabs *slabs)
{
    munmap(slabs->slabs, (slabs->most + 1) * sizeof *slabs->slabs);
    munmap(slabs, sizeof *slabs);
}

/* Takes a slab for `class`, whose lock is held. NO_SLAB: memory is exhausted, or a slab of the
 * runtime is needed and `ask` is false. */
static uint32_t take_slab(struct ebb_slabs *slabs, unsigned class, bool ask)
{
    pthread_mutex_lock(&slabs->lock);
    uint32_t index = slabs->kept;
    if (index != NO_SLAB) {
        unlink_slab(slabs, &slabs->kept, index);
        slabs->kept_count--;
    }
    pthread_mutex_unlock(&slabs->lock);
    if (index == NO_SLAB && !ask)
        return NO_SLAB;
    if (index == NO_SLAB) {
        uintptr_t address = ebb__runtime_take_slab(slabs->runtime);
        if (!address)
            return NO_SLAB;
        index = slab_at(slabs, address);
        pthread_mutex_lock(&slabs->lock);
        slabs->last = index > slabs->last ? index : slabs->last;
        pthread_mutex_unlock(&slabs->lock);
    }
    struct slab *slab = &slabs->slabs[index];
    unsigned capacity = (unsigned)(EBB_SLAB_BYTES / class_bytes(class));
    slab->class = (uint16_t)(class + 1);
    slab->capacity = slab->free_count = (uint16_t)capacity;
    for (unsigned word = 0; word < MASK_WORDS; word++) {
        unsigned left = capacity > word * 64 ? capacity - word * 64 : 0;
        slab->free_mask[word] = left >= 64 ? UINT64_MAX : ((uint64_t)1 << left) - 1;
    }
    link_slab(slabs, &slabs->classes[class].with_room, index);
    return index;
}

/* Keeps an empty slab, which is on no list, and returns 0. Or returns its address: the caller must
 * then give it to the runtime. */
static uintptr_t give_slab(struct ebb_slabs *slabs, uint32_t index)
{
    slabs->slabs[index].class = CLASS_FREE;
    pthread_mutex_lock(&slabs->lock);
    bool keep = slabs->kept_count < SLABS_KEPT;
    if (keep) {
        link_slab(slabs, &slabs->kept, index);
        slabs->kept_count++;
    }
    pthread_mutex_unlock(&slabs->lock);
    return keep ? 0 : slab_address(slabs, index);
}

/* The first class from `class` on with aligned objects. CLASSES: none. */
static unsigned aligned_class(unsigned class, size_t alignment)
{
    while (class < CLASSES && class_bytes(class) % alignment)
        class ++;
    return class;
}

static void *alloc(struct ebb_slabs *slabs, size_t bytes, size_t alignment, bool ask)
{
    if (bytes < EBB_SMALL_LEAST_BYTES || bytes > EBB_SMALL_MOST_BYTES)
        return NULL;
    unsigned class = class_of(bytes);
    if (alignment > EVEN_STEP)
        class = aligned_class(class, alignment);
    if (class >= CLASSES)
        return NULL;
    pthread_mutex_lock(&slabs->classes[class].lock);
    uint32_t index = slabs->classes[class].with_room;
    if (index == NO_SLAB)
        index = take_slab(slabs, class, ask);
    uintptr_t address = 0;
    if (index != NO_SLAB) {
        struct slab *slab = &slabs->slabs[index];
        unsigned word = 0;
        while (!slab->free_mask[word])
            word++;
        unsigned bit = (unsigned)__builtin_ctzll(slab->free_mask[word]);
        slab->free_mask[word] &= slab->free_mask[word] - 1;
        if (--slab->free_count == 0)
            unlink_slab(slabs, &slabs->classes[class].with_room, index);
        address = slab_address(slabs, index) + (word * 64 + bit) * class_bytes(class);
    }
    pthread_mutex_unlock(&slabs->classes[class].lock);
    if (address)
        ebb__runtime_count_live(slabs->runtime, (int64_t)class_bytes(class));
    return (void *)address;
}

void *ebb__slabs_alloc(struct ebb_slabs *slabs, size_t bytes, size_t alignment)
{
    return alloc(slabs, bytes, alignment, true);
}

void *ebb__slabs_alloc_there(struct ebb_slabs *slabs, size_t bytes, size_t alignment)
{
    return alloc(slabs, bytes, alignment, false);
}

bool ebb__slabs_own(const struct ebb_slabs *slabs, const void *pointer)
{
    return (uintptr_t)pointer - slabs->base < slabs->most * EBB_SLAB_BYTES;
}

/* Finds the slab and the object's index in it. False if no object starts at `pointer`. A slab's
 * class cannot change while one of its objects is in use, so no lock is needed. */
static bool find(struct ebb_slabs *slabs, const void *pointer, uint32_t *index, unsigned *place)
{
    uintptr_t offset = (uintptr_t)pointer - slabs->base;
    *index = slab_at(slabs, (uintptr_t)pointer);
    const struct slab *slab = &slabs->slabs[*index];
    if (slab->class == CLASS_FREE)
        return false;
    size_t bytes = class_bytes(slab->class - 1u), within = offset % EBB_SLAB_BYTES;
    *place = (unsigned)(within / bytes);
    return within % bytes == 0 && *place < slab->capacity;
}

bool ebb__slabs_free_there(struct ebb_slabs *slabs, void *pointer, uintptr_t *empty)
{
    *empty = 0;
    uint32_t index;
    unsigned place;
    if (!find(slabs, pointer, &index, &place))
        return false;
    struct slab *slab = &slabs->slabs[index];
    unsigned class = slab->class - 1u;
    uint64_t bit = (uint64_t)1 << place % 64;
    pthread_mutex_lock(&slabs->classes[class].lock);
    if (slab->free_mask[place / 64] & bit) {
        pthread_mutex_unlock(&slabs->classes[class].lock);
        return false;
    }
    slab->free_mask[place / 64] |= bit;
    if (slab->free_count++ == 0)
        link_slab(slabs, &slabs->classes[class].with_room, index);
    if (slab->free_count == slab->capacity) {
        unlink_slab(slabs, &slabs->classes[class].with_room, index);
        *empty = give_slab(slabs, index);
    }
    pthread_mutex_unlock(&slabs->classes[class].lock);
    ebb__runtime_count_live(slabs->runtime, -(int64_t)class_bytes(class));
    return true;
}

bool ebb__slabs_free(struct ebb_slabs *slabs, void *pointer)
{
    uintptr_t empty;
    bool good = ebb__slabs_free_there(slabs, pointer, &empty);
    if (empty)
        ebb__runtime_give_slab(slabs->runtime, empty);
    return good;
}

size_t ebb__slabs_usable_bytes(struct ebb_slabs *slabs, const void *pointer)
{
    uint32_t index;
    unsigned place;
    return find(slabs, pointer, &index, &place) ? class_bytes(slabs->slabs[index].class - 1u) : 0;
}

void ebb__slabs_before_fork(struct ebb_slabs *slabs)
{
    for (unsigned i = 0; i < CLASSES; i++)
        pthread_mutex_lock(&slabs->classes[i].lock);
    pthread_mutex_lock(&slabs->lock);
}

void ebb__slabs_after_fork_parent(struct ebb_slabs *slabs)
{
    pthread_mutex_unlock(&slabs->lock);
    for (unsigned i = 0; i < CLASSES; i++)
        pthread_mutex_unlock(&slabs->classes[i].lock);
}

uint64_t ebb__slabs_after_fork_child(struct ebb_slabs *slabs)
{
    init_locks(slabs);
    uint64_t live = 0;
    for (uint32_t i = 1; i <= slabs->last; i++) {
        const struct slab *slab = &slabs->slabs[i];
        if (slab->class != CLASS_FREE)
            live += (uint64_t)(slab->capacity - slab->free_count) * class_bytes(slab->class - 1u);
    }
    return live;
}
