/* Fuzzes the messages on the socket between process and parent, with any bytes, length and
 * descriptors. A message of another version must be refused, and no descriptor may stay open. */
#include "fuzz.h"
#include "runtime/protocol.h"

#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MOST_SENT 4u

static void send_any(int socket, const uint8_t *data, size_t size, size_t count)
{
    int descriptors[MOST_SENT];
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof descriptors)];
    } control;
    memset(&control, 0, sizeof control);
    for (size_t i = 0; i < MOST_SENT; i++)
        descriptors[i] = socket;
    struct iovec part = {.iov_base = (void *)(uintptr_t)data, .iov_len = size};
    struct msghdr envelope = {.msg_iov = &part, .msg_iovlen = 1};
    if (count) {
        envelope.msg_control = &control;
        envelope.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&envelope);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(header), descriptors, count * sizeof(int));
    }
    FUZZ_REQUIRE(sendmsg(socket, &envelope, MSG_NOSIGNAL) == (ssize_t)size);
}

/* Returns the descriptor that the next open gets. It grows if a descriptor stays open. */
static int lowest_free(void)
{
    int free_one = fcntl(STDERR_FILENO, F_DUPFD, 0);
    close(free_one);
    return free_one;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int pair[2];
    if (!pair[0])
        FUZZ_REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
    if (size < 2) /* an empty message means that the other side has ended */
        return 0;
    int before = lowest_free();
    send_any(pair[0], data + 1, size - 1, data[0] % (MOST_SENT + 1));
    struct ebb_message message;
    int descriptors[EBB_MESSAGE_DESCRIPTORS];
    size_t count = SIZE_MAX;
    int got = ebb__message_receive(pair[1], &message, descriptors, &count);
    FUZZ_REQUIRE((got == 0 && count == 0) || (got == 1 && count <= EBB_MESSAGE_DESCRIPTORS));
    if (got == 1) {
        FUZZ_REQUIRE(size - 1 >= sizeof message && message.version == EBB_PROTOCOL_VERSION);
        ebb__message_close(descriptors, count);
    }
    FUZZ_REQUIRE(lowest_free() == before);
    FUZZ_REQUIRE(ebb__message_receive(pair[1], &message, descriptors, &count) == 0);
    return 0;
}
