/* Memory that another process opens by its handle. The other process is this program again. Handles
 * of virtual memory management pass through a descriptor.
 *
 * --refused: handles of cuMemAlloc's memory are not supported, as with Ebb. The rest works.
 * --beside=N: N blocks of 2 MiB are there before, and are checked at the end.
 */
#include "words.h"
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS = 4096, GRANULE = 2 << 20, BESIDE_BYTES = 2 << 20 };

static int other_process(const char *text)
{
    CUipcMemHandle handle;
    CUdeviceptr x;
    for (size_t i = 0; i < sizeof(handle); i++) {
        unsigned byte;
        sscanf(text + 2 * i, "%2x", &byte);
        ((unsigned char *)&handle)[i] = (unsigned char)byte;
    }
    words_open(0);
    CHECK(cuIpcOpenMemHandle_v2(&x, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    CHECK(mix_words(x, x, WORDS, 5, NULL));
    CHECK(cuCtxSynchronize());
    CHECK(cuIpcCloseMemHandle(x));
    return 0;
}

static void refused(void)
{
    CUipcMemHandle handle;
    CUdeviceptr x;
    CHECK(cuMemAlloc_v2(&x, WORDS));
    EXPECT(cuIpcGetMemHandle(&handle, x) == CUDA_ERROR_NOT_SUPPORTED);
    CHECK(cuMemFree_v2(x));
}

static void by_ipc(const char *program)
{
    CUipcMemHandle handle;
    CUdeviceptr x, opened;
    char text[2 * sizeof(handle) + 1];
    unsigned now[WORDS];
    CHECK(cuMemAlloc_v2(&x, sizeof(now)));
    CHECK(fill_words(x, WORDS, 2, NULL));
    CHECK(cuCtxSynchronize());
    CHECK(cuIpcGetMemHandle(&handle, x));
    EXPECT(cuIpcOpenMemHandle_v2(&opened, handle, 1) == CUDA_ERROR_INVALID_CONTEXT);
    for (size_t i = 0; i < sizeof(handle); i++)
        snprintf(text + 2 * i, 3, "%02x", ((unsigned char *)&handle)[i]);
    pid_t child = fork();
    if (child == 0) {
        execl(program, program, text, (char *)NULL);
        _exit(127);
    }
    int status;
    waitpid(child, &status, 0);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(cuMemcpyDtoH_v2(now, x, sizeof(now)));
    for (unsigned i = 0; i < WORDS; i++)
        EXPECT(now[i] == words_mixed(2 + i, 2 + i, 5));
    CHECK(cuMemFree_v2(x));
}

static void by_descriptor(void)
{
    CUmemAllocationProp p = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                             .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                             .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle, imported;
    CUdeviceptr at;
    int descriptor;
    unsigned first;
    CHECK(cuMemCreate(&handle, GRANULE, &p, 0));
    CHECK(cuMemExportToShareableHandle(&descriptor, handle,
                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    CHECK(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)descriptor,
                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(descriptor);
    CHECK(cuMemAddressReserve(&at, 2 * GRANULE, 0, 0, 0));
    CHECK(cuMemMap(at, GRANULE, 0, handle, 0));
    CHECK(cuMemMap(at + GRANULE, GRANULE, 0, imported, 0));
    CHECK(cuMemSetAccess(at, 2 * GRANULE, &access, 1));
    CHECK(fill_words(at, WORDS, 77, NULL));
    CHECK(cuMemcpyDtoH_v2(&first, at + GRANULE, 4)); /* the same bytes */
    EXPECT(first == 77);
    CHECK(cuMemUnmap(at, 2 * GRANULE));
    CHECK(cuMemRelease(handle));
    CHECK(cuMemRelease(imported));
    CHECK(cuMemAddressFree(at, 2 * GRANULE));
}

int main(int count, char **arguments)
{
    long is_refused = option(count, arguments, "refused", 0);
    long beside = option(count, arguments, "beside", 0);
    if (count > 1 && !is_refused && !beside)
        return other_process(arguments[1]);
    words_open(0);
    CUdeviceptr blocks[64];
    EXPECT(beside <= 64);
    for (long i = 0; i < beside; i++) {
        CHECK(cuMemAlloc_v2(&blocks[i], BESIDE_BYTES));
        CHECK(fill_words(blocks[i], WORDS, (unsigned)i, NULL));
    }
    if (is_refused)
        refused();
    else
        by_ipc(arguments[0]);
    by_descriptor();
    for (long i = 0; i < beside; i++) {
        unsigned now[WORDS];
        CHECK(cuMemcpyDtoH_v2(now, blocks[i], sizeof(now)));
        for (unsigned word = 0; word < WORDS; word++)
            EXPECT(now[word] == (unsigned)i + word);
        CHECK(cuMemFree_v2(blocks[i]));
    }
    return 0;
}
