/* Where the real driver is. The loader cannot be asked for libcuda.so.1: that is this library. So
 * its search is repeated here: LD_LIBRARY_PATH, the loader's cache, the search path of the program.
 * A file that is this library again is skipped. */
#include "door.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define DRIVER_NAME "libcuda.so.1"

/* By this name, a library is known to be this one. */
extern const char ebb_cuda_door[];
__attribute__((visibility("default"))) const char ebb_cuda_door[] = "ebb";

static void *try_file(const char *path)
{
    struct stat status;
    if (path[0] != '/' || stat(path, &status) != 0 || !S_ISREG(status.st_mode))
        return NULL;
    void *handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    if (!handle)
        return NULL;
    if (dlsym(handle, "ebb_cuda_door") || !dlsym(handle, "cuInit")) {
        dlclose(handle);
        return NULL;
    }
    return handle;
}

static void *try_folder(const char *folder, size_t length)
{
    char path[PATH_MAX];
    if (length == 0 || length + sizeof "/" DRIVER_NAME > sizeof path)
        return NULL;
    snprintf(path, sizeof path, "%.*s/" DRIVER_NAME, (int)length, folder);
    return try_file(path);
}

static void *try_list(const char *list)
{
    void *handle = NULL;
    while (list && *list && !handle) {
        size_t length = strcspn(list, ":;");
        handle = try_folder(list, length);
        list += length + (list[length] != 0);
    }
    return handle;
}

/* The file /etc/ld.so.cache of glibc 2.2 and later: a header, entries, strings. Offsets of strings
 * count from the header. */
#define CACHE_MAGIC "glibc-ld.so.cache1.1"
struct cache_entry {
    int32_t flags;
    uint32_t key, value, version;
    uint64_t capabilities;
};
struct cache {
    char magic[20];
    uint32_t count, string_bytes;
    uint32_t unused[5];
    struct cache_entry entries[];
};
#define CACHE_X86_64 0x0303

/* The string at `offset`, or "" if it does not end within the file. */
static const char *cache_string(const struct cache *cache, size_t bytes, uint32_t offset)
{
    const char *text = (const char *)cache + offset;
    return offset < bytes && memchr(text, 0, bytes - offset) ? text : "";
}

static void *try_cached(const struct cache *cache, size_t bytes)
{
    if (bytes < sizeof *cache || memcmp(cache->magic, CACHE_MAGIC, sizeof cache->magic) != 0 ||
        cache->count > (bytes - sizeof *cache) / sizeof cache->entries[0])
        return NULL;
    void *handle = NULL;
    for (uint32_t i = 0; i < cache->count && !handle; i++) {
        const struct cache_entry *entry = &cache->entries[i];
        if (entry->flags == CACHE_X86_64 &&
            strcmp(cache_string(cache, bytes, entry->key), DRIVER_NAME) == 0)
            handle = try_file(cache_string(cache, bytes, entry->value));
    }
    return handle;
}

static void *try_cache(void)
{
    int descriptor = open("/etc/ld.so.cache", O_RDONLY | O_CLOEXEC);
    struct stat status;
    if (descriptor < 0)
        return NULL;
    void *handle = NULL;
    if (fstat(descriptor, &status) == 0 && status.st_size > 0) {
        size_t bytes = (size_t)status.st_size;
        void *cache = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, descriptor, 0);
        if (cache != MAP_FAILED) {
            handle = try_cached(cache, bytes);
            munmap(cache, bytes);
        }
    }
    close(descriptor);
    return handle;
}

/* The run path of the program, and the loader's standard folders. */
static void *try_search_path(void)
{
    Dl_serinfo size, *paths;
    void *program = dlopen(NULL, RTLD_LAZY), *handle = NULL;
    if (!program)
        return NULL;
    if (dlinfo(program, RTLD_DI_SERINFOSIZE, &size) == 0 && (paths = malloc(size.dls_size))) {
        *paths = size;
        if (dlinfo(program, RTLD_DI_SERINFOSIZE, paths) == 0 &&
            dlinfo(program, RTLD_DI_SERINFO, paths) == 0)
            for (unsigned i = 0; i < paths->dls_cnt && !handle; i++)
                handle = try_folder(paths->dls_serpath[i].dls_name,
                                    strlen(paths->dls_serpath[i].dls_name));
        free(paths);
    }
    dlclose(program);
    return handle;
}

void *ebb__driver_open(void)
{
    const char *chosen = getenv("EBB_CUDA_DRIVER");
    if (chosen)
        return try_file(chosen);
    void *handle = try_list(getenv("LD_LIBRARY_PATH"));
    if (!handle)
        handle = try_cache();
    return handle ? handle : try_search_path();
}
