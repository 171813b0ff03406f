/* The CUDA driver and its devices. libcuda.so.1 is loaded if it is there; nothing needs it. It is
 * asked in a child, since a driver that is broken may crash or hang. */
#include "doctor.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LIBRARY "libcuda.so.1"

/* Numbers of the driver's interface, which do not change (cuda.h). */
enum {
    ASYNC_ENGINES = 40,
    CAPABILITY_MAJOR = 75,
    CAPABILITY_MINOR = 76,
    MANAGED_MEMORY = 83,
    PAGEABLE_ACCESS = 88,
    CONCURRENT_MANAGED = 89,
    VIRTUAL_ADDRESSES = 102,
};

struct driver {
    int (*init)(unsigned flags);
    int (*version)(int *version);
    int (*count)(int *count);
    int (*get)(int *device, int ordinal);
    int (*name)(char *name, int bytes, int device);
    int (*memory)(size_t *bytes, int device);
    int (*attribute)(int *value, int attribute, int device);
};

static bool find(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);
    memcpy(function, &found, sizeof found); /* ISO C has no cast from data to functions */
    return found != NULL;
}

static bool driver_open(void *library, struct driver *driver)
{
    return find(library, "cuInit", &driver->init) &&
           find(library, "cuDriverGetVersion", &driver->version) &&
           find(library, "cuDeviceGetCount", &driver->count) &&
           find(library, "cuDeviceGet", &driver->get) &&
           find(library, "cuDeviceGetName", &driver->name) &&
           find(library, "cuDeviceTotalMem_v2", &driver->memory) &&
           find(library, "cuDeviceGetAttribute", &driver->attribute);
}

static int value(const struct driver *driver, int attribute, int device)
{
    int found = 0;
    return driver->attribute(&found, attribute, device) == 0 ? found : 0;
}

static void tell_device(const struct driver *driver, int device, int descriptor)
{
    char name[100] = "?";
    size_t bytes = 0;
    driver->name(name, (int)sizeof name, device);
    driver->memory(&bytes, device);
    dprintf(descriptor,
            "; %s, %.1f GiB, sm_%d%d, %d copy engines, virtual addresses: %s, managed: %s%s%s",
            name, (double)bytes / (double)((size_t)1 << 30),
            value(driver, CAPABILITY_MAJOR, device), value(driver, CAPABILITY_MINOR, device),
            value(driver, ASYNC_ENGINES, device),
            value(driver, VIRTUAL_ADDRESSES, device) ? "yes" : "no",
            value(driver, MANAGED_MEMORY, device) ? "yes" : "no",
            value(driver, CONCURRENT_MANAGED, device) ? ", concurrent" : "",
            value(driver, PAGEABLE_ACCESS, device) ? ", pageable" : "");
}

/* Writes `ok` or `bad`, a space, and text. */
static void ask(int descriptor)
{
    struct driver driver;
    int version = 0, count = 0, device, failed;
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        dprintf(descriptor, "ok no driver (%s): Ebb manages the memory of the CPU", LIBRARY);
        _exit(0);
    }
    if (!driver_open(library, &driver)) {
        dprintf(descriptor, "bad %s is too old", LIBRARY);
        _exit(0);
    }
    driver.version(&version);
    failed = driver.init(0);
    if (!failed)
        failed = driver.count(&count);
    if (failed) {
        dprintf(descriptor, "bad driver for CUDA %d.%d, which fails with error %d", version / 1000,
                version % 1000 / 10, failed);
        _exit(0);
    }
    dprintf(descriptor, "ok driver for CUDA %d.%d, devices: %d", version / 1000,
            version % 1000 / 10, count);
    if (count > 0 && driver.get(&device, 0) == 0)
        tell_device(&driver, device, descriptor);
    _exit(0); /* without the driver's own end */
}

void ebb__doctor_cuda(struct ebb_doctor *report)
{
    char text[400];
    bool good = ebb__doctor_try(ask, text, sizeof text) && strncmp(text, "ok ", 3) == 0;
    const char *detail = strchr(text, ' ');
    ebb__doctor_add(report, "cuda", good ? EBB_DOCTOR_OK : EBB_DOCTOR_WARN,
                    "see that nvidia-smi works; in a container, give it the devices", "%s",
                    detail ? detail + 1 : "the driver crashes or hangs");
}
