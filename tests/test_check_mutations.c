/* Mutations of good plans of several policies. Each field of each absence and of the plan is
 * changed in every way that makes it wrong. The checker must reject each change. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "check/check.h"
#include "plan/plan.h"
#include "policies.h"
#include "synthetic.h"

#include <stdint.h>

struct subject {
    struct ebb_model model;
    struct ebb_machine machine;
    struct ebb_check_request request;
    struct ebb_plan plan;
    struct ebb_absence *good; /* a copy of the plan's absences; the plan has space for one more */
    uint32_t good_count;
    uint64_t lap_ns;
};

/* The outcome of one kind of damage. */
struct tally {
    uint32_t tried, rejected;
};

static void subject_make(struct subject *subject, uint64_t seed, const char *policy,
                         uint64_t percent)
{
    memset(subject, 0, sizeof *subject);
    subject->model = make_random(seed, 110, 4 * EBB_MIB, 300000);
    subject->machine = (struct ebb_machine){
        "test", {seed % 2 ? 0.05 : 0.5, 1000}, {0.1, 1000}, true, EBB_NO_COSTS};
    uint64_t budget = subject->model.peak_bytes * percent / 100;
    struct ebb_plan_request request = {
        &subject->model, &subject->machine, budget, 1, 0, 2000000, false, 0, 0, NULL, NULL, 0};
    assert_int_equal(ebb__plan_make(policy_named(policy), &request, &subject->plan, NULL), EBB_OK);
    subject->request = (struct ebb_check_request){&subject->model, &subject->machine, budget, 1};
    subject->good_count = subject->plan.absence_count;
    subject->good = subject->plan.absences;
    subject->plan.absences = must(calloc(subject->good_count + 1u, sizeof *subject->good));
    subject->lap_ns = ebb__model_iteration_ns(&subject->model);
}

static void subject_restore(struct subject *subject)
{
    if (subject->good_count)
        memcpy(subject->plan.absences, subject->good, subject->good_count * sizeof *subject->good);
    subject->plan.absence_count = subject->good_count;
}

static void subject_fini(struct subject *subject)
{
    free(subject->good);
    ebb__plan_fini(&subject->plan);
    ebb__model_fini(&subject->model);
}

static bool accepted(const struct subject *subject)
{
    return ebb__check_plan(&subject->request, &subject->plan, NULL) == EBB_OK;
}

/* ---- damage to an absence -------------------------------------------------------------------- */

/* Each returns false if this absence cannot be damaged in this way, or if the damage has no
 * effect. */
typedef bool (*damage)(struct subject *subject, struct ebb_absence *absence);

static uint32_t ready_tick(const struct subject *subject, const struct ebb_absence *absence)
{
    uint32_t ticks = subject->model.tick_count;
    return ebb__model_clock_after(&subject->model,
                                  (absence->from_tick + absence->margin_ticks) % ticks);
}

/* The time from the absence's ready instant to `ns`, cyclic. */
static uint64_t since_ready(const struct subject *subject, const struct ebb_absence *absence,
                            uint64_t ns)
{
    uint64_t ready_ns = subject->model.time_ns[ready_tick(subject, absence)];
    return (ns + 2 * subject->lap_ns - ready_ns) % subject->lap_ns;
}

static uint64_t gap_ns(const struct subject *subject, const struct ebb_absence *absence)
{
    uint64_t ns = since_ready(subject, absence, subject->model.time_ns[absence->to_tick]);
    return ns || absence->to_tick > ready_tick(subject, absence) ? ns : subject->lap_ns;
}

static bool block_next(struct subject *subject, struct ebb_absence *absence)
{
    absence->block = (absence->block + 1) % subject->model.block_count;
    return subject->model.block_count > 1;
}

static bool block_before(struct subject *subject, struct ebb_absence *absence)
{
    uint32_t count = subject->model.block_count;
    absence->block = (absence->block + count - 1) % count;
    return count > 1;
}

