/* Steps as frameworks have them: weights, activations that go back in reverse order, gradients.
 *
 *   steps KIND N [END]
 *
 * KIND is what happens to gradients, or beside the steps:
 *   kept: they are made in the first step. Later ones are computed in blocks of the same sizes,
 *         added, and freed
 *   freed: the next step frees them when it has its images. After each 5th one is an evaluation
 *          with larger blocks
 *   large: as freed, but the evaluation is after each 16th step, with blocks of four times the size
 *   child: as kept, but in a child. The process itself has 128 MiB of data and waits
 * With END, the process kills itself after that step, as a user may. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    LAYERS = 16,
    ACTIVATION = 2 << 20,
    IMAGES = 3 << 20,
    LABELS = 1 << 18,
    DATA = 128 << 20,
    LAYER_US = 1500
};

static struct layer {
    uint64_t *weight, *gradient;
    unsigned char *activation;
} layers[LAYERS];

static size_t weight_words(int layer)
{
    return (((size_t)1 << 20) + (size_t)layer * 65536) / sizeof(uint64_t);
}

static size_t activation_bytes(int layer)
{
    return ACTIVATION + (size_t)layer * 65536;
}

static void *filled(size_t bytes, int value)
{
    void *block = malloc(bytes);
    if (!block)
        exit(2);
    return memset(block, value, bytes);
}

static void add(uint64_t *to, const uint64_t *from, size_t words)
{
    for (size_t i = 0; i < words; i++)
        to[i] += from[i];
}

static void forward(int step, size_t times)
{
    for (int i = 0; i < LAYERS; i++) {
        size_t bytes = activation_bytes(i) * times;
        layers[i].activation = filled(bytes, step + i + (int)(layers[i].weight[step] & 63));
        usleep(LAYER_US);
    }
}

static void backward(int is_kept)
{
    for (int i = LAYERS; i-- > 0;) {
        struct layer *layer = &layers[i];
        size_t words = weight_words(i);
        uint64_t *computed = filled(words * sizeof(*computed),
                                    layer->activation[ACTIVATION - 1] + (int)layer->weight[7]);
        if (layer->gradient && is_kept) {
            add(layer->gradient, computed, words);
            free(computed);
        } else {
            layer->gradient = computed;
        }
        free(layer->activation);
        usleep(LAYER_US);
    }
}

static void evaluate(int step, size_t times)
{
    forward(step, times);
    for (int i = 0; i < LAYERS; i++)
        free(layers[i].activation);
}

/* Returns in the child. */
static void go_on_as_child(void)
{
    unsigned char *data = filled(DATA, 1);
    int status;
    pid_t child = fork();
    if (child == 0)
        return;
    if (child < 0 || waitpid(child, &status, 0) < 0 || status || data[DATA - 1] != 1)
        exit(2);
    exit(0);
}

int main(int count, char **arguments)
{
    if (count < 3)
        return 2;
    int is_child = !strcmp(arguments[1], "child");
    int is_kept = is_child || !strcmp(arguments[1], "kept"),
        is_large = !strcmp(arguments[1], "large");
    int steps = atoi(arguments[2]), end = count > 3 ? atoi(arguments[3]) : 0;
    uint64_t sum = 0;
    if (is_child)
        go_on_as_child();
    for (int i = 0; i < LAYERS; i++)
        layers[i].weight = filled(weight_words(i) * sizeof(uint64_t), i + 1);
    for (int step = 0; step < steps; step++) {
        void *images = filled(IMAGES, step), *labels = filled(LABELS, step);
        for (int i = 0; i < LAYERS && !is_kept; i++) {
            free(layers[i].gradient);
            layers[i].gradient = NULL;
        }
        forward(step, 1);
        backward(is_kept);
        free(images);
        free(labels);
        for (int i = 0; i < LAYERS; i++) {
            add(layers[i].weight, layers[i].gradient, weight_words(i));
            sum += layers[i].weight[step];
        }
        if (is_large ? step % 16 == 15 : !is_kept && step % 5 == 4)
            evaluate(step, is_large ? 4 : 2);
        if (step + 1 == end)
            kill(getpid(), SIGKILL);
    }
    printf("checksum %llx\n", (unsigned long long)sum);
    return 0;
}
