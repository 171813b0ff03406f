/* The door: what the files of this library share.
 *
 * A call of the program comes in at a hook (hooks.c, made from hooks.def). If the door is open, and
 * this thread is not already inside, the hook calls its body, ebb__door_<body>(). Otherwise it
 * calls the real function. All functions here are thread-safe. */
#ifndef EBB_SHIM_CUDA_DOOR_H
#define EBB_SHIM_CUDA_DOOR_H

#include "cuda/abi.h"
#include "cuda/engine.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* Changed in state.c only, by its table of transitions. */
enum door_state {
    DOOR_SHUT,    /* no function of the driver was called yet */
    DOOR_OPEN,    /* hooks act */
    DOOR_PASSING, /* hooks call the real function: no run, no supported driver, or a fork */
    DOOR_STATE_COUNT
};

extern _Atomic int ebb__door_state;
/* Not 0: this thread is in a hook. The driver's calls to itself are not the program's. */
extern __thread int ebb__door_depth;

/* ---- the real functions ---------------------------------------------------------------------- */

/* The parameters of the hooks, as prototypes. Equal to those of cuda/calls.def where it has
 * them. */
#define EBB_HOOK(symbol, base, version, stream, body, parameters, arguments)                       \
    CUresult symbol parameters;
#define EBB_HOOK_PLAIN(symbol, base, version, stream, body) CUresult symbol(void);
#define EBB_PASS(symbol, base, version, stream)
#define EBB_ALSO(symbol, base, version)
#define EBB_USED(symbol)
#include "hooks.def"
#undef EBB_HOOK
#undef EBB_HOOK_PLAIN
#undef EBB_USED

/* Never NULL once the door is not shut: a function that the driver lacks returns
 * CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER. Before, all return CUDA_ERROR_NOT_INITIALIZED. */
struct ebb_real {
#define EBB_HOOK(symbol, base, version, stream, body, parameters, arguments)                       \
    __typeof__(symbol) *symbol;
#define EBB_HOOK_PLAIN(symbol, base, version, stream, body) __typeof__(symbol) *symbol;
#define EBB_USED(symbol) __typeof__(symbol) *symbol;
#include "hooks.def"
#undef EBB_HOOK
#undef EBB_HOOK_PLAIN
#undef EBB_USED
#undef EBB_PASS
#undef EBB_ALSO
};
extern struct ebb_real ebb__real;

/* real.c: finds the real driver, and fills ebb__real. Any thread may call it any number of times:
 * it does the same again. No lock is held, since the loader has its own. False: there is none. */
bool ebb__real_open(void);
/* The real function of that symbol, or NULL. */
void *ebb__real_find(const char *symbol);
/* The same, or a function that returns why it cannot be called. */
void *ebb__real_or_refusal(const char *symbol);
/* True if the driver has it. */
bool ebb__real_has(const void *function);
/* find.c: opens the real libcuda.so.1 by its absolute path, as the loader would find it without
 * this library, or at EBB_CUDA_DRIVER. NULL: none. */
void *ebb__driver_open(void);

/* trampolines.S: all names, in the order of names.def, with NULL at the end; and where each of them
 * leads at present. */
extern const char *const ebb__door_names[];
extern _Atomic(void *) ebb__door_slots[];

/* ---- the state ------------------------------------------------------------------------------- */

/* Opens the door if it is shut. True: the caller is the outermost hook, and the door is open. */
bool ebb__door_enter_slowly(void);

static inline bool ebb__door_enter(void)
{
    if (__builtin_expect(atomic_load_explicit(&ebb__door_state, memory_order_acquire) == DOOR_OPEN,
                         1) &&
        __builtin_expect(ebb__door_depth == 0, 1)) {
        ebb__door_depth = 1;
        return true;
    }
    return ebb__door_enter_slowly();
}

static inline void ebb__door_leave(void)
{
    ebb__door_depth = 0;
}

/* host.c: the process begins to use a device. From then on the memory of the host is not managed,
 * and all of it is there. May wait for transfers. Cheap if it has been called before. */
void ebb__door_use_device(void);

/* All calls pass from now on, and blocks stay where they are. Prints `why`, the first time. */
void ebb__door_give_up(const char *why);

/* ---- bodies of the hooks --------------------------------------------------------------------- */

/* `next`: the real function. `stream`: what stream 0 means, or NULL. */
#define EBB_HOOK(symbol, base, version, kind, body, parameters, arguments)                         \
    CUresult ebb__door_##body EBB_DOOR_JOIN(symbol, EBB_DOOR_LIST parameters);
#define EBB_DOOR_LIST(...) __VA_ARGS__
#define EBB_DOOR_JOIN(symbol, ...) (__typeof__(symbol) *next, CUstream stream, __VA_ARGS__)
#define EBB_HOOK_PLAIN(symbol, base, version, kind, body)                                          \
    CUresult ebb__door_##body(__typeof__(symbol) *next, CUstream stream);
#define EBB_PASS(symbol, base, version, stream)
#define EBB_ALSO(symbol, base, version)
#define EBB_USED(symbol)
#include "hooks.def"
#undef EBB_HOOK
#undef EBB_HOOK_PLAIN
#undef EBB_PASS
#undef EBB_ALSO
#undef EBB_USED

#endif
