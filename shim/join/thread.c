/* Threads of Ebb's own in a program. */
#include "join.h"

#include "base/threads.h"

#include <errno.h>
#include <pthread.h>

#define STACK_BYTES ((size_t)256 << 10)

bool ebb__join_start_thread(void *(*function)(void *), void *argument)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_t thread;
    int why = ebb__thread_create(&thread, &attributes, STACK_BYTES, function, argument);
    pthread_attr_destroy(&attributes);
    errno = why;
    return why == 0;
}
