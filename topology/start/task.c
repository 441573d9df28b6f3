/* SPDX-License-Identifier: Apache-2.0 */
/* What a task gets before it starts: cores, memory, GPUs, network cards and its
 * variables. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "topology/start/seats.h"

/* The step's own cores: those that Slurm bound its local tasks to, or where it
 * bound none, those that this task may use. */
static int find_step_cpus(const struct plait_seats *seats,
                          const struct plait_task_env *env,
                          hwloc_bitmap_t allowed)
{
    hwloc_const_cpuset_t here =
        hwloc_topology_get_allowed_cpuset(seats->node->topology);
    char text[16384], type[64];

    env->get(env->arg, "SLURM_CPU_BIND_TYPE", type, sizeof(type));
    if (strncmp(type, "mask_cpu", 8) == 0 &&
        env->get(env->arg, "SLURM_CPU_BIND_LIST", text, sizeof(text)) == 0 &&
        plait_binding_parse_masks(text, allowed) == 0) {
        hwloc_bitmap_and(allowed, allowed, here);
        if (!hwloc_bitmap_iszero(allowed))
            return 0;
    }
    return hwloc_get_cpubind(seats->node->topology, allowed,
                             HWLOC_CPUBIND_THREAD);
}

static int bind_cpus(const struct plait_seats *seats,
                     const struct plait_task_env *env,
                     struct plait_launch *launch, struct plait_error *err)
{
    hwloc_bitmap_t allowed = hwloc_bitmap_alloc(), cpus = hwloc_bitmap_alloc();
    hwloc_topology_t topology = seats->node->topology;
    /* With --gpu-bind there may be more tasks than GPUs. */
    const int *binding = seats->binding.known && launch->local_world_size <=
                                                     seats->binding.visible.n
                             ? seats->binding.gpu
                             : NULL;
    int rc = -1;

