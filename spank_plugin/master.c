/* SPDX-License-Identifier: Apache-2.0 */
#include "master.h"

#include <errno.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <slurm/slurm.h>

/* The golden section of the range keeps neighbours far apart. */
#define STRIDE 2777

int plait_master_port(uint32_t job, uint32_t step)
{
    uint64_t at = (uint64_t)job * STRIDE + step;

    return PLAIT_PORT_FIRST + (int)(at % PLAIT_PORT_COUNT);
}

int plait_master_read_port(const char *text)
{
    char *end;
    long value;

    if (!text || *text < '0' || *text > '9')
        return 0;
    value = strtol(text, &end, 10);
    return value >= 1 && value <= 65535 && strchr(",-", *end) ? (int)value : 0;
}

/* How Slurm itself reaches the node: its name, unless slurm.conf says
 * otherwise because the name does not resolve. */
static void node_address(const char *node, char *buf, size_t size)
{
    node_info_msg_t *info = NULL;
    const char *address = node;

    if (slurm_load_node_single(&info, (char *)node, 0) == SLURM_SUCCESS &&
        info->record_count == 1 && info->node_array[0].node_addr)
        address = info->node_array[0].node_addr;
    snprintf(buf, size, "%s", address);
    if (info)
        slurm_free_node_info_msg(info);
}

int plait_master_parse(const char *text, char *host, size_t size, int *port)
{
    const char *colon = strrchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : 0;

    if (length < 1 || length >= size || !plait_master_read_port(colon + 1))
        return -1;
    memcpy(host, text, length);
    host[length] = '\0';
    *port = plait_master_read_port(colon + 1);
    return 0;
}

/* The user's MASTER_PORT; 0 where it is that of the step around us, whose
 * variables a task passes on. */
static int own_port(void)
{
    const char *master = getenv(PLAIT_ENV_MASTER);
    int port = plait_master_read_port(getenv("MASTER_PORT")), outer = 0;
    char address[256];

    if (master && plait_master_parse(master, address, sizeof(address),
                                     &outer) == 0 && outer == port)
        return 0;
    return port;
}

int plait_master_is_given(void)
{
    return own_port() != 0;
}

void plait_master_choose(const char *node, uint32_t job, uint32_t step,
                         char *buf, size_t size)
{
    int port = own_port();
    char address[256];

    if (!port)
        port = plait_master_port(job, step);
    node_address(node, address, sizeof(address));
    snprintf(buf, size, "%s:%d", address, port);
}

int plait_master_port_free(int port)
{
    struct sockaddr_in any = {.sin_family = AF_INET,
                              .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1, rc;

    if (fd < 0)
        return 1; /* nothing can be said */
    /* As servers do, so that a port in TIME_WAIT counts as free. */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    rc = bind(fd, (struct sockaddr *)&any, sizeof(any));
    if (rc == 0)
        rc = listen(fd, 1);
    close(fd);
    return rc == 0;
}

/* A name in the abstract namespace belongs to one socket at a time, leaves
 * no file, and lives in the same network namespace as the port. */
int plait_master_port_hold(int port)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), n;

    if (fd < 0)
        return -1;
    n = snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1,
                 "plait-port-%d", port);
    if (bind(fd, (struct sockaddr *)&name,
             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
                         (size_t)n)) == 0)
        return fd;
    n = errno;
    close(fd);
    errno = n;
    return -1;
}
