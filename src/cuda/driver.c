/* Fills the table of the driver's functions. */
#include "cuda/driver.h"

#include <string.h>

enum ebb_status ebb__cuda_driver_load(struct ebb_cuda_driver *driver, ebb_cuda_find *find,
                                      void *context, struct ebb_error *error)
{
    static const struct {
        const char *symbol;
        size_t offset;
        bool required;
    } rows[] = {
#define EBB_CUDA_REQUIRED(symbol) {#symbol, offsetof(struct ebb_cuda_driver, symbol), true},
#define EBB_CUDA_OPTIONAL(symbol) {#symbol, offsetof(struct ebb_cuda_driver, symbol), false},
#include "cuda/driver.def"
#undef EBB_CUDA_REQUIRED
#undef EBB_CUDA_OPTIONAL
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        void *function = find(context, rows[i].symbol);
        if (!function && rows[i].required)
            return ebb__fail(error, EBB_ERR_UNSUPPORTED, "CUDA", "the driver has no %s",
                             rows[i].symbol);
        memcpy((char *)driver + rows[i].offset, &function, sizeof function);
    }
    return EBB_OK;
}

const char *ebb__cuda_result_name(CUresult result)
{
    switch ((int)result) {
#define EBB_CUDA_RESULT(name, value)                                                               \
    case value:                                                                                    \
        return #name;
#include "cuda/results.def"
#undef EBB_CUDA_RESULT
    default:
        return "an unknown result";
    }
}
