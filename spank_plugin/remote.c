/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "master.h"
#include "plugin.h"
#include "seat.h"

/* Nothing that a user can put into the environment is read past this. */
enum { TEXT_MOST = 65536 };

#define NVIDIA_GPUS "/proc/driver/nvidia/gpus"

struct plait_remote {
    struct plait_options options;
    struct plait_launch launch; /* what all tasks of the node share */
    int first_rank;
    int keep_cpu, keep_gpu;
    struct plait_node *node; /* NULL: nothing is pinned */
    struct plait_seats seats;
    char visible[TEXT_MOST]; /* CUDA_VISIBLE_DEVICES of the whole node */
};

static int get_env(spank_t spank, const char *name, char *buf, size_t size)
{
    buf[0] = '\0';
    return spank_getenv(spank, name, buf, (int)size) == ESPANK_SUCCESS ? 0
                                                                       : -1;
}

static uint32_t get_number(spank_t spank, spank_item_t item)
{
    uint32_t value = 0;

    if (spank_get_item(spank, item, &value) != ESPANK_SUCCESS)
        return 0;
    return value;
}

/* The flags came with the step or through the environment; the plan came
 * from srun. They must tell the same. */
static int check_flags(const struct plait_options *options,
                       const struct plait_layout *layout,
                       struct plait_error *err)
{
    for (int i = 0; i < PLAIT_NAXES; i++)
        if (options->given >> i & 1 &&
            options->layout.size[i] != PLAIT_AUTO &&
            options->layout.size[i] != layout->size[i])
            return plait_errorf(err, "--%s=%d, but srun planned for %d; was "
                                     "the flag set behind srun's back?",
                                plait_axis_names[i], options->layout.size[i],
                                layout->size[i]);
    return 0;
}

static int check_part(spank_t spank, const struct plait_plan_part *part,
                      struct plait_error *err)
{
    uint32_t nodes = get_number(spank, S_JOB_NNODES);
    uint32_t tasks = get_number(spank, S_JOB_LOCAL_TASK_COUNT);
    uint32_t world = get_number(spank, S_JOB_TOTAL_TASK_COUNT);

    if ((uint32_t)part->nnodes != nodes || (uint32_t)part->tasks != tasks ||
        (uint32_t)plait_layout_world(&part->layout) != world)
        return plait_errorf(err, "the plan is for %d tasks on %d nodes, %d of "
                                 "them here, but the step has %u on %u, %u "
                                 "here; plan and step do not belong together",
                            plait_layout_world(&part->layout), part->nnodes,
                            part->tasks, world, nodes, tasks);
    return 0;
}

static int read_plan(struct plait_remote *remote, spank_t spank,
                     struct plait_error *err)
{
    struct plait_launch *launch = &remote->launch;
    struct plait_plan_part part;
    char *text = malloc(TEXT_MOST);
    int rc;

    if (!text)
        return plait_errorf(err, "out of memory");
    rc = get_env(spank, PLAIT_ENV_PLAN, text, TEXT_MOST);
    if (rc < 0)
        plait_errorf(err, "this step has no plan; start it with an srun that "
                          "has the plait plugin");
    else
        rc = plait_plan_decode_part(text, (int)get_number(spank, S_JOB_NODEID),
                                    &part, err);
    free(text);
    if (rc < 0 || check_part(spank, &part, err) < 0 ||
        check_flags(&remote->options, &part.layout, err) < 0)
        return -1;
    launch->layout = part.layout;
    launch->world_size = plait_layout_world(&part.layout);
    launch->local_world_size = part.tasks;
    launch->nnodes = part.nnodes;
    launch->node_rank = part.node_rank;
    remote->first_rank = part.first_rank;
    return 0;
}

static int read_master(struct plait_remote *remote, spank_t spank,
                       struct plait_error *err)
{
    struct plait_launch *launch = &remote->launch;
    char text[300], keep[16];

