/* Lost time as JSON: an array of the first iterations, each with `ns` and the ns of each cause. */
#ifndef EBB_REPORT_LOST_JSON_H
#define EBB_REPORT_LOST_JSON_H

#include "model/lost.h"

#include <jansson.h>
#include <stdbool.h>

/* The caller owns the array. It is empty if the run had no waits. */
json_t *ebb__lost_to_json(const struct ebb_lost *lost);
/* Reads such an array, which may be anything, or NULL. False: it is none, and *lost is empty. */
bool ebb__lost_from_json(const json_t *array, struct ebb_lost *lost);

#endif
