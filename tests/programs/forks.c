/* Programs that fork. Each mode is one test of tests/test_launch_forks.py. All have blocks of 256
 * KiB, some of which must be absent under the budget. They check every word. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCK_BYTES = 1 << 18, WORDS = BLOCK_BYTES / 8, MOST_BLOCKS = 256 };

static uint64_t *blocks[MOST_BLOCKS];
static uint64_t seeds[MOST_BLOCKS];
static unsigned count;

static void die(const char *what)
{
    fprintf(stderr, "forks: %s: %s\n", what, strerror(errno));
    _exit(2);
}

static void fill(unsigned at, uint64_t seed)
{
    seeds[at] = seed;
    for (size_t i = 0; i < WORDS; i++)
        blocks[at][i] = seed * 0x9e3779b97f4a7c15u + i;
}

static size_t wrong(const uint64_t *block, uint64_t seed, size_t words)
{
    size_t bad = 0;
    for (size_t i = 0; i < words; i++)
        bad += block[i] != seed * 0x9e3779b97f4a7c15u + i;
    return bad;
}

static void check(unsigned at, const char *who)
{
    size_t bad = wrong(blocks[at], seeds[at], WORDS);
    if (bad) {
        fprintf(stderr, "forks: %s: %zu of %d words of block %u are wrong\n", who, bad, WORDS, at);
        _exit(1);
    }
}

static void make(unsigned many)
{
    for (unsigned i = count; i < many; i++) {
        if (posix_memalign((void **)&blocks[i], 4096, BLOCK_BYTES) != 0)
            die("posix_memalign");
        fill(i, i + 1);
    }
    count = many;
}

static void wait_for(pid_t child)
{
    int status = 0;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            die("waitpid");
    if (status != 0) {
        fprintf(stderr, "forks: a child ended with %#x\n", (unsigned)status);
        _exit(1);
    }
}

static pid_t start(void)
{
    pid_t child = fork();
    if (child < 0)
        die("fork");
    return child;
}

/* The disk space of the store's file, which has no name. */
static uint64_t store_bytes(void)
{
    uint64_t bytes = 0;
    for (int descriptor = 3; descriptor < 1024; descriptor++) {
        char path[64], name[4096];
        struct stat status;
        snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
        ssize_t length = readlink(path, name, sizeof name - 1);
        if (length <= 0)
            continue;
        name[length] = 0;
        if (name[0] == '/' && strstr(name, "(deleted)") && strstr(name, "memfd") == NULL &&
            fstatat(descriptor, "", &status, AT_EMPTY_PATH) == 0)
            bytes += (uint64_t)status.st_blocks * 512;
    }
    return bytes;
}

/* At each fork, some blocks are in the store. Afterwards all of them are written. */
static void one_after_another(unsigned many)
{
    make(16);
    uint64_t early_bytes = 0;
    for (unsigned round = 0; round < many; round++) {
        pid_t child = start();
        if (child == 0) {
            for (unsigned i = 0; i < 2; i++)
                check((round * 7 + i) % count, "a child");
            _exit(0);
        }
        for (unsigned i = 0; i < 3; i++)
            fill((round * 3 + i) % count, round * count + i + 100);
        wait_for(child);
        for (unsigned i = 0; i < count; i++)
            check(i, "the parent");
        if (round == 9)
            early_bytes = store_bytes();
    }
    if (many >= 10)
        printf("%llu %llu\n", (unsigned long long)early_bytes, (unsigned long long)store_bytes());
}

/* Children run side by side. Some have children themselves and end before these, some are killed.
 * The parent goes on writing. */
