/* The table of functions behind each emulated allocator. */
#ifndef EBB_LAB_PEERS_PEERS_H
#define EBB_LAB_PEERS_PEERS_H

#include <stdbool.h>
#include <stdint.h>

struct ebb_peer {
    const char *name;
    /* A new allocator; NULL: out of memory. */
    void *(*create)(void);
    void (*destroy)(void *state);
    /* Places a block of `bytes`. *handle identifies it for release(). False: out of memory. */
    bool (*allocate)(void *state, uint64_t bytes, uint64_t *handle);
    bool (*release)(void *state, uint64_t handle);
    /* Bytes that it holds of the device. */
    uint64_t (*held_bytes)(const void *state);
};

extern const struct ebb_peer ebb__peer_cnmem;
extern const struct ebb_peer ebb__peer_torch;
extern const struct ebb_peer ebb__peer_bfc;
extern const struct ebb_peer ebb__peer_glibc;

#endif
