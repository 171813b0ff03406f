/* Every name that the real library exports exists here, too. A function that the fake lacks says
 * so.
 *
 * The definitions are weak, so that those of the other files take their place. This file sees no
 * prototypes: here every function has the same type.
 */
#include <stddef.h>

struct fake_symbol {
    const char *name;
    void *address;
};

int fake_missing(const char *name);

#define EBB_CUDA_NAME(name)                                                                        \
    __attribute__((weak, visibility("default"))) int name(void);                                   \
    __attribute__((weak, visibility("default"))) int name(void)                                    \
    {                                                                                              \
        return fake_missing(#name);                                                                \
    }
#include "../../shim/cuda/names.def"
#undef EBB_CUDA_NAME

extern const struct fake_symbol fake_symbols[];
extern const size_t fake_symbol_count;

const struct fake_symbol fake_symbols[] = {
#define EBB_CUDA_NAME(name) {#name, (void *)name},
#include "../../shim/cuda/names.def"
#undef EBB_CUDA_NAME
};
const size_t fake_symbol_count = sizeof(fake_symbols) / sizeof(fake_symbols[0]);