static bool block_unknown(struct subject *subject, struct ebb_absence *absence)
{
    absence->block = subject->model.block_count;
    return true;
}

static bool from_next(struct subject *subject, struct ebb_absence *absence)
{
    absence->from_tick = (absence->from_tick + 1) % subject->model.tick_count;
    return true;
}

static bool from_before(struct subject *subject, struct ebb_absence *absence)
{
    uint32_t ticks = subject->model.tick_count;
    absence->from_tick = (absence->from_tick + ticks - 1) % ticks;
    return true;
}

static bool from_unknown(struct subject *subject, struct ebb_absence *absence)
{
    absence->from_tick = subject->model.tick_count;
    return true;
}

static bool to_next(struct subject *subject, struct ebb_absence *absence)
{
    absence->to_tick = (absence->to_tick + 1) % subject->model.tick_count;
    return true;
}

static bool to_before(struct subject *subject, struct ebb_absence *absence)
{
    uint32_t ticks = subject->model.tick_count;
    absence->to_tick = (absence->to_tick + ticks - 1) % ticks;
    return true;
}

static bool to_unknown(struct subject *subject, struct ebb_absence *absence)
{
    absence->to_tick = UINT32_MAX;
    (void)subject;
    return true;
}

/* The other gap between the two uses. It exists if a block has two uses in an iteration. */
static bool ticks_swapped(struct subject *subject, struct ebb_absence *absence)
{
    (void)subject;
    uint32_t from = absence->from_tick;
    absence->from_tick = absence->to_tick;
    absence->to_tick = from;
    return absence->drops;
}

static bool drops_flipped(struct subject *subject, struct ebb_absence *absence)
{
    (void)subject;
    absence->drops = !absence->drops;
    return true;
}

static bool margin_raised(struct subject *subject, struct ebb_absence *absence)
{
    /* Raises the margin until the first event after the copy out began. */
    uint32_t ticks = subject->model.tick_count;
    uint64_t out_ns = since_ready(subject, absence, absence->out_start_ns);
    for (uint32_t margin = absence->margin_ticks + 1; margin < ticks; margin++) {
        struct ebb_absence raised = *absence;
        raised.margin_ticks = margin;
        uint64_t ns =
            since_ready(subject, absence, subject->model.time_ns[ready_tick(subject, &raised)]);
        if (ns > gap_ns(subject, absence))
            return false;
        if (ns > out_ns) {
            absence->margin_ticks = margin;
            return true;
        }
    }
    return false;
}

static bool margin_endless(struct subject *subject, struct ebb_absence *absence)
{
    absence->margin_ticks = subject->model.tick_count;
    return true;
}

static bool out_while_in_use(struct subject *subject, struct ebb_absence *absence)
{
    uint64_t ready_ns = subject->model.time_ns[ready_tick(subject, absence)];
    absence->out_start_ns = (ready_ns + subject->lap_ns - 1) % subject->lap_ns;
    return gap_ns(subject, absence) + 1 < subject->lap_ns;
}

static bool out_after_gap(struct subject *subject, struct ebb_absence *absence)
{
    uint64_t need_ns = subject->model.time_ns[absence->to_tick];
    absence->out_end_ns = (need_ns + 1) % subject->lap_ns;
    return gap_ns(subject, absence) + 1 < subject->lap_ns;
}

static bool out_instant(struct subject *subject, struct ebb_absence *absence)
{
    absence->out_end_ns = absence->out_start_ns;
    return subject->plan.stall_ns == 0;
}

static bool out_shorter(struct subject *subject, struct ebb_absence *absence)
{
    absence->out_end_ns = (absence->out_end_ns + subject->lap_ns - 100) % subject->lap_ns;
    return subject->plan.stall_ns == 0;
}

static bool out_past_in(struct subject *subject, struct ebb_absence *absence)
{
    absence->out_end_ns = (absence->in_start_ns + 1) % subject->lap_ns;
    return !absence->drops && gap_ns(subject, absence) + 1 < subject->lap_ns;
}

