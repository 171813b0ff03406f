/* Recognises callers in libc and the loader by their addresses. Their own allocations are treated
 * differently. */
#include "shim.h"

#include <dlfcn.h>
#include <link.h>

/* The code of libc and of the loader. */
static struct text {
    uintptr_t first, last;
} libc, loader;

static inline bool is_in(const struct text *text, const void *address)
{
    return (uintptr_t)address - text->first < text->last - text->first;
}

struct search {
    const void *inside;
    struct text *found;
};

static int note_text(struct dl_phdr_info *info, size_t bytes, void *argument)
{
    const struct search *search = argument;
    (void)bytes;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        uintptr_t first = info->dlpi_addr + segment->p_vaddr;
        if (segment->p_type != PT_LOAD || (uintptr_t)search->inside - first >= segment->p_memsz)
            continue;
        *search->found = (struct text){first, first + segment->p_memsz};
        return 1;
    }
    return 0;
}

void ebb__shim_know_libc(void)
{
    struct search searches[] = {{dlsym(RTLD_NEXT, "fread"), &libc},
                                {dlsym(RTLD_DEFAULT, "__tls_get_addr"), &loader}};
    for (size_t i = 0; i < sizeof searches / sizeof searches[0]; i++)
        if (searches[i].inside)
            dl_iterate_phdr(note_text, &searches[i]);
}

bool ebb__shim_is_of_loader(const void *caller)
{
    return is_in(&loader, caller);
}

bool ebb__shim_is_of_libc(const void *caller)
{
    return is_in(&libc, caller) || ebb__shim_is_of_loader(caller);
}

bool ebb__shim_is_in_libc(const void *caller)
{
    return is_in(&libc, caller);
}
