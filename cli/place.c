#include "place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* True if a line of the file contains one of these words. */
static bool mentions(const char *path, const char *const *words, size_t count)
{
    FILE *file = fopen(path, "re");
    char line[1024];
    bool found = false;
    while (file && !found && fgets(line, sizeof line, file))
        for (size_t i = 0; i < count; i++)
            found |= strstr(line, words[i]) != NULL;
    if (file)
        fclose(file);
    return found;
}

enum ebb_place ebb__place_look(void)
{
    static const char *const groups[] = {"docker", "kubepods", "containerd", "libpod", "lxc"};
    if (getenv("KUBERNETES_SERVICE_HOST"))
        return EBB_PLACE_KUBERNETES;
    if (getenv("APPTAINER_CONTAINER") || getenv("SINGULARITY_CONTAINER"))
        return EBB_PLACE_APPTAINER;
    if (access("/run/.containerenv", F_OK) == 0)
        return EBB_PLACE_PODMAN;
    if (access("/.dockerenv", F_OK) == 0)
        return EBB_PLACE_DOCKER;
    if (getenv("container") || mentions("/proc/1/cgroup", groups, sizeof groups / sizeof groups[0]))
        return EBB_PLACE_OTHER;
    return EBB_PLACE_HOST;
}

const char *ebb__place_name(enum ebb_place place)
{
    static const char *const names[] = {
        [EBB_PLACE_HOST] = "none",
        [EBB_PLACE_DOCKER] = "Docker",
        [EBB_PLACE_PODMAN] = "Podman",
        [EBB_PLACE_KUBERNETES] = "Kubernetes",
        [EBB_PLACE_APPTAINER] = "Apptainer or Singularity",
        [EBB_PLACE_OTHER] = "of another kind",
    };
    return names[place];
}

const char *ebb__place_remedy(enum ebb_place place, bool has_node)
{
    switch (place) {
    case EBB_PLACE_DOCKER:
        return has_node ? "docker run --device /dev/userfaultfd ..."
                        : "docker run --cap-add SYS_PTRACE --security-opt seccomp=FILE ...; "
                          "docs/containers.md makes the file";
    case EBB_PLACE_PODMAN:
        return has_node
                   ? "podman run --device /dev/userfaultfd ... (rootless: the file must be yours "
                     "to open on the host)"
                   : "podman run --cap-add SYS_PTRACE --security-opt seccomp=FILE ...; "
                     "docs/containers.md makes the file";
    case EBB_PLACE_KUBERNETES:
        return "in the pod: a device plugin's /dev/userfaultfd, or seccompProfile Localhost and "
               "SYS_PTRACE; docs/containers.md has both";
    case EBB_PLACE_OTHER:
        return has_node ? "give the container /dev/userfaultfd: docs/containers.md"
                        : "let the container call userfaultfd, with SYS_PTRACE: docs/containers.md";
    case EBB_PLACE_HOST:
    case EBB_PLACE_APPTAINER: /* it has the host's /dev and the user's rights */
        break;
    }
    return has_node ? "as root: echo 'KERNEL==\"userfaultfd\", MODE=\"0666\"' > "
                      "/etc/udev/rules.d/60-userfaultfd.rules; udevadm trigger /dev/userfaultfd"
                    : "as root: sysctl vm.unprivileged_userfaultfd=1";
}
