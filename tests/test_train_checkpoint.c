/* Checkpoints: written whole or not at all, and refused if anything is wrong with them. */
#include "train/checkpoint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include <dirent.h>
#include <signal.h>

#define TENSORS 3
#define MOST_BYTES 4096

/* Tensors in plain memory. The first bytes of each are what counts. */
struct memory {
    uint8_t bytes[TENSORS][MOST_BYTES];
    uint64_t sizes[TENSORS];
    uint64_t descriptions[TENSORS];
    uint32_t open;    /* how many */
    uint32_t written; /* opened to be overwritten */
    uint32_t broken;  /* open() of this one fails; TENSORS: none */
};

static uint64_t bytes_of(void *own, uint32_t tensor)
{
    return ((struct memory *)own)->sizes[tensor];
}

static uint64_t description_of(void *own, uint32_t tensor)
{
    return ((struct memory *)own)->descriptions[tensor];
}

static enum ebb_status open_tensor(void *own, uint32_t tensor, enum ebb_use use, void **address,
                                   struct ebb_error *error)
{
    struct memory *memory = own;
    (void)error;
    if (tensor == memory->broken)
        return EBB_INFEASIBLE;
    memory->open++;
    memory->written += use == EBB_USE_OVERWRITE;
    *address = memory->bytes[tensor];
    return EBB_OK;
}

static enum ebb_status close_tensor(void *own, uint32_t tensor, struct ebb_error *error)
{
    (void)tensor;
    (void)error;
    ((struct memory *)own)->open--;
    return EBB_OK;
}

static struct ebb_checkpoint_tensors tensors_of(struct memory *memory)
{
    return (struct ebb_checkpoint_tensors){memory,         TENSORS,     bytes_of,
                                           description_of, open_tensor, close_tensor};
}

static void fill(struct memory *memory, uint8_t first)
{
    memset(memory, 0, sizeof *memory);
    memory->broken = TENSORS;
    for (uint32_t t = 0; t < TENSORS; t++) {
        memory->sizes[t] = 1000 + 1001 * t;
        memory->descriptions[t] = 7 + t;
        for (uint64_t i = 0; i < memory->sizes[t]; i++)
            memory->bytes[t][i] = (uint8_t)(first + i * 31 + t);
    }
}

static const struct ebb_checkpoint_head head = {.net = "resnet-18",
                                                .batch = 8,
                                                .size = 64,
                                                .channels = 3,
                                                .classes = 10,
                                                .data = 1,
                                                .optimizer = 0,
                                                .seed = 5,
                                                .iteration = 1234};

static char folder[] = "/tmp/ebb-train-checkpoint-XXXXXX";
static char path[64], other[64];

/* Files in the folder. A temporary one that stays would be among them. */
static int files(void)
{
    int count = 0;
    DIR *opened = opendir(folder);
    assert_non_null(opened);
    for (struct dirent *entry; (entry = readdir(opened));)
        count += entry->d_name[0] != '.';
    closedir(opened);
    return count;
}

static void save(struct memory *memory)
{
    struct ebb_checkpoint_tensors tensors = tensors_of(memory);
    assert_int_equal(ebb__checkpoint_save(path, &head, &tensors, NULL), EBB_OK);
    assert_int_equal(memory->open, 0);
}

static void test_comes_back(void **state)
{
    (void)state;
    static struct memory saved, loaded;
    fill(&saved, 1);
    fill(&loaded, 99);
    save(&saved);
    assert_int_equal(files(), 1);
    struct ebb_checkpoint_head expected = head;
    expected.iteration = 0;
    struct ebb_checkpoint_tensors tensors = tensors_of(&loaded);
    assert_int_equal(ebb__checkpoint_load(path, &expected, &tensors, NULL), EBB_OK);
    assert_int_equal(expected.iteration, 1234);
    assert_memory_equal(saved.bytes, loaded.bytes, sizeof saved.bytes);
    assert_int_equal(loaded.open, 0);
    struct stat found;
    assert_int_equal(stat(path, &found), 0);
    mode_t mask = umask(0);
    umask(mask);
    assert_int_equal(found.st_mode & 0777, 0666 & ~mask);
}

static void assert_refused(const char *of, struct ebb_checkpoint_head expected,
                           struct memory *loaded, enum ebb_status status, const char *why)
{
    struct ebb_checkpoint_tensors tensors = tensors_of(loaded);
    struct ebb_error error = {0};
    loaded->written = 0;
    assert_int_equal(ebb__checkpoint_load(of, &expected, &tensors, &error), status);
    assert_int_equal(loaded->written, 0);
    if (!strstr(error.why, why))
        fail_msg("'%s' lacks '%s'", error.why, why);
}

