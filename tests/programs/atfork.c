/* atfork: fork handlers that allocate memory. They are in a library that the program is linked
 * with, so they are registered before a preloaded library is ready. With -DLIBRARY this is that
 * library. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES ((size_t)1 << 20)

#ifdef LIBRARY
#define COUNT 8
static unsigned char *blocks[COUNT];
int atfork_runs;

/* Uses all blocks, half of which are absent, and allocates them anew. */
static void use(void)
{
    atfork_runs++;
    for (int i = 0; i < COUNT; i++) {
        unsigned char *fresh = malloc(BYTES);
        memset(fresh, i + 1, BYTES);
        for (size_t at = 0; blocks[i] && at < BYTES; at += 4093)
            if (blocks[i][at] != i + 1) {
                printf("bad byte\n");
                fflush(stdout);
                _exit(1);
            }
        free(blocks[i]);
        blocks[i] = fresh;
    }
}

__attribute__((constructor)) static void start(void)
{
    pthread_atfork(use, use, use);
    use();
}
#else
extern int atfork_runs;

int main(void)
{
    for (int i = 0; i < 8; i++) {
        pid_t child = fork();
        if (child == 0) {
            pid_t grandchild = fork();
            if (grandchild == 0)
                _exit(atfork_runs == 5 + 2 * i ? 0 : 3);
            int status;
            _exit(waitpid(grandchild, &status, 0) == grandchild && status == 0 ? 0 : 4);
        }
        int status;
        if (waitpid(child, &status, 0) != child || status != 0) {
            printf("child: %x\n", (unsigned)status);
            return 1;
        }
    }
    printf("good %d\n", atfork_runs);
    return 0;
}
#endif
