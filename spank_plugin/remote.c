/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* RTLD_DEFAULT */
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "spank_plugin/master.h"
#include "spank_plugin/plugin.h"
#include "spank_plugin/policy_job.h"
#include "spank_plugin/remote.h"
#include "topology/start/preflight.h"

/* What the plugin does on each node of a planned step, in slurmstepd, before
 * the tasks start: it reads its part of the plan and what else srun has put
 * into the environment, checks it all again, and finds out which GPUs, cores
 * and NICs the tasks get. Each task then binds itself and writes its launch
 * contract (topology/start/task.c).
 *
 * Nothing that comes from the environment is trusted, as the user can change it
 * on its way: the plan must fit the numbers that Slurm gives of the step, flags
 * must be those that srun planned for, secrets must have their form, and the
 * site's limits are those of this node's own file. */

int plait_remote_get_env(spank_t spank, const char *name, char *buf,
                         size_t size)
{
    spank_err_t rc = spank_getenv(spank, name, buf, (int)size);

    if (rc == ESPANK_SUCCESS)
        return 0;
    buf[0] = '\0'; /* where it does not fit, Slurm leaves its beginning */
    errno = rc == ESPANK_ENV_NOEXIST ? ENOENT : ERANGE;
    return -1;
}

static uint32_t get_number(spank_t spank, spank_item_t item)
{
    uint32_t value = 0;

    if (spank_get_item(spank, item, &value) != ESPANK_SUCCESS)
        return 0;
    return value;
}

/* The flags came with the step or through the environment, the plan came from
 * srun: their sizes must be the same. */
static int check_flags(const struct plait_options *options,
                       const struct plait_layout *layout,
                       struct plait_error *err)
{
    for (int i = 0; i < PLAIT_NAXES; i++)
        if (options->given >> i & 1 && options->layout.size[i] != PLAIT_AUTO &&
            options->layout.size[i] != layout->size[i])
            return plait_errorf(err,
                                "--%s=%d does not match srun's plan, which is "
                                "for %d; was the flag changed after srun read "
                                "it?",
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
                            "the plan does not belong to this step: it is for "
                            "%d tasks on %d nodes, %d of them here, and the "
                            "step has %u on %u, %u here",
                            plait_layout_world(&part->layout), part->nnodes,
                            part->tasks, world, nodes, tasks);
    return 0;
}

static int read_plan(struct plait_remote *remote, spank_t spank,
                     struct plait_error *err)
{
    struct plait_launch *launch = &remote->seats.launch;
    struct plait_plan_part part;
    char *text = malloc(PLAIT_REMOTE_TEXT_MOST);
    int rc;

    if (!text)
        return plait_errorf(err, "out of memory");
    rc = plait_remote_get_env(spank, PLAIT_ENV_PLAN, text,
                              PLAIT_REMOTE_TEXT_MOST);
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
    launch->domain = part.domain;
    remote->seats.first_rank = part.first_rank;
    return 0;
}

static int read_variables(struct plait_remote *remote, spank_t spank,
                          struct plait_error *err)
{
    struct plait_launch *launch = &remote->seats.launch;
    char text[96];
    const char *rate;

    snprintf(launch->jobid, sizeof(launch->jobid), "%u.%u",
             get_number(spank, S_JOB_ID), get_number(spank, S_JOB_STEPID));
    plait_remote_get_env(spank, PLAIT_ENV_KEEP, text, sizeof(text));
    remote->seats.keep_cpu = strstr(text, "cpu") != NULL;
    /* The step of --node-spares only looks at them. */
    remote->seats.keep_gpu =
        strstr(text, "gpu") != NULL || remote->options.measure_only;
    remote->seats.keep_mem = strstr(text, "mem") != NULL;
    remote->reserved_port = strstr(text, "resv") != NULL;
    remote->user_port = strstr(text, "port") != NULL;
    plait_remote_get_env(spank, PLAIT_ENV_SITE, text, sizeof(text));
    remote->seats.nvlink = strstr(text, "nvlink") != NULL;
    remote->seats.nccl = strstr(text, "nccl") != NULL;
    remote->seats.ucx = strstr(text, "ucx") != NULL;
    remote->seats.cxi = strstr(text, "cxi") != NULL;
    rate = strstr(text, "rate=");
    if (rate && sscanf(rate, "rate=%lf:%lf", &remote->bound.least,
                       &remote->bound.link) != 2)
        remote->bound.least = 0;
    plait_remote_get_env(spank, PLAIT_ENV_STEP_SECRET, launch->secret,
                         sizeof(launch->secret));
    plait_remote_get_env(spank, PLAIT_ENV_PREFLIGHT, remote->preflight,
                         sizeof(remote->preflight));
    plait_remote_get_env(spank, PLAIT_ENV_REPORT, remote->report,
                         sizeof(remote->report));
    if (plait_launch_check_secret(remote->preflight, NULL) < 0)
        return plait_errorf(err, PLAIT_ENV_PREFLIGHT
                            " is not what srun made: leave it out of the "
                            "environment");
    if (plait_launch_check_secret(launch->secret, NULL) == 0)
        return 0;
    return plait_errorf(err, PLAIT_ENV_STEP_SECRET
                        " is not what srun made: "
                        "leave it out of the environment");
}

