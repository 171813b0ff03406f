/* The state of the door, and its only writer. */
#include "door.h"

#include "attach.h"
#include "engines.h"

#include <pthread.h>
#include <stdio.h>

/* Versions as cuDriverGetVersion() tells them. The layout of parameters can be asked from 12.4 on:
 * without it, nobody knows what a launch uses. */
#define LEAST_VERSION 12040

_Atomic int ebb__door_state = DOOR_SHUT;
__thread int ebb__door_depth __attribute__((tls_model("initial-exec")));

static void after_fork(void);

static bool is_in_run; /* set by the constructor, and in forks, before other threads */

static const bool allowed[DOOR_STATE_COUNT][DOOR_STATE_COUNT] = {
    [DOOR_SHUT] = {[DOOR_OPEN] = true, [DOOR_PASSING] = true},
    [DOOR_OPEN] = {[DOOR_PASSING] = true},
};

/* False: another thread was faster, or the table forbids it. */
static bool change(int from, int to)
{
    return allowed[from][to] && atomic_compare_exchange_strong(&ebb__door_state, &from, to);
}

/* Why the door cannot open, or NULL. `text` is room for it. */
static const char *obstacle(char *text, size_t bytes)
{
    int version = 0;
    if (ebb__real.cuDriverGetVersion(&version) != CUDA_SUCCESS || version < LEAST_VERSION)
        snprintf(text, bytes,
                 "the CUDA driver is version %d.%d, %d.%d is needed: the budget is NOT "
                 "enforced",
                 version / 1000, version % 1000 / 10, LEAST_VERSION / 1000,
                 LEAST_VERSION % 1000 / 10);
    else if (!ebb__real_has((void *)(size_t)ebb__real.cuFuncGetParamInfo))
        snprintf(text, bytes,
                 "the CUDA driver has no cuFuncGetParamInfo: the budget is NOT enforced");
    else
        return NULL;
    return text;
}

static void say_hello(void)
{
    static atomic_flag is_said = ATOMIC_FLAG_INIT;
    if (atomic_flag_test_and_set(&is_said))
        return;
    is_in_run = ebb__attach_hello();
    if (is_in_run)
        pthread_atfork(NULL, NULL, after_fork);
}

static void open_door(void)
{
    char text[200];
    ebb__door_depth++;
    say_hello(); /* the constructor of another library may come before this one's */
    bool exists = ebb__real_open();
    const char *why = exists && is_in_run ? obstacle(text, sizeof text) : NULL;
    ebb__door_depth--;
    if (change(DOOR_SHUT, exists && is_in_run && !why ? DOOR_OPEN : DOOR_PASSING) && why)
        ebb__attach_warn(NULL, why);
}

bool ebb__door_enter_slowly(void)
{
    if (ebb__door_depth > 0)
        return false;
    if (atomic_load(&ebb__door_state) == DOOR_SHUT)
        open_door();
    if (atomic_load(&ebb__door_state) != DOOR_OPEN)
        return false;
    ebb__door_depth = 1;
    return true;
}

void ebb__door_give_up(const char *why)
{
    if (!change(DOOR_SHUT, DOOR_PASSING) && !ebb__engines_freeze())
        change(DOOR_OPEN, DOOR_PASSING);
    static atomic_flag told = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&told))
        ebb__attach_warn(NULL, why);
}

/* The driver does not work in the child of a process that has initialised it. A child of one that
 * has not is a process like any other. */
static void after_fork(void)
{
    if (ebb__engines_abandon())
        change(DOOR_OPEN, DOOR_PASSING);
    else if (is_in_run)
        is_in_run = ebb__attach_hello();
    if (!is_in_run)
        change(DOOR_OPEN, DOOR_PASSING);
    ebb__door_depth = 0;
}

__attribute__((constructor)) static void start(void)
{
    say_hello();
}

/* What the engines have not written yet reaches the parent. */
__attribute__((destructor)) static void end(void)
{
    ebb__door_depth++;
    if (ebb__engines_abandon())
        change(DOOR_OPEN, DOOR_PASSING);
    ebb__door_depth--;
}
