/* SPDX-License-Identifier: Apache-2.0 */
#include "master.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <slurm/slurm.h>

/* The golden section of the range keeps neighbours far apart. */
#define STRIDE 2777

int plait_master_port(uint32_t job, uint32_t step)
{
    uint64_t at = (uint64_t)job * STRIDE + step;

    return PLAIT_PORT_FIRST + (int)(at % PLAIT_PORT_COUNT);
}

/* The number at the start of `text` if it is a port, else 0. */
static int read_port(const char *text)
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

void plait_master_choose(const char *node, uint32_t job, uint32_t step,
                         char *buf, size_t size)
{
    /* In a task of a planned step, MASTER_PORT is that step's. */
    int port = getenv("PLAIT_RANK") ? 0 : read_port(getenv("MASTER_PORT"));
    char address[256];

    if (!port)
        port = read_port(getenv("SLURM_STEP_RESV_PORTS"));
    if (!port)
        port = plait_master_port(job, step);
    node_address(node, address, sizeof(address));
    snprintf(buf, size, "%s:%d", address, port);
}

int plait_master_parse(const char *text, char *host, size_t size, int *port)
{
    const char *colon = strrchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : 0;

    if (length < 1 || length >= size || !read_port(colon + 1))
        return -1;
    memcpy(host, text, length);
    host[length] = '\0';
    *port = read_port(colon + 1);
    return 0;
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