/* On RANK 0's node: take the next free port, unless the user or Slurm chose
 * one. The other nodes learn it from srun. */
static int hold_port(struct plait_remote *remote, spank_t spank,
                     struct plait_error *err)
{
    int *port = &remote->seats.launch.master_port;
    int movable =
        (remote->seats.launch.nnodes == 1 || plait_agreement_exists(spank)) &&
        !remote->reserved_port && !remote->user_port;

    remote->port_fd =
        movable ? plait_master_port_take(port) : plait_master_port_hold(*port);
    remote->port_pid = getpid();
    if (remote->port_fd < 0 && errno == EADDRINUSE)
        return plait_errorf(err,
                            "port %d of %s is in use; set MASTER_PORT to "
                            "a free one, or srun --resv-ports",
                            *port, remote->seats.launch.master_addr);
    return 0;
}

static int read_master(struct plait_remote *remote, spank_t spank,
                       struct plait_error *err)
{
    struct plait_launch *launch = &remote->seats.launch;
    char text[300];

    if (!remote->options.rendezvous)
        return 0;
    if (plait_remote_get_env(spank, PLAIT_ENV_MASTER, text, sizeof(text)) < 0 ||
        plait_master_parse(text, launch->master_addr,
                           sizeof(launch->master_addr),
                           &launch->master_port) < 0)
        return plait_errorf(err, "the plan came without the address of RANK "
                                 "0; start the step with an srun that has the "
                                 "plait plugin");
    /* srun learns the reserved ports too late to pass them on, but each node
     * of the step is given the same list. */
    if (remote->reserved_port) {
        plait_remote_get_env(spank, "SLURM_STEP_RESV_PORTS", text,
                             sizeof(text));
        if (plait_master_read_port(text))
            launch->master_port = plait_master_read_port(text);
    }
    return remote->seats.first_rank == 0 ? hold_port(remote, spank, err) : 0;
}

static int get_text(void *arg, const char *name, char *buf, size_t size)
{
    return plait_remote_get_env(arg, name, buf, size);
}

static int set_text(void *arg, const char *name, const char *value)
{
    return spank_setenv(arg, name, value, 1) == ESPANK_SUCCESS ? 0 : -1;
}

static int read_binding(struct plait_remote *remote, spank_t spank,
                        const struct plait_discovery *discovery,
                        struct plait_error *err)
{
    struct plait_task_env env = {spank, get_text, set_text};

    remote->seats.node = plait_discovery_find(discovery, err);
    if (remote->seats.node) {
        if (plait_seats_bind_gpus(&remote->seats, &env, err) < 0)
            return -1;
        remote->note = remote->seats.note;
        /* Of a bad node a preflight tells, too, where a link is missing. */
        if (*remote->preflight && !remote->note.text[0])
            plait_node_find_odd(remote->seats.node, remote->note.text,
                                sizeof(remote->note.text));
        return 0;
    }
    if (!discovery->plugstack->unpinned)
        return -1;
    plait_errorf(&remote->note,
                 "%.400s; the tasks start unpinned (on-hang=unpinned)",
                 err->text);
    return 0;
}

/* srun has checked the site's limits; a forged plan, or an srun without the
 * plugin, has not. Slurm is asked of the job only where that decides. */
