/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "spank_plugin/master.h"
#include "spank_plugin/plugin.h"
#include "spank_plugin/remote.h"

/* The step's own cores: those that Slurm bound its local tasks to, or where it
 * bound none, those that this task may use. */
static int find_step_cpus(const struct plait_remote *remote, spank_t spank,
                          hwloc_bitmap_t allowed)
{
    hwloc_const_cpuset_t here =
        hwloc_topology_get_allowed_cpuset(remote->node->topology);
    char text[16384], type[64];

    plait_remote_get_env(spank, "SLURM_CPU_BIND_TYPE", type, sizeof(type));
    if (strncmp(type, "mask_cpu", 8) == 0 &&
        plait_remote_get_env(spank, "SLURM_CPU_BIND_LIST", text,
                             sizeof(text)) == 0 &&
        plait_binding_parse_masks(text, allowed) == 0) {
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
    /* With --gpu-bind there may be more tasks than GPUs. */
    const int *binding = remote->binding.known && launch->local_world_size <=
                                                      remote->binding.visible.n
                             ? remote->binding.gpu
                             : NULL;
    int rc = -1;

    if (!allowed || !cpus)
        goto error;
    if (remote->keep_cpu) {
        rc = hwloc_get_cpubind(topology, cpus, HWLOC_CPUBIND_THREAD);
    } else if (find_step_cpus(remote, spank, allowed) == 0 &&
               plait_node_bind(remote->node, allowed, binding,
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

/* Allocate memory on the GPU's NUMA node, and elsewhere only when that is
 * full. Best effort: a container may not be allowed to set a policy. */
static void bind_memory(const struct plait_remote *remote, int local)
{
    hwloc_topology_t topology = remote->node->topology;
    hwloc_bitmap_t near;
    int gpu;

    if (remote->keep_cpu || remote->keep_mem || !remote->binding.known ||
        local >= remote->binding.visible.n)
        return;
    gpu = remote->binding.gpu[local];
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

static int set_variable(spank_t spank, const char *name, const char *value)
{
    return spank_setenv(spank, name, value, 1) == ESPANK_SUCCESS ? 0 : -1;
}

/* ROCm takes the order of its GPUs from ROCR_VISIBLE_DEVICES; the numbers in
 * HIP's two variables are indices into that list. */
static int bind_amd(const struct plait_remote *remote, spank_t spank,
                    const char *text)
{
    static const char *const inner[] = {PLAIT_ENV_VISIBLE,
                                        "HIP_VISIBLE_DEVICES"};
    char value[PLAIT_REMOTE_TEXT_MOST], count[8 * PLAIT_VISIBLE_MOST];
    size_t used = 0;

    for (int i = 0; i < remote->binding.visible.n; i++)
        used += (size_t)snprintf(count + used, sizeof(count) - used, "%s%d",
                                 i ? "," : "", i);
    for (size_t i = 0; i < sizeof(inner) / sizeof(inner[0]); i++)
        /* Slurm set it to the same list; another value is the user's. */
        if (plait_remote_get_env(spank, inner[i], value, sizeof(value)) == 0 &&
            strcmp(value, remote->visible) == 0 &&
            set_variable(spank, inner[i], count) < 0)
            return -1;
    return set_variable(spank, remote->variable, text);
}

/* Every task sees all GPUs of the step on its node, its own at LOCAL_RANK.
 * Where Slurm (or the user, --gpu-bind) gave each task its own list, that
 * list stays. */
static int bind_gpus(const struct plait_remote *remote, spank_t spank)
{
    char own[PLAIT_REMOTE_TEXT_MOST], text[PLAIT_REMOTE_TEXT_MOST];

    if (remote->binding.visible.n == 0 || remote->keep_gpu)
        return 0;
    plait_remote_get_env(spank, remote->variable, own, sizeof(own));
    if (strcmp(own, remote->visible) != 0)
        return 0;
    if (plait_visible_format(&remote->binding.visible, remote->binding.permuted,
                             text, sizeof(text)) < 0)
        return -1;
    if (remote->variable[0] == 'R')
        return bind_amd(remote, spank, text);
    return set_variable(spank, PLAIT_ENV_VISIBLE_ORDER, "PCI_BUS_ID") |
           set_variable(spank, remote->variable, text);
}

/* The NICs for programs that do not read PLAIT_NICS; what the user set
 * stays. */
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
    /* '=': exactly these names, not all with this prefix */
    snprintf(text, sizeof(text), "=%s", launch->nics);
    if (remote->nccl && !has_nccl &&
        set_variable(spank, "NCCL_IB_HCA", text) < 0)
        return -1;
    for (const char *p = launch->nics; *p; p += strspn(p, ",")) {
        int n = (int)strcspn(p, ",");

        to += sprintf(to, "%s%.*s:1", to == text ? "" : ",", n, p);
        p += n;
    }
    return remote->ucx && !has_ucx
               ? set_variable(spank, "UCX_NET_DEVICES", text)
               : 0;
}

/* For an srun that the task may start: the port may differ from the one that
 * this step's srun chose. */
static int export_master(const struct plait_launch *launch, spank_t spank)
{
    char text[sizeof(launch->master_addr) + 16];

    snprintf(text, sizeof(text), "%s:%d", launch->master_addr,
             launch->master_port);
    return set_variable(spank, PLAIT_ENV_MASTER, text);
}

static int set_contract(void *arg, const char *name, const char *value)
{
    return set_variable(arg, name, value);
}

int plait_remote_task(struct plait_remote *remote, spank_t spank,
                      struct plait_error *err)
{
    struct plait_launch launch = remote->launch;
    int local = 0;

    if (spank_get_item(spank, S_TASK_ID, &local) != ESPANK_SUCCESS ||
        local < 0 || local >= launch.local_world_size)
        return plait_errorf(err, "Slurm gives no local task id");
    launch.local_rank = local;
    launch.rank = remote->first_rank + local;
    launch.gpu = -1;
    plait_layout_coord(&launch.layout, launch.rank, &launch.coord);
    if (remote->node) {
        plait_binding_describe(&remote->binding, remote->node, local, &launch);
        if (bind_cpus(remote, spank, &launch, err) < 0)
            return -1;
        bind_memory(remote, local);
        if (bind_gpus(remote, spank) < 0 ||
            bind_nics(remote, spank, &launch) < 0)
            return plait_errorf(err, "cannot set %s", remote->variable);
    }
    if (plait_launch_encode(&launch, remote->options.rendezvous, set_contract,
                            spank) < 0 ||
        (remote->options.rendezvous && export_master(&launch, spank) < 0))
        return plait_errorf(err, "cannot set the task's environment");
    return 0;
}
