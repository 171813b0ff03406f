/* Replays a training of a GPU on the CUDA engine, without a GPU: the driver here only keeps time.
 *
 *     bench_cuda_replay TRACE [--share 75] [--iterations 8] [--slower 4] [--strays 0]
 *
 * TRACE is of `ebb record --device cuda`; docs/results has two. One of its iterations is repeated,
 * with the backing vmm-trusting. Kernels last as long as there. Copies last as on the machine
 * `h200`, and so do calls that map memory (docs/results). A mapping waits until no copy to the host
 * is queued, or for a millisecond. The host takes HOST_NS for a launch. From the fourth iteration
 * on a plan is in force, for `--share` % of the peak.
 *
 * Everything is `--slower` times as slow as there. The engine has two threads, so 1 needs four
 * cores. So many of 1000 kernels name a block that they do not use: `--strays`.
 *
 * Prints for each iteration its time without that factor, and what moved. Fails if the device would
 * use what is not mapped, or if something is unmapped that it uses.
 */
#include "base/clock.h"
#include "base/geometry.h"
#include "cuda/internal.h"
#include "machine/machine.h"
#include "model/analyse.h"
#include "no_driver.h"
#include "plan/request/request.h"
#include "trace/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#define HOST_NS 40000u      /* of the host for a launch: PyTorch's, from records */
#define MAP_NS 33000u       /* to map a page */
#define TURN_NS 1000000u    /* beside copies to the host that do not end, longest wait for that */
#define UNMAP_NS 26000u     /* to unmap one */
#define CREATE_NS 20000u    /* to make one */
#define HOST_MIB_NS 180000u /* to make a MiB of host memory */
#define RELEASE_NS 30000u   /* to return one */
#define MARGIN_BYTES ((uint64_t)96 << 20) /* left free by the plan */
#define MOST_HANDLES 4096u
#define MOST_WRITES 65536u
#define MOST_OPERANDS 512u

static struct {
    double slower;
    int strays;
    struct ebb_machine machine;
} set = {.slower = 4};

/* ---- time ------------------------------------------------------------------------------------ */

static uint64_t scaled(double ns)
{
    return (uint64_t)(ns * set.slower);
}

static void sleep_until(uint64_t ns)
{
    for (uint64_t now = ebb__now_ns(); now < ns; now = ebb__now_ns())
        if (ns - now > 100000)
            nanosleep(
                &(struct timespec){.tv_nsec =
                                       (long)(ns - now > 900000000 ? 900000000 : ns - now - 60000)},
                NULL);
}

static void take(double ns)
{
    sleep_until(ebb__now_ns() + scaled(ns));
}

/* ---- streams and events: when each is past what it was given --------------------------------- */

struct CUstream_st {
    uint64_t until;
};
struct CUevent_st {
    uint64_t at;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    uint64_t at[MOST_WRITES];
    uint32_t values[MOST_WRITES];
    uint64_t first, last; /* [first, last) have not reached the flag */
    _Atomic uint32_t *flag;
} writes;
static struct {     /* the copies to the host */
    uint64_t until; /* those that are queued */
    uint64_t gaps;  /* how often there was none */
} outs;

