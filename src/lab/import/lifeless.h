/* Memory profiles that hold no lifetimes. They are recognised, so that the refusal says why. */
#ifndef EBB_LAB_IMPORT_LIFELESS_H
#define EBB_LAB_IMPORT_LIFELESS_H

#include <stddef.h>
#include <stdint.h>

/* What the file is and lacks, and what to write instead. */
struct ebb_lifeless {
    const char *why, *remedy;
};

/* The kind of a file that is one, or NULL. */
const struct ebb_lifeless *ebb__lifeless_find(const uint8_t *bytes, size_t size);

#endif
