/* SPDX-License-Identifier: Apache-2.0 */
/* What a task of plait run does before its command starts: it finds the port
 * and its node, and takes its seat. */
#include "config.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "topology/base/secret.h"
#include "topology/cli/commands.h"
#include "topology/cli/run.h"
#include "topology/node/cache.h"
#include "topology/start/port.h"
#include "topology/start/preflight.h"

enum { DISCOVERY_SECONDS = 60 };

/* ---- the environment of this process ---- */

/* Where no launcher chose GPUs, the task has all of the machine's, or those
 * that the user made visible. */
static int get_variable(void *arg, const char *name, char *buf, size_t size)
{
    const struct run *run = arg;
    const char *value = getenv(name);

    buf[0] = '\0';
    /* In a batch script SLURM_JOB_GPUS says which of them are visible. */
    if (!value && !run->place.slurm &&
        ((strcmp(name, "SLURM_STEP_GPUS") == 0 && !getenv("SLURM_JOB_GPUS")) ||
         strcmp(name, run->seats.variable) == 0))
        value = run->gpus;
    if (!value || strlen(value) >= size) {
        errno = value ? ERANGE : ENOENT;
        return -1;
    }
    memcpy(buf, value, strlen(value) + 1);
    return 0;
}

static int set_variable(void *arg, const char *name, const char *value)
{
    (void)arg;
    return setenv(name, value, 1);
}

/* ---- spare tasks ---- */

/* The number of a spare task with --elastic; 0: it is none. In Slurm either all
 * tasks of a node are spare or none is; elsewhere those behind the others
 * are. */
static int spare_number(const struct run *run, int local)
{
    const struct run_place *place = &run->place;
    int first = local - run->seats.launch.local_world_size + 1;

    if (!run->elastic)
        return 0;
    if (!place->slurm)
        return first > 0 ? first : 0;
    return place->id < run->seated
               ? 0
               : (place->id - run->seated) * place->here + local + 1;
}

/* ---- what the tasks of this node share ---- */

/* MASTER_PORT is the user's own; or one that RANK 0's node has found free,
 * which comes with the plan, and which it holds until the command starts; or
 * one that all tasks compute alike, where they cannot tell each other any. RANK
 * 0 checks that it is free. */
static int find_port(struct run *run, struct plait_error *err)
{
    int *port = &run->seats.launch.master_port, fd;
    int own = plait_master_read_port(getenv(PLAIT_ENV_MASTER_PORT));

    if (own)
        *port = own;
    else if (run->port)
        *port = run->port;
    else
        *port = plait_master_port_start(run->place.job, run->place.step);
    if (run->seats.first_rank != 0 || run->place.local != 0 ||
        spare_number(run, 0) > 0 || *port == run->own_port)
        return 0;
    fd = run->place.alone && !own ? plait_master_port_take(port)
                                  : plait_master_port_hold(*port);
    run->only_here = fd < 0 && errno == EADDRINUSE;
    if (run->only_here)
        return plait_errorf(err,
                            "port %d of %s is in use; set MASTER_PORT to "
                            "a free one",
                            *port, run->seats.launch.master_addr);
    if (fd >= 0 && !run->place.alone)
        close(fd);
    return 0; /* place.alone: the port is held until the tasks have ended */
}

static int find_node(struct run *run, struct plait_error *err)
{
    struct plait_task_env env = {run, get_variable, set_variable};
    struct plait_node *node = run->seats.node;

    if (!node)
        node = plait_node_load_cache(PLAIT_CACHEDIR, NULL);
    if (!node)
        node = plait_node_discover(DISCOVERY_SECONDS, err);
    run->seats.node = node;
    if (!node)
        return -1;
    run->seats.variable = plait_seats_variable(plait_seats_vendor(node));
    plait_seats_list_gpus(node, &env, run->gpus, sizeof(run->gpus));
    if (plait_seats_bind_gpus(&run->seats, &env, err) < 0)
        return -1;
    if (run->options.preflight && !run->seats.note.text[0])
        plait_node_find_odd(node, run->seats.note.text,
                            sizeof(run->seats.note.text));
    if (run->seats.note.text[0] && run->place.local == 0)
        plait_cmd_failed("%s", run->seats.note.text);
    return 0;
}

static int fill_seats(struct run *run, struct plait_error *err)
{
    struct plait_launch *launch = &run->seats.launch;
    const struct plait_plan_part *part = &run->part;

    run->seats.variable = PLAIT_ENV_VISIBLE;
    run->seats.rendezvous = run->options.rendezvous;
    run->seats.first_rank = part->first_rank;
    run->seats.nccl = run->site && run->site->export.nccl_ib_hca;
    run->seats.ucx = run->site && run->site->export.ucx_net_devices;
    run->seats.cxi = run->site && run->site->export.fi_cxi_device_name;
    launch->layout = part->layout;
    launch->world_size = plait_layout_world(&part->layout);
    launch->local_world_size = part->tasks;
    launch->nnodes = part->nnodes;
    launch->node_rank = part->node_rank;
    launch->domain = part->domain;
    snprintf(launch->jobid, sizeof(launch->jobid), "%s", run->place.jobid);
    /* Where a launcher starts the tasks, see run_brief() and run_secret(). */
    if (run->place.alone &&
        plait_secret_create(launch->secret, sizeof(launch->secret)) < 0)
        return plait_errorf(err, "no random numbers: %s", strerror(errno));
    if (run->place.alone && run->options.preflight &&
        plait_secret_create(run->token, sizeof(run->token)) < 0)
        return plait_errorf(err, "no random numbers: %s", strerror(errno));
    if (run->options.rendezvous) {
        snprintf(launch->master_addr, sizeof(launch->master_addr), "%s",
                 run->master);
        if (find_port(run, err) < 0)
            return -1;
    }
    return run->options.pin ? find_node(run, err) : 0;
}

