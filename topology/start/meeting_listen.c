/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/start/meeting_listen.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "topology/base/secret.h"
#include "topology/start/meeting.h"

/* An IPv6 socket accepts IPv4 too, where the system has IPv6. */
static int open_listener(int port, struct sockaddr_storage *at)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6,
                               .sin6_port = htons((uint16_t)port)};
    struct sockaddr_in four = {.sin_family = AF_INET,
                               .sin_port = htons((uint16_t)port)};
    int kind = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, off = 0;
    socklen_t size = sizeof(*at);
    int fd = socket(AF_INET6, kind, 0), one = port != 0;

    /* A given port may still be in TIME_WAIT from another step. */
    if (fd >= 0 &&
        (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) ||
         setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) ||
         bind(fd, (struct sockaddr *)&six, sizeof(six)))) {
        close(fd);
        fd = -1;
    }
    if (fd < 0 && (fd = socket(AF_INET, kind, 0)) >= 0 &&
        bind(fd, (struct sockaddr *)&four, sizeof(four))) {
        close(fd);
        return -1;
    }
    if (fd >= 0 && (listen(fd, SOMAXCONN) ||
                    getsockname(fd, (struct sockaddr *)at, &size))) {
        close(fd);
        fd = -1;
    }
    return fd;
}

int plait_meeting_listen(int port, int *got)
{
    struct sockaddr_storage at;
    int fd = open_listener(port, &at);

    if (fd >= 0)
        *got = ntohs(at.ss_family == AF_INET6
                         ? ((struct sockaddr_in6 *)&at)->sin6_port
                         : ((struct sockaddr_in *)&at)->sin_port);
    return fd;
}

/* Another user may have taken the name, which can be computed. A longer one
 * with a random end can be had by nobody before; members find it in the
 * system's list of sockets. */
int plait_meeting_listen_here(const char *name)
{
    struct sockaddr_un at;
    socklen_t size = plait_meeting_address(name, &at);
    char other[PLAIT_MEETING_HERE + 17], random[17];
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int rc;

    if (fd < 0)
        return -1;
    rc = bind(fd, (struct sockaddr *)&at, size);
    if (rc < 0 && errno == EADDRINUSE &&
        plait_secret_create(random, sizeof(random)) == 0) {
        snprintf(other, sizeof(other), "%s-%s", name, random);
        size = plait_meeting_address(other, &at);
        rc = bind(fd, (struct sockaddr *)&at, size);
    }
    if (rc == 0 && listen(fd, SOMAXCONN) == 0)
        return fd;
    rc = errno;
    close(fd);
    errno = rc;
    return -1;
}
