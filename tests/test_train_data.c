/* The data of the trainer: IDX files, good and bad, and batches that depend on their number
 * only. */
#include "train/data/data.h"
#include "train/data/idx.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

static char folder[] = "/tmp/ebb-train-data-XXXXXX";

static char *path_of(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_plain(const char *name, const void *bytes, size_t count)
{
    FILE *file = fopen(path_of(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    fclose(file);
}

static void write_compressed(const char *name, const void *bytes, size_t count)
{
    gzFile file = gzopen(path_of(name), "wb");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, bytes, (unsigned int)count), count);
    gzclose(file);
}

static size_t read_plain(const char *name, uint8_t *bytes, size_t room)
{
    FILE *file = fopen(path_of(name), "rb");
    assert_non_null(file);
    size_t count = fread(bytes, 1, room, file);
    fclose(file);
    return count;
}

/* Two images of 2x3 pixels. */
static const uint8_t images[] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2,  0,  0,
                                 0, 3, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};

static void test_good_files(void **state)
{
    (void)state;
    write_compressed("good.gz", images, sizeof images);
    write_plain("good", images, sizeof images);
    static const char *const names[] = {"good.gz", "good"};
    for (size_t i = 0; i < 2; i++) {
        struct ebb_idx idx;
        assert_int_equal(ebb__idx_read(path_of(names[i]), 3, &idx, NULL), EBB_OK);
        assert_int_equal(idx.dimensions, 3);
        assert_int_equal(idx.size[0], 2);
        assert_int_equal(idx.size[1], 2);
        assert_int_equal(idx.size[2], 3);
        assert_memory_equal(idx.values, images + 16, 12);
        ebb__idx_fini(&idx);
    }
}

static void assert_refused(const char *name, const char *why)
{
    struct ebb_idx idx = {.dimensions = 99};
    struct ebb_error error;
    assert_int_equal(ebb__idx_read(path_of(name), 3, &idx, &error), EBB_ERR_FORMAT);
    assert_int_equal(idx.dimensions, 99);
    assert_string_equal(error.what, path_of(name));
    if (!strstr(error.why, why))
        fail_msg("'%s' lacks '%s'", error.why, why);
}

/* A file that is cut after any byte is malformed, compressed or not. */
static void test_truncated_files(void **state)
{
    (void)state;
    for (size_t kept = 0; kept < sizeof images; kept++) {
        write_plain("cut", images, kept);
        assert_refused("cut", "ends too early");
    }
    uint8_t compressed[256];
    write_compressed("whole.gz", images, sizeof images);
    size_t count = read_plain("whole.gz", compressed, sizeof compressed);
    for (size_t kept = 0; kept < count; kept++) {
        write_plain("cut.gz", compressed, kept);
        assert_refused("cut.gz", "");
    }
}

static void test_foreign_files(void **state)
{
    (void)state;
    uint8_t bytes[sizeof images + 1];
    memcpy(bytes, images, sizeof images);
    bytes[sizeof images] = 0;
    write_compressed("long.gz", bytes, sizeof bytes);
    assert_refused("long.gz", "goes on after its last value");
    bytes[2] = 13; /* floats */
    write_compressed("floats.gz", bytes, sizeof images);
    assert_refused("floats.gz", "not an IDX file of bytes with 3 dimensions");
    bytes[2] = 8;
    bytes[3] = 1;
    write_compressed("labels.gz", bytes, sizeof images);
    assert_refused("labels.gz", "not an IDX file of bytes with 3 dimensions");
    bytes[3] = 3;
    memset(bytes + 4, 0xff, 12);
    write_compressed("huge.gz", bytes, sizeof images);
    assert_refused("huge.gz", "dimension 0 is 4294967295");
    bytes[4] = bytes[5] = bytes[6] = bytes[7] = 0;
    write_compressed("empty.gz", bytes, sizeof images);
    assert_refused("empty.gz", "dimension 0 is 0");
    write_plain("text", "# a text, and no data at all\n", 29);
    assert_refused("text", "not an IDX file");
}

