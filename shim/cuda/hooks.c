/* The hooks, from hooks.def. They are exported under the driver's names, and replace the
 * trampolines of these names. */
#include "door.h"

#define STREAM_NONE NULL
#define STREAM_LEGACY CU_STREAM_LEGACY
#define STREAM_THREAD CU_STREAM_PER_THREAD
#define LIST(...) __VA_ARGS__
#define CALL(body, ...) body(__VA_ARGS__)

#define EBB_HOOK(symbol, base, version, kind, body, parameters, arguments)                         \
    __attribute__((visibility("default"))) CUresult symbol parameters                              \
    {                                                                                              \
        if (!ebb__door_enter())                                                                    \
            return ebb__real.symbol arguments;                                                     \
        CUresult result = CALL(ebb__door_##body, ebb__real.symbol, STREAM_##kind, LIST arguments); \
        ebb__door_leave();                                                                         \
        return result;                                                                             \
    }
#define EBB_HOOK_PLAIN(symbol, base, version, kind, body)                                          \
    __attribute__((visibility("default"))) CUresult symbol(void)                                   \
    {                                                                                              \
        if (!ebb__door_enter())                                                                    \
            return ebb__real.symbol();                                                             \
        CUresult result = ebb__door_##body(ebb__real.symbol, STREAM_##kind);                       \
        ebb__door_leave();                                                                         \
        return result;                                                                             \
    }
#define EBB_PASS(symbol, base, version, stream)
#define EBB_ALSO(symbol, base, version)
#define EBB_USED(symbol)
#include "hooks.def"
