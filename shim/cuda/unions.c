#include "unions.h"

#include "fork_lock.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct known {
    uintptr_t key;
    struct door_union *set;
    struct known *next;
};

#define BUCKETS 256u
static struct known *buckets[BUCKETS];
static atomic_size_t known_count;
EBB_FORK_LOCK(201)

uintptr_t ebb__unions_key(CUgraph graph)
{
    return (uintptr_t)graph | 1; /* handles are aligned */
}

uintptr_t ebb__unions_exec_key(CUgraphExec exec)
{
    return (uintptr_t)exec;
}

static struct known **find(uintptr_t key)
{
    struct known **at = &buckets[(key * 0x9e3779b97f4a7c15u) >> 56];
    while (*at && (*at)->key != key)
        at = &(*at)->next;
    return at;
}

struct door_union *ebb__unions_hold(uintptr_t key)
{
    pthread_mutex_lock(&lock);
    struct known *known = *find(key);
    struct door_union *set = known ? known->set : NULL;
    if (set)
        set->references++;
    pthread_mutex_unlock(&lock);
    return set;
}

void ebb__unions_let_go(struct door_union *set)
{
    pthread_mutex_lock(&lock);
    bool is_last = set && --set->references == 0;
    pthread_mutex_unlock(&lock);
    if (is_last)
        free(set);
}

/* Takes an entry out of its list. Returns its union. */
static struct door_union *take_out(struct known **at)
{
    struct known *gone = *at;
    struct door_union *set = gone->set;
    *at = gone->next;
    free(gone);
    atomic_fetch_sub(&known_count, 1);
    return set;
}

void ebb__unions_replace(uintptr_t key, struct door_union *set)
{
    struct known *spare = set ? malloc(sizeof *spare) : NULL;
    struct door_union *before = NULL;
    pthread_mutex_lock(&lock);
    struct known **at = find(key);
    if (*at && set) {
        before = (*at)->set;
        (*at)->set = set;
        set = NULL;
    } else if (*at) {
        before = take_out(at);
    } else if (spare) {
        *spare = (struct known){key, set, NULL};
        *at = spare;
        atomic_fetch_add(&known_count, 1);
        spare = NULL;
        set = NULL;
    }
    pthread_mutex_unlock(&lock);
    free(spare);
    free(set); /* no memory for a new entry */
    ebb__unions_let_go(before);
}

/* ---- making one ------------------------------------------------------------------------------ */