/* One wrong bit in the compressed data is found by zlib's checksum. */
static void test_damaged_file(void **state)
{
    (void)state;
    uint8_t compressed[256];
    write_compressed("damaged.gz", images, sizeof images);
    size_t count = read_plain("damaged.gz", compressed, sizeof compressed);
    compressed[count - 6] ^= 1;
    write_plain("damaged.gz", compressed, count);
    assert_refused("damaged.gz", "damaged");
}

static struct ebb_data *opened(struct ebb_data_options options)
{
    struct ebb_data *data = NULL;
    struct ebb_error error;
    if (ebb__data_open(&options, &data, &error))
        fail_msg("%s: %s", error.what, error.why);
    return data;
}

static void test_missing_files_name_the_package(void **state)
{
    (void)state;
    struct ebb_data_options options = {
        .kind = EBB_DATA_FASHION, .batch = 1, .folder = "/nonexistent"};
    struct ebb_data *data = NULL;
    struct ebb_error error;
    assert_int_equal(ebb__data_open(&options, &data, &error), EBB_ERR_IO);
    assert_null(data);
    assert_non_null(strstr(error.remedy, "dataset-fashion-mnist"));
}

/* Writes a small data set whose image i has pixels of value i, and label i % 10. */
static void write_set(const char *prefix, uint8_t count, uint8_t labels, uint8_t first_label)
{
    static uint8_t bytes[16 + 256 * 784];
    char name[64];
    memcpy(bytes, (uint8_t[16]){0, 0, 8, 3, 0, 0, 0, count, 0, 0, 0, 28, 0, 0, 0, 28}, 16);
    for (size_t i = 0; i < count; i++)
        memset(bytes + 16 + i * 784, (int)i, 784);
    snprintf(name, sizeof name, "%s-images-idx3-ubyte.gz", prefix);
    write_compressed(name, bytes, 16 + (size_t)count * 784);
    memcpy(bytes, (uint8_t[8]){0, 0, 8, 1, 0, 0, 0, labels}, 8);
    for (size_t i = 0; i < labels; i++)
        bytes[8 + i] = (uint8_t)(i ? i % 10 : first_label);
    snprintf(name, sizeof name, "%s-labels-idx1-ubyte.gz", prefix);
    write_compressed(name, bytes, 8 + (size_t)labels);
}

/* Which image of write_set() this is. */
static int number_of(const float *image)
{
    return (int)((image[0] * 0.3530f + 0.2860f) * 255.0f + 0.5f);
}

/* Each epoch has each image at most once, in another order. A batch depends on its number only. */
static void test_epochs(void **state)
{
    (void)state;
    write_set("train", 50, 50, 0);
    write_set("t10k", 10, 10, 0);
    struct ebb_data_options options = {
        .kind = EBB_DATA_FASHION, .batch = 8, .seed = 3, .folder = folder};
    struct ebb_data *data = opened(options);
    assert_int_equal(ebb__data_epoch_batches(data), 6);
    static float inputs[8 * 784], again[8 * 784];
    int32_t labels[8], labels_again[8];
    int order[2][48], same = 0;
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        uint8_t seen[50] = {0};
        for (uint64_t b = 0; b < 6; b++) {
            ebb__data_batch(data, 6 * epoch + b, inputs, labels);
            for (size_t i = 0; i < 8; i++) {
                int number = number_of(inputs + i * 784);
                assert_int_equal(labels[i], number % 10);
                assert_int_equal(seen[number]++, 0);
                order[epoch][8 * b + i] = number;
                same += epoch && order[0][8 * b + i] == number;
            }
        }
    }
    assert_true(same < 24);
    struct ebb_data *other = opened(options);
    ebb__data_batch(other, 11, again, labels_again);
    assert_memory_equal(again, inputs, sizeof inputs);
    assert_memory_equal(labels_again, labels, sizeof labels);
    ebb__data_close(other);
    ebb__data_close(data);
}