static void side_by_side(unsigned many)
{
    enum { LIVING = 8 };
    pid_t children[LIVING] = {0};
    make(10);
    for (unsigned round = 0; round < many; round++) {
        pid_t *slot = &children[round % LIVING];
        if (*slot && round % 5 == 0) {
            kill(*slot, SIGKILL);
            waitpid(*slot, NULL, 0);
        } else if (*slot) {
            wait_for(*slot);
        }
        *slot = start();
        if (*slot == 0) {
            if (round % 3 == 0 && start() > 0)
                _exit(0); /* the rest is the grandchild's */
            for (unsigned turn = 0; turn < 2; turn++) {
                usleep(1000 * (round % 7));
                for (unsigned i = 0; i < count; i++)
                    check(i, "a child");
                if (turn == 0)
                    fill(round % count, round);
            }
            _exit(0);
        }
        for (unsigned i = 0; i < 4; i++)
            fill((round * 4 + i) % count, round * count + i + 100);
        for (unsigned i = 0; i < count; i++)
            check(i, "the parent");
    }
    for (unsigned i = 0; i < LIVING; i++)
        if (children[i])
            wait_for(children[i]);
}

/* Each process forks the next one and lives on. Each writes some blocks and reads all. */
static void nested(unsigned depth)
{
    make(10);
    for (unsigned level = 0; level < depth; level++) {
        pid_t child = start();
        if (child) {
            wait_for(child);
            for (unsigned i = 0; i < count; i++)
                check(i, "an ancestor");
            exit(0);
        }
        for (unsigned i = 0; i < 2; i++)
            fill((level + i * 5) % count, level * 10 + i + 100);
        for (unsigned i = 0; i < count; i++)
            check(i, "a descendant");
    }
}

/* A parent is stopped and does not answer a child, so the child ends. The child's memory must be
 * free again. */
static void unheard(void)
{
    make(10);
    kill(getppid(), SIGSTOP);
    pid_t child = start();
    if (child == 0) {
        for (unsigned i = 0; i < 5; i++) {
            blocks[i] = malloc(BLOCK_BYTES);
            fill(i, i);
        }
        pause();
    }
    sleep(7); /* longer than a child waits for an answer */
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    kill(getppid(), SIGCONT);
    usleep(500000);
    make(15);
}

/* Children have the parent's blocks in memory. They write or only read them, and stay for a while
 * or end at once. */
static void copies(unsigned many, bool writes, bool stays)
{
    make(12);
    pid_t children[16];
    for (unsigned i = 0; i < many && i < 16; i++) {
        children[i] = start();
        if (children[i] == 0) {
            for (unsigned at = 0; at < count; at++) {
                check(at, "a child");
                if (writes)
                    fill(at, at + i + 40);
            }
            if (stays)
                usleep(1500000);
            _exit(0);
        }
    }
    for (unsigned i = 0; i < many && i < 16; i++)
        wait_for(children[i]);
}

static int read_all(void *argument)
{
    (void)argument;
    for (unsigned i = 0; i < count; i++)
        check(i, "a child without handlers");
    fill(3, 77);
    check(3, "a child without handlers");
    return 0;
}

/* Children read absent blocks after a fork that calls no handler of pthread_atfork(). */
static void without_handlers(void)
{
    static _Alignas(16) char stack[256 << 10];
    make(16);
    for (unsigned round = 0; round < 4; round++) {
        pid_t child = -1;
        if (round % 4 == 0)
            child = _Fork();
        else if (round % 4 == 1)
            child = (pid_t)syscall(SYS_fork);
        else if (round % 4 == 2)
            child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, 0L);
        else
            child = clone(read_all, stack + sizeof stack, SIGCHLD, NULL);
        if (child < 0)
            die("a fork");
        if (child == 0)
            _exit(read_all(NULL));
        fill(round, round + 200);
        wait_for(child);
        for (unsigned i = 0; i < count; i++)
            check(i, "the parent");
    }
}

/* The three ways to fork without clone(). */
static pid_t fork_by(unsigned way)
{
    return way % 3 == 0 ? fork() : way % 3 == 1 ? _Fork() : (pid_t)syscall(SYS_fork);
}

static _Atomic bool churning = true;

static void *churn(void *none)
{
    while (churning)
        for (size_t bytes = 300; bytes < 60000; bytes *= 2)
            free(memset(malloc(bytes), 1, bytes / 8));
    return none;
}