    snprintf(launch->jobid, sizeof(launch->jobid), "%u.%u",
             get_number(spank, S_JOB_ID), get_number(spank, S_JOB_STEPID));
    get_env(spank, PLAIT_ENV_KEEP, keep, sizeof(keep));
    remote->keep_cpu = strstr(keep, "cpu") != NULL;
    remote->keep_gpu = strstr(keep, "gpu") != NULL;
    if (!remote->options.rendezvous)
        return 0;
    if (get_env(spank, PLAIT_ENV_MASTER, text, sizeof(text)) < 0 ||
        plait_master_parse(text, launch->master_addr,
                           sizeof(launch->master_addr),
                           &launch->master_port) < 0)
        return plait_errorf(err, "the plan came without the address of RANK "
                                 "0; start the step with an srun that has the "
                                 "plait plugin");
    if (remote->first_rank == 0 && !plait_master_port_free(launch->master_port))
        return plait_errorf(err, "port %d of %s is in use; set MASTER_PORT to "
                                 "a free one, or srun --resv-ports",
                            launch->master_port, launch->master_addr);
    return 0;
}

/* Fewer GPUs than tasks: RANKs would share one, which NCCL refuses. */
static int check_gpus(const struct plait_remote *remote,
                      struct plait_error *err)
{
    int n = remote->seats.visible.n, tasks = remote->launch.local_world_size;

    if (n == 0 || n >= tasks || remote->keep_gpu)
        return 0;
    return plait_errorf(err, "this node has %d tasks but %d GPU%s; use "
                             "--gpus-per-node=%d, or --pin=none to share",
                        tasks, n, n == 1 ? "" : "s", tasks);
}

static int find_seats(struct plait_remote *remote, spank_t spank,
                      struct plait_error *err)
{
    struct plait_visible visible, step;
    char gpus[1024];

    remote->node = plait_node_create(0, err);
    if (!remote->node)
        return -1;
    get_env(spank, "CUDA_VISIBLE_DEVICES", remote->visible,
            sizeof(remote->visible));
    if (get_env(spank, "SLURM_STEP_GPUS", gpus, sizeof(gpus)) < 0)
        get_env(spank, "SLURM_JOB_GPUS", gpus, sizeof(gpus));
    if (plait_visible_parse(gpus, &step, err) < 0)
        return -1;
    /* Without GPUs from Slurm the variable is the user's own business. */
    if (step.n == 0)
        remote->visible[0] = '\0';
    if (plait_visible_parse(remote->visible, &visible, err) < 0)
        return -1;
    plait_seats_fill(&remote->seats, &visible, &step, remote->node,
                     remote->launch.layout.size[PLAIT_TP], NVIDIA_GPUS);
    return check_gpus(remote, err);
}

struct plait_remote *plait_remote_create(spank_t spank,
                                         const struct plait_options *options,
                                         struct plait_error *err)
{
    struct plait_remote *remote = calloc(1, sizeof(*remote));
    char het[16];

    if (!remote) {
        plait_errorf(err, "out of memory");
        return NULL;
    }
    remote->options = *options;
    if (get_env(spank, "SLURM_HET_SIZE", het, sizeof(het)) == 0 &&
        atoi(het) > 1) {
        plait_errorf(err, "heterogeneous jobs cannot be planned; leave out "
                          "the layout flags");
        goto error;
    }
    if (read_plan(remote, spank, err) < 0 || read_master(remote, spank, err) < 0)
        goto error;
    if (options->pin && find_seats(remote, spank, err) < 0)
        goto error;
    return remote;
error:
    plait_remote_destroy(remote);
    return NULL;
}

void plait_remote_destroy(struct plait_remote *remote)
{
    int saved = errno;

    if (!remote)
        return;
    plait_node_destroy(remote->node);
    free(remote);
    errno = saved;
}

/* The step's own cores: what Slurm bound all its local tasks to, or where it
 * bound none, what this task may use. */