static bool in_instant(struct subject *subject, struct ebb_absence *absence)
{
    absence->in_start_ns = absence->in_end_ns;
    return !absence->drops && subject->plan.stall_ns == 0;
}

static bool in_shorter(struct subject *subject, struct ebb_absence *absence)
{
    absence->in_start_ns = (absence->in_start_ns + 100) % subject->lap_ns;
    return !absence->drops && subject->plan.stall_ns == 0;
}

static bool in_before_out(struct subject *subject, struct ebb_absence *absence)
{
    absence->in_start_ns = (absence->out_end_ns + subject->lap_ns - 1) % subject->lap_ns;
    return !absence->drops && absence->out_end_ns != absence->out_start_ns &&
           gap_ns(subject, absence) + 1 < subject->lap_ns;
}

static bool back_late(struct subject *subject, struct ebb_absence *absence)
{
    uint64_t need_ns = subject->model.time_ns[absence->to_tick];
    absence->in_end_ns = (need_ns + 1) % subject->lap_ns;
    return !absence->drops && gap_ns(subject, absence) + 1 < subject->lap_ns;
}

static bool out_start_outside(struct subject *subject, struct ebb_absence *absence)
{
    absence->out_start_ns = subject->lap_ns + 1;
    return true;
}

static bool out_end_outside(struct subject *subject, struct ebb_absence *absence)
{
    (void)subject;
    absence->out_end_ns = UINT64_MAX;
    return true;
}

static bool in_start_outside(struct subject *subject, struct ebb_absence *absence)
{
    absence->in_start_ns = subject->lap_ns + 1;
    return true;
}

static bool in_end_outside(struct subject *subject, struct ebb_absence *absence)
{
    (void)subject;
    absence->in_end_ns = UINT64_MAX;
    return true;
}

/* Moves the copy to the time of another absence's copy. */
static bool lane_taken_out(struct subject *subject, struct ebb_absence *absence)
{
    if (subject->good_count < 2 || subject->plan.stall_ns > 0)
        return false;
    size_t index = (size_t)(absence - subject->plan.absences);
    const struct ebb_absence *other = &subject->good[(index + 1) % subject->good_count];
    absence->out_start_ns = other->out_start_ns;
    absence->out_end_ns = other->out_end_ns;
    return true;
}

static bool lane_taken_in(struct subject *subject, struct ebb_absence *absence)
{
    if (subject->good_count < 2 || subject->plan.stall_ns > 0)
        return false;
    size_t index = (size_t)(absence - subject->plan.absences);
    const struct ebb_absence *other = &subject->good[(index + 1) % subject->good_count];
    absence->in_start_ns = other->in_start_ns;
    absence->in_end_ns = other->in_end_ns;
    return !absence->drops && !other->drops;
}

/* The absence is missing, but the sums still include it. */
static bool left_out(struct subject *subject, struct ebb_absence *absence)
{
    *absence = subject->plan.absences[--subject->plan.absence_count];
    return true;
}

static bool twice(struct subject *subject, struct ebb_absence *absence)
{
    subject->plan.absences[subject->plan.absence_count++] = *absence;
    return true;
}

/* The absence replaces the next one. The sums may be wrong then. */
static bool in_place_of_another(struct subject *subject, struct ebb_absence *absence)
{
    size_t index = (size_t)(absence - subject->plan.absences);
    subject->plan.absences[(index + 1) % subject->good_count] = *absence;
    return subject->good_count > 1;
}

static bool blocks_exchanged(struct subject *subject, struct ebb_absence *absence)
{
    size_t index = (size_t)(absence - subject->plan.absences);
    struct ebb_absence *other = &subject->plan.absences[(index + 1) % subject->good_count];
    uint32_t block = absence->block;
    absence->block = other->block;
    other->block = block;
    return other->block != absence->block;
}

static bool ends_exchanged(struct subject *subject, struct ebb_absence *absence)
{
    size_t index = (size_t)(absence - subject->plan.absences);
    struct ebb_absence *other = &subject->plan.absences[(index + 1) % subject->good_count];
    uint32_t to_tick = absence->to_tick;
    absence->to_tick = other->to_tick;
    other->to_tick = to_tick;
    return subject->good_count > 1;
}

