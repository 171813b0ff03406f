/* Runs a fuzz harness on files and folders of files, in test runs and in builds without libFuzzer.
 * It fails without any file, so that a missing corpus is noticed. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t replayed_count;

static int replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    struct stat found;
    if (!file || fstat(fileno(file), &found)) {
        perror(path);
        return 1;
    }
    size_t size = (size_t)found.st_size;
    uint8_t *bytes = malloc(size + !size);
    if (!bytes || fread(bytes, 1, size, file) != size) {
        perror(path);
        return 1;
    }
    fclose(file);
    /* The memory is exactly as large as the input, so that a sanitizer finds an access past its
     * end. */
    LLVMFuzzerTestOneInput(bytes, size);
    free(bytes);
    replayed_count++;
    return 0;
}

static int replay(const char *path)
{
    DIR *folder = opendir(path);
    if (!folder)
        return replay_file(path);
    int failed = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        char inner[4096];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name);
        failed |= replay(inner);
    }
    closedir(folder);
    return failed;
}

int main(int argc, char **argv)
{
    int failed = 0;
    for (int i = 1; i < argc; i++)
        failed |= replay(argv[i]);
    printf("%zu inputs replayed\n", replayed_count);
    return failed || !replayed_count;
}
