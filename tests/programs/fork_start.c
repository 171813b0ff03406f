/* Forks while other threads make their first blocks, so while Ebb's runtime starts. Much memory of
 * other kinds makes the fork take long. Children use a block of their own. Prints a line if all
 * bytes are right. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 3, BLOCKS = 8, ROUNDS = 12, FORKS = 8, BYTES = 3 << 20, PAGE = 4096 };

static const size_t other_bytes = (size_t)192 << 20;

static pthread_barrier_t begin;

static unsigned char *filled(size_t bytes, int value)
{
    unsigned char *block = malloc(bytes);
    if (!block)
        exit(2);
    return memset(block, value, bytes);
}

static void check(unsigned char *block, size_t bytes, int value)
{
    for (size_t at = 0; at < bytes; at += PAGE)
        if (block[at] != (unsigned char)value)
            _exit(1);
    free(block);
}

static void *work(void *number)
{
    int first = (int)(long)number;
    unsigned char *blocks[BLOCKS], *small[BLOCKS];
    pthread_barrier_wait(&begin);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < BLOCKS; i++) {
            blocks[i] = filled(BYTES + (size_t)i * PAGE, first + round + i);
            small[i] = filled(900, first + i);
        }
        for (int i = BLOCKS; i-- > 0;) {
            check(blocks[i], BYTES + (size_t)i * PAGE, first + round + i);
            check(small[i], 900, first + i);
        }
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    char *other =
        mmap(NULL, other_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (other == MAP_FAILED)
        return 2;
    madvise(other, other_bytes, MADV_NOHUGEPAGE);
    memset(other, 1, other_bytes);
    pthread_barrier_init(&begin, NULL, THREADS + 1);
    for (long i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, (void *)i);
    pthread_barrier_wait(&begin);
    pid_t children[FORKS];
    for (int i = 0; i < FORKS; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            check(filled(BYTES, i), BYTES, i);
            _exit(0);
        }
    }
    for (int i = 0; i < FORKS; i++) {
        int status;
        if (children[i] < 0 || waitpid(children[i], &status, 0) < 0 || status)
            return 3;
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    puts("as it should be");
    return 0;
}
