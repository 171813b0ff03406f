/* filtered: starts another program under a seccomp filter. The filter answers a request that Ebb
 * makes of userfaultfd with an error, or kills the process.
 *
 * usage: filtered kill|refuse WHAT[,WHAT...] COMMAND...
 *   WHAT: call   the system call userfaultfd
 *         node   the request of /dev/userfaultfd for a new descriptor
 *         api, register, fill, copy, move, unregister: that request of a userfaultfd
 *         remap  mremap with MREMAP_DONTUNMAP
 *         later  must be alone: filters `call`, and only after the start of the program, which must
 *                be this one. It then uses memory and prints "good" */
#define _GNU_SOURCE
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MOVE_REQUEST 0xc028aa05u /* UFFDIO_MOVE, which Debian 12's headers lack */

static struct sock_filter code[64];
static unsigned short count;

static void put(struct sock_filter step)
{
    code[count++] = step;
}

/* Adds `action` for system call `number` if its argument `index` has all bits of `mask` as in
 * `value`. */
static void add(unsigned action, unsigned number, unsigned index, unsigned mask, unsigned value)
{
    unsigned at = (unsigned)(offsetof(struct seccomp_data, args) + index * sizeof(__u64));
    put((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
    put((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 4));
    put((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at));
    put((struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, mask));
    put((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1));
    put((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action));
}

static void add_what(unsigned action, const char *what)
{
    static const struct {
        const char *name;
        unsigned number, index, mask, value;
    } known[] = {{"call", SYS_userfaultfd, 0, 0, 0},
                 {"node", SYS_ioctl, 1, ~0u, USERFAULTFD_IOC_NEW},
                 {"api", SYS_ioctl, 1, ~0u, UFFDIO_API},
                 {"register", SYS_ioctl, 1, ~0u, UFFDIO_REGISTER},
                 {"fill", SYS_ioctl, 1, ~0u, UFFDIO_ZEROPAGE},
                 {"copy", SYS_ioctl, 1, ~0u, UFFDIO_COPY},
                 {"move", SYS_ioctl, 1, ~0u, MOVE_REQUEST},
                 {"unregister", SYS_ioctl, 1, ~0u, UFFDIO_UNREGISTER},
                 {"remap", SYS_mremap, 3, 4, 4}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(known[i].name, what) == 0) {
            add(action, known[i].number, known[i].index, known[i].mask, known[i].value);
            return;
        }
    fprintf(stderr, "filtered: what is %s?\n", what);
    exit(2);
}

static void take_effect(void)
{
    put((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    struct sock_fprog program = {.len = count, .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, 2, &program)) {
        perror("filtered: seccomp");
        exit(2);
    }
}

static int use_memory(void)
{
    enum { BLOCKS = 24, BYTES = 1 << 20 };
    static unsigned char *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(BYTES);
        memset(blocks[i], i + 1, BYTES);
    }
    for (int i = 0; i < BLOCKS; i++)
        for (int at = 0; at < BYTES; at++)
            if (blocks[i][at] != i + 1)
                return 1;
    puts("good");
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    unsigned action =
        strcmp(argv[1], "kill") == 0 ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ERRNO | 1 /* EPERM */;
    if (strcmp(argv[2], "later") == 0) {
        add_what(action, "call");
        add_what(action, "node");
        take_effect();
        return use_memory();
    }
    for (char *what = strtok(argv[2], ","); what; what = strtok(NULL, ","))
        add_what(action, what);
    take_effect();
    execvp(argv[3], argv + 3);
    perror(argv[3]);
    return 2;
}
