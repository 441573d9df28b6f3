/* SPDX-License-Identifier: Apache-2.0 */
#include "spank_plugin/master.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <slurm/slurm.h>

#include "topology/layout/launch.h"

/* What host names, IPv4 and IPv6 addresses consist of. */
#define NAME_CHARACTERS \
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.:_-%"

/* The address by which Slurm reaches the node (NodeAddr): its name may not
 * resolve. The name where Slurm does not know the node. */
static void load_node_address(const char *node, char *buf, size_t size)
{
    node_info_msg_t *info = NULL;

    snprintf(buf, size, "%s", node);
    if (slurm_load_node_single(&info, (char *)node, 0) == SLURM_SUCCESS &&
        info->record_count == 1 && info->node_array[0].node_addr)
        snprintf(buf, size, "%s", info->node_array[0].node_addr);
    if (info)
        slurm_free_node_info_msg(info);
}

int plait_master_parse(const char *text, char *host, size_t size, int *port)
{
    const char *colon = strrchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : 0;

    if (length < 1 || length >= size || !plait_master_read_port(colon + 1) ||
        strspn(text, NAME_CHARACTERS) < length)
        return -1;
    memcpy(host, text, length);
    host[length] = '\0';
    *port = plait_master_read_port(colon + 1);
    return 0;
}

/* The MASTER_PORT that the user set. 0 where it was inherited from the step in
 * whose task this srun runs. */
static int user_port(void)
{
    const char *master = getenv(PLAIT_ENV_MASTER);
    int port = plait_master_read_port(getenv(PLAIT_ENV_MASTER_PORT)), outer = 0;
    char address[256];

    if (master &&
        plait_master_parse(master, address, sizeof(address), &outer) == 0 &&
        outer == port)
        return 0;
    return port;
}

bool plait_master_is_given(void)
{
    return user_port() != 0;
}

void plait_master_choose(const char *node, uint32_t job, uint32_t step,
                         char *buf, size_t size)
{
    char address[256];
    int port = user_port();

    load_node_address(node, address, sizeof(address));
    snprintf(buf, size, "%s:%d", address,
             port ? port : plait_master_port_start(job, step));
}
