/* A program that owns its tensors: gradient descent on a chain of products, in half its memory.
 *
 *     cc explicit.c $(pkg-config --cflags --libs ebb) && ./a.out */
#include <ebb/ebb.h>

#include <stdio.h>
#include <stdlib.h>

#define LAYERS 16
#define FLOATS (1u << 20)

static struct ebb_context *context;
static struct ebb_error error;

static void must(enum ebb_status status)
{
    if (status == EBB_OK)
        return;
    fprintf(stderr, "%s: %s; %s\n", error.what, error.why, error.remedy);
    exit(ebb_status_exit_code(status));
}

static ebb_tensor declare(enum ebb_tensor_kind kind, const char *name)
{
    struct ebb_tensor_desc desc = {FLOATS * sizeof(float), 64, kind, name};
    ebb_tensor tensor;
    must(ebb_tensor_declare(context, &desc, &tensor, &error));
    return tensor;
}

/* out = a * in + b * with, element by element. */
static void combine(ebb_tensor out, enum ebb_use use, ebb_tensor in, float a, ebb_tensor with,
                    float b)
{
    void *o, *i, *w;
    must(ebb_tensor_acquire(context, in, EBB_USE_READ, &i, &error));
    must(ebb_tensor_acquire(context, with, EBB_USE_READ, &w, &error));
    must(ebb_tensor_acquire(context, out, use, &o, &error));
    for (size_t k = 0; k < FLOATS; k++)
        ((float *)o)[k] = a * ((float *)i)[k] + b * ((float *)w)[k];
    must(ebb_tensor_release(context, in, &error));
    must(ebb_tensor_release(context, with, &error));
    must(ebb_tensor_release(context, out, &error));
}

int main(void)
{
    ebb_tensor weights[LAYERS], outputs[LAYERS + 1];
    struct ebb_options options = {.budget_bytes = (LAYERS + 1) * FLOATS * sizeof(float)};
    must(ebb_context_create(&options, &context, &error));
    outputs[0] = declare(EBB_TENSOR_PARAMETER, "input");
    for (int l = 0; l < LAYERS; l++) {
        weights[l] = declare(EBB_TENSOR_PARAMETER, "weights");
        outputs[l + 1] = declare(EBB_TENSOR_ACTIVATION, "output");
    }
    for (int l = 0; l <= LAYERS; l++) {
        void *address;
        ebb_tensor tensor = l ? weights[l - 1] : outputs[0];
        must(ebb_tensor_acquire(context, tensor, EBB_USE_OVERWRITE, &address, &error));
        for (size_t k = 0; k < FLOATS; k++)
            ((float *)address)[k] = 1.0f / (float)(k % 100 + 1);
        must(ebb_tensor_release(context, tensor, &error));
    }
    for (int i = 0; i < 8; i++) {
        must(ebb_iteration_begin(context, 0, &error));
        for (int l = 0; l < LAYERS; l++)
            combine(outputs[l + 1], EBB_USE_OVERWRITE, outputs[l], 0.5f, weights[l], 0.5f);
        for (int l = LAYERS; l-- > 0; must(ebb_tensor_discard(context, outputs[l + 1], &error)))
            combine(weights[l], EBB_USE_UPDATE, weights[l], 0.9f, outputs[l + 1], 0.1f);
        must(ebb_iteration_end(context, &error));
    }
    struct ebb_statistics s;
    ebb_statistics(context, &s);
    printf("%llu MiB of %llu, %llu of %llu iterations planned\n",
           (unsigned long long)s.peak_resident_bytes >> 20,
           (unsigned long long)s.peak_live_bytes >> 20, (unsigned long long)s.planned_iterations,
           (unsigned long long)s.iterations);
    ebb_context_destroy(context);
    return 0;
}
