/* Messages between a program and its parent, over one SOCK_SEQPACKET socket per process.
 *
 * `ebb run` puts EBB_RUN into the environment:
 *     EBB_RUN=2:<fd>:<inode>:<pid>:<uid>:<secret>:<name>:<threshold>:<flags>:<places>
 * <places> are those of the store, one on each line. <fd> is an inherited socket. It is checked
 * against <inode>, since programs close and reuse descriptors. <name> is an abstract address, used
 * if the descriptor is lost. A process says hello on either of them with two descriptors: its end
 * of a socket pair, and its ring. All later messages use the socket pair.
 *
 * Names of abstract sockets are public, and another process may take one after its owner has ended.
 * So each side verifies the other before it passes any descriptor. The process checks by
 * SO_PEERCRED that <name> belongs to process <pid> of user <uid>. The parent requires <secret>,
 * which other users cannot read. Unless it runs as root, it accepts a hello only from its own
 * user. */
#ifndef EBB_RUNTIME_PROTOCOL_H
#define EBB_RUNTIME_PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EBB_PROTOCOL_VERSION 2
#define EBB_PROTOCOL_ENV "EBB_RUN"
#define EBB_PROTOCOL_FLAG_QUIET 1u    /* the shim writes no warnings to stderr */
#define EBB_PROTOCOL_FLAG_RECORD 2u   /* record only: never evict */
#define EBB_PROTOCOL_FLAG_VERIFY 4u   /* compare every fetch with its write back */
#define EBB_PROTOCOL_FLAG_COMPRESS 8u /* do not store zeros, once COMPRESS arrives */

/* How blocks of a GPU leave it (src/cuda/README.md): in the flags, from this bit on. */
#define EBB_PROTOCOL_BACKING_SHIFT 8
enum ebb_gpu_backing {
    EBB_GPU_MANAGED,
    EBB_GPU_VMM_HOST,
    EBB_GPU_VMM_TRUSTING,
};
/* The word for the backing with this number; NULL after the last. */
const char *ebb__gpu_backing_name(size_t index);

enum ebb_message_kind {
    EBB_MESSAGE_HELLO = 1,   /* process -> parent; value: enum ebb_hello_kind; descriptors: its
                                socket and ring */
    EBB_MESSAGE_WELCOME = 2, /* parent -> process; descriptors: ledger and, for a device, that of
                                host memory, which all devices share; value: 1 = trace accesses;
                                text: the tuning, as of ebb__tuning_write() */
    EBB_MESSAGE_SCRIPT = 3,  /* parent -> process; descriptor: script; value: its bytes; without
                                a descriptor and 0: forget all scripts */
    EBB_MESSAGE_NAMES = 9,   /* parent -> process; descriptor: struct ebb_renaming, an array; value:
                                its bytes */
    EBB_MESSAGE_TRACE = 4,   /* parent -> process; value: ebb__observe_value() */
    EBB_MESSAGE_TRIM = 5,    /* parent -> process; the ledger's budget has changed */
    EBB_MESSAGE_SHRINK = 7,  /* parent -> process; release value bytes: another process starves */
    EBB_MESSAGE_COMPRESS = 8, /* parent -> process; do not store zeros after this */
    EBB_MESSAGE_WARN = 6,     /* process -> parent; text: for the person who runs the program */
};

/* Who says hello: the value of the message. */
enum ebb_hello_kind {
    EBB_HELLO_HOST,   /* a process whose blocks are in the host's memory; text: its name */
    EBB_HELLO_CUDA,   /* a process that may use devices, and has said no other hello; text: its
                         name */
    EBB_HELLO_DEVICE, /* a process begins to use a device; limit_bytes: the memory of that; text: its
                         address on the bus and its name, a line each. Each device that a process
                         uses has a ring, a channel and scripts of its own. Processes that use the
                         same device share a ledger. */
};

/* When a process observes accesses. */
enum ebb_observe {
    EBB_OBSERVE_NEVER,
    EBB_OBSERVE_ALWAYS,
    EBB_OBSERVE_DEPARTURES, /* while scripts are known, and the program follows none of them */
    EBB_OBSERVE_EXACTLY,    /* always, and each use, also those that follow another one closely */
};

/* The mode, and a number of allocations: a departure is observed for so many at least. */
static inline uint64_t ebb__observe_value(enum ebb_observe observe, uint64_t allocations)
{
    return (uint64_t)observe | allocations << 8;
}

struct ebb_message {
    uint32_t version; /* EBB_PROTOCOL_VERSION */
    uint32_t kind;
    uint64_t value;
    uint64_t limit_bytes; /* WELCOME: limit of the store */
    uint32_t process_id;
    uint32_t parent_process_id; /* HELLO */
    uint64_t secret[2];         /* HELLO: the secret of EBB_RUN */
    char text[400];
};

#define EBB_MESSAGE_DESCRIPTORS 2u /* most descriptors in a message */

/* Sends *message with `count` descriptors, which the caller still owns. Fills in the version.
 * `flags` are those of sendmsg(). False if the message was not sent whole. Thread-safe. */
bool ebb__message_send(int socket, const struct ebb_message *message, const int *descriptors,
                       size_t count, int flags);
/* Does not wait. 1: a message, with *count descriptors that the caller owns. 0: none, or one of
 * another version. -1: the other side has closed. Thread-safe. */
int ebb__message_receive(int socket, struct ebb_message *message,
                         int descriptors[EBB_MESSAGE_DESCRIPTORS], size_t *count);
/* As ebb__message_receive(). *sender: the sender if the socket has SO_PASSCRED, else process 0. */
struct ucred;
int ebb__message_receive_from(int socket, struct ebb_message *message,
                              int descriptors[EBB_MESSAGE_DESCRIPTORS], size_t *count,
                              struct ucred *sender);
void ebb__message_close(const int *descriptors, size_t count);

#endif