static int compare(const void *a, const void *b)
{
    const struct ebb_cuda_use *x = a, *y = b;
    if (x->address != y->address)
        return x->address < y->address ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* Sorts. Equal operands become one. */
static size_t unite(struct ebb_cuda_use *uses, size_t count)
{
    size_t kept = 0;
    if (count)
        qsort(uses, count, sizeof *uses, compare);
    for (size_t i = 0; i < count; i++)
        if (kept && compare(&uses[kept - 1], &uses[i]) == 0)
            uses[kept - 1].access |= uses[i].access;
        else
            uses[kept++] = uses[i];
    return kept;
}

static size_t append(struct door_union *set, size_t at, const struct ebb_cuda_use *uses,
                     size_t count)
{
    if (count)
        memcpy(set->uses + at, uses, count * sizeof *uses);
    return at + count;
}

/* Room for so many uses, and behind them for those of nodes. */
static struct door_union *new_union(size_t use_room, size_t node_room)
{
    struct door_union *set =
        malloc(sizeof *set + use_room * sizeof set->uses[0] + node_room * sizeof set->nodes[0]);
    if (set) {
        *set = (struct door_union){.references = 1};
        set->nodes = (struct door_node_use *)(set->uses + use_room);
    }
    return set;
}

static void append_node(struct door_union *set, CUgraphNode node, const struct ebb_cuda_use *use)
{
    set->nodes[set->node_count++] = (struct door_node_use){node, *use};
}

struct door_union *ebb__unions_make(const struct door_union *kept_from, struct door_job *job,
                                    const CUgraphNode *nodes, uint64_t name,
                                    const CUdeviceptr *kept, size_t kept_count)
{
    size_t from = kept_from ? kept_from->kept_count : 0;
    struct door_union *set = new_union(job->count + kept_count + from, job->count);
    if (set) {
        set->name = name;
        set->owners = job->owners;
        for (size_t i = 0; i < job->count; i++)
            append_node(set, nodes ? nodes[i] : NULL, &job->uses[i]);
        set->count = unite(set->uses, append(set, 0, job->uses, job->count));
        size_t end = set->count;
        if (kept_from)
            end = append(set, end, kept_from->uses + kept_from->count, from);
        for (size_t i = 0; i < kept_count; i++)
            set->uses[end++] = (struct ebb_cuda_use){.address = kept[i]};
        set->kept_count = unite(set->uses + set->count, end - set->count);
    }
    ebb__job_end(job, CUDA_SUCCESS);
    return set;
}

struct door_union *ebb__unions_change(const struct door_union *before, CUgraphNode node,
                                      struct door_job *job)
{
    static const struct door_union none;
    before = before ? before : &none;
    struct door_union *set = new_union(before->kept_count, before->node_count + job->count);
    if (set) {
        set->is_loose = true;
        set->name = before->name;
        set->owners = before->owners | job->owners;
        set->kept_count = append(set, 0, before->uses + before->count, before->kept_count);
        for (size_t i = 0; i < before->node_count; i++)
            if (!node || before->nodes[i].node != node)
                append_node(set, before->nodes[i].node, &before->nodes[i].use);
        for (size_t i = 0; i < job->count; i++)
            append_node(set, node, &job->uses[i]);
    }
    ebb__job_end(job, CUDA_SUCCESS);
    return set;
}

struct door_union *ebb__unions_settle(const struct door_union *loose)
{
    struct door_union *set = new_union(loose->node_count + loose->kept_count, loose->node_count);
    if (!set)
        return NULL;
    set->name = loose->name;
    set->owners = loose->owners;
    for (size_t i = 0; i < loose->node_count; i++) {
        append_node(set, loose->nodes[i].node, &loose->nodes[i].use);
        set->uses[i] = loose->nodes[i].use;
    }
    set->count = unite(set->uses, loose->node_count);
    append(set, set->count, loose->uses + loose->count, loose->kept_count);
    set->kept_count = loose->kept_count;
    return set;
}

/* ---- questions ------------------------------------------------------------------------------- */

static bool has(const struct ebb_cuda_use *uses, size_t count, CUdeviceptr address, uint64_t bytes)
{
    size_t low = 0, high = count; /* the first use that does not lie below `address` */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (uses[middle].address < address)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && uses[low].address - address < bytes;
}

static bool has_loosely(const struct door_union *set, CUdeviceptr address, uint64_t bytes)
{
    for (size_t i = 0; set->is_loose && i < set->node_count; i++)
        if (set->nodes[i].use.address - address < bytes)
            return true;
    return false;
}

bool ebb__unions_name(CUdeviceptr address, uint64_t bytes)
{
    bool found = false;
    if (!ebb__unions_any())
        return false;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < BUCKETS && !found; i++)
        for (const struct known *known = buckets[i]; known && !found; known = known->next) {
            const struct door_union *set = known->set;
            found = has(set->uses, set->count, address, bytes) ||
                    has_loosely(set, address, bytes) ||
                    has(set->uses + set->count, set->kept_count, address, bytes);
        }
    pthread_mutex_unlock(&lock);
    return found;
}

bool ebb__unions_any(void)
{
    return atomic_load(&known_count) > 0;
}

void ebb__unions_forget(CUdevice device)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct known **at = &buckets[i]; *at;) {
            struct door_union *set = (*at)->set;
            if (!(set->owners >> device & 1) && !set->kept_count) {
                at = &(*at)->next;
                continue;
            }
            take_out(at);
            if (--set->references == 0)
                free(set);
        }
    pthread_mutex_unlock(&lock);
}