static size_t read_all(uint8_t *bytes, size_t room)
{
    FILE *file = fopen(path, "rb");
    size_t count = fread(bytes, 1, room, file);
    fclose(file);
    return count;
}

static void write_other(const uint8_t *bytes, size_t count)
{
    FILE *file = fopen(other, "wb");
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    fclose(file);
}

/* No tensor is touched if the file is cut anywhere, has a wrong bit anywhere, or goes on. */
static void test_damage(void **state)
{
    (void)state;
    static struct memory memory;
    static uint8_t bytes[3 * MOST_BYTES], changed[3 * MOST_BYTES];
    fill(&memory, 1);
    save(&memory);
    size_t count = read_all(bytes, sizeof bytes);
    for (size_t kept = 0; kept < count; kept += kept < 200 ? 1 : 97) {
        write_other(bytes, kept);
        assert_refused(other, head, &memory, EBB_ERR_FORMAT,
                       kept < 88 ? "ends too early" : "truncated");
    }
    write_other(bytes, count + 1);
    assert_refused(other, head, &memory, EBB_ERR_FORMAT, "too long");
    for (size_t at = 96; at < count; at += 53) {
        memcpy(changed, bytes, count);
        changed[at] ^= 4;
        write_other(changed, count);
        assert_refused(other, head, &memory, EBB_ERR_FORMAT, "damaged");
    }
    memcpy(changed, bytes, count);
    changed[0] = 'X';
    write_other(changed, count);
    assert_refused(other, head, &memory, EBB_ERR_FORMAT, "not a checkpoint");
    memcpy(changed, bytes, count);
    changed[8] = 2;
    write_other(changed, count);
    assert_refused(other, head, &memory, EBB_ERR_VERSION, "has version 2, not 1");
    assert_refused("/nonexistent/file", head, &memory, EBB_ERR_IO, "cannot be opened");
    assert_refused(folder, head, &memory, EBB_ERR_IO, "cannot be read");
    unlink(other);
}

static void test_other_trainings(void **state)
{
    (void)state;
    static struct memory memory;
    fill(&memory, 1);
    save(&memory);
    struct ebb_checkpoint_head wanted = head;
    strcpy(wanted.net, "resnet-34");
    assert_refused(path, wanted, &memory, EBB_ERR_ARGUMENT,
                   "is of the network resnet-18, not resnet-34");
    wanted = head;
    wanted.batch = 9;
    assert_refused(path, wanted, &memory, EBB_ERR_ARGUMENT, "with batch 8, not 9");
    wanted = head;
    wanted.seed = 6;
    assert_refused(path, wanted, &memory, EBB_ERR_ARGUMENT, "with seed 5, not 6");
    memory.descriptions[2]++;
    assert_refused(path, head, &memory, EBB_ERR_ARGUMENT, "tensor 2 is laid out");
}

/* A failure leaves the older checkpoint as it is, and no temporary file. */
static void test_failures_of_saving(void **state)
{
    (void)state;
    static struct memory memory;
    static uint8_t before[3 * MOST_BYTES], after[3 * MOST_BYTES];
    fill(&memory, 1);
    save(&memory);
    size_t count = read_all(before, sizeof before);
    fill(&memory, 2);
    struct ebb_checkpoint_tensors tensors = tensors_of(&memory);
    memory.broken = 1;
    assert_int_equal(ebb__checkpoint_save(path, &head, &tensors, NULL), EBB_INFEASIBLE);
    memory.broken = TENSORS;
    struct rlimit limit, small;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = limit;
    small.rlim_cur = 2000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    struct ebb_error error;
    enum ebb_status status = ebb__checkpoint_save(path, &head, &tensors, &error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_int_equal(status, EBB_ERR_IO);
    assert_non_null(strstr(error.why, "cannot be written"));
    assert_int_equal(read_all(after, sizeof after), count);
    assert_memory_equal(after, before, count);
    assert_int_equal(files(), 1);
    assert_int_equal(memory.open, 0);
    assert_int_equal(ebb__checkpoint_save("/nonexistent/file", &head, &tensors, NULL), EBB_ERR_IO);
}

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/checkpoint", folder);
    snprintf(other, sizeof other, "%s/other", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_comes_back),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_other_trainings),
        cmocka_unit_test(test_failures_of_saving),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
