#include "parent/status.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

/* The process id in a line of /proc/net/unix, or 0. An abstract name is shown with '@' before it. A
 * server's line has the state 01, unconnected. */
static int id_in(const char *line)
{
    const char *name = strstr(line, " @" EBB_STATUS_PREFIX);
    unsigned long user, id;
    if (!name || sscanf(name, " @" EBB_STATUS_PREFIX "%lu-%lu", &user, &id) != 2)
        return 0;
    return id <= INT32_MAX ? (int)id : 0;
}

static bool is_in(const int *ids, size_t count, int id)
{
    for (size_t i = 0; i < count; i++)
        if (ids[i] == id)
            return true;
    return false;
}

enum ebb_status ebb__status_list(int *ids, size_t most, size_t *count, struct ebb_error *error)
{
    *count = 0;
    FILE *file = fopen("/proc/net/unix", "re");
    if (!file)
        return ebb__fail(error, EBB_ERR_IO, "/proc/net/unix", "%s", strerror(errno));
    char line[512];
    while (fgets(line, sizeof line, file)) {
        int id = id_in(line);
        if (id && *count < most && !is_in(ids, *count, id))
            ids[(*count)++] = id;
    }
    fclose(file);
    return EBB_OK;
}

/* The run may be of any user: root looks at all. Its user is part of the address. */
static bool find_address(int process_id, struct sockaddr_un *address, socklen_t *bytes)
{
    FILE *file = fopen("/proc/net/unix", "re");
    char line[512];
    bool found = false;
    while (file && !found && fgets(line, sizeof line, file)) {
        if (id_in(line) != process_id)
            continue;
        const char *name = strstr(line, " @") + 2;
        size_t length = strcspn(name, "\n");
        found = length < sizeof address->sun_path - 1;
        *address = (struct sockaddr_un){.sun_family = AF_UNIX};
        if (found)
            memcpy(address->sun_path + 1, name, length);
        *bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
    }
    if (file)
        fclose(file);
    return found;
}

static void end_texts(struct ebb_status_packet *packet)
{
    packet->command[sizeof packet->command - 1] = 0;
    packet->policy[sizeof packet->policy - 1] = 0;
    packet->mode[sizeof packet->mode - 1] = 0;
}

enum ebb_status ebb__status_ask(int process_id, struct ebb_status_packet *packet,
                                struct ebb_error *error)
{
    char who[32];
    struct sockaddr_un address;
    socklen_t bytes = 0;
    snprintf(who, sizeof who, "run %d", process_id);
    if (!find_address(process_id, &address, &bytes))
        return ebb__fail(error, EBB_ERR_IO, who, "no run has this process id");
    const struct timeval patience = {.tv_sec = 1};
    int descriptor = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    ssize_t got = -1;
    if (descriptor >= 0 &&
        setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0 &&
        setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) == 0 &&
        connect(descriptor, (struct sockaddr *)&address, bytes) == 0)
        got = recv(descriptor, packet, sizeof *packet, 0);
    int why = errno;
    if (descriptor >= 0)
        close(descriptor);
    if (got < 0)
        return ebb__fail(error, EBB_ERR_IO, who, "does not answer: %s",
                         why == EAGAIN ? "it is stopped, or very busy" : strerror(why));
    if (got == 0)
        return ebb__fail(error, EBB_ERR_IO, who, "is another user's, or is ending");
    if (got != (ssize_t)sizeof *packet || packet->magic != EBB_STATUS_MAGIC ||
        packet->bytes != sizeof *packet)
        return ebb__fail(error, EBB_ERR_FORMAT, who, "is of another version of Ebb");
    end_texts(packet);
    return EBB_OK;
}
