#include "base/smaps.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LINE_BYTES 256u

struct reading {
    uint64_t first, last;
    bool is_inside; /* the current lines belong to a mapping in the range */
    struct ebb_smaps *smaps;
};

static void take_line(struct reading *reading, const char *line)
{
    unsigned long long begin, end, kib;
    if (((line[0] >= '0' && line[0] <= '9') || (line[0] >= 'a' && line[0] <= 'f')) &&
        sscanf(line, "%llx-%llx ", &begin, &end) == 2)
        reading->is_inside = begin >= reading->first && begin < reading->last;
    else if (reading->is_inside && sscanf(line, "Pss: %llu", &kib) == 1)
        reading->smaps->share_bytes += (uint64_t)kib << 10;
    else if (reading->is_inside && (sscanf(line, "Private_Clean: %llu", &kib) == 1 ||
                                    sscanf(line, "Private_Dirty: %llu", &kib) == 1))
        reading->smaps->private_bytes += (uint64_t)kib << 10;
}

bool ebb__smaps_read(const char *path, uint64_t first, uint64_t last, struct ebb_smaps *smaps)
{
    char buffer[4096], line[LINE_BYTES];
    size_t length = 0;
    ssize_t got;
    *smaps = (struct ebb_smaps){0};
    struct reading reading = {first, last, false, smaps};
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return false;
    bool read_any = false;
    while ((got = read(descriptor, buffer, sizeof buffer)) > 0) {
        read_any = true;
        for (ssize_t i = 0; i < got; i++) {
            if (buffer[i] == '\n') {
                line[length] = 0;
                take_line(&reading, line);
                length = 0;
            } else if (length < LINE_BYTES - 1) { /* a longer line is a path */
                line[length++] = buffer[i];
            }
        }
    }
    close(descriptor);
    return read_any && got == 0;
}
