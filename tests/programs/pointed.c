/* Code that uses the stack pointer for something else, like compiled kernels. It points into a
 * buffer while absent blocks are read. The bytes below it must not change. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCKS 12
#define BLOCK_BYTES ((size_t)2 << 20)
#define BUFFER_BYTES ((size_t)64 << 10)

static unsigned char *blocks[BLOCKS];

/* The sum of one byte of each page, with the stack pointer at `elsewhere`. */
static uint64_t sum(const unsigned char *block, size_t bytes, void *elsewhere)
{
    uint64_t total = 0;
#ifdef __x86_64__
    uint64_t kept;
    __asm__ volatile("mov %%rsp, %1\n\t"
                     "mov %4, %%rsp\n"
                     "1: movzbl (%2), %%eax\n\t"
                     "add %%rax, %0\n\t"
                     "add $4096, %2\n\t"
                     "cmp %3, %2\n\t"
                     "jb 1b\n\t"
                     "mov %1, %%rsp"
                     : "+r"(total), "=&r"(kept), "+r"(block)
                     : "r"(block + bytes), "r"(elsewhere)
                     : "rax", "cc", "memory");
#else
    (void)elsewhere;
    for (size_t at = 0; at < bytes; at += 4096)
        total += block[at];
#endif
    return total;
}

static void *look(void *argument)
{
    unsigned char *buffer = malloc(BUFFER_BYTES);
    memset(buffer, 0x5a, BUFFER_BYTES);
    for (int i = 0; i < BLOCKS; i++)
        if (sum(blocks[i], BLOCK_BYTES, buffer + BUFFER_BYTES / 2) !=
            (uint64_t)(i + 1) * (BLOCK_BYTES / 4096))
            argument = "sum";
    for (size_t i = 0; i < BUFFER_BYTES; i++)
        if (buffer[i] != 0x5a)
            argument = "buffer";
    free(buffer);
    return argument;
}

int main(void)
{
    for (int i = 0; i < BLOCKS; i++)
        memset(blocks[i] = malloc(BLOCK_BYTES), i + 1, BLOCK_BYTES);
    for (int round = 0; round < 4; round++) {
        pthread_t thread;
        void *wrong = look(NULL);
        if (!wrong && (pthread_create(&thread, NULL, look, NULL) || pthread_join(thread, &wrong)))
            wrong = "thread";
        if (wrong) {
            printf("wrong: %s\n", (const char *)wrong);
            return 1;
        }
    }
    printf("right\n");
    return 0;
}
