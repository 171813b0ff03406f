#include "lab/lab.h"

#include "lab/pool/smartpool.h"
#include "lab/swap/policies.h"

#define ONE_PEAK "as published: one pair of accesses a block, at the load's one peak"
#define ONE_PEAK_LARGE ONE_PEAK "; blocks of 1 MiB, some events behind an access"
#define MAPS "as published: feature maps between the passes; it knows no budget"
#define LAYERS "as published: outputs of layers, whole layers; it knows no budget"

static const struct ebb_policy policies[] = {
    {"appobmem", ebb__swap_appobmem, ebb__swap_appobmem_zero_stall, false, ONE_PEAK},
    {"appobmem:strong", ebb__swap_appobmem, ebb__swap_appobmem_zero_stall, false, NULL},
    {"autoswap", ebb__swap_autoswap, ebb__swap_autoswap_zero_stall, false, ONE_PEAK_LARGE},
    {"autoswap:vote", ebb__swap_autoswap, ebb__swap_autoswap_zero_stall, false, ONE_PEAK_LARGE},
    {"autoswap:doa", ebb__swap_autoswap, ebb__swap_autoswap_zero_stall, false, ONE_PEAK_LARGE},
    {"autoswap:aoa", ebb__swap_autoswap, ebb__swap_autoswap_zero_stall, false, ONE_PEAK_LARGE},
    {"autoswap:wdoa", ebb__swap_autoswap, ebb__swap_autoswap_zero_stall, false, ONE_PEAK_LARGE},
    {"autoswap:swdoa", ebb__swap_autoswap, ebb__swap_autoswap_zero_stall, false, ONE_PEAK_LARGE},
    {"autoswap:bo", ebb__swap_autoswap, ebb__swap_autoswap_zero_stall, false, ONE_PEAK_LARGE},
    {"autoswap:strong", ebb__swap_autoswap, ebb__swap_autoswap_zero_stall, false, NULL},
    {"capuchin", ebb__swap_capuchin, NULL, false, NULL},
    {"vdnn:all", ebb__swap_vdnn, NULL, false, MAPS},
    {"vdnn:conv", ebb__swap_vdnn, NULL, false, MAPS},
    {"vdnn:dyn", ebb__swap_vdnn, NULL, false, MAPS},
    {"lru", ebb__swap_reactive, NULL, true, NULL},
    {"belady", ebb__swap_reactive, NULL, true, NULL},
    {"static", ebb__swap_static, ebb__swap_static_zero_stall, false, "evicts nothing"},
    {"layrub:inter", ebb__swap_layrub, ebb__swap_layrub_zero_stall, false, LAYERS},
    {"layrub:intra", ebb__swap_layrub, ebb__swap_layrub_zero_stall, false, LAYERS},
    {"layrub:hybrid", ebb__swap_layrub, ebb__swap_layrub_zero_stall, false, LAYERS},
};

static const struct ebb_pool pools[] = {
    {"smartpool", ebb__pool_smartpool, false},
};

const struct ebb_policy *ebb__lab_policies(size_t *count)
{
    *count = sizeof policies / sizeof policies[0];
    return policies;
}

const struct ebb_pool *ebb__lab_pools(size_t *count)
{
    *count = sizeof pools / sizeof pools[0];
    return pools;
}
