/* The published policies, for the table in src/lab/lab.c. plan->policy must be set; it names the
 * variant. */
#ifndef EBB_LAB_SWAP_POLICIES_H
#define EBB_LAB_SWAP_POLICIES_H

#include "plan/plan.h"

enum ebb_status ebb__swap_reactive(const struct ebb_plan_request *request, struct ebb_plan *plan,
                                   struct ebb_error *error);
enum ebb_status ebb__swap_capuchin(const struct ebb_plan_request *request, struct ebb_plan *plan,
                                   struct ebb_error *error);
enum ebb_status ebb__swap_vdnn(const struct ebb_plan_request *request, struct ebb_plan *plan,
                               struct ebb_error *error);
enum ebb_status ebb__swap_static(const struct ebb_plan_request *request, struct ebb_plan *plan,
                                 struct ebb_error *error);
enum ebb_status ebb__swap_static_zero_stall(const struct ebb_plan_request *request,
                                            struct ebb_plan *plan, struct ebb_error *error);
enum ebb_status ebb__swap_layrub(const struct ebb_plan_request *request, struct ebb_plan *plan,
                                 struct ebb_error *error);
enum ebb_status ebb__swap_layrub_zero_stall(const struct ebb_plan_request *request,
                                            struct ebb_plan *plan, struct ebb_error *error);
enum ebb_status ebb__swap_appobmem(const struct ebb_plan_request *request, struct ebb_plan *plan,
                                   struct ebb_error *error);
enum ebb_status ebb__swap_appobmem_zero_stall(const struct ebb_plan_request *request,
                                              struct ebb_plan *plan, struct ebb_error *error);
enum ebb_status ebb__swap_autoswap(const struct ebb_plan_request *request, struct ebb_plan *plan,
                                   struct ebb_error *error);
enum ebb_status ebb__swap_autoswap_zero_stall(const struct ebb_plan_request *request,
                                              struct ebb_plan *plan, struct ebb_error *error);

#endif
