/* The numbers of docs/formats/profile.md that the writer and the reader of profiles share. */
#ifndef EBB_PARENT_PROFILE_FORMAT_H
#define EBB_PARENT_PROFILE_FORMAT_H

#define EBB_PROFILE_MAGIC                                                                          \
    "\x89"                                                                                         \
    "EBBP\r\n\x1a"
#define EBB_PROFILE_MAGIC_BYTES 8u
#define EBB_PROFILE_MAJOR 6u
#define EBB_PROFILE_HEADER_BYTES 80u
/* 4 iterations of a million events. A limit of the format, far above what planners accept. */
#define EBB_PROFILE_MOST_BODY_BYTES ((uint64_t)256 << 20)

#define EBB_PROFILE_HAS_ACCESSES 1u
#define EBB_PROFILE_UNORDERED 2u
#define EBB_PROFILE_HELD 4u /* of a use, beside its access */

#define EBB_PROFILE_EVENT_BYTES 8u
#define EBB_PROFILE_BLOCK_BYTES 49u
#define EBB_PROFILE_ACCESS_BYTES 5u
#define EBB_PROFILE_MARK_BYTES 8u

#endif
