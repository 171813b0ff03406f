#include "runtime/protocol.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union control {
    struct cmsghdr header;
    char space[CMSG_SPACE(EBB_MESSAGE_DESCRIPTORS * sizeof(int))];
};

union control_from {
    struct cmsghdr header;
    char
        space[CMSG_SPACE(EBB_MESSAGE_DESCRIPTORS * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
};

const char *ebb__gpu_backing_name(size_t index)
{
    static const char *const names[] = {
        [EBB_GPU_MANAGED] = "managed",
        [EBB_GPU_VMM_HOST] = "vmm-host",
        [EBB_GPU_VMM_TRUSTING] = "vmm-trusting",
    };
    return index < sizeof names / sizeof *names ? names[index] : NULL;
}

bool ebb__message_send(int socket, const struct ebb_message *message, const int *descriptors,
                       size_t count, int flags)
{
    union control control;
    memset(&control, 0, sizeof control);
    struct ebb_message stamped = *message;
    stamped.version = EBB_PROTOCOL_VERSION;
    struct iovec part = {.iov_base = &stamped, .iov_len = sizeof stamped};
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
    ssize_t sent;
    do
        sent = sendmsg(socket, &envelope, MSG_NOSIGNAL | flags);
    while (sent < 0 && errno == EINTR);
    return sent == (ssize_t)sizeof stamped;
}

static void take_control(struct msghdr *envelope, int descriptors[EBB_MESSAGE_DESCRIPTORS],
                         size_t *count, struct ucred *sender)
{
    struct cmsghdr *header = CMSG_FIRSTHDR(envelope);
    for (; header; header = CMSG_NXTHDR(envelope, header)) {
        if (header->cmsg_level != SOL_SOCKET)
            continue;
        if (header->cmsg_type == SCM_RIGHTS && *count == 0) {
            size_t came = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
            *count = came < EBB_MESSAGE_DESCRIPTORS ? came : EBB_MESSAGE_DESCRIPTORS;
            memcpy(descriptors, CMSG_DATA(header), *count * sizeof(int));
            for (size_t i = *count; i < came; i++) { /* more than the caller can take */
                int surplus;
                memcpy(&surplus, CMSG_DATA(header) + i * sizeof surplus, sizeof surplus);
                close(surplus);
            }
        } else if (header->cmsg_type == SCM_CREDENTIALS &&
                   header->cmsg_len >= CMSG_LEN(sizeof *sender)) {
            memcpy(sender, CMSG_DATA(header), sizeof *sender);
        }
    }
}

int ebb__message_receive(int socket, struct ebb_message *message,
                         int descriptors[EBB_MESSAGE_DESCRIPTORS], size_t *count)
{
    struct ucred sender;
    return ebb__message_receive_from(socket, message, descriptors, count, &sender);
}

int ebb__message_receive_from(int socket, struct ebb_message *message,
                              int descriptors[EBB_MESSAGE_DESCRIPTORS], size_t *count,
                              struct ucred *sender)
{
    union control_from control;
    struct iovec part = {.iov_base = message, .iov_len = sizeof *message};
    struct msghdr envelope = {.msg_iov = &part,
                              .msg_iovlen = 1,
                              .msg_control = &control,
                              .msg_controllen = sizeof control};
    *count = 0;
    *sender = (struct ucred){.uid = (uid_t)-1, .gid = (gid_t)-1};
    ssize_t got = recvmsg(socket, &envelope, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (got > 0)
        take_control(&envelope, descriptors, count, sender);
    if (got == (ssize_t)sizeof *message && message->version == EBB_PROTOCOL_VERSION)
        return 1;
    ebb__message_close(descriptors, *count);
    *count = 0;
    return got <= 0 ? -1 : 0;
}

void ebb__message_close(const int *descriptors, size_t count)
{
    for (size_t i = 0; i < count; i++)
        close(descriptors[i]);
}
