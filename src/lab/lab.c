#include "lab/lab.h"

#include "lab/pool/smartpool.h"
#include "lab/swap/policies.h"

static const struct ebb_policy policies[] = {
    {"appobmem", ebb__swap_appobmem, ebb__swap_appobmem_zero_stall, false},
    {"autoswap", ebb__swap_autoswap, ebb__swap_autoswap_zero_stall, false},
    {"autoswap:vote", ebb__swap_autoswap, ebb__swap_autoswap_zero_stall, false},
    {"autoswap:doa", ebb__swap_autoswap, ebb__swap_autoswap_zero_stall, false},
    {"autoswap:aoa", ebb__swap_autoswap, ebb__swap_autoswap_zero_stall, false},
    {"autoswap:wdoa", ebb__swap_autoswap, ebb__swap_autoswap_zero_stall, false},
    {"autoswap:swdoa", ebb__swap_autoswap, ebb__swap_autoswap_zero_stall, false},
    {"autoswap:bo", ebb__swap_autoswap, ebb__swap_autoswap_zero_stall, false},
    {"vdnn:all", ebb__swap_vdnn, NULL, false},
    {"vdnn:conv", ebb__swap_vdnn, NULL, false},
    {"lru", ebb__swap_lru, NULL, true},
    {"static", ebb__swap_static, ebb__swap_static_zero_stall, false},
    {"layrub:inter", ebb__swap_layrub, ebb__swap_layrub_zero_stall, false},
    {"layrub:intra", ebb__swap_layrub, ebb__swap_layrub_zero_stall, false},
    {"layrub:hybrid", ebb__swap_layrub, ebb__swap_layrub_zero_stall, false},
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
