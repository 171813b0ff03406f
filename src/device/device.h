/* A device: how the runtime moves pages without copying and learns of accesses to absent ones.
 *
 * The runtime sees three ranges of address space of equal rights, all 2 MiB aligned:
 *   arena    the program's blocks; an access to a page that is not there is a *fault*
 *   staging  blocks that are parked or transferred, and cached huge pages
 *   page_stack  cached small pages (4 KiB), a stack
 * `move` takes pages from any of them to any other; what is moved is the pages themselves.
 *
 * Implementations: host_move.c, host_remap.c and host_protect.c, of which host.c chooses, and
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
};

enum ebb_device_result {
    EBB_DEVICE_OK = 0,
    EBB_DEVICE_BUSY,   /* some page is pinned or shared; *moved bytes were moved */
    EBB_DEVICE_FAILED, /* nothing more to say: errno-like detail is in *moved's shortfall */
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
    /* What a system call reads or writes must be there and stay until it returns: system calls
     * cannot wait for a page, or a page in direct I/O cannot be told from another. */
    bool calls_need_pins;
    /* Faults come as SIGSEGV in the thread that touches the page, not by the descriptor. */
    bool faults_are_signals;
    /* To move pages costs more than to give them back and to make others. */
    bool anew_is_cheaper;

    /* Move the pages of [source, source + bytes) to [target, ...), where nothing may be; pages that
     * are not there are skipped. Wakes whoever waits for the target. *moved is always set. */
    enum ebb_device_result (*move)(void *device, uintptr_t target, uintptr_t source, uint64_t bytes,
                                   uint64_t *moved);
    /* New zeroed pages at [target, + bytes), huge where `bytes` and `target` are 2 MiB multiples. */
    enum ebb_device_result (*fresh)(void *device, uintptr_t target, uint64_t bytes);
    /* Give the pages of [address, + bytes) back to the system. */
    void (*release)(void *device, uintptr_t address, uint64_t bytes);
    /* A zero page at `address` unless one is there; wakes whoever waits for it. True: it was put
     * there now. */
    bool (*fill)(void *device, uintptr_t address);
    /* Make shared or write-protected (by fork) pages of the range this process's own. */
    void (*unshare)(void *device, uintptr_t address, uint64_t bytes);
    /* Make [address, + bytes) of the arena what it was at first, whatever the program has made of the
     * mappings there; the pages go. False: the system refuses. */
    bool (*renew)(void *device, uintptr_t address, uint64_t bytes);
    /* May be NULL. [address, + bytes) of the arena, all of which is there, is the program's alone from here
     * on: what it does there means what it means elsewhere. renew() takes it back. */
    void (*let)(void *device, uintptr_t address, uint64_t bytes);
    /* May be NULL. What lies in [address, + bytes) of the arena never moves: the device need not watch it.
     * What is released there may come again, zeroed, when it is touched. Once, before it is used. */
    void (*fix)(void *device, uintptr_t address, uint64_t bytes);
    /* May be NULL. Where the program has left nothing mapped in [address, + bytes) of the arena, a mapping
     * without access takes the place: else the system would put others' memory there. */
    void (*close_holes)(void *device, uintptr_t address, uint64_t bytes);
    /* May be NULL. True: the system has no more mappings for further blocks. */
    bool (*is_full)(void *device);
};

struct ebb_device {
    const struct ebb_device_ops *ops;
    void *state;
    struct ebb_device_layout layout;
};

/* The best host device that the system permits. Not thread-safe unless stated.
 *
 * Reserve the ranges (as large as the address space allows, at least `least_bytes`) and take them
 * into use; `device` must stay where it is. EBB_ERR_UNSUPPORTED where nothing will do. */
EBB_NODISCARD enum ebb_status ebb__host_create(uint64_t least_bytes, struct ebb_device *device,
                                               struct ebb_error *error);
/* Give up all that ebb__host_create() took; nothing of it is in use any more. */
void ebb__host_destroy(struct ebb_device *device);
/* In the child of a fork: the same ranges again, under a new userfaultfd. */
EBB_NODISCARD enum ebb_status ebb__host_after_fork(struct ebb_device *device,
                                                   struct ebb_error *error);
/* The descriptor that becomes readable when there are faults; -1: they come as signals.
 * Thread-safe. */
int ebb__host_descriptor(const struct ebb_device *device);
/* All addresses that the device has taken for itself: [*first, *last). Thread-safe. */
void ebb__host_reserved(uintptr_t *first, uintptr_t *last);
/* Take up to `most` faults without blocking; returns how many. */
size_t ebb__host_faults(const struct ebb_device *device, struct ebb_fault *faults, size_t most);

/* A device made of plain memory, for tests: `arena_bytes` in each range. Pages that are not there
 * are kept by a presence map; ebb__fake_touch() stands for a program's access. */
EBB_NODISCARD enum ebb_status ebb__fake_create(uint64_t arena_bytes, struct ebb_device *device);
void ebb__fake_destroy(struct ebb_device *device);
/* True where the page at `address` is there (and may be read and written by the test). */
bool ebb__fake_present(const struct ebb_device *device, uintptr_t address);
/* The next `count` moves that start in [base, base + bytes) answer BUSY after half their pages. */
void ebb__fake_pin(struct ebb_device *device, uintptr_t base, uint64_t bytes, bool pinned);

#endif
