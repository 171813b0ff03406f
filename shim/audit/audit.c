/* For LD_AUDIT: whoever asks for libcuda.so or libcuda.so.1 by name gets libebb_cuda.so, which is
 * in the folder of this library. Preloading that library catches the second name only. The real
 * driver is asked for by its path, and is left alone.
 *
 * The loader keeps auditors in a namespace of their own: nothing is shared with the program. */
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

unsigned la_version(unsigned version);
char *la_objsearch(const char *name, uintptr_t *cookie, unsigned flag);

static char door[PATH_MAX];

static void find_door(void)
{
    Dl_info own;
    const char *slash = dladdr(&door, &own) ? strrchr(own.dli_fname, '/') : NULL;
    if (!slash)
        return;
    int length = (int)(slash - own.dli_fname);
    int wrote = snprintf(door, sizeof door, "%.*s/libebb_cuda.so", length, own.dli_fname);
    if (wrote < 0 || (size_t)wrote >= sizeof door || access(door, R_OK) != 0)
        door[0] = 0;
}

__attribute__((visibility("default"))) unsigned la_version(unsigned version)
{
    find_door();
    return version < LAV_CURRENT ? version : LAV_CURRENT;
}

__attribute__((visibility("default"))) char *la_objsearch(const char *name, uintptr_t *cookie,
                                                          unsigned flag)
{
    (void)cookie;
    bool is_driver = flag == LA_SER_ORIG &&
                     (strcmp(name, "libcuda.so.1") == 0 || strcmp(name, "libcuda.so") == 0);
    return is_driver && door[0] ? door : (char *)(uintptr_t)name;
}
