/* Fuzzes the reader of profiles with whole files, and with bodies without their checksum, which the
 * fuzzer cannot guess. An accepted profile must be safe to plan and compile. A refusal must have a
 * reason. */
#include "parent/profile.h"
#include "plan/plan.h"
#include "plan/request/compile.h"
#include "runtime/script.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "fuzz_profile: line %d: %s\n", __LINE__, #condition);                  \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require_plans(const struct ebb_profile *profile, const struct ebb_model *model)
{
    struct ebb_plan_request request = {.model = model,
                                       .machine = &profile->machine,
                                       .budget_bytes = model->peak_bytes / 2,
                                       .page_bytes = 4096,
                                       .smallest_block_bytes = 4096,
                                       .time_limit_ns = 1000000,
                                       .newest_only = true};
    struct ebb_plan plan;
    if (ebb__plan_make(ebb__plan_policy("fifo"), &request, &plan, NULL) != EBB_OK)
        return;
    struct ebb_script *script;
    if (ebb__compile_script(model, &plan, NULL, &script) == EBB_OK)
        free(script);
    ebb__plan_fini(&plan);
}

static void require_sound(struct ebb_profile *profile)
{
    struct ebb_profile_key key = {.words = {1, 2}};
    uint8_t *bytes, *again;
    size_t size, again_size;
    struct ebb_profile copy;
    REQUIRE(profile->iteration_count <= EBB_PROFILE_ITERATIONS);
    for (uint32_t i = 0; i < profile->iteration_count; i++)
        require_plans(profile, &profile->iterations[i].model);
    REQUIRE(ebb__profile_encode(profile, key, &bytes, &size) == EBB_OK);
    REQUIRE(ebb__profile_decode(bytes, size, key, "again", &copy, NULL) == EBB_OK);
    REQUIRE(ebb__profile_encode(&copy, key, &again, &again_size) == EBB_OK);
    REQUIRE(size == again_size && !memcmp(bytes, again, size));
    free(bytes);
    free(again);
    ebb__profile_fini(&copy);
    ebb__profile_fini(profile);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ebb_profile profile;
    struct ebb_error error = {0};
    struct ebb_profile_key key = {.words = {1, 2}};
    enum ebb_status status = ebb__profile_decode(data, size, key, "input", &profile, &error);
    if (status == EBB_OK) {
        require_sound(&profile);
    } else {
        REQUIRE(error.status == status && error.why[0] && !strcmp(error.what, "input"));
        REQUIRE(profile.iteration_count == 0);
    }
    status = ebb__profile_decode_body(data, size, "input", &profile, &error);
    if (status == EBB_OK)
        require_sound(&profile);
    else
        REQUIRE(error.status == status && error.why[0] && profile.iteration_count == 0);
    return 0;
}