static CUresult stream_create(CUstream *stream, unsigned flags)
{
    (void)flags;
    return (*stream = calloc(1, sizeof **stream)) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult event_create(CUevent *event, unsigned flags)
{
    (void)flags;
    return (*event = calloc(1, sizeof **event)) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* The stream is busy for so long from when it is free. Expects the lock. */
static void busy(CUstream stream, uint64_t ns)
{
    uint64_t now = ebb__now_ns();
    stream->until = (stream->until > now ? stream->until : now) + ns;
}

static CUresult event_record(CUevent event, CUstream stream)
{
    pthread_mutex_lock(&lock);
    busy(stream, 0);
    event->at = stream->until;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

static CUresult event_query(CUevent event)
{
    return event->at <= ebb__now_ns() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult event_elapsed(float *ms, CUevent from, CUevent to)
{
    *ms = (float)((double)to->at - (double)from->at) / 1e6f;
    return CUDA_SUCCESS;
}

static CUresult event_wait(CUevent event)
{
    sleep_until(event->at);
    return CUDA_SUCCESS;
}

static CUresult stream_query(CUstream stream)
{
    return stream->until <= ebb__now_ns() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult stream_wait(CUstream stream)
{
    sleep_until(stream->until);
    return CUDA_SUCCESS;
}

static CUresult wait_event(CUstream stream, CUevent event, unsigned flags)
{
    (void)flags;
    pthread_mutex_lock(&lock);
    if (stream->until < event->at)
        stream->until = event->at;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

/* The engine lets a stream wait only for what has been queued, so that its time is known. */
static CUresult wait_value(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags)
{
    (void)address, (void)flags;
    pthread_mutex_lock(&lock);
    for (uint64_t i = writes.last; i-- > writes.first;) {
        if ((int32_t)(writes.values[i % MOST_WRITES] - value) < 0)
            break;
        uint64_t at = writes.at[i % MOST_WRITES];
        bool is_first =
            i == writes.first || (int32_t)(writes.values[(i - 1) % MOST_WRITES] - value) < 0;
        if (is_first && stream->until < at)
            stream->until = at;
    }
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

static CUresult write_value(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags)
{
    (void)flags;
    pthread_mutex_lock(&lock);
    busy(stream, 0);
    writes.flag = (_Atomic uint32_t *)(uintptr_t)address;
    writes.at[writes.last % MOST_WRITES] = stream->until;
    writes.values[writes.last++ % MOST_WRITES] = value;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

/* The host sees what the device writes. */
static void *write_flags(void *context)
{
    (void)context;
    prctl(PR_SET_TIMERSLACK, 1000ul);
    for (;;) {
        pthread_mutex_lock(&lock);
        while (writes.first < writes.last && writes.at[writes.first % MOST_WRITES] <= ebb__now_ns())
            atomic_store(writes.flag, writes.values[writes.first++ % MOST_WRITES]);
        pthread_mutex_unlock(&lock);
        nanosleep(&(struct timespec){.tv_nsec = 10000}, NULL);
    }
    return NULL;
}

/* ---- memory: none ---------------------------------------------------------------------------- */

/* What is mapped, and until when the device uses it: an access elsewhere would be an error. */
#define FIRST_ADDRESS ((CUdeviceptr)1 << 44)
#define MOST_MAPPED ((size_t)1 << 22)
static uint8_t *mapped;
static uint64_t *used_until;

static void violation(const char *what, CUdeviceptr address)
{
    fprintf(stderr, "cuda_replay: %s: %#llx\n", what, (unsigned long long)address);
    abort();
}

static size_t unit_of(CUdeviceptr address)
{
    size_t unit = (address - FIRST_ADDRESS) / EBB_CUDA_UNIT_BYTES;
    if (unit >= MOST_MAPPED)
        violation("an address of nobody", address);
    return unit;
}

/* The device uses this range until then. Expects the lock. */
static void use(CUdeviceptr address, uint64_t bytes, uint64_t until)
{
    for (size_t i = unit_of(address); i <= unit_of(address + bytes - 1); i++) {
        if (!mapped[i])
            violation("used, and not mapped", FIRST_ADDRESS + i * EBB_CUDA_UNIT_BYTES);
        if (used_until[i] < until)
            used_until[i] = until;
    }
}

static void set_mapped(CUdeviceptr address, uint64_t bytes, bool is_mapped)
{
    pthread_mutex_lock(&lock);
    for (size_t i = unit_of(address); i <= unit_of(address + bytes - 1); i++) {
        if (mapped[i] == is_mapped)
            violation(is_mapped ? "mapped twice" : "not mapped", address);
        if (!is_mapped && used_until[i] > ebb__now_ns())
            violation("unmapped in use", FIRST_ADDRESS + i * EBB_CUDA_UNIT_BYTES);
        mapped[i] = is_mapped;
    }
    pthread_mutex_unlock(&lock);
}

static struct {
    CUdeviceptr first, last; /* of host memory */
} hosts[MOST_HANDLES];
static unsigned host_count, unopened;

static bool is_host(CUdeviceptr address)
{
    for (unsigned i = host_count; i-- > 0;)
        if (address - hosts[i].first < hosts[i].last - hosts[i].first)
            return true;
    return false;
}

static void forget_host(CUdeviceptr address)
{
    for (unsigned i = host_count; i-- > 0;)
        if (hosts[i].first == address) {
            hosts[i] = hosts[--host_count];
            return;
        }
}

static CUresult address_reserve(CUdeviceptr *address, size_t bytes, size_t alignment,
                                CUdeviceptr wanted, unsigned long long flags)
{
    static CUdeviceptr next = FIRST_ADDRESS;
    (void)alignment, (void)wanted, (void)flags;
    pthread_mutex_lock(&lock);
    *address = next;
    next += (bytes + ((CUdeviceptr)64 << 20)) & ~(((CUdeviceptr)32 << 20) - 1);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

#define HOST_HANDLE ((CUmemGenericAllocationHandle)1)
#define DEVICE_HANDLE ((CUmemGenericAllocationHandle)2)

static uint64_t created_bytes;

static CUresult mem_create(CUmemGenericAllocationHandle *handle, size_t bytes,
                           const CUmemAllocationProp *properties, unsigned long long flags)
{
    (void)flags;
    *handle =
        properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? DEVICE_HANDLE : HOST_HANDLE;
    created_bytes += *handle == DEVICE_HANDLE ? bytes : 0;
    take(*handle == DEVICE_HANDLE ? CREATE_NS : (double)(bytes >> 20) * HOST_MIB_NS);
    return CUDA_SUCCESS;
}

static CUresult mem_release(CUmemGenericAllocationHandle handle)
{
    if (handle == DEVICE_HANDLE)
        take(RELEASE_NS);
    return CUDA_SUCCESS;
}

static CUresult mem_map(CUdeviceptr address, size_t bytes, size_t offset,
                        CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    (void)offset, (void)flags;
    if (handle == DEVICE_HANDLE) {
        unopened++;
    } else if (host_count < MOST_HANDLES) {
        hosts[host_count].first = address;
        hosts[host_count++].last = address + bytes;
    }
    return CUDA_SUCCESS;
}

/* Mappings use the engine of copies to the host when it has nothing to do, or its time is up. */
static void await_turn(void)
{
    uint64_t last = ebb__now_ns() + scaled(TURN_NS);
    pthread_mutex_lock(&lock);
    uint64_t gaps = outs.gaps, until = outs.until;
    while (until > ebb__now_ns() && last > ebb__now_ns() && outs.gaps == gaps) {
        pthread_mutex_unlock(&lock);
        sleep_until(until < last ? until : last);
        pthread_mutex_lock(&lock);
        until = outs.until;
    }
    pthread_mutex_unlock(&lock);
}

static uint64_t mapped_ns, mapped_count, waited_ns;

static CUresult set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access,
                           size_t count)
{
    (void)access, (void)count;
    if (is_host(address)) {
        set_mapped(address, bytes, true);
        return CUDA_SUCCESS;
    }
    mapped_count += unopened;
    for (; unopened; unopened--) {
        uint64_t since_ns = ebb__now_ns();
        await_turn();
        waited_ns += ebb__now_ns() - since_ns;
        take(MAP_NS);
        mapped_ns += ebb__now_ns() - since_ns;
    }
    set_mapped(address, bytes, true);
    return CUDA_SUCCESS;
}

static CUresult mem_unmap(CUdeviceptr address, size_t bytes)
{
    bool is_of_host = is_host(address);
    set_mapped(address, bytes, false);
    if (is_of_host)
        forget_host(address);
    else
        take(UNMAP_NS);
    return CUDA_SUCCESS;
}

static CUresult copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    bool is_out = is_host(to);
    uint64_t ns = ebb__lane_ns(is_out ? &set.machine.out : &set.machine.in, bytes);
    pthread_mutex_lock(&lock);
    if (is_out)
        outs.gaps += stream->until < ebb__now_ns();
    busy(stream, scaled((double)ns));
    if (is_out)
        outs.until = stream->until;
    use(is_out ? from : to, bytes, stream->until);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

static void *find(void *context, const char *symbol)
{
    static const struct no_driver_symbol own[] = {{"cuStreamCreate", (void *)stream_create},
                                                  {"cuStreamCreateWithPriority", NULL},
                                                  {"cuEventCreate", (void *)event_create},
                                                  {"cuEventRecord", (void *)event_record},
                                                  {"cuEventQuery", (void *)event_query},
                                                  {"cuEventElapsedTime", (void *)event_elapsed},
                                                  {"cuEventElapsedTime_v2", (void *)event_elapsed},
                                                  {"cuEventSynchronize", (void *)event_wait},
                                                  {"cuStreamQuery", (void *)stream_query},
                                                  {"cuStreamSynchronize", (void *)stream_wait},
                                                  {"cuStreamWaitEvent", (void *)wait_event},
                                                  {"cuStreamWaitValue32_v2", (void *)wait_value},
                                                  {"cuStreamWriteValue32_v2", (void *)write_value},
                                                  {"cuMemAddressReserve", (void *)address_reserve},
                                                  {"cuMemCreate", (void *)mem_create},
                                                  {"cuMemRelease", (void *)mem_release},
                                                  {"cuMemMap", (void *)mem_map},
                                                  {"cuMemSetAccess", (void *)set_access},
                                                  {"cuMemUnmap", (void *)mem_unmap},
                                                  {"cuMemcpyAsync", (void *)copy},
                                                  {NULL, NULL}};
    (void)context;
    return no_driver_find(own, symbol);
}

/* ---- the training: what one iteration does --------------------------------------------------- */

struct step {
    uint8_t kind, access; /* ALLOC, FREE, or ACCESS: one operand of a kernel */
    uint32_t block;       /* which allocation of its iteration, or `allocs` + which of the others */
    bool is_before;       /* it is of the iteration before */
    uint64_t bytes;
    uint64_t kernel_ns; /* of the last operand of a kernel: how long it lasts; else 0 */
};

static struct {
    struct step *steps;
    size_t count;
    uint32_t allocs;     /* of an iteration */
    uint32_t persistent; /* blocks that live longer: numbers from `allocs` on */
    uint64_t *persistent_bytes;
} training;

struct names { /* of the blocks of the trace, by serial */
    uint32_t *ordinal;
    bool *is_persistent;
    uint64_t *bytes;
};

static bool is_told(const struct ebb_event *event)
{
    return event->kind == EBB_EVENT_ALLOC || event->kind == EBB_EVENT_FREE ||
           (event->kind == EBB_EVENT_ACCESS && event->flags & EBB_EVENT_ANNOUNCED);
}

static bool is_end(const struct ebb_event *event)
{
    return event->kind == EBB_EVENT_ACCESS && !(event->flags & EBB_EVENT_ANNOUNCED);
}

/* Blocks of the iteration before have the numbers of their counterparts in this one. */
static void name_blocks(const struct ebb_trace *trace, size_t first, size_t period,
                        struct names *names)
{
    uint32_t next = 0;
    for (size_t i = first < period ? 0 : first - period; i < first + period; i++) {
        const struct ebb_event *event = &trace->events[i];
        if (i == first)
            next = 0;
        if (event->kind != EBB_EVENT_ALLOC)
            continue;
        names->ordinal[event->block] = next++;
        names->is_persistent[event->block] = false;
        names->bytes[event->block] = event->size_bytes;
    }
    training.allocs = next;
}

static void read_training(const struct ebb_trace *trace, size_t first, size_t period)
{
    uint64_t most = 0, end_ns = trace->events[first].time_ns;
    for (size_t i = 0; i < first + period; i++)
        if (trace->events[i].block > most)
            most = trace->events[i].block;
    struct names names = {calloc(most + 1, 4), calloc(most + 1, 1), calloc(most + 1, 8)};
    memset(names.is_persistent, 1, most + 1);
    for (size_t i = 0; i < first; i++)
        if (trace->events[i].kind == EBB_EVENT_ALLOC)
            names.bytes[trace->events[i].block] = trace->events[i].size_bytes;
    name_blocks(trace, first, period, &names);
    uint64_t born = 0;
    for (size_t i = first; i < first + period && !born; i++)
        if (trace->events[i].kind == EBB_EVENT_ALLOC)
            born = trace->events[i].block;
    training.steps = calloc(period, sizeof *training.steps);
    training.persistent_bytes = calloc(most + 1, 8);
    uint32_t *numbers = calloc(most + 1, 4);
    struct step *open = NULL; /* of a kernel whose end has not come */
    for (size_t i = first; i < first + period; i++) {
        const struct ebb_event *event = &trace->events[i];
        bool is_use = is_told(event) && event->kind == EBB_EVENT_ACCESS;
        if (open && (is_end(event) || (is_use && open != &training.steps[training.count - 1]))) {
            open->kernel_ns = event->time_ns > end_ns ? event->time_ns - end_ns : 1;
            end_ns = event->time_ns > end_ns ? event->time_ns : end_ns;
            open = NULL;
        }
        if (!is_told(event))
            continue;
        if (is_use)
            open = &training.steps[training.count];
        uint64_t block = event->block;
        if (names.is_persistent[block] && !numbers[block]) {
            training.persistent_bytes[training.persistent] = names.bytes[block];
            numbers[block] = ++training.persistent;
        }
        training.steps[training.count++] =
            (struct step){.kind = event->kind,
                          .access = event->access,
                          .block = names.is_persistent[block] ? training.allocs + numbers[block] - 1
                                                              : names.ordinal[block],
                          .is_before = !names.is_persistent[block] && block < born,
                          .bytes = names.bytes[block]};
    }
}

/* ---- a run ----------------------------------------------------------------------------------- */

struct run {
    struct ebb_cuda_driver driver;
    struct ebb_cuda_config config;
    struct ebb_cuda *engine;
    CUstream stream;
    CUdeviceptr *at[2]; /* of this iteration's blocks, and of the one before */
    uint64_t *bytes;    /* of this iteration's blocks */
    uint64_t random;
    uint64_t *serials[2]; /* the same: names in the events */
    CUdeviceptr *persistent;
    uint64_t *persistent_serials;
    uint64_t newest_serial;
    struct ebb_event *events; /* of the first iterations, as the parent would get them */
    size_t event_count;
    uint64_t time_ns;
};

static void *share(size_t bytes)
{
    void *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (shared == MAP_FAILED)
        abort();
    return shared;
}

static void must(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "cuda_replay: %s\n", what);
    exit(1);
}

static void start(struct run *run, uint64_t budget_bytes)
{
    struct ebb_error error = {0};
    must(ebb__cuda_driver_load(&run->driver, find, NULL, &error) == EBB_OK, error.why);
    struct ebb_ledger *ledger = share(sizeof *ledger);
    struct ebb_ring *ring = share(ebb__ring_bytes(EBB_RING_EVENTS));
    ebb__ledger_init(ledger, EBB_LEDGER_SLOTS, budget_bytes);
    atomic_store(&ledger->in_force, 1); /* also without a budget: there is one peak */
    ebb__ring_init(ring, EBB_RING_EVENTS, 0);
    atomic_store(&ring->parent_gone, 1);
    run->config = (struct ebb_cuda_config){.driver = &run->driver,
                                           .context = (CUcontext)(uintptr_t)1,
                                           .backing = EBB_CUDA_VMM_TRUSTING,
                                           .ledger = ledger,
                                           .slot = &ledger->slots[1],
                                           .ring = ring,
                                           .host_budget_bytes = UINT64_MAX,
                                           .pinned_budget_bytes = UINT64_MAX};
    must(ebb__cuda_create(&run->config, &run->engine, &error) == EBB_OK, error.why);
    stream_create(&run->stream, 0);
}

static void note(struct run *run, uint8_t kind, uint8_t access, uint64_t serial, uint64_t bytes)
{
    if (run->events && serial)
        run->events[run->event_count++] =
            (struct ebb_event){.kind = kind,
                               .access = access,
                               .block = serial,
                               .size_bytes = kind == EBB_EVENT_ACCESS ? 0 : bytes,
                               .flags = kind == EBB_EVENT_ACCESS ? EBB_EVENT_ANNOUNCED : 0,
                               .time_ns = run->time_ns};
}

static CUdeviceptr *place_of(struct run *run, const struct step *step, uint64_t **serial)
{
    if (step->block >= training.allocs) {
        *serial = &run->persistent_serials[step->block - training.allocs];
        return &run->persistent[step->block - training.allocs];
    }
    *serial = &run->serials[step->is_before][step->block];
    return &run->at[step->is_before][step->block];
}

static void allocate(struct run *run, uint64_t bytes, CUdeviceptr *at, uint64_t *serial)
{
    must(ebb__cuda_alloc(run->engine, bytes, run->stream, at) == CUDA_SUCCESS, "no memory");
    *serial = bytes >= CUDA_SMALL_BYTES ? ++run->newest_serial : 0;
    note(run, EBB_EVENT_ALLOC, 0, *serial, bytes);
}

struct operand {
    struct ebb_cuda_use use;
    uint64_t serial, bytes;
};

/* Each block once, by name, as the engine tells them. */
static void note_uses(struct run *run, struct operand *operands, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        struct operand one = operands[i];
        size_t to = i;
        for (; to > 0 && operands[to - 1].serial > one.serial; to--)
            operands[to] = operands[to - 1];
        operands[to] = one;
    }
    for (size_t i = 0; i < count; i++)
        if (i == 0 || operands[i].serial != operands[i - 1].serial)
            note(run, EBB_EVENT_ACCESS, operands[i].use.access, operands[i].serial, 0);
}

static void launch(struct run *run, struct operand *operands, size_t count, uint64_t ns)
{
    struct ebb_cuda_use uses[MOST_OPERANDS];
    note_uses(run, operands, count);
    for (size_t i = 0; i < count; i++)
        uses[i] = operands[i].use;
    struct ebb_cuda_work work = {
        .kind = EBB_CUDA_KERNEL, .stream = run->stream, .uses = uses, .use_count = count};
    take(HOST_NS);
    ebb__cuda_begin(run->engine, &work);
    pthread_mutex_lock(&lock);
    busy(run->stream, scaled((double)ns));
    for (size_t i = 0; i < count; i++)
        use(operands[i].use.address, operands[i].bytes, run->stream->until);
    pthread_mutex_unlock(&lock);
    ebb__cuda_end(run->engine, &work, true);
    run->time_ns += ns;
}

static uint64_t draw(struct run *run, uint64_t below)
{
    run->random = run->random * 6364136223846793005u + 1442695040888963407u;
    return (run->random >> 33) % below;
}

/* At times, another block that lives now. */
static size_t add_stray(struct run *run, struct operand *operands, size_t count)
{
    uint64_t block = draw(run, training.allocs);
    if (count == MOST_OPERANDS || draw(run, 1000) >= (uint64_t)set.strays || !run->at[0][block])
        return count;
    operands[count] = (struct operand){
        {run->at[0][block], 0, EBB_ACCESS_READ}, run->serials[0][block], run->bytes[block]};
    return count + 1;
}

static void iterate(struct run *run)
{
    struct operand operands[MOST_OPERANDS];
    size_t count = 0;
    CUdeviceptr *before = run->at[0];
    uint64_t *serials = run->serials[0];
    run->at[0] = run->at[1];
    run->serials[0] = run->serials[1];
    run->at[1] = before;
    run->serials[1] = serials;
    for (size_t i = 0; i < training.count; i++) {
        const struct step *step = &training.steps[i];
        uint64_t *serial;
        CUdeviceptr *at = place_of(run, step, &serial);
        if (step->kind == EBB_EVENT_ALLOC) {
            allocate(run, step->bytes, at, serial);
            run->bytes[step->block] = step->bytes;
        } else if (*at && step->kind == EBB_EVENT_FREE) {
            note(run, EBB_EVENT_FREE, 0, *serial, step->bytes);
            ebb__cuda_free(run->engine, *at, run->stream);
            *at = 0;
        } else if (*at && count < MOST_OPERANDS) {
            operands[count++] = (struct operand){{*at, 0, step->access}, *serial, step->bytes};
        }
        if (step->kernel_ns) {
            count = add_stray(run, operands, count);
            launch(run, operands, count, step->kernel_ns);
            count = 0;
        }
    }
    sleep_until(run->stream->until); /* the program looks at the loss */
}

static struct ebb_script *plan(const struct run *run, const size_t border[2], double part)
{
    struct ebb_error error = {0};
    struct ebb_model model;
    struct ebb_planned planned;
    struct ebb_script *script;
    must(ebb__model_build((struct ebb_event_span){run->events, run->event_count}, border[0],
                          border[1] - border[0], &model, &error) == EBB_OK,
         error.why);
    struct ebb_plan_terms terms = ebb__plan_terms(ebb__plan_policy("ebb"), &model, &set.machine,
                                                  (uint64_t)((double)model.peak_bytes * part));
    terms.page_bytes = EBB_HUGE_BYTES;
    terms.place_unit_bytes = atomic_load(&run->config.ring->counters.place_unit_bytes);
    terms.smallest_block_bytes = EBB_HUGE_BYTES / 2;
    terms.margin_bytes = MARGIN_BYTES;
    must(ebb__planned_make(&terms, &planned, &error) == EBB_OK && planned.plan.feasible, "no plan");
    must(ebb__planned_script(&planned, &script, &error) == EBB_OK, error.why);
    printf("iteration %.1f ms, peak %.0f MiB; plan: %zu absences, stall %.1f ms\n",
           (double)ebb__model_iteration_ns(&model) / 1e6, (double)model.peak_bytes / 1048576,
           (size_t)planned.plan.absence_count, (double)planned.plan.stall_ns / 1e6);
    return script;
}

static void report(const struct run *run, unsigned number, uint64_t ns)
{
    static uint64_t out, in, stall;
    const struct ebb_counters *counters = &run->config.ring->counters;
    uint64_t now[] = {atomic_load(&counters->moved_out_bytes),
                      atomic_load(&counters->moved_in_bytes), atomic_load(&counters->stall_ns)};
    printf(
        "%u: %.1f ms, stalled %.1f; out %llu MiB, in %llu; mapped %llu in %.1f ms, of them waited "
        "%.1f, made %llu MiB; demand %llu, evicted unplanned %llu, departures %llu\n",
        number, (double)ns / set.slower / 1e6, (double)(now[2] - stall) / set.slower / 1e6,
        (unsigned long long)(now[0] - out) >> 20, (unsigned long long)(now[1] - in) >> 20,
        (unsigned long long)mapped_count, (double)mapped_ns / set.slower / 1e6,
        (double)waited_ns / set.slower / 1e6, (unsigned long long)created_bytes >> 20,
        (unsigned long long)atomic_load(&counters->demand_faults),
        (unsigned long long)atomic_load(&counters->reactive_evictions),
        (unsigned long long)atomic_load(&counters->mismatches));
    out = now[0], in = now[1], stall = now[2];
    mapped_ns = mapped_count = waited_ns = created_bytes = 0;
    fflush(stdout);
}

static void begin(struct run *run, uint64_t budget_bytes)
{
    start(run, budget_bytes);
    for (unsigned i = 0; i < 2; i++) {
        run->at[i] = calloc(training.allocs + 1, sizeof **run->at);
        run->serials[i] = calloc(training.allocs + 1, sizeof **run->serials);
    }
    run->bytes = calloc(training.allocs + 1, sizeof *run->bytes);
    run->persistent = calloc(training.persistent + 1, sizeof *run->persistent);
    run->persistent_serials = calloc(training.persistent + 1, sizeof *run->persistent_serials);
    for (uint32_t i = 0; i < training.persistent; i++)
        allocate(run, training.persistent_bytes[i], &run->persistent[i],
                 &run->persistent_serials[i]);
}

static void replay(double part, unsigned iterations)
{
    struct run *run = calloc(1, sizeof *run);
    size_t border[3];
    uint64_t peak = 0, live = 0;
    for (uint32_t i = 0; i < training.persistent; i++)
        live += training.persistent_bytes[i];
    for (unsigned turn = 0; turn < 2; turn++)
        for (size_t i = 0; i < training.count; i++) {
            const struct step *step = &training.steps[i];
            live += step->kind == EBB_EVENT_ALLOC ? step->bytes : 0;
            live -= step->kind == EBB_EVENT_FREE && (turn || !step->is_before) ? step->bytes : 0;
            peak = live > peak ? live : peak;
        }
    run->events = calloc(4 * training.count + training.persistent + 16, sizeof *run->events);
    run->events[run->event_count++] =
        (struct ebb_event){.kind = EBB_EVENT_MARK, .mark = EBB_MARK_TRACE_ON};
    begin(run, (uint64_t)((double)peak * part));
    for (unsigned i = 0; i < iterations; i++) {
        if (i < 3)
            border[i] = run->event_count;
        uint64_t since_ns = ebb__now_ns();
        iterate(run);
        report(run, i, ebb__now_ns() - since_ns);
        if (i == 2) {
            struct ebb_script *script = plan(run, border + 1, part);
            run->events = NULL;
            must(ebb__cuda_set_script(run->engine, script, script->bytes) == EBB_OK, "no script");
        }
    }
}

int main(int argc, char **argv)
{
    struct ebb_trace trace;
    struct ebb_error error = {0};
    struct ebb_analysis analysis;
    double percent = 75;
    unsigned iterations = 8;
    must(argc > 1, "usage: bench_cuda_replay TRACE [--share S] [--iterations N] [--slower F]");
    for (int i = 2; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--share") == 0)
            percent = atof(argv[i + 1]);
        else if (strcmp(argv[i], "--iterations") == 0)
            iterations = (unsigned)atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--slower") == 0)
            set.slower = atof(argv[i + 1]);
        else if (strcmp(argv[i], "--strays") == 0)
            set.strays = atoi(argv[i + 1]);
        else
            must(false, argv[i]);
    }
    must(ebb__machine_named("h200", &set.machine, &error) == EBB_OK, error.why);
    must(ebb__trace_read(argv[1], &trace, &error) == EBB_OK, error.why);
    must(ebb__analyse((struct ebb_event_span){trace.events, trace.count}, &analysis, &error) ==
             EBB_OK,
         error.why);
    must(analysis.model_period > 0, "the trace has no iteration with accesses");
    read_training(&trace, analysis.model_first, analysis.model_period);
    mapped = share(MOST_MAPPED);
    used_until = share(MOST_MAPPED * sizeof *used_until);
    pthread_t flags;
    must(pthread_create(&flags, NULL, write_flags, NULL) == 0, "no thread");
    replay(percent / 100, iterations);
    return 0;
}
