/* Python's pickles as plain data: a pickle is a program, and this runs only the part of its language
 * that builds dicts, lists, tuples, sets, strings, bytes, numbers, booleans and None. Whatever
 * would import or call something is refused, so that nothing in the file is ever executed.
 *
 * Values are references into one struct; they may be shared and even cyclic, so whoever walks them
 * bounds its depth. Strings stay where they are in the source, which must outlive the values.
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
    EBB_PICKLE_LIST,   /* or a tuple or set: `number` is the index of its items */
    EBB_PICKLE_DICT,   /* likewise, keys and values by turns */
    EBB_PICKLE_MARK,   /* never seen from outside */
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

/* Read the pickle; what follows its end is not looked at. EBB_ERR_FORMAT says at which byte what is
 * wrong. On failure *pickle is empty. O(bytes) time and memory. */
EBB_NODISCARD enum ebb_status ebb__pickle_read(const uint8_t *bytes, size_t size, const char *name,
                                               struct ebb_pickle *pickle, struct ebb_error *error);
void ebb__pickle_fini(struct ebb_pickle *pickle);

/* The items of a list or dict; *count is 0 for anything else. */
const struct ebb_pickle_value *ebb__pickle_items(const struct ebb_pickle *pickle,
                                                 const struct ebb_pickle_value *value,
                                                 size_t *count);

/* The member of a dict, by its name, among the first EBB_PICKLE_MEMBERS; NULL where there is none,
 * or `value` is no dict. */
enum { EBB_PICKLE_MEMBERS = 64 };
const struct ebb_pickle_value *ebb__pickle_member(const struct ebb_pickle *pickle,
                                                  const struct ebb_pickle_value *value,
                                                  const char *key);

#endif