static int step_cpus(const struct plait_remote *remote, spank_t spank,
                     hwloc_bitmap_t allowed)
{
    hwloc_const_cpuset_t here =
        hwloc_topology_get_allowed_cpuset(remote->node->topology);
    char text[16384], type[64];

    get_env(spank, "SLURM_CPU_BIND_TYPE", type, sizeof(type));
    if (strncmp(type, "mask_cpu", 8) == 0 &&
        get_env(spank, "SLURM_CPU_BIND_LIST", text, sizeof(text)) == 0 &&
        plait_seats_parse_masks(text, allowed) == 0) {
        hwloc_bitmap_and(allowed, allowed, here);
        if (!hwloc_bitmap_iszero(allowed))
            return 0;
    }
    return hwloc_get_cpubind(remote->node->topology, allowed,
                             HWLOC_CPUBIND_THREAD);
}

static int bind_cpus(struct plait_remote *remote, spank_t spank,
                     struct plait_launch *launch, struct plait_error *err)
{
    hwloc_bitmap_t allowed = hwloc_bitmap_alloc(), cpus = hwloc_bitmap_alloc();
    hwloc_topology_t topology = remote->node->topology;
    const int *seats = remote->seats.known ? remote->seats.gpu : NULL;
    int rc = -1;

    if (!allowed || !cpus)
        goto error;
    if (remote->keep_cpu) {
        rc = hwloc_get_cpubind(topology, cpus, HWLOC_CPUBIND_THREAD);
    } else if (step_cpus(remote, spank, allowed) == 0 &&
               plait_node_bind(remote->node, allowed, seats,
                               launch->local_world_size, launch->local_rank,
                               cpus) == 0) {
        rc = hwloc_set_cpubind(topology, cpus, HWLOC_CPUBIND_THREAD);
    }
    if (rc == 0)
        hwloc_bitmap_list_snprintf(launch->cpus, sizeof(launch->cpus), cpus);
error:
    if (rc < 0)
        plait_errorf(err, "cannot bind task %d to its cores: %s",
                     launch->rank, strerror(errno));
    hwloc_bitmap_free(allowed);
    hwloc_bitmap_free(cpus);
    return rc;
}

/* Every task sees all GPUs of the step on its node, its own at LOCAL_RANK.
 * Where Slurm (or the user, --gpu-bind) gave each task its own list, that
 * list stays. */
static int bind_gpus(const struct plait_remote *remote, spank_t spank)
{
    char own[TEXT_MOST], text[TEXT_MOST];

    if (remote->seats.visible.n == 0 || remote->keep_gpu)
        return 0;
    get_env(spank, "CUDA_VISIBLE_DEVICES", own, sizeof(own));
    if (strcmp(own, remote->visible) != 0)
        return 0;
    if (plait_visible_format(&remote->seats.visible, remote->seats.permuted,
                             text, sizeof(text)) < 0)
        return -1;
    return spank_setenv(spank, "CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1) ==
                       ESPANK_SUCCESS &&
                   spank_setenv(spank, "CUDA_VISIBLE_DEVICES", text, 1) ==
                       ESPANK_SUCCESS
               ? 0
               : -1;
}

static int set_env(void *arg, const char *name, const char *value)
{
    return spank_setenv(arg, name, value, 1) == ESPANK_SUCCESS ? 0 : -1;
}

int plait_remote_task(struct plait_remote *remote, spank_t spank,
                      struct plait_error *err)
{
    struct plait_launch launch = remote->launch;
    int local = 0;

    if (spank_get_item(spank, S_TASK_ID, &local) != ESPANK_SUCCESS ||
        local < 0 || local >= launch.local_world_size)
        return plait_errorf(err, "Slurm tells no local task id");
    launch.local_rank = local;
    launch.rank = remote->first_rank + local;
    launch.gpu = -1;
    plait_layout_coord(&launch.layout, launch.rank, &launch.coord);
    if (remote->node) {
        plait_seats_describe(&remote->seats, remote->node, local, &launch);
        if (bind_cpus(remote, spank, &launch, err) < 0)
            return -1;
        if (bind_gpus(remote, spank) < 0)
            return plait_errorf(err, "cannot set CUDA_VISIBLE_DEVICES");
    }
    if (plait_launch_encode(&launch, remote->options.rendezvous, set_env,
                            spank) < 0)
        return plait_errorf(err, "cannot set the task's environment");
    return 0;
}