static int check_site(struct plait_remote *remote, spank_t spank,
                      const struct plait_plugstack *plugstack,
                      struct plait_error *err)
{
    enum plait_within within =
        remote->seats.nvlink ? PLAIT_WITHIN_NVLINK : PLAIT_WITHIN_NODE;
    const struct plait_layout *layout = &remote->seats.launch.layout;
    struct plait_site *site;
    char name[PLAIT_POLICY_NODE], *names[] = {name};
    slurm_step_id_t id = {.job_id = get_number(spank, S_JOB_ID),
                          .step_id = get_number(spank, S_JOB_STEPID),
                          .step_het_comp = NO_VAL};
    const struct plait_job_nodes node = {id.job_id, names, 1};
    int rc = 0;

    if (plait_plugstack_site(plugstack, &site, err) < 0)
        return -1;
    if (site && site->preflight.hook)
        snprintf(remote->hook, sizeof(remote->hook), "%s",
                 site->preflight.hook);
    if (site && !remote->options.measure_only &&
        plait_policy_matters(site, layout, within)) {
        rc = plait_policy_node_name(&id, get_number(spank, S_JOB_NODEID), name,
                                    err);
        if (rc == 0)
            rc = plait_policy_check_job(site, &node, layout, &within, err);
    }
    if (rc == 0 && within == PLAIT_WITHIN_NVLINK)
        remote->seats.nvlink = 1;
    plait_site_destroy(site);
    return rc;
}

/* `what`: "unlock" or "lock". After 22.05 slurmstepd holds a lock of Slurm's
 * authentication while slurm_spank_user_init() runs, and a message to slurmctld
 * would end it ("Resource deadlock avoided"). Slurm itself lets go of the lock
 * around slurm_spank_task_init() for the plugins that send one there. */
static void set_auth(const char *what)
{
    char name[32];
    void *symbol;
    void (*call)(void);

    snprintf(name, sizeof(name), "auth_setuid_%s", what);
    symbol = dlsym(RTLD_DEFAULT, name);
    if (!symbol)
        return;
    memcpy(&call, &symbol, sizeof(call));
    call();
}

static int check_site_unlocked(struct plait_remote *remote, spank_t spank,
                               const struct plait_plugstack *plugstack,
                               struct plait_error *err)
{
    int rc;

    set_auth("unlock");
    rc = check_site(remote, spank, plugstack, err);
    set_auth("lock");
    return rc;
}

bool plait_remote_plan_is(spank_t spank, const char *what)
{
    char text[16];

    return plait_remote_get_env(spank, PLAIT_ENV_PLAN, text, sizeof(text)) ==
               0 &&
           strcmp(text, what) == 0;
}

bool plait_remote_is_preflight(spank_t spank)
{
    char text[16];

    return plait_remote_get_env(spank, PLAIT_ENV_PREFLIGHT_STEP, text,
                                sizeof(text)) == 0 ||
           errno != ENOENT;
}

void plait_remote_call(const struct plait_remote *remote, spank_t spank,
                       struct plait_agreement_call *call,
                       const struct plait_error *err)
{
    int port =
        remote && remote->port_fd >= 0 ? remote->seats.launch.master_port : 0;
    const char *note =
        remote && remote->note.text[0] ? remote->note.text : NULL;

    plait_agreement_call(call, spank, remote ? NULL : err->text, note, port);
    if (call->verdict == PLAIT_ALONE && note)
        slurm_error("plait: %s", note);
    /* Tasks have no use for these. */
    spank_unsetenv(spank, PLAIT_ENV_REPORT);
    spank_unsetenv(spank, PLAIT_ENV_AGREE);
    spank_unsetenv(spank, PLAIT_ENV_PREFLIGHT);
}

enum plait_agreement_answer plait_remote_hear(struct plait_remote *remote,
                                              spank_t spank,
                                              struct plait_agreement_call *call,
                                              struct plait_error *err)
{
    int local = 0, port = 0;
    struct plait_error why;
    enum plait_agreement_answer verdict;

    spank_get_item(spank, S_TASK_ID, &local);
    verdict = plait_agreement_hear(
        call, local, (int)get_number(spank, S_JOB_LOCAL_TASK_COUNT), &port,
        &why);
    if (verdict == PLAIT_CUT && remote)
        plait_errorf(err,
                     "cannot ask srun whether all nodes can start their "
                     "tasks: %s",
                     why.text);
    if (verdict == PLAIT_GO && remote && port)
        remote->seats.launch.master_port = port;
    return verdict;
}

