/* Wrappers of libc calls with buffers: what calls.c and names.c share. A wrapper calls the next
 * function of its name. If system calls cannot wait for absent pages, it first pins the blocks in
 * its buffers. */
#ifndef EBB_SHIM_CALLS_H
#define EBB_SHIM_CALLS_H

#include "shim.h"

#include <pthread.h>
#include <sys/uio.h>

/* The buffers of a call. The vector may be the program's own. */
struct ebb_buffers {
    const struct iovec *vector;
    size_t count;
};

/* True if a buffer lies in a block and must be pinned. */
bool ebb__calls_have_blocks(const struct ebb_buffers *buffers);
void ebb__calls_pin(const struct ebb_buffers *buffers);
void ebb__calls_unpin(void *buffers);

/* Of glibc. A handler of the macro pthread_cleanup_push() stays if longjmp() leaves the call. */
extern void _pthread_cleanup_push(struct _pthread_cleanup_buffer *buffer, void (*handler)(void *),
                                  void *argument);
extern void _pthread_cleanup_pop(struct _pthread_cleanup_buffer *buffer, int execute);

/* A cleanup handler unpins the buffers if the thread is cancelled in the call, or jumps out. */
#define EBB_HAND_ON(type, name, parameters, arguments, its_vector, its_count)                      \
    __attribute__((visibility("default"))) type name parameters;                                   \
    type name parameters                                                                           \
    {                                                                                              \
        type(*next) parameters;                                                                    \
        EBB_BEHIND(next, name);                                                                    \
        struct ebb_buffers buffers = {its_vector, its_count};                                      \
        if (!ebb__calls_have_blocks(&buffers))                                                     \
            return next arguments;                                                                 \
        type result;                                                                               \
        ebb__calls_pin(&buffers);                                                                  \
        struct _pthread_cleanup_buffer cleanup;                                                    \
        _pthread_cleanup_push(&cleanup, ebb__calls_unpin, &buffers);                               \
        result = next arguments;                                                                   \
        _pthread_cleanup_pop(&cleanup, 1);                                                         \
        return result;                                                                             \
    }

#define EBB_BUFFER_OF(buffer, bytes)                                                               \
    {                                                                                              \
        (void *)(uintptr_t)(buffer), bytes                                                         \
    }

#endif
