/* numbered: a program that closes descriptors it has not opened, by the numbers of the system
 * calls. Some programs do so because an older libc may lack the function. Meanwhile absent blocks
 * must keep their bytes, in the program and in a child that does the same. Prints "good". */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define COUNT 16
#define BYTES ((size_t)1 << 20)
#define MOST 5000 /* more than any number in use */

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

static unsigned char *blocks[COUNT];

static void check(void)
{
    volatile unsigned char *scratch = malloc(BYTES);
    scratch[0] = 1;
    for (int turn = 0; turn < 2; turn++)
        for (int i = 0; i < COUNT; i++)
            for (size_t at = 0; at < BYTES; at += 509)
                if (((volatile unsigned char *)blocks[i])[at] != (unsigned char)(i + at / 4096)) {
                    printf("bad: byte\n");
                    fflush(stdout);
                    _exit(1);
                }
    free((void *)scratch);
}

static void close_range_of_all(void)
{
    syscall(SYS_close_range, 3u, ~0u, 0u);
}

static void close_each(void)
{
    for (int number = 3; number < MOST; number++)
        syscall(SYS_close, number);
}

static void cover_each(void)
{
    for (int number = 3; number < MOST; number++) {
#ifdef SYS_dup2
        if (number % 2)
            syscall(SYS_dup2, STDOUT_FILENO, number);
        else
#endif
            syscall(SYS_dup3, STDOUT_FILENO, number, 0);
    }
}

int main(void)
{
    static void (*const ways[])(void) = {close_range_of_all, close_each, cover_each};
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = malloc(BYTES);
        for (size_t at = 0; at < BYTES; at++)
            blocks[i][at] = (unsigned char)((size_t)i + at / 4096);
    }
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
        check();
        pid_t child = fork();
        if (child == 0) {
            ways[way]();
            check();
            _exit(0);
        }
        int status;
        if (waitpid(child, &status, 0) != child || status != 0) {
            printf("bad: child %x\n", (unsigned)status);
            return 1;
        }
        ways[way]();
        check();
    }
    printf("good\n");
    return 0;
}