struct plait_remote *
plait_remote_create(spank_t spank, const struct plait_options *options,
                    const struct plait_discovery *discovery,
                    struct plait_error *err)
{
    struct plait_remote *remote = calloc(1, sizeof(*remote));
    char het[16];

    if (!remote) {
        plait_errorf(err, "out of memory");
        return NULL;
    }
    remote->options = *options;
    remote->seats.rendezvous = options->rendezvous;
    remote->port_fd = -1;
    remote->seats.variable = PLAIT_ENV_VISIBLE;
    if (read_variables(remote, spank, err) < 0)
        goto error;
    if (plait_remote_get_env(spank, "SLURM_HET_SIZE", het, sizeof(het)) == 0 &&
        atoi(het) > 1) {
        plait_errorf(err, "heterogeneous jobs cannot be planned; leave out "
                          "the layout flags");
        goto error;
    }
    if (read_plan(remote, spank, err) < 0 ||
        check_site_unlocked(remote, spank, discovery->plugstack, err) < 0 ||
        read_master(remote, spank, err) < 0)
        goto error;
    if (options->pin && read_binding(remote, spank, discovery, err) < 0)
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
    plait_node_destroy(remote->seats.node);
    /* With SlurmdParameters=contain_spank user_init runs in a process that
     * shares this one's memory, but not its files. */
    if (remote->port_fd >= 0 && remote->port_pid == getpid())
        close(remote->port_fd);
    free(remote);
    errno = saved;
}

int plait_remote_task(struct plait_remote *remote, spank_t spank,
                      struct plait_error *err)
{
    struct plait_task_env env = {spank, get_text, set_text};
    int local = 0;

    if (spank_get_item(spank, S_TASK_ID, &local) != ESPANK_SUCCESS)
        return plait_errorf(err, "Slurm gives no local task id");
    return plait_seats_take(&remote->seats, local, &env, err);
}

static void say_error(void *arg, const char *text)
{
    (void)arg;
    slurm_error("plait: %s", text);
}

enum { PROBE_MOST = 4096 };

/* The job's plait-probe, and its environment for it, where the plan has GPUs of
 * NVIDIA's. */
static void set_probe(const struct plait_remote *remote, spank_t spank,
                      struct plait_preflight *preflight, char probe[PROBE_MOST])
{
    char path[4096] = "", **env = NULL;

    *probe = '\0';
    if (!remote->seats.variable ||
        strcmp(remote->seats.variable, PLAIT_ENV_VISIBLE) != 0 ||
        spank_get_item(spank, S_JOB_ENV, &env) != ESPANK_SUCCESS || !env)
        return;
    plait_remote_get_env(spank, "PATH", path, sizeof(path));
    plait_preflight_find_probe(path, PLAIT_BINDIR, probe, PROBE_MOST);
    preflight->probe = probe;
    preflight->env = env;
}

int plait_remote_preflight(const struct plait_remote *remote, spank_t spank)
{
    char probe[PROBE_MOST];
    struct plait_launch launch = remote->seats.launch;
    char node[64] = "";
    struct plait_preflight preflight = {.launch = &launch,
                                        .node = node,
                                        .token = remote->preflight,
                                        .say = say_error,
                                        .bound = remote->bound,
                                        .report = remote->report,
                                        .hook = remote->hook};
    int local = 0, status;

    if (!*remote->preflight || !remote->options.rendezvous)
        return remote->options.measure_only ? 0 : -1;
    plait_remote_get_env(spank, "SLURMD_NODENAME", node, sizeof(node));
    if (!*node)
        gethostname(node, sizeof(node) - 1);
    plait_remote_get_env(spank, PLAIT_ENV_GPU_BUSID, launch.gpu_busid,
                         sizeof(launch.gpu_busid));
    plait_remote_get_env(spank, PLAIT_ENV_NICS, launch.nics,
                         sizeof(launch.nics));
    spank_get_item(spank, S_TASK_ID, &local);
    launch.local_rank = local;
    launch.rank = remote->seats.first_rank + local;
    plait_layout_coord(&launch.layout, launch.rank, &launch.coord);
    set_probe(remote, spank, &preflight, probe);
    status = plait_preflight_run(&preflight);
    return status < 0 && remote->options.measure_only ? 0 : status;
}
