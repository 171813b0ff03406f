/* What the environment asks for: the card, its memory, the schedule, and which calls fail.
 *
 * FAKECUDA_FAULTS is a list such as "alloc:17,map:3+,prefetch:10%": the 17th allocation fails,
 * every cuMemMap from the third on, every tenth prefetch.
 */
#include "fake.h"
#include <stdlib.h>

struct fake_settings fake_set;
bool fake_faults_armed[FAULT_COUNT];

static const char *const fault_names[FAULT_COUNT] = {"alloc", "managed",  "host",   "create",
                                                     "map",   "prefetch", "launch", "copy-late",
                                                     "stall", "event",    "stream", "word"};

static struct fault {
    unsigned at;
    char kind; /* 0: once, '+': from then on, '%': each such call */
    _Atomic unsigned passed;
} faults[FAULT_COUNT];

static _Atomic uint64_t random_state;

static size_t bytes_of(const char *name, size_t usual)
{
    const char *text = getenv(name);
    if (!text || !*text)
        return usual;
    char *end;
    double value = strtod(text, &end);
    int shift = *end == 'G' ? 30 : *end == 'M' ? 20 : *end == 'K' ? 10 : 0;
    return (size_t)(value * (double)(1ull << shift));
}

static int number_of(const char *name, int usual)
{
    const char *text = getenv(name);
    return text && *text ? atoi(text) : usual;
}

static void read_fault(const char *text)
{
    for (int i = 0; i < FAULT_COUNT; i++) {
        size_t length = strlen(fault_names[i]);
        if (strncmp(text, fault_names[i], length) || text[length] != ':')
            continue;
        char *end;
        faults[i].at = (unsigned)strtoul(text + length + 1, &end, 10);
        faults[i].kind = *end == '+' || *end == '%' ? *end : 0;
        fake_faults_armed[i] = faults[i].at > 0;
        return;
    }
    fprintf(stderr, "fakecuda: FAKECUDA_FAULTS: unknown fault: %s\n", text);
    abort(); /* a test that plants nothing proves nothing */
}

void fake_settings_read(void)
{
    fake_set.device_count = number_of("FAKECUDA_DEVICES", 1);
    if (fake_set.device_count > MOST_DEVICES)
        fake_set.device_count = MOST_DEVICES;
    fake_set.driver_version = number_of("FAKECUDA_DRIVER", EBB_CUDA_VERSION);
    fake_set.memory_bytes = bytes_of("FAKECUDA_MEMORY", (size_t)8 << 30);
    fake_set.budget_bytes = bytes_of("FAKECUDA_BUDGET", 0);
    fake_set.pinned_bytes = bytes_of("FAKECUDA_PINNED", 0);
    fake_set.page_bytes = bytes_of("FAKECUDA_PAGE", 64 << 10);
    fake_set.seed = (uint64_t)number_of("FAKECUDA_SEED", 1);
    fake_set.lazy_us = (unsigned)number_of("FAKECUDA_LAZY_US", 200);
    fake_set.launch_ns = (uint64_t)number_of("FAKECUDA_LAUNCH_NS", 0);
    fake_set.fast = number_of("FAKECUDA_FAST", 0);
    fake_set.kernel_us = (unsigned)number_of("FAKECUDA_KERNEL_US", 0);
    fake_set.move_us = (unsigned)number_of("FAKECUDA_MOVE_US", 0);
    fake_set.host_waits = number_of("FAKECUDA_HOST_WAITS", 1);
    fake_set.races = number_of("FAKECUDA_RACES", 0) && !fake_set.fast;
    fake_set.host_faults = number_of("FAKECUDA_HOST_FAULTS", 1);
    fake_set.strict = number_of("FAKECUDA_STRICT", 1);
    fake_set.newer_variant = number_of("FAKECUDA_NEWER", 0);
    fake_set.no_device = number_of("FAKECUDA_NO_DEVICE", 0);
    fake_set.mig = number_of("FAKECUDA_MIG", 0);
    fake_set.no_concurrent = number_of("FAKECUDA_NO_CONCURRENT", 0);
    fake_set.report_path = getenv("FAKECUDA_REPORT");
    atomic_store(&random_state, fake_set.seed * 0x9e3779b97f4a7c15u + 1);
    const char *text = getenv("FAKECUDA_FAULTS");
    while (text && *text) {
        char one[64];
        size_t length = strcspn(text, ",");
        snprintf(one, sizeof(one), "%.*s", (int)length, text);
        read_fault(one);
        text += length + (text[length] == ',');
    }
}

bool fake_fault(enum fault_point point)
{
    if (!fake_faults_armed[point])
        return false;
    struct fault *fault = &faults[point];
    unsigned passed = atomic_fetch_add(&fault->passed, 1) + 1;
    return fault->kind == '+'   ? passed >= fault->at
           : fault->kind == '%' ? passed % fault->at == 0
                                : passed == fault->at;
}

/* splitmix64 over a counter, so that threads need no lock. */
unsigned fake_random(unsigned most)
{
    uint64_t x = atomic_fetch_add(&random_state, 0x9e3779b97f4a7c15u);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    return most ? (unsigned)(x % most) : 0;
}
