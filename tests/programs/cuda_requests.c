/* Asks cuGetProcAddress_v2 of the library argv[1] for each request of the file argv[2], as written
 * by cuda_standin.c. Prints the request, and the library and symbol of the pointer that came. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    void *library = argc == 3 ? dlopen(argv[1], RTLD_NOW) : NULL;
    FILE *requests = argc == 3 ? fopen(argv[2], "r") : NULL;
    int (*ask)(const char *, void **, int, unsigned long long, int *);
    char base[200], symbol[200];
    int version, status;
    unsigned long long flags;
    if (!library || !requests)
        return 2;
    *(void **)&ask = dlsym(library, "cuGetProcAddress_v2");
    while (fscanf(requests, "%199s %d %llu %199s", base, &version, &flags, symbol) == 4) {
        void *pointer = NULL;
        Dl_info where = {0};
        int result = ask(strcmp(base, "empty") ? base : "", &pointer, version, flags, &status);
        if (pointer)
            dladdr(pointer, &where);
        const char *file = where.dli_fname ? strrchr(where.dli_fname, '/') + 1 : "-";
        printf("%s %d %llu %s %d %s %s\n", base, version, flags, symbol, result, file,
               where.dli_sname ? where.dli_sname : "-");
    }
    return 0;
}