/* Children of forks that libc's malloc does not notice, while other threads hold its lock. */
static void churned(void)
{
    pthread_t threads[3];
    mallopt(M_ARENA_MAX, 1);
    make(8);
    for (int i = 0; i < 3; i++)
        if (pthread_create(&threads[i], NULL, churn, NULL) != 0)
            die("pthread_create");
    for (unsigned round = 0; round < 60; round++) {
        pid_t child = fork_by(round % 2 + 1);
        if (child == 0) {
            for (unsigned i = 0; i < count; i++)
                check(i, "child");
            _exit(0);
        }
        wait_for(child);
    }
    churning = false;
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < count; i++)
        check(i, "parent");
}

enum { LENT = 1 << 16 };

/* Puts the pages of `from` into a pipe. */
static void lend_to_pipe(int ends[2], void *from, unsigned round)
{
    if (pipe(ends) != 0)
        die("pipe");
    fcntl(ends[1], F_SETPIPE_SZ, 1 << 20);
    struct iovec vector = {from, LENT};
    ssize_t done = round % 2 ? vmsplice(ends[1], &vector, 1, SPLICE_F_GIFT)
                             : syscall(SYS_vmsplice, ends[1], &vector, 1, 0);
    if (done != LENT)
        die("vmsplice");
}

/* A TCP connection of this process to itself. ends[0] receives little while nobody reads. */
static void connect_ends(int ends[2])
{
    int door = socket(AF_INET, SOCK_STREAM, 0), little = 8192, much = 1 << 20, one = 1;
    int segment =
        1024; /* a segment of loopback's 64 KiB would wait for a timer if the window is smaller */
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof where;
    ends[1] = socket(AF_INET, SOCK_STREAM, 0);
    /* The window is limited by the listener's buffer at the time of the connection. */
    if (setsockopt(door, SOL_SOCKET, SO_RCVBUF, &little, sizeof little) != 0 ||
        setsockopt(ends[1], IPPROTO_TCP, TCP_MAXSEG, &segment, sizeof segment) != 0 ||
        setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &much, sizeof much) != 0 ||
        bind(door, (struct sockaddr *)&where, bytes) != 0 || listen(door, 1) != 0 ||
        getsockname(door, (struct sockaddr *)&where, &bytes) != 0 ||
        connect(ends[1], (struct sockaddr *)&where, bytes) != 0)
        die("connection");
    ends[0] = accept(door, NULL, NULL);
    close(door);
    if (ends[0] < 0)
        die("accept");
    if (setsockopt(ends[1], SOL_SOCKET, SO_ZEROCOPY, &one, sizeof one) != 0)
        _exit(77);
}

/* Puts the pages of `from` into the queue of a socket. Most of them wait there until they are
 * read. */
static void lend_to_socket(int ends[2], void *from, unsigned round)
{
    connect_ends(ends);
    struct iovec vector = {from, LENT};
    struct mmsghdr message = {.msg_hdr = {.msg_iov = &vector, .msg_iovlen = 1}};
    ssize_t done = 0;
    if (round % 4 == 0)
        done = send(ends[1], from, LENT, MSG_ZEROCOPY);
    else if (round % 4 == 1)
        done = sendto(ends[1], from, LENT, MSG_ZEROCOPY, NULL, 0);
    else if (round % 4 == 2)
        done = sendmsg(ends[1], &message.msg_hdr, MSG_ZEROCOPY);
    else if (sendmmsg(ends[1], &message, 1, MSG_ZEROCOPY) == 1)
        done = message.msg_len;
    if (done != LENT)
        die("send");
}

/* A block is lent to a pipe or socket, and may be freed while it is. Then all other blocks are
 * used. The reader must get the block's old bytes. */
