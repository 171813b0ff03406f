/* Reads Python pickles as plain data. A pickle is a program; this reader runs only the opcodes that
 * build dicts, lists, tuples, sets, strings, bytes, numbers, booleans and None. It refuses opcodes
 * that import or call something, so nothing in the file is ever executed.
 *
 * Values refer to containers in one struct. They may be shared and even cyclic, so a caller that
 * walks them must bound the depth. Strings point into the source, which must outlive the values.
 * Source: the opcodes of CPython's pickletools, protocols 2 to 5. */
#ifndef EBB_LAB_IMPORT_PICKLE_H
#define EBB_LAB_IMPORT_PICKLE_H

#include "base/status.h"
#include "base/text.h"
#include "base/vec.h"

enum ebb_pickle_kind {
    EBB_PICKLE_NONE,
    EBB_PICKLE_BOOL,    /* number is 0 or 1 */
    EBB_PICKLE_INT,     /* 0 to 2^64 - 1; others are EBB_PICKLE_ODD_INT */
    EBB_PICKLE_ODD_INT, /* negative (number == 1) or too large (number == 0) */
    EBB_PICKLE_FLOAT,
    EBB_PICKLE_STRING, /* or bytes */
    EBB_PICKLE_LIST,   /* or a tuple or set: `number` is the index of its container */
    EBB_PICKLE_DICT,   /* `number` likewise; its items alternate between key and value */
    EBB_PICKLE_MARK,   /* internal: no caller sees it */
};

struct ebb_pickle_value {
    enum ebb_pickle_kind kind;
    union {
        uint64_t number;
        double real;
        struct ebb_text text;
    } as;
};

typedef EBB_VEC(struct ebb_pickle_value) ebb_pickle_items;

struct ebb_pickle {
    EBB_VEC(ebb_pickle_items) containers;
    struct ebb_pickle_value root;
};

/* Reads the pickle. Bytes after its end are ignored. EBB_ERR_FORMAT names the byte of the error. On
 * failure *pickle is empty. O(bytes) time and memory. */
EBB_NODISCARD enum ebb_status ebb__pickle_read(const uint8_t *bytes, size_t size, const char *name,
                                               struct ebb_pickle *pickle, struct ebb_error *error);
void ebb__pickle_fini(struct ebb_pickle *pickle);

/* The items of a list or dict; *count is 0 for anything else. */
const struct ebb_pickle_value *ebb__pickle_items(const struct ebb_pickle *pickle,
                                                 const struct ebb_pickle_value *value,
                                                 size_t *count);

/* The value of `key` among the first EBB_PICKLE_MEMBERS members of a dict. NULL if there is none,
 * or if `value` is not a dict. */
enum { EBB_PICKLE_MEMBERS = 64 };
const struct ebb_pickle_value *ebb__pickle_member(const struct ebb_pickle *pickle,
                                                  const struct ebb_pickle_value *value,
                                                  const char *key);

#endif
