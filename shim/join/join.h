/* How a library in a program takes part in a run: settings, hello, the parent's messages.
 *
 *     if (ebb__join_read_settings() && ebb__join_hello(&introduction, &parent)) ...
 *     while (ebb__join_serve(parent.channel, &orders, context)) ...
 *
 * Each library has its own copy. What it does with what it gets is its own. */
#ifndef EBB_SHIM_JOIN_H
#define EBB_SHIM_JOIN_H

#include "base/status.h"
#include "runtime/ledger.h"
#include "runtime/protocol.h"
#include "runtime/script.h"
#include "trace/ring.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* settings.c: the contents of EBB_RUN. */
struct ebb_join_settings {
    int inherited;            /* descriptor of the socket on which the parent receives hellos */
    unsigned long long inode; /* its */
    long parent_id;
    unsigned long user_id;
    unsigned long long secret[2];
    char parent_name[64]; /* abstract address, for processes without the descriptor */
    size_t threshold;
    unsigned flags;        /* EBB_PROTOCOL_FLAG_* */
    char places[PATH_MAX]; /* places of the store, one a line */
};
extern struct ebb_join_settings ebb__join_settings;
/* Returns false if this process belongs to no run. */
bool ebb__join_read_settings(void);
/* True if the descriptor, with this inode and mode from fstat(), is the socket on which programs
 * reach the parent. */
bool ebb__join_is_hello(int descriptor, unsigned long long inode, unsigned mode);

/* hello.c: who says hello. */
struct ebb_join_introduction {
    enum ebb_hello_kind kind;
    uint64_t device_bytes; /* EBB_HELLO_DEVICE: its memory */
    const char *text;      /* NULL: the name of the calling thread */
};
/* What a process shares with its parent. */
struct ebb_join_parent {
    int channel; /* -1: none */
    struct ebb_ring *ring;
    struct ebb_ledger *ledger;
    int ledger_descriptor; /* of the ledger's file; the caller closes it */
    /* The limit of the store, which all processes share, and its file, which the caller closes. Of
     * a device: the limit of host memory. NULL: none. */
    struct ebb_ledger *store_ledger;
    int store_descriptor; /* -1: none */
    uint64_t store_limit_bytes;
    bool trace;
};
/* Says hello and waits for the welcome without a limit. Returns false, with all fields empty, if
 * there is no parent. */
bool ebb__join_hello(const struct ebb_join_introduction *introduction,
                     struct ebb_join_parent *parent);

/* messages.c: what to do at the parent's messages. A function that is NULL does nothing. */
struct ebb_join_orders {
    /* It keeps the script, unless it fails. */
    enum ebb_status (*set_script)(void *context, const struct ebb_script *script, uint64_t bytes);
    void (*forget_scripts)(void *context);
    void (*rename)(void *context, const struct ebb_renaming *renamings, size_t count);
    void (*set_trace)(void *context, enum ebb_observe observe, uint64_t allocations);
    void (*shrink)(void *context, uint64_t bytes);
    void (*trim)(void *context);
    void (*compress)(void *context);
};
/* Takes the next message, if there is one. Returns false if the parent is gone. */
bool ebb__join_serve(int channel, const struct ebb_join_orders *orders, void *context);
/* thread.c: starts a detached thread that takes no signal of the program. False, with errno, if it
 * cannot be started. */
bool ebb__join_start_thread(void *(*function)(void *), void *argument);
/* Sends a warning for the person who runs the program. Thread-safe. */
void ebb__join_warn(int channel, const char *message);

#endif