static void lent(void (*lend)(int ends[2], void *from, unsigned round))
{
    static uint64_t back[LENT / 8];
    make(16);
    for (unsigned round = 0; round < 12; round++) {
        unsigned at = round % count;
        int ends[2];
        lend(ends, blocks[at], round);
        uint64_t seed = seeds[at];
        if (round % 3 == 2) {
            free(blocks[at]);
            if (posix_memalign((void **)&blocks[at], 4096, BLOCK_BYTES) != 0)
                die("posix_memalign");
            fill(at, seed + 1000);
        }
        for (unsigned turn = 0; turn < 2; turn++)
            for (unsigned i = 0; i < count; i++)
                if (i != at) {
                    check(i, "a block beside");
                    fill(i, round * 100 + i);
                }
        for (size_t got = 0; got < LENT;) {
            ssize_t piece = read(ends[0], (char *)back + got, LENT - got);
            if (piece <= 0)
                die("read");
            got += (size_t)piece;
        }
        size_t bad = wrong(back, seed, LENT / 8);
        if (bad) {
            fprintf(stderr, "forks: round %u: %zu of %d words that were lent are wrong\n", round,
                    bad, LENT / 8);
            _exit(1);
        }
        close(ends[0]);
        close(ends[1]);
    }
}

/* Runs on a stack in a block. The thread forks before it has touched most of the stack. */
static void *fork_here(void *round)
{
    unsigned at = *(unsigned *)round;
    pid_t child = fork_by(at);
    if (child < 0)
        die("a fork");
    if (child == 0) {
        for (unsigned i = 0; i < count; i++)
            check(i, "a child on a block");
        fill(at % count, at + 300);
        check(at % count, "a child on a block");
        _exit(0);
    }
    wait_for(child);
    return NULL;
}

/* Each thread that forks has its stack in a new block without pages. */
static void on_block(unsigned many)
{
    make(16);
    for (unsigned round = 0; round < many; round++) {
        pthread_attr_t attributes;
        pthread_t thread;
        void *stack = NULL;
        if (posix_memalign(&stack, 4096, BLOCK_BYTES) != 0 || pthread_attr_init(&attributes) != 0 ||
            pthread_attr_setstack(&attributes, stack, BLOCK_BYTES) != 0 ||
            pthread_create(&thread, &attributes, fork_here, &round) != 0 ||
            pthread_join(thread, NULL) != 0)
            die("a thread on a block");
        pthread_attr_destroy(&attributes);
        free(stack);
        fill(round % count, round + 400);
        for (unsigned i = 0; i < count; i++)
            check(i, "the parent");
    }
}

/* Prints whether io_uring and aio can be set up. */
static void asynchronous(void)
{
    make(4);
    char parameters[256] = {0};
    int ring = (int)syscall(SYS_io_uring_setup, 4, parameters);
    puts(ring >= 0 ? "ring" : errno == ENOSYS ? "no-ring" : "ring-refused");
    unsigned long context = 0;
    puts(syscall(SYS_io_setup, 4, &context) == 0 ? "aio"
         : errno == ENOSYS                       ? "no-aio"
                                                 : "aio-fails");
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    unsigned many = argc > 2 ? (unsigned)atoi(argv[2]) : 1;
    if (strcmp(mode, "orphan") == 0)
        kill(getppid(), SIGKILL);
    if (strcmp(mode, "sequence") == 0 || strcmp(mode, "orphan") == 0)
        one_after_another(many);
    else if (strcmp(mode, "unheard") == 0)
        unheard();
    else if (strcmp(mode, "copies") == 0)
        copies(many, true, true);
    else if (strcmp(mode, "copies-at-once") == 0)
        copies(many, true, false);
    else if (strcmp(mode, "readers") == 0)
        copies(many, false, true);
    else if (strcmp(mode, "without-handlers") == 0)
        without_handlers();
    else if (strcmp(mode, "on-block") == 0)
        on_block(many);
    else if (strcmp(mode, "churned") == 0)
        churned();
    else if (strcmp(mode, "lent") == 0)
        lent(lend_to_pipe);
    else if (strcmp(mode, "sent") == 0)
        lent(lend_to_socket);
    else if (strcmp(mode, "asynchronous") == 0)
        asynchronous();
    else if (strcmp(mode, "beside") == 0)
        side_by_side(many);
    else if (strcmp(mode, "nested") == 0)
        nested(many);
    else
        return 2;
    puts("right");
    return 0;
}