static const struct {
    const char *name;
    damage damage;
} damages[] = {
#define DAMAGE(name)                                                                               \
    {                                                                                              \
#name, name                                                                                \
    }
    DAMAGE(block_next),
    DAMAGE(block_before),
    DAMAGE(block_unknown),
    DAMAGE(from_next),
    DAMAGE(from_before),
    DAMAGE(from_unknown),
    DAMAGE(to_next),
    DAMAGE(to_before),
    DAMAGE(to_unknown),
    DAMAGE(ticks_swapped),
    DAMAGE(drops_flipped),
    DAMAGE(margin_raised),
    DAMAGE(margin_endless),
    DAMAGE(out_while_in_use),
    DAMAGE(out_after_gap),
    DAMAGE(out_instant),
    DAMAGE(out_shorter),
    DAMAGE(out_past_in),
    DAMAGE(in_instant),
    DAMAGE(in_shorter),
    DAMAGE(in_before_out),
    DAMAGE(back_late),
    DAMAGE(out_start_outside),
    DAMAGE(out_end_outside),
    DAMAGE(in_start_outside),
    DAMAGE(in_end_outside),
    DAMAGE(lane_taken_out),
    DAMAGE(lane_taken_in),
    DAMAGE(left_out),
    DAMAGE(twice),
    DAMAGE(in_place_of_another),
    DAMAGE(blocks_exchanged),
    DAMAGE(ends_exchanged),
#undef DAMAGE
};

#define DAMAGE_COUNT (sizeof damages / sizeof damages[0])

static const char *const policies[] = {"ebb", "fifo", "appobmem", "autoswap:doa", "lru"};

static void absences_are_checked(void **state)
{
    (void)state;
    struct tally tally[DAMAGE_COUNT] = {{0, 0}};
    for (uint64_t seed = 1; seed <= 30; seed++) {
        for (size_t p = 0; p < sizeof policies / sizeof policies[0]; p++) {
            struct subject subject;
            subject_make(&subject, seed, policies[p], 60 + seed % 3 * 10);
            subject_restore(&subject);
            assert_true(accepted(&subject));
            for (uint32_t i = 0; i < subject.good_count; i++) {
                for (size_t d = 0; d < DAMAGE_COUNT; d++) {
                    subject_restore(&subject);
                    if (!damages[d].damage(&subject, &subject.plan.absences[i]))
                        continue;
                    tally[d].tried++;
                    if (!accepted(&subject))
                        tally[d].rejected++;
                    else
                        print_message("%s, absence %u of %s, seed %llu: accepted\n",
                                      damages[d].name, i, policies[p], (unsigned long long)seed);
                }
            }
            subject_fini(&subject);
        }
    }
    for (size_t d = 0; d < DAMAGE_COUNT; d++) {
        if (tally[d].tried < 20 || tally[d].rejected != tally[d].tried)
            fail_msg("%s: %u of %u rejected", damages[d].name, tally[d].rejected, tally[d].tried);
    }
}

/* ---- damage to the plan's figures ------------------------------------------------------------ */