    if (!allowed || !cpus)
        goto error;
    if (seats->keep_cpu) {
        rc = hwloc_get_cpubind(topology, cpus, HWLOC_CPUBIND_THREAD);
    } else if (find_step_cpus(seats, env, allowed) == 0 &&
               plait_node_bind(seats->node, allowed, binding,
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
static void bind_memory(const struct plait_seats *seats, int local)
{
    hwloc_topology_t topology = seats->node->topology;
    hwloc_bitmap_t near;
    int gpu;

    if (seats->keep_cpu || seats->keep_mem || !seats->binding.known ||
        local >= seats->binding.visible.n)
        return;
    gpu = seats->binding.gpu[local];
    near = seats->node->gpus[gpu].numa < 0 ? NULL : hwloc_bitmap_alloc();
    if (!near)
        return;
    hwloc_bitmap_only(near, (unsigned)seats->node->gpus[gpu].numa);
    hwloc_bitmap_and(near, near, hwloc_topology_get_allowed_nodeset(topology));
    if (!hwloc_bitmap_iszero(near))
        hwloc_set_membind(topology, near, HWLOC_MEMBIND_BIND,
                          HWLOC_MEMBIND_THREAD | HWLOC_MEMBIND_BYNODESET);
    hwloc_bitmap_free(near);
}

static int set_variable(const struct plait_task_env *env, const char *name,
                        const char *value)
{
    return env->set(env->arg, name, value);
}

/* ROCm takes the order of its GPUs from ROCR_VISIBLE_DEVICES; the numbers in
 * HIP's two variables are indices into that list. */
static int bind_amd(const struct plait_seats *seats,
                    const struct plait_task_env *env, const char *text)
{
    static const char *const inner[] = {PLAIT_ENV_VISIBLE,
                                        "HIP_VISIBLE_DEVICES"};
    char value[PLAIT_SEATS_TEXT_MOST], count[8 * PLAIT_VISIBLE_MOST];
    size_t used = 0;

    for (int i = 0; i < seats->binding.visible.n; i++)
        used += (size_t)snprintf(count + used, sizeof(count) - used, "%s%d",
                                 i ? "," : "", i);
    for (size_t i = 0; i < sizeof(inner) / sizeof(inner[0]); i++)
        /* Slurm set it to the same list; another value is the user's. */
        if (env->get(env->arg, inner[i], value, sizeof(value)) == 0 &&
            strcmp(value, seats->visible) == 0 &&
            set_variable(env, inner[i], count) < 0)
            return -1;
    return set_variable(env, seats->variable, text);
}

/* A process of CUDA can use one MIG instance, the first of the list: so each
 * task gets its own alone. */
static bool has_mig(const struct plait_seats *seats, int local)
{
    const struct plait_visible *visible = &seats->binding.visible;

    return local < visible->n &&
           strncmp(visible->id[seats->binding.permuted[local]], "MIG-", 4) == 0;
}

static int bind_intel(const struct plait_seats *seats,
                      const struct plait_task_env *env)
{
    return set_variable(env, "ZE_ENABLE_PCI_ID_DEVICE_ORDER", "1") |
           set_variable(env, seats->variable, seats->visible);
}

/* Every task sees all GPUs of the step on its node, its own at LOCAL_RANK.
 * Where Slurm (or the user, --gpu-bind) gave each task its own list, that
 * list stays. */
static int bind_gpus(const struct plait_seats *seats,
                     const struct plait_task_env *env, int local)
{
    char own[PLAIT_SEATS_TEXT_MOST], text[PLAIT_SEATS_TEXT_MOST];

    if (seats->binding.visible.n == 0 || seats->keep_gpu)
        return 0;
    env->get(env->arg, seats->variable, own, sizeof(own));
    if (strcmp(own, seats->visible) != 0)
        return 0;
    if (has_mig(seats, local))
        return set_variable(
            env, seats->variable,
            seats->binding.visible.id[seats->binding.permuted[local]]);
    if (seats->variable[0] == 'Z')
        return bind_intel(seats, env);
    if (plait_visible_format(&seats->binding.visible, seats->binding.permuted,
                             text, sizeof(text)) < 0)
        return -1;
    if (seats->variable[0] == 'R')
        return bind_amd(seats, env, text);
    return set_variable(env, PLAIT_ENV_VISIBLE_ORDER, "PCI_BUS_ID") |
           set_variable(env, seats->variable, text);
}

/* With the user's --gpu-bind, or MIG, a task may see a single GPU, whose index
 * is 0 for it, while programs take the device that LOCAL_RANK names: so
 * LOCAL_RANK is 0 then. PLAIT_LOCAL_RANK stays the task's. */
static int name_only_gpu(const struct plait_seats *seats,
                         const struct plait_task_env *env, int local)
{
    char own[PLAIT_SEATS_TEXT_MOST];
    struct plait_visible visible;
    struct plait_error err;

    if ((!seats->keep_gpu && !has_mig(seats, local)) || !seats->rendezvous ||
        env->get(env->arg, seats->variable, own, sizeof(own)) < 0 ||
        plait_visible_parse(own, &visible, &err) < 0 || visible.n != 1)
        return 0;
    return set_variable(env, "LOCAL_RANK", "0");
}

/* For an srun that this task may start: the port may differ from the one that
 * this step's srun chose. */
static int export_master(const struct plait_launch *launch,
                         const struct plait_task_env *env)
{
    char text[sizeof(launch->master_addr) + 16];

    snprintf(text, sizeof(text), "%s:%d", launch->master_addr,
             launch->master_port);
    return set_variable(env, PLAIT_ENV_MASTER, text);
}

static int set_contract(void *arg, const char *name, const char *value)
{
    return set_variable(arg, name, value);
}

int plait_seats_take(const struct plait_seats *seats, int local,
                     const struct plait_task_env *env, struct plait_error *err)
{
    struct plait_launch launch = seats->launch;
    struct plait_task_env writable = *env;

    if (local < 0 || local >= launch.local_world_size)
        return plait_errorf(err, "there is no local task %d", local);
    launch.local_rank = local;
    launch.rank = seats->first_rank + local;
    launch.gpu = -1;
    plait_layout_coord(&launch.layout, launch.rank, &launch.coord);
    if (seats->node) {
        plait_binding_describe(&seats->binding, seats->node, local, &launch);
        if (bind_cpus(seats, env, &launch, err) < 0)
            return -1;
        bind_memory(seats, local);
        if (bind_gpus(seats, env, local) < 0 ||
            plait_seats_bind_nics(seats, env, local) < 0)
            return plait_errorf(err, "cannot set %s", seats->variable);
    }
    if (plait_launch_encode(&launch, seats->rendezvous, set_contract,
                            &writable) < 0 ||
        (seats->rendezvous && export_master(&launch, env) < 0) ||
        (seats->node && name_only_gpu(seats, env, local) < 0))
        return plait_errorf(err, "cannot set the task's environment");
    return 0;
}
