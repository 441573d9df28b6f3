/* SPDX-License-Identifier: Apache-2.0 */
/* Which network interface leads to a host. */
#define _GNU_SOURCE /* asprintf */
#include "runtime/comm/bootstrap/interface.h"

#include <errno.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static bool is_same(const struct sockaddr *a, const struct sockaddr_storage *b)
{
    const struct sockaddr_in *a4 = (const struct sockaddr_in *)a;
    const struct sockaddr_in *b4 = (const struct sockaddr_in *)b;
    const struct sockaddr_in6 *a6 = (const struct sockaddr_in6 *)a;
    const struct sockaddr_in6 *b6 = (const struct sockaddr_in6 *)b;

    if (!a || a->sa_family != b->ss_family)
        return false;
    if (a->sa_family == AF_INET)
        return a4->sin_addr.s_addr == b4->sin_addr.s_addr;
    return a->sa_family == AF_INET6 &&
           memcmp(&a6->sin6_addr, &b6->sin6_addr, sizeof(a6->sin6_addr)) == 0;
}

static int find_interface(const struct sockaddr_storage *own, char *name,
                          size_t size)
{
    struct ifaddrs *list;
    int rc = -1;

    if (getifaddrs(&list) < 0)
        return -1;
    for (const struct ifaddrs *at = list; at && rc < 0; at = at->ifa_next) {
        if (!is_same(at->ifa_addr, own))
            continue;
        snprintf(name, size, "%s", at->ifa_name);
        rc = 0;
    }
    freeifaddrs(list);
    if (rc < 0)
        errno = ENODEV;
    return rc;
}

/* The address from which packets to `at` are sent. Nothing is sent. */
static int own_address(const struct addrinfo *at, struct sockaddr_storage *own)
{
    int fd = socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    socklen_t n = sizeof(*own);
    int rc = -1;

    if (fd < 0)
        return -1;
    if (connect(fd, at->ai_addr, at->ai_addrlen) == 0)
        rc = getsockname(fd, (struct sockaddr *)own, &n);
    close(fd);
    return rc;
}

int plait_interface_towards(const char *host, char *name, size_t size)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_DGRAM};
    struct sockaddr_storage own;
    struct addrinfo *list;
    int rc = -1;

    if (getaddrinfo(host, "9", &hints, &list) != 0) {
        errno = ENOENT;
        return -1;
    }
    for (const struct addrinfo *at = list; at && rc < 0; at = at->ai_next)
        if (own_address(at, &own) == 0)
            rc = find_interface(&own, name, size);
    freeaddrinfo(list);
    return rc;
}

/* Whether a file of NCCL's, with lines of NAME=VALUE, sets it. */
static bool is_in_file(const char *path)
{
    static const char key[] = "NCCL_SOCKET_IFNAME=";
    FILE *file = path ? fopen(path, "re") : NULL;
    bool found = false;
    char *line = NULL;
    size_t room = 0;

    if (!file)
        return false;
    while (!found && getline(&line, &room, file) >= 0)
        found = strncmp(line, key, sizeof(key) - 1) == 0;
    free(line);
    fclose(file);
    return found;
}

bool plait_interface_is_chosen(void)
{
    const struct passwd *user = getpwuid(getuid());
    char *own = NULL;
    bool found;

    if (user && asprintf(&own, "%s/.nccl.conf", user->pw_dir) < 0)
        own = NULL;
    found = getenv("NCCL_SOCKET_IFNAME") ||
            is_in_file(getenv("NCCL_CONF_FILE")) || is_in_file(own) ||
            is_in_file("/etc/nccl.conf");
    free(own);
    return found;
}
