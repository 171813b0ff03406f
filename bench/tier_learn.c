/* Trains the network of `deeptm:+learning` (src/lab/tier/deeptm_learn.c) on random iterations,
 * and writes its weights. No recorded program takes part, so that none is tuned for. The same
 * seed gives the same weights on the same machine.
 *
 *     build/release/bench/bench_tier_learn 60 > src/lab/tier/deeptm_weights.h
 *
 * The argument is the number of plans. stderr has the times over
 * those of drawn actions. */
#include "../tests/synthetic.h"
#include "lab/tier/deeptm.h"
#include "lab/tier/tier.h"

#include <math.h>
#include <stdio.h>

static void weights_write(const struct ebb_deeptm_learner *learner, unsigned plans)
{
    printf("/* Trained weights of deeptm_learn.c: bench_tier_learn %u */\n"
           "#ifndef EBB_LAB_TIER_DEEPTM_WEIGHTS_H\n#define EBB_LAB_TIER_DEEPTM_WEIGHTS_H\n\n"
           "#define EBB_DEEPTM_WEIGHTS_VERSION %d\n\n"
           "static const float ebb__deeptm_weights[%d] = {",
           plans, EBB_LEARN_VERSION, EBB_LEARN_WEIGHTS);
    for (int i = 0; i < EBB_LEARN_WEIGHTS; i++)
        printf("%s%.6ff,", i % 8 ? " " : "\n    ", (double)learner->weights[i]);
    printf("\n};\n\n#endif\n");
}

int main(int argc, char **argv)
{
    unsigned plans = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 60;
    struct ebb_deeptm_learner learner;
    uint64_t state = 20240617;
    double mean = 0;
    ebb__deeptm_learner_draw(&learner, state);
    for (unsigned i = 0; i < plans; i++) {
        uint32_t layers = 10 + (uint32_t)(chance(&state) % 40);
        uint64_t bytes = (uint64_t)(200 + chance(&state) % 1500) * EBB_MIB;
        struct ebb_model model =
            make_training(layers, bytes, 20000000 + chance(&state) % 300000000, chance(&state));
        struct ebb_operations operations;
        struct ebb_tier_machine machine;
        struct ebb_error error = {0};
        double ns = 0, drawn_ns = 0;
        uint64_t peak = 0;
        if (ebb__operations_make(&model, &operations, &error) ||
            ebb__tiers_find(i % 2 ? "cxl" : "optane", &machine, &error) ||
            ebb__tiers_peak(&operations, &machine, &peak, &error))
            return 1;
        struct ebb_tier_request request = {&operations, &machine, peak / (2 + chance(&state) % 8),
                                           0, NULL};
        if (ebb__deeptm_train(&request, &learner, &ns, &error) ||
            (i >= plans - plans / 4 && ebb__deeptm_train(&request, NULL, &drawn_ns, &error)))
            return 1;
        if (drawn_ns > 0)
            mean += log(ns / drawn_ns) / (plans / 4);
        ebb__operations_fini(&operations);
        ebb__model_fini(&model);
    }
    fprintf(stderr, "the last quarter takes %.4f of the time of drawn actions\n", exp(mean));
    weights_write(&learner, plans);
    return 0;
}