static void figures_are_checked(void **state)
{
    (void)state;
    uint32_t tried = 0, peaks = 0, plans = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        for (size_t p = 0; p < sizeof policies / sizeof policies[0]; p++) {
            struct subject subject;
            subject_make(&subject, seed, policies[p], 60 + seed % 3 * 10);
            subject_restore(&subject);
            struct ebb_plan good = subject.plan, *plan = &subject.plan;
            uint64_t *const figures[] = {&plan->budget_bytes, &plan->iteration_ns, &plan->stall_ns,
                                         &plan->moved_out_bytes, &plan->moved_in_bytes};
            for (size_t f = 0; f < sizeof figures / sizeof figures[0]; f++) {
                for (int sign = -1; sign <= 1; sign += 2) {
                    *figures[f] += (uint64_t)(int64_t)sign;
                    assert_false(accepted(&subject));
                    subject.plan = good;
                    tried++;
                }
            }
            plan->feasible = !plan->feasible;
            assert_false(accepted(&subject));
            subject.plan = good;
            /* The peak is lower than the checker's own, or over the budget. */
            plan->peak_bytes = good.peak_bytes / 2;
            assert_false(accepted(&subject));
            plan->peak_bytes = good.peak_bytes - 1;
            peaks += !accepted(&subject);
            plan->peak_bytes = good.feasible ? good.budget_bytes + 1 : good.budget_bytes;
            assert_false(accepted(&subject));
            subject.plan = good;
            plans++;
            /* The plan is unchanged, but lanes are half as fast, pages are larger, or the budget
             * differs. */
            if (good.absence_count && good.stall_ns == 0) {
                subject.machine.out.ns_per_byte *= 2;
                assert_false(accepted(&subject));
                subject.machine.out.ns_per_byte /= 2;
                subject.request.page_bytes = 1 << 20;
                assert_false(accepted(&subject));
                subject.request.page_bytes = 1;
            }
            subject.request.budget_bytes--;
            assert_false(accepted(&subject));
            subject_fini(&subject);
        }
    }
    /* The claimed peak is exact to the byte, unless events coincide. */
    print_message("%u figures, the peak is exact in %u of %u plans\n", tried, peaks, plans);
    assert_true(tried > 500 && peaks * 10 >= plans * 9);
}

/* One absence is missing, and the sums are corrected. The plan is rejected if the claimed peak
 * needed that absence. */
static void peaks_are_counted(void **state)
{
    (void)state;
    uint32_t needed = 0, tried = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct subject subject;
        subject_make(&subject, seed, "fifo", 70);
        for (uint32_t i = 0; i < subject.good_count; i++) {
            subject_restore(&subject);
            struct ebb_plan good = subject.plan;
            struct ebb_absence gone = subject.good[i];
            uint64_t bytes = subject.model.blocks[gone.block].size_bytes;
            left_out(&subject, &subject.plan.absences[i]);
            subject.plan.moved_out_bytes -= bytes;
            subject.plan.moved_in_bytes -= gone.drops ? 0 : bytes;
            needed += !accepted(&subject);
            tried++;
            subject.plan = good;
        }
        subject_fini(&subject);
    }
    /* fifo evicts only if the load is over the budget, so most absences are needed. */
    assert_true(tried > 60 && needed * 2 > tried);
}

/* Random times and ticks may get any verdict, but must not crash the checker. The good plan is
 * accepted afterwards. */
static void anything_is_survived(void **state)
{
    (void)state;
    uint64_t random = 1;
    uint32_t rejected = 0, tried = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct subject subject;
        subject_make(&subject, seed, "fifo", 70);
        for (uint32_t i = 0; i < 50 * subject.good_count; i++) {
            subject_restore(&subject);
            struct ebb_absence *absence = &subject.plan.absences[i % subject.good_count];
            unsigned char *bytes = (unsigned char *)absence;
            for (int change = 0; change < 3; change++) {
                size_t at = chance(&random) % offsetof(struct ebb_absence, drops);
                bytes[at] = (unsigned char)chance(&random);
            }
            uint64_t *const times[] = {&absence->out_start_ns, &absence->out_end_ns,
                                       &absence->in_start_ns, &absence->in_end_ns};
            *times[chance(&random) % 4] = chance(&random) % subject.lap_ns;
            absence->margin_ticks = (uint32_t)chance(&random);
            rejected += !accepted(&subject);
            tried++;
        }
        subject_restore(&subject);
        assert_true(accepted(&subject));
        subject_fini(&subject);
    }
    assert_true(tried > 1000 && rejected * 10 >= tried * 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(absences_are_checked),
        cmocka_unit_test(figures_are_checked),
        cmocka_unit_test(peaks_are_counted),
        cmocka_unit_test(anything_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
