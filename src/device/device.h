/* A device: how the runtime moves pages without copying and learns of accesses to absent ones.
 *
 * The device has three ranges of addresses, all 2 MiB aligned:
 *   arena    the program's blocks; an access to an absent page is a *fault*
 *   staging  blocks that are parked or transferred, and cached huge pages
 *   page_stack  cached small pages (4 KiB), a stack
 * `move` moves the pages themselves, without a copy, between any two ranges.
 *
 * Implementations: host_move.c, host_remap.c and host_protect.c, of which host.c chooses one, and
 * fake.c (plain memory and memcpy, for tests). All functions may be called from any thread, but the
 * runtime's lock serialises move, fresh and release. */
#ifndef EBB_DEVICE_DEVICE_H
#define EBB_DEVICE_DEVICE_H

#include "base/geometry.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EBB_DEVICE_VERSION 1

enum ebb_device_kind {
    EBB_DEVICE_NONE = 0,
    EBB_DEVICE_UFFD_MOVE = 1,
    EBB_DEVICE_FAKE = 2,
    EBB_DEVICE_UFFD_MOVE_USER = 3, /* system calls do not wait for absent pages */
    EBB_DEVICE_UFFD_REMAP = 4,
    EBB_DEVICE_UFFD_REMAP_USER = 5, /* likewise */
    EBB_DEVICE_PROTECT = 6,
    EBB_DEVICE_CUDA = 7, /* no pages of the host: src/cuda/ */
};

enum ebb_device_result {
    EBB_DEVICE_OK = 0,
    EBB_DEVICE_BUSY,   /* some page is pinned or shared; *moved bytes were moved */
    EBB_DEVICE_FAILED, /* a system call failed; *moved bytes were moved */
};

struct ebb_device_range {
    uintptr_t base;
    uint64_t bytes;
};

struct ebb_device_layout {
    struct ebb_device_range arena, staging, page_stack;
};

struct ebb_fault {
    uintptr_t address;
    bool write;
};

struct ebb_device_ops {
    uint32_t version; /* EBB_DEVICE_VERSION */
    enum ebb_device_kind kind;
    /* The buffers of a system call must be resident and pinned until it returns. Either system
     * calls cannot wait for a page, or the device cannot recognise pages in direct I/O. */
    bool calls_need_pins;
    /* A fault is a SIGSEGV in the thread that touches the page. The descriptor reports none. */
    bool faults_are_signals;
    /* Moving pages costs more than releasing them and allocating new ones. */
    bool anew_is_cheaper;

    /* Moves the pages of [source, source + bytes) to [target, ...), where no page may be. Skips
     * absent pages. Wakes all threads that wait for the target. Always sets *moved. */
    enum ebb_device_result (*move)(void *device, uintptr_t target, uintptr_t source, uint64_t bytes,
                                   uint64_t *moved);
    /* New zeroed pages at [target, + bytes). They are huge if `bytes` and `target` are multiples of
     * 2 MiB. */
    enum ebb_device_result (*fresh)(void *device, uintptr_t target, uint64_t bytes);
    /* Returns the pages of [address, + bytes) to the system. */
    void (*release)(void *device, uintptr_t address, uint64_t bytes);
    /* Maps a zero page at `address` if none is mapped. Wakes all threads that wait for it. Returns
     * true if this call mapped it. */
    bool (*fill)(void *device, uintptr_t address);
    /* Makes private the pages of the range that a fork has shared or write-protected. */
    void (*unshare)(void *device, uintptr_t address, uint64_t bytes);
    /* Restores the original mapping of [address, + bytes) of the arena, whatever the program has
     * mapped there. Its pages are released. Returns false if the system refuses. */
    bool (*renew)(void *device, uintptr_t address, uint64_t bytes);
    /* May be NULL. Hands [address, + bytes) of the arena, all of it resident, to the program alone.
     * The program's system calls on it then have their usual effect. renew() takes it back. */
    void (*let)(void *device, uintptr_t address, uint64_t bytes);
    /* May be NULL. Blocks in [address, + bytes) of the arena never move, so the device need not
     * watch it. A released page may reappear, zeroed, when it is touched. Call at most once, before
     * the range is used. */
    void (*fix)(void *device, uintptr_t address, uint64_t bytes);
    /* May be NULL. Fills the unmapped holes of [address, + bytes) of the arena with mappings that
     * permit no access. Otherwise the system would map other memory there. */
    void (*close_holes)(void *device, uintptr_t address, uint64_t bytes);
    /* May be NULL. True if the system permits no more mappings for further blocks. */
    bool (*is_full)(void *device);
};

struct ebb_device {
    const struct ebb_device_ops *ops;
    void *state;
    struct ebb_device_layout layout;
};

/* Creates the best host device that the system permits. Not thread-safe unless stated.
 *
 * Reserves the ranges (as large as the address space allows, at least `least_bytes`) and sets them
 * up. `device` must keep its address. EBB_ERR_UNSUPPORTED if no device works. */
EBB_NODISCARD enum ebb_status ebb__host_create(uint64_t least_bytes, struct ebb_device *device,
                                               struct ebb_error *error);
/* Creates the host device that needs no userfaultfd, for a program that announces each use. Nobody
 * serves its faults, so an access to an absent page ends the program with SIGSEGV. */
EBB_NODISCARD enum ebb_status ebb__host_create_explicit(uint64_t least_bytes,
                                                        struct ebb_device *device,
                                                        struct ebb_error *error);
/* Releases all that ebb__host_create() took. None of it may still be in use. */
void ebb__host_destroy(struct ebb_device *device);
/* For the child of a fork: sets up the same ranges under a new userfaultfd. */
EBB_NODISCARD enum ebb_status ebb__host_after_fork(struct ebb_device *device,
                                                   struct ebb_error *error);
/* Returns the descriptor that becomes readable if there are faults, or -1 if faults are signals.
 * Thread-safe. */
int ebb__host_descriptor(const struct ebb_device *device);
/* Returns the range that holds all addresses of the device, as [*first, *last). Thread-safe. */
void ebb__host_reserved(uintptr_t *first, uintptr_t *last);
/* Reads up to `most` faults without blocking. Returns how many. */
size_t ebb__host_faults(const struct ebb_device *device, struct ebb_fault *faults, size_t most);

/* A device made of plain memory, for tests, with `arena_bytes` in each range. A presence map tells
 * which pages are present. */
EBB_NODISCARD enum ebb_status ebb__fake_create(uint64_t arena_bytes, struct ebb_device *device);
void ebb__fake_destroy(struct ebb_device *device);
/* True if the page at `address` is present. The test may then read and write it. */
bool ebb__fake_present(const struct ebb_device *device, uintptr_t address);
/* While `pinned`, a move that starts in [base, base + bytes) answers BUSY after half its bytes. */
void ebb__fake_pin(struct ebb_device *device, uintptr_t base, uint64_t bytes, bool pinned);

#endif
