/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "master.h"
#include "plugin.h"
#include "seat.h"
#include "topology/node_cache.h"

/* Nothing that a user can put into the environment is read past this. */
enum { TEXT_MOST = 65536 };

#define NVIDIA_GPUS "/proc/driver/nvidia/gpus"

struct plait_remote {
    struct plait_options options;
    struct plait_launch launch; /* what all tasks of the node share */
    int first_rank;
    int keep_cpu, keep_gpu, keep_mem;
    int reserved;            /* MASTER_PORT is the one that Slurm reserved */
    int user_port;           /* ... or the user's own */
    int nvlink, nccl, ucx;   /* what the site file wants */
    int port;                /* holds MASTER_PORT; -1: not ours to hold */
    const char *variable;    /* in which Slurm lists the GPUs */
    struct plait_node *node; /* NULL: nothing is pinned */
    struct plait_seats seats;
    char visible[TEXT_MOST]; /* its value for the whole node */
};

static int get_env(spank_t spank, const char *name, char *buf, size_t size)
{
    buf[0] = '\0';
    return spank_getenv(spank, name, buf, (int)size) == ESPANK_SUCCESS ? 0 : -1;
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
        if (options->given >> i & 1 && options->layout.size[i] != PLAIT_AUTO &&
            options->layout.size[i] != layout->size[i])
            return plait_errorf(err,
                                "--%s=%d, but srun planned for %d; was "
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
        return plait_errorf(err,
                            "the plan is for %d tasks on %d nodes, %d of "
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

static void read_rest(struct plait_remote *remote, spank_t spank)
{
    struct plait_launch *launch = &remote->launch;
    char text[64];

    snprintf(launch->jobid, sizeof(launch->jobid), "%u.%u",
             get_number(spank, S_JOB_ID), get_number(spank, S_JOB_STEPID));
    get_env(spank, PLAIT_ENV_KEEP, text, sizeof(text));
    remote->keep_cpu = strstr(text, "cpu") != NULL;
    remote->keep_gpu = strstr(text, "gpu") != NULL;
    remote->keep_mem = strstr(text, "mem") != NULL;
    remote->reserved = strstr(text, "resv") != NULL;
    remote->user_port = strstr(text, "port") != NULL;
    get_env(spank, PLAIT_ENV_SITE, text, sizeof(text));
    remote->nvlink = strstr(text, "nvlink") != NULL;
    remote->nccl = strstr(text, "nccl") != NULL;
    remote->ucx = strstr(text, "ucx") != NULL;
    get_env(spank, PLAIT_ENV_SECRET, launch->secret, sizeof(launch->secret));
}

/* On RANK 0's node. Nobody could tell other nodes about another port any
 * more, but where there are none, the next free one will do. */
static int hold_port(struct plait_remote *remote, struct plait_error *err)
{
    int *port = &remote->launch.master_port;
    int movable =
        remote->launch.nnodes == 1 && !remote->reserved && !remote->user_port;

    remote->port =
        movable ? plait_master_port_take(port) : plait_master_port_hold(*port);
    if (remote->port < 0 && errno == EADDRINUSE)
        return plait_errorf(err,
                            "port %d of %s is in use; set MASTER_PORT to "
                            "a free one, or srun --resv-ports",
                            *port, remote->launch.master_addr);
    return 0;
}

static int read_master(struct plait_remote *remote, spank_t spank,
                       struct plait_error *err)
{
    struct plait_launch *launch = &remote->launch;
    char text[300];

    if (!remote->options.rendezvous)
        return 0;
    if (get_env(spank, PLAIT_ENV_MASTER, text, sizeof(text)) < 0 ||
        plait_master_parse(text, launch->master_addr,
                           sizeof(launch->master_addr),
                           &launch->master_port) < 0)
        return plait_errorf(err, "the plan came without the address of RANK "
                                 "0; start the step with an srun that has the "
                                 "plait plugin");
    /* srun is told only afterwards, the nodes are told all the same. */
    if (remote->reserved) {
        get_env(spank, "SLURM_STEP_RESV_PORTS", text, sizeof(text));
        if (plait_master_read_port(text))
            launch->master_port = plait_master_read_port(text);
    }
    return remote->first_rank == 0 ? hold_port(remote, err) : 0;
}

/* Fewer GPUs than tasks: RANKs would share one, which NCCL refuses. */
static int check_gpus(const struct plait_remote *remote,
                      struct plait_error *err)
{
    int n = remote->seats.visible.n, tasks = remote->launch.local_world_size;

    if (n == 0 || n >= tasks || remote->keep_gpu)
        return 0;
    return plait_errorf(err,
                        "this node has %d tasks but %d GPU%s; use "
                        "--gpus-per-node=%d, or --pin=none to share",
                        tasks, n, n == 1 ? "" : "s", tasks);
}

/* The largest tp that stays among linked GPUs, as it would be said. */
static int largest_island(const struct plait_remote *remote)
{
    int most = 1;

    for (int i = 0; i < remote->seats.visible.n; i++) {
        int island = remote->node->gpus[remote->seats.gpu[i]].island, n = 0;

        for (int k = 0; k < remote->seats.visible.n; k++)
            n += remote->node->gpus[remote->seats.gpu[k]].island == island;
        most = n > most ? n : most;
    }
    return most;
}

/* "tp must stay within NVLink": every tp group's GPUs are of one island. */
static int check_islands(const struct plait_remote *remote,
                         struct plait_error *err)
{
    const struct plait_layout *layout = &remote->launch.layout;

    if (!remote->nvlink || !remote->seats.known)
        return 0;
    for (int i = 0; i < remote->launch.local_world_size; i++) {
        struct plait_coord c;
        int first;

        plait_layout_coord(layout, remote->first_rank + i, &c);
        c.at[PLAIT_TP] = 0;
        first = plait_layout_rank(layout, &c) - remote->first_rank;
        if (remote->node->gpus[remote->seats.gpu[i]].island !=
            remote->node->gpus[remote->seats.gpu[first]].island)
            return plait_errorf(
                err,
                "this site keeps tp within NVLink, but the GPUs of a "
                "--tp=%d group are not linked; at most %d of this "
                "node's are",
                layout->size[PLAIT_TP], largest_island(remote));
    }
    return 0;
}

static struct plait_node *find_node(const char *cache, struct plait_error *err)
{
    struct plait_node *node = NULL;
    struct plait_error why;

    if (cache && !(node = plait_node_load_cache(cache, &why)))
        slurm_info("plait: %s; looking at the machine itself", why.text);
    return node ? node : plait_node_create(0, err);
}

static int find_seats(struct plait_remote *remote, spank_t spank,
                      const char *cache, struct plait_error *err)
{
    struct plait_visible visible, step;
    char gpus[1024];

    remote->node = find_node(cache, err);
    if (!remote->node)
        return -1;
    if (remote->node->ngpus && !strcmp(remote->node->gpus[0].vendor, "amd"))
        remote->variable = "ROCR_VISIBLE_DEVICES";
    get_env(spank, remote->variable, remote->visible, sizeof(remote->visible));
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
    if (check_gpus(remote, err) < 0)
        return -1;
    return check_islands(remote, err);
}

int plait_remote_is_declined(spank_t spank)
{
    char text[sizeof(PLAIT_NO_PLAN)];

    return get_env(spank, PLAIT_ENV_PLAN, text, sizeof(text)) == 0 &&
           strcmp(text, PLAIT_NO_PLAN) == 0;
}

struct plait_remote *plait_remote_create(spank_t spank,
                                         const struct plait_options *options,
                                         const char *cache,
                                         struct plait_error *err)
{
    struct plait_remote *remote = calloc(1, sizeof(*remote));
    char het[16];

    if (!remote) {
        plait_errorf(err, "out of memory");
        return NULL;
    }
    remote->options = *options;
    remote->port = -1;
    remote->variable = "CUDA_VISIBLE_DEVICES";
    read_rest(remote, spank);
    if (get_env(spank, "SLURM_HET_SIZE", het, sizeof(het)) == 0 &&
        atoi(het) > 1) {
        plait_errorf(err, "heterogeneous jobs cannot be planned; leave out "
                          "the layout flags");
        goto error;
    }
    if (read_plan(remote, spank, err) < 0 ||
        read_master(remote, spank, err) < 0)
        goto error;
    if (options->pin && find_seats(remote, spank, cache, err) < 0)
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
    if (remote->port >= 0)
        close(remote->port);
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
        plait_errorf(err, "cannot bind task %d to its cores: %s", launch->rank,
                     strerror(errno));
    hwloc_bitmap_free(allowed);
    hwloc_bitmap_free(cpus);
    return rc;
}

/* Memory near the GPU, and elsewhere only when that is full. Best effort: a
 * machine without NUMA, or a container, may not have it. */
static void bind_memory(const struct plait_remote *remote, int local)
{
    hwloc_topology_t topology = remote->node->topology;
    hwloc_bitmap_t near;
    int gpu;

    if (remote->keep_cpu || remote->keep_mem || !remote->seats.known ||
        local >= remote->seats.visible.n)
        return;
    gpu = remote->seats.gpu[local];
    near = remote->node->gpus[gpu].numa < 0 ? NULL : hwloc_bitmap_alloc();
    if (!near)
        return;
    hwloc_bitmap_only(near, (unsigned)remote->node->gpus[gpu].numa);
    hwloc_bitmap_and(near, near, hwloc_topology_get_allowed_nodeset(topology));
    if (!hwloc_bitmap_iszero(near))
        hwloc_set_membind(topology, near, HWLOC_MEMBIND_BIND,
                          HWLOC_MEMBIND_THREAD | HWLOC_MEMBIND_BYNODESET);
    hwloc_bitmap_free(near);
}

static int set(spank_t spank, const char *name, const char *value)
{
    return spank_setenv(spank, name, value, 1) == ESPANK_SUCCESS ? 0 : -1;
}

/* ROCm takes its order from ROCR_VISIBLE_DEVICES, and counts what HIP's two
 * variables say inside that list. */
static int bind_amd(const struct plait_remote *remote, spank_t spank,
                    const char *text)
{
    static const char *const inner[] = {"CUDA_VISIBLE_DEVICES",
                                        "HIP_VISIBLE_DEVICES"};
    char value[TEXT_MOST], count[8 * PLAIT_VISIBLE_MOST];
    size_t used = 0;

    for (int i = 0; i < remote->seats.visible.n; i++)
        used += (size_t)snprintf(count + used, sizeof(count) - used, "%s%d",
                                 i ? "," : "", i);
    for (size_t i = 0; i < sizeof(inner) / sizeof(inner[0]); i++)
        /* Slurm's own copy; anything else is the user's business */
        if (get_env(spank, inner[i], value, sizeof(value)) == 0 &&
            strcmp(value, remote->visible) == 0 &&
            set(spank, inner[i], count) < 0)
            return -1;
    return set(spank, remote->variable, text);
}

/* Every task sees all GPUs of the step on its node, its own at LOCAL_RANK.
 * Where Slurm (or the user, --gpu-bind) gave each task its own list, that
 * list stays. */
static int bind_gpus(const struct plait_remote *remote, spank_t spank)
{
    char own[TEXT_MOST], text[TEXT_MOST];

    if (remote->seats.visible.n == 0 || remote->keep_gpu)
        return 0;
    get_env(spank, remote->variable, own, sizeof(own));
    if (strcmp(own, remote->visible) != 0)
        return 0;
    if (plait_visible_format(&remote->seats.visible, remote->seats.permuted,
                             text, sizeof(text)) < 0)
        return -1;
    if (remote->variable[0] == 'R')
        return bind_amd(remote, spank, text);
    return set(spank, "CUDA_DEVICE_ORDER", "PCI_BUS_ID") |
           set(spank, remote->variable, text);
}

/* For programs that know no PLAIT_NICS; what the user set stays. */
static int bind_nics(const struct plait_remote *remote, spank_t spank,
                     const struct plait_launch *launch)
{
    char text[sizeof(launch->nics) * 2], own[2], *to = text;
    int has_nccl = spank_getenv(spank, "NCCL_IB_HCA", own, sizeof(own)) !=
                   ESPANK_ENV_NOEXIST;
    int has_ucx = spank_getenv(spank, "UCX_NET_DEVICES", own, sizeof(own)) !=
                  ESPANK_ENV_NOEXIST;

    if (!launch->nics[0])
        return 0;
    /* '=': these names, not all that start so */
    snprintf(text, sizeof(text), "=%s", launch->nics);
    if (remote->nccl && !has_nccl && set(spank, "NCCL_IB_HCA", text) < 0)
        return -1;
    for (const char *p = launch->nics; *p; p += strspn(p, ",")) {
        int n = (int)strcspn(p, ",");

        to += sprintf(to, "%s%.*s:1", to == text ? "" : ",", n, p);
        p += n;
    }
    return remote->ucx && !has_ucx ? set(spank, "UCX_NET_DEVICES", text) : 0;
}

/* For the commands that the task may start in its turn: the port may not be
 * the one that srun named. */
static int pass_on_master(const struct plait_launch *launch, spank_t spank)
{
    char text[sizeof(launch->master_addr) + 16];

    snprintf(text, sizeof(text), "%s:%d", launch->master_addr,
             launch->master_port);
    return set(spank, PLAIT_ENV_MASTER, text);
}

static int set_env(void *arg, const char *name, const char *value)
{
    return set(arg, name, value);
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
        bind_memory(remote, local);
        if (bind_gpus(remote, spank) < 0 ||
            bind_nics(remote, spank, &launch) < 0)
            return plait_errorf(err, "cannot set %s", remote->variable);
    }
    if (plait_launch_encode(&launch, remote->options.rendezvous, set_env,
                            spank) < 0 ||
        (remote->options.rendezvous && pass_on_master(&launch, spank) < 0))
        return plait_errorf(err, "cannot set the task's environment");
    return 0;
}
