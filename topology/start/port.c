/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "topology/start/port.h"

/* Is the port of this machine free of listeners? */
static bool is_free(int port)
{
    struct sockaddr_in any = {.sin_family = AF_INET,
                              .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1, rc;

    if (fd < 0)
        return true; /* cannot be tested */
    /* As servers do: a port in TIME_WAIT counts as free. */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    rc = bind(fd, (struct sockaddr *)&any, sizeof(any));
    if (rc == 0)
        rc = listen(fd, 1);
    close(fd);
    return rc == 0;
}

/* A name in the abstract namespace belongs to one socket at a time, leaves no
 * file, and is in the same network namespace as the port. */
int plait_master_port_hold(int port)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), n;

    if (fd < 0)
        return -1;
    n = snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "plait-port-%d",
                 port);
    n = bind(
            fd, (struct sockaddr *)&name,
            (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n))
            ? errno
        : is_free(port) ? 0
                        : EADDRINUSE;
    if (n == 0)
        return fd;
    close(fd);
    errno = n;
    return -1;
}

/* A port that the system chooses, for the case that all of ours are taken: a
 * process that reserves them cannot keep others from starting. */
static int take_any(int *port)
{
    struct sockaddr_in any = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t size = sizeof(any);

    if (fd < 0)
        return -1;
    if (bind(fd, (struct sockaddr *)&any, size) ||
        getsockname(fd, (struct sockaddr *)&any, &size)) {
        close(fd);
        return -1;
    }
    *port = ntohs(any.sin_port);
    close(fd);
    fd = plait_master_port_hold(*port);
    return fd >= 0 ? fd : socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

int plait_master_port_take(int *port)
{
    unsigned at = (unsigned)(*port - PLAIT_PORT_FIRST);
    int fd = -1;

    errno = EADDRINUSE;
    for (unsigned i = 0; i < PLAIT_PORTS && fd < 0 && errno == EADDRINUSE;
         i++) {
        *port = PLAIT_PORT_FIRST + (int)((at + i) % PLAIT_PORTS);
        fd = plait_master_port_hold(*port);
    }
    return fd < 0 && errno == EADDRINUSE ? take_any(port) : fd;
}
