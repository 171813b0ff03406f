/* A program that allocates as ever, and tells where it is in its training.
 *
 *     cc marked.c $(pkg-config --cflags --libs ebb)
 *     ebb run --budget 40M -- ./a.out */
#include <ebb/mark.h>

#include <stdio.h>
#include <stdlib.h>

#define LAYERS 40u
#define WORDS ((size_t)1 << 17)

int main(void)
{
    unsigned long sum = 0, *outputs[LAYERS];
    for (unsigned i = 0; i < 30; i++) {
        ebb_mark_iteration();
        ebb_mark_phase(EBB_PHASE_FORWARD);
        for (unsigned l = 0; l < LAYERS; l++) {
            ebb_mark_layer(l + 1);
            outputs[l] = malloc(WORDS * sizeof *outputs[l]);
            for (size_t k = 0; outputs[l] && k < WORDS; k++)
                outputs[l][k] = k * (l + 1) + i;
        }
        ebb_mark_phase(EBB_PHASE_BACKWARD);
        for (unsigned l = LAYERS; l-- > 0;) {
            ebb_mark_layer(l + 1);
            for (size_t k = 0; outputs[l] && k < WORDS; k++)
                sum = sum * 31 + outputs[l][k];
            free(outputs[l]);
        }
    }
    printf("%lx, %s\n", sum, ebb_mark_is_heard() ? "under Ebb" : "alone");
    return 0;
}
