#include "train/data/idx.h"

#include "train/base/fail.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

/* More than any file of this family has. It bounds what a damaged header makes us allocate. */
#define VALUES_MOST ((uint64_t)1 << 30)
#define TYPE_UNSIGNED_BYTE 8

/* Reads exactly `bytes`. A file that ends before, or whose compressed data are damaged, is
 * malformed. The system's errors are input errors. */
static enum ebb_status read_all(gzFile file, const char *path, void *out, uint64_t bytes,
                                struct ebb_error *error)
{
    uint8_t *at = out;
    while (bytes) {
        unsigned int part = bytes > (1u << 20) ? 1u << 20 : (unsigned int)bytes;
        int got = gzread(file, at, part);
        int problem = Z_OK;
        const char *text = gzerror(file, &problem);
        if (problem == Z_ERRNO)
            return ebb__train_fail_io(error, path, "be read");
        if (problem == Z_MEM_ERROR)
            return ebb__train_fail_memory(error, path);
        if (got < 0 && problem != Z_BUF_ERROR)
            return ebb__train_fail(error, EBB_ERR_FORMAT, path, "damaged: %s", text);
        if (got <= 0 || problem == Z_BUF_ERROR)
            return ebb__train_fail(error, EBB_ERR_FORMAT, path, "ends too early");
        at += got;
        bytes -= (uint64_t)got;
    }
    return EBB_OK;
}

static uint32_t big_endian(const uint8_t bytes[4])
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static enum ebb_status read_head(gzFile file, const char *path, uint32_t dimensions,
                                 struct ebb_idx *idx, uint64_t *values, struct ebb_error *error)
{
    uint8_t magic[4], size[4];
    enum ebb_status status = read_all(file, path, magic, sizeof magic, error);
    if (status)
        return status;
    if (magic[0] || magic[1] || magic[2] != TYPE_UNSIGNED_BYTE || magic[3] != dimensions)
        return ebb__train_fail(error, EBB_ERR_FORMAT, path,
                               "not an IDX file of bytes with %" PRIu32 " dimensions", dimensions);
    *values = 1;
    for (uint32_t i = 0; i < dimensions; i++) {
        status = read_all(file, path, size, sizeof size, error);
        if (status)
            return status;
        idx->size[i] = big_endian(size);
        if (!idx->size[i] || idx->size[i] > VALUES_MOST / *values)
            return ebb__train_fail(error, EBB_ERR_FORMAT, path, "dimension %" PRIu32 " is %" PRIu32,
                                   i, idx->size[i]);
        *values *= idx->size[i];
    }
    idx->dimensions = dimensions;
    return EBB_OK;
}

/* The stream must end here. This also makes zlib compare the checksum. */
static enum ebb_status expect_end(gzFile file, const char *path, struct ebb_error *error)
{
    uint8_t byte;
    int got = gzread(file, &byte, 1);
    int problem = Z_OK;
    const char *text = gzerror(file, &problem);
    if (got > 0)
        return ebb__train_fail(error, EBB_ERR_FORMAT, path, "goes on after its last value");
    if (problem == Z_BUF_ERROR)
        return ebb__train_fail(error, EBB_ERR_FORMAT, path, "ends too early");
    if (got < 0)
        return ebb__train_fail(error, EBB_ERR_FORMAT, path, "damaged: %s", text);
    return EBB_OK;
}

enum ebb_status ebb__idx_read(const char *path, uint32_t dimensions, struct ebb_idx *idx,
                              struct ebb_error *error)
{
    gzFile file = gzopen(path, "rbe");
    if (!file)
        return ebb__train_fail_io(error, path, "be opened");
    struct ebb_idx read = {0};
    uint64_t values = 0;
    enum ebb_status status = read_head(file, path, dimensions, &read, &values, error);
    if (!status) {
        read.values = malloc(values);
        status = read.values ? read_all(file, path, read.values, values, error)
                             : ebb__train_fail_memory(error, path);
    }
    if (!status)
        status = expect_end(file, path, error);
    gzclose(file);
    if (status)
        free(read.values);
    else
        *idx = read;
    return status;
}

void ebb__idx_fini(struct ebb_idx *idx)
{
    free(idx->values);
    memset(idx, 0, sizeof *idx);
}
