/* What a program and its parent say to each other, over one SOCK_SEQPACKET socket a process.
 *
 * `ebb run` puts EBB_RUN into the environment:
 *     EBB_RUN=2:<fd>:<inode>:<pid>:<uid>:<secret>:<name>:<threshold>:<flags>:<places of the store, one a line>
 * <fd> is an inherited socket (checked against <inode>, since programs close and reuse
 * descriptors), <name> the abstract address that serves where the descriptor is gone. A process
 * says hello on either with two descriptors: its end of a socket pair and its ring. Everything
 * after that goes over the socket pair.
 *
 * Names of abstract sockets are public, and free again once their owner has ended. So each side makes
 * sure of the other before it hands anything over: the process sees by SO_PEERCRED that <name> is
 * process <pid> of user <uid>; the parent takes a hello only with <secret>, which other users cannot
 * read, and only from its own user unless it is root's. */
#ifndef EBB_RUNTIME_PROTOCOL_H
#define EBB_RUNTIME_PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EBB_PROTOCOL_VERSION 2
#define EBB_PROTOCOL_ENV "EBB_RUN"
#define EBB_PROTOCOL_FLAG_QUIET 1u    /* no warnings of the shim's own on stderr */
#define EBB_PROTOCOL_FLAG_RECORD 2u   /* record only: never move anything out */
#define EBB_PROTOCOL_FLAG_VERIFY 4u   /* check every fetch against what was written back */
#define EBB_PROTOCOL_FLAG_COMPRESS 8u /* do not store zeros, when told to */

enum ebb_message_kind {
    EBB_MESSAGE_HELLO = 1,   /* process -> parent; descriptors: socket, ring */
    EBB_MESSAGE_WELCOME = 2, /* parent -> process; descriptor: ledger; value: 1 = trace accesses;
                                text: the tuning, as of ebb__tuning_write() */
    EBB_MESSAGE_SCRIPT = 3,  /* parent -> process; descriptor: script; value: its bytes;
                                none, 0: forget all scripts */
    EBB_MESSAGE_TRACE = 4,   /* parent -> process; value: 1 on, 0 off */
    EBB_MESSAGE_TRIM = 5,    /* parent -> process; the ledger's budget has changed */
    EBB_MESSAGE_SHRINK = 7,  /* parent -> process; give value bytes back, another process starves */
    EBB_MESSAGE_COMPRESS = 8, /* parent -> process; from now on */
    EBB_MESSAGE_WARN = 6,     /* process -> parent; text: for the person who runs the program */
};

struct ebb_message {
    uint32_t version; /* EBB_PROTOCOL_VERSION */
    uint32_t kind;
    uint64_t value;
    uint64_t limit_bytes; /* WELCOME: of the store */
    uint32_t process_id;
    uint32_t parent_process_id; /* HELLO */
    uint64_t secret[2];         /* HELLO: of EBB_RUN */
    char text[400];
};

#define EBB_MESSAGE_DESCRIPTORS 2u /* most that come with a message */

/* Send *message, version filled in, with `count` descriptors (they stay the caller's); `flags` as
 * of sendmsg(). False where it did not go out whole. Thread-safe. */
bool ebb__message_send(int socket, const struct ebb_message *message, const int *descriptors,
                       size_t count, int flags);
/* Without waiting. 1: a message, with *count descriptors that are the caller's now; 0: none, or one
 * of another version; -1: the other side is gone. Thread-safe. */
int ebb__message_receive(int socket, struct ebb_message *message,
                         int descriptors[EBB_MESSAGE_DESCRIPTORS], size_t *count);
/* Likewise; *sender: who sent it, where the socket has SO_PASSCRED, else process 0. */
struct ucred;
int ebb__message_receive_from(int socket, struct ebb_message *message,
                              int descriptors[EBB_MESSAGE_DESCRIPTORS], size_t *count,
                              struct ucred *sender);
void ebb__message_close(const int *descriptors, size_t count);

#endif