int run_prepare(struct run *run, struct plait_error *err)
{
    const char *site = plait_site_path();
    int rc;

    if (site && !(run->site = plait_site_create(site, err)))
        return -1;
    run->spares = run->place.slurm && !run->elastic ? run->options.spares : 0;
    if (run->place.slurm && run->elastic)
        run->seated = run->place.nnodes > run->options.spares
                          ? run->place.nnodes - run->options.spares
                          : 1; /* refused where the plan is made */
    if (run->place.slurm)
        rc = run_brief(run, err);
    else if ((rc = run_plan(run, err)) == 0)
        rc = run_plan_adopt(run, err);
    if (rc < 0 || fill_seats(run, err) < 0)
        return -1;
    if (!run->spares)
        return 0;
    rc = run_spares(run, err);
    return rc < 0 || run->over ? rc : fill_seats(run, err);
}

void run_release(struct run *run)
{
    plait_site_destroy(run->site);
    plait_plan_destroy(run->plan);
    plait_node_destroy(run->seats.node);
    run_place_clear(&run->place);
    free(run->code);
    free(run->ports);
}

static void say_failed(void *arg, const char *text)
{
    (void)arg;
    plait_cmd_failed("%s", text);
}

static const char *own_name(const struct run_place *place)
{
    int i = 0;

    if (place->slurm)
        return place->host;
    while (place->ids[i] != place->id)
        i++;
    return place->names[i];
}

/* The plait-probe of PATH, else the one beside this program, where the plan has
 * GPUs of NVIDIA's; "": none. */
static void find_probe(const struct run *run, char probe[PATH_MAX])
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

    self[n > 0 ? n : 0] = '\0';
    if (strrchr(self, '/'))
        *strrchr(self, '/') = '\0';
    *probe = '\0';
    if (run->seats.variable &&
        strcmp(run->seats.variable, PLAIT_ENV_VISIBLE) == 0)
        plait_preflight_find_probe(getenv("PATH"), self, probe, PATH_MAX);
}

int run_preflight(struct run *run, int local, const struct plait_preflight *how)
{
    struct plait_launch launch = run->seats.launch;
    struct plait_preflight preflight = *how;
    char probe[PATH_MAX];

    launch.local_rank = local;
    launch.rank = run->seats.first_rank + local;
    plait_layout_coord(&launch.layout, launch.rank, &launch.coord);
    get_variable(run, PLAIT_ENV_GPU_BUSID, launch.gpu_busid,
                 sizeof(launch.gpu_busid));
    get_variable(run, PLAIT_ENV_NICS, launch.nics, sizeof(launch.nics));
    preflight.launch = &launch;
    preflight.node = own_name(&run->place);
    preflight.token = run->token;
    preflight.say = say_failed;
    preflight.bound = plait_preflight_bound(run->site);
    preflight.report = run->options.report;
    preflight.hook = run->site ? run->site->preflight.hook : NULL;
    find_probe(run, probe);
    preflight.probe = probe;
    return plait_preflight_run(&preflight);
}

/* Set the variables by which spare processes know their number, and the others
 * how many there are. */
static int mark_spare(const struct run *run, int local)
{
    int spare = spare_number(run, local), each = 1;
    char text[16];

    if (run->place.slurm) /* options.spares are nodes */
        each = run->place.here;
    snprintf(text, sizeof(text), "%d", run->options.spares * each);
    if (run->options.spares ? setenv(PLAIT_ENV_SPARES, text, 1) < 0
                            : unsetenv(PLAIT_ENV_SPARES) < 0)
        return -1;
    snprintf(text, sizeof(text), "%d", spare);
    return spare > 0 ? setenv(PLAIT_ENV_SPARE, text, 1)
                     : unsetenv(PLAIT_ENV_SPARE);
}

/* Outside of Slurm a spare process takes the GPU that follows those of its
 * node's other processes. In Slurm the spare process has a node, and all of its
 * GPUs, to itself. */
static int name_gpu(const struct run *run, int local, int spare)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", local);
    return spare > 0 && !run->place.slurm ? setenv("LOCAL_RANK", text, 1) : 0;
}

int run_sit(struct run *run, int local, struct plait_error *err)
{
    struct plait_task_env env = {run, get_variable, set_variable};

    if (setenv(PLAIT_ENV_PLAN, run->code, 1) < 0)
        return plait_errorf(err, "out of memory");
    return plait_seats_take(&run->seats, local, &env, err);
}

int run_task(struct run *run, int local, struct plait_error *err)
{
    const struct plait_preflight plain = {0};
    int tasks = run->seats.launch.local_world_size;
    int spare = spare_number(run, local), status;

    if (run->elastic &&
        (setenv("PLAIT_ELASTIC", "1", 1) < 0 || mark_spare(run, local) < 0))
        return plait_errorf(err, "out of memory");
    /* A spare task is bound like one of those whose place it may take. */
    if (run_sit(run, local % tasks, err) < 0)
        return -1;
    if (name_gpu(run, local, spare) < 0)
        return plait_errorf(err, "out of memory");
    status = run->options.preflight && !spare
                 ? run_preflight(run, local, &plain)
                 : -1;
    if (status >= 0)
        _exit(status);
    execvp(run->command[0], run->command);
    return plait_errorf(err, "cannot run %s: %s", run->command[0],
                        strerror(errno));
}
