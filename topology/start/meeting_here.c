/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* struct ucred */
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "topology/start/meeting.h"
#include "topology/start/meeting_here.h"

/* In the abstract namespace: the name disappears with its process. */
unsigned plait_meeting_address(const char *name, struct sockaddr_un *at)
{
    int n;

    memset(at, 0, sizeof(*at));
    at->sun_family = AF_UNIX;
    n = snprintf(at->sun_path + 1, sizeof(at->sun_path) - 1, "%s", name);
    return (unsigned)offsetof(struct sockaddr_un, sun_path) + 1 + (unsigned)n;
}

bool plait_meeting_is_own(int fd)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
           peer.uid == geteuid();
}

/* Never waits: another user's listener may have let its queue fill. */
static int connect_name(const char *name)
{
    struct sockaddr_un at;
    socklen_t size = plait_meeting_address(name, &at);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int problem;

    if (fd < 0)
        return -1;
    if (connect(fd, (struct sockaddr *)&at, size) == 0) {
        if (plait_meeting_is_own(fd))
            return fd;
        errno = EACCES;
    }
    problem = errno;
    close(fd);
    errno = problem;
    return -1;
}

int plait_meeting_connect_here(const char *name)
{
    return connect_name(name);
}

int plait_meeting_parse_socket(const char *line, const char *name,
                               char found[PLAIT_MEETING_HERE + 17])
{
    const char *at = strrchr(line, ' ');
    size_t size = strlen(name);

    /* "@name-0123456789abcdef\n": an abstract name begins with a NUL, which is
     * printed as @. */
    if (!at || at[1] != '@' || strncmp(at + 2, name, size) != 0 ||
        at[2 + size] != '-' ||
        strspn(at + 3 + size, "0123456789abcdef") != 16 ||
        strcmp(at + 3 + size + 16, "\n") != 0)
        return -1;
    snprintf(found, PLAIT_MEETING_HERE + 17, "%s-%.16s", name, at + 3 + size);
    return 0;
}

int plait_meeting_find_here(const char *name)
{
    char line[512], other[PLAIT_MEETING_HERE + 17];
    FILE *list = fopen("/proc/net/unix", "re");
    int fd = -1;

    while (list && fd < 0 && fgets(line, sizeof(line), list))
        if (plait_meeting_parse_socket(line, name, other) == 0)
            fd = connect_name(other);
    if (list)
        fclose(list);
    if (fd < 0)
        errno = ECONNREFUSED;
    return fd;
}
