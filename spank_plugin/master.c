/* SPDX-License-Identifier: Apache-2.0 */
#include "spank_plugin/master.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hwloc.h>
#include <slurm/slurm.h>

#include "spank_plugin/scontrol.h"
#include "topology/layout/launch.h"

/* PLAIT_PORT_ALONE over the golden ratio: jobs with neighbouring ids get
 * ports that are far apart. */
#define JOB_STRIDE 1389

static int port_offset(uint32_t job, uint32_t step, int count)
{
    return (int)(((uint64_t)job * JOB_STRIDE + step) % (uint64_t)count);
}

int plait_master_port_alone(uint32_t job, uint32_t step)
{
    return PLAIT_PORT_FIRST + port_offset(job, step, PLAIT_PORT_ALONE);
}

int plait_master_port_shared(uint32_t job, uint32_t step, const char *cpus,
                             int total)
{
    int first = PLAIT_PORT_FIRST + PLAIT_PORT_ALONE, port = first;
    int each = total > 0 ? PLAIT_PORT_SHARED / total : 0, own, at;
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    unsigned cpu;

    if (!set || !each || hwloc_bitmap_list_sscanf(set, cpus) < 0 ||
        hwloc_bitmap_iszero(set) || hwloc_bitmap_weight(set) < 0 ||
        hwloc_bitmap_last(set) >= total) {
        port += port_offset(job, step, PLAIT_PORT_SHARED);
        goto error;
    }
    own = hwloc_bitmap_weight(set);
    at = port_offset(job, step, own * each);
    hwloc_bitmap_foreach_begin(cpu, set)
    {
        if (own-- == at / each + 1)
            port += (int)cpu * each + at % each;
    }
    hwloc_bitmap_foreach_end();
error:
    hwloc_bitmap_free(set);
    return port;
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

/* The address by which Slurm reaches the node (NodeAddr, where the name does
 * not resolve), and the number of its processors: Slurm counts them with or
 * without hardware threads, and the larger number counts here. */
static void load_node_address(const char *node, char *buf, size_t size,
                              int *cpus)
{
    node_info_msg_t *info = NULL;

    snprintf(buf, size, "%s", node);
    *cpus = 0;
    if (slurm_load_node_single(&info, (char *)node, 0) == SLURM_SUCCESS &&
        info->record_count == 1) {
        const node_info_t *n = &info->node_array[0];
        int threads = n->sockets * n->cores * n->threads;

        *cpus = n->cpus > threads ? n->cpus : threads;
        if (n->node_addr)
            snprintf(buf, size, "%s", n->node_addr);
    }
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

/* The MASTER_PORT that the user set; 0 where it is only that of the step from
 * one of whose tasks this srun was started. */
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

int plait_master_is_given(void)
{
    return user_port() != 0;
}

void plait_master_choose(const char *node, int nnodes, uint32_t job,
                         uint32_t step, char *buf, size_t size)
{
    char address[256], list[4096];
    int port = user_port(), cpus;

    load_node_address(node, address, sizeof(address), &cpus);
    if (!port && nnodes == 1) {
        port = plait_master_port_alone(job, step);
    } else if (!port) {
        plait_scontrol_cpus(job, node, list, sizeof(list));
        port = plait_master_port_shared(job, step, list, cpus);
    }
    snprintf(buf, size, "%s:%d", address, port);
}
