/* Two phases of a training: `phases N M` has N iterations with 12 layers of 4 MiB, then M with 17
 * of 16 MiB. Prints a sum of what it reads. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_LAYERS = 17, LAYER_US = 2000, LINE = 64, STEP = 1 << 16 };

static unsigned long sum;

static void iterate(int layers, size_t bytes, int value)
{
    unsigned char *blocks[MOST_LAYERS];
    for (int i = 0; i < layers; i++) {
        size_t all = bytes + (size_t)i * STEP;
        blocks[i] = malloc(all);
        if (!blocks[i])
            exit(2);
        memset(blocks[i], value + i, all);
        usleep(LAYER_US);
    }
    for (int i = layers; i-- > 0;) {
        for (size_t at = 0; at < bytes; at += LINE)
            sum += blocks[i][at];
        free(blocks[i]);
        usleep(LAYER_US);
    }
}

int main(int count, char **arguments)
{
    for (int i = 0; count > 2 && i < atoi(arguments[1]); i++)
        iterate(12, (size_t)4 << 20, i);
    for (int i = 0; count > 2 && i < atoi(arguments[2]); i++)
        iterate(17, (size_t)16 << 20, i);
    printf("%lu\n", sum);
    return 0;
}
