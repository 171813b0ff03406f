#ifndef EBB_LAB_TIER_DEEPTM_WEIGHTS_H
#define EBB_LAB_TIER_DEEPTM_WEIGHTS_H
#define EBB_DEEPTM_WEIGHTS_VERSION 1
static const float ebb__deeptm_weights[1769] = {0};
#endif