/* Ten test images are two batches of eight, and six examples that do not count. */
static void test_test_batches(void **state)
{
    (void)state;
    write_set("train", 50, 50, 0);
    write_set("t10k", 10, 10, 0);
    struct ebb_data *data =
        opened((struct ebb_data_options){.kind = EBB_DATA_FASHION, .batch = 8, .folder = folder});
    static float inputs[8 * 784];
    int32_t labels[8];
    assert_int_equal(ebb__data_test_batches(data), 2);
    ebb__data_test_batch(data, 1, inputs, labels);
    assert_int_equal(number_of(inputs + 784), 9);
    static const int32_t expected[8] = {8, 9, -1, -1, -1, -1, -1, -1};
    assert_memory_equal(labels, expected, sizeof expected);
    ebb__data_close(data);
}

static void test_sets_that_do_not_fit(void **state)
{
    (void)state;
    static const struct {
        uint8_t images, labels, first_label;
        uint32_t batch;
        enum ebb_status status;
        const char *why;
    } cases[] = {
        {50, 49, 0, 8, EBB_ERR_FORMAT, "has 49 labels for 50 images"},
        {50, 50, 10, 8, EBB_ERR_FORMAT, "label 0 is 10"},
        {50, 50, 0, 51, EBB_ERR_ARGUMENT, "51 exceeds the 50 training images"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_set("train", cases[i].images, cases[i].labels, cases[i].first_label);
        write_set("t10k", 10, 10, 0);
        struct ebb_data_options options = {
            .kind = EBB_DATA_FASHION, .batch = cases[i].batch, .folder = folder};
        struct ebb_data *data = NULL;
        struct ebb_error error;
        assert_int_equal(ebb__data_open(&options, &data, &error), cases[i].status);
        assert_null(data);
        assert_string_equal(error.why, cases[i].why);
    }
}

static void test_synthetic_images(void **state)
{
    (void)state;
    struct ebb_data_options options = {
        .kind = EBB_DATA_SYNTHETIC, .batch = 4, .channels = 3, .size = 10, .classes = 7, .seed = 5};
    static float a[4 * 300], b[4 * 300];
    int32_t labels[4], others[4];
    struct ebb_data *data = opened(options);
    ebb__data_batch(data, 9, a, labels);
    ebb__data_batch(data, 10, b, others);
    assert_memory_not_equal(a, b, sizeof a);
    ebb__data_batch(data, 9, b, others);
    assert_memory_equal(a, b, sizeof a);
    assert_memory_equal(labels, others, sizeof labels);
    for (size_t i = 0; i < 4; i++)
        assert_in_range(labels[i], 0, 6);
    ebb__data_close(data);
    options.seed = 6;
    data = opened(options);
    ebb__data_batch(data, 9, b, others);
    assert_memory_not_equal(a, b, sizeof a);
    ebb__data_close(data);
}

/* The label of a position is the token of the next one. */
static void test_synthetic_tokens(void **state)
{
    (void)state;
    struct ebb_data *data = opened((struct ebb_data_options){
        .kind = EBB_DATA_TOKENS, .batch = 3, .size = 20, .classes = 11, .seed = 1});
    int32_t tokens[60], labels[60];
    ebb__data_batch(data, 2, tokens, labels);
    for (size_t i = 0; i < 60; i++) {
        assert_in_range(tokens[i], 0, 10);
        assert_in_range(labels[i], 0, 10);
        if (i % 20 < 19)
            assert_int_equal(labels[i], tokens[i + 1]);
    }
    ebb__data_close(data);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_files),
        cmocka_unit_test(test_truncated_files),
        cmocka_unit_test(test_foreign_files),
        cmocka_unit_test(test_damaged_file),
        cmocka_unit_test(test_missing_files_name_the_package),
        cmocka_unit_test(test_epochs),
        cmocka_unit_test(test_test_batches),
        cmocka_unit_test(test_sets_that_do_not_fit),
        cmocka_unit_test(test_synthetic_images),
        cmocka_unit_test(test_synthetic_tokens),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
